// Scans of the states of a few channels, as the functions of an instruction set take them.
#pragma once

#include <cstdint>

namespace weft::cpu {

inline constexpr std::int64_t kStateSteps = 32;     // the most steps of a run
inline constexpr std::int64_t kStateChannels = 16;  // the most channels

/// Some channels of one sequence for some steps. Channels are neighbours in x and y, and `state` holds N numbers for each.
template <class T>
struct StateScanRun {
  std::int64_t steps = 0, channels = 0, states = 0;
  std::int64_t x_step = 0, dt_step = 0, b_step = 0;  // elements from step to step; y is like x, and c like b
  std::int64_t dt_channel = 0, a_channel = 0;        // ... from channel to channel
  bool shares_rate = false;                          // a channel has one rate, not one for each state
  const T *x = nullptr, *dt = nullptr, *a = nullptr, *b = nullptr, *c = nullptr;
  T* state = nullptr;  // before the first step; after the last one when the run is over
  T* y = nullptr;
};

/// The same from the last step to the first. `state` holds the states before the first step and stays.
template <class T>
struct StateScanBackRun : StateScanRun<T> {
  const T* d_y = nullptr;
  T* carry = nullptr;  // [channels, N]: the gradient of the states after the last step, then of those before the first
  T* d_x = nullptr;
  T *d_dt = nullptr, *d_a = nullptr, *d_b = nullptr, *d_c = nullptr;  // added to; d_b and d_c are [steps, N]
  // Scratch for four channels: N numbers of each for every step; states also after the last step.
  T *states_of_steps = nullptr, *kept_of_steps = nullptr;
};

/// Some columns of one head's states by the gated delta rule. Columns are neighbours in v, y and the rows of `state`.
template <class T>
struct DeltaScanRun {
  std::int64_t steps = 0, keys = 0, columns = 0;
  std::int64_t key_step = 0, value_step = 0,
               head_step = 0;  // elements from step to step, of q and k, v and y, decay and beta
  std::int64_t state_row = 0;  // elements from key to key
  const T *q = nullptr, *k = nullptr, *v = nullptr, *decay = nullptr, *beta = nullptr;
  T* state = nullptr;  // [keys, columns], as StateScanRun's
  T* y = nullptr;
  T* scratch = nullptr;  // of delta_scratch() elements, for chunks of steps
};
inline constexpr std::int64_t kDeltaChunk = 16, kDeltaPanel = 32;  // steps of a chunk; columns of a part of a state
constexpr std::int64_t delta_panels(std::int64_t columns) { return (columns + kDeltaPanel - 1) / kDeltaPanel; }
constexpr std::int64_t delta_scratch(std::int64_t keys, std::int64_t columns) {
  return delta_panels(columns) * keys * kDeltaPanel + kDeltaChunk * (keys + 2 * kDeltaChunk + kDeltaPanel + 3);
}

template <class T>
struct StateScanParts {
  void (*forward)(const StateScanRun<T>& run) = nullptr;
  void (*backward)(const StateScanBackRun<T>& run) = nullptr;
  /// y_t = bias + sum_k weights[k] rows[t + k], for rows of `width` channels; weights are [kernel, width].
  void (*convolve)(const T* const* rows, std::int64_t steps, std::int64_t kernel, std::int64_t width, const T* weights,
                   const T* bias, T* y, std::int64_t y_step) = nullptr;
  void (*delta)(const DeltaScanRun<T>& run) = nullptr;
  /// The same of any number of steps, by chunks of them; sums are added up in another order.
  void (*delta_chunks)(const DeltaScanRun<T>& run) = nullptr;
};

}  // namespace weft::cpu
