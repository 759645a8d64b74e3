// Scans of states for one instruction set; see StateScanParts in state_scan_run.hpp. Time is sequential, and vectors go over the
// states of a channel. Some channels share the loads of b and c. The sums of a channel do not depend on the others.
#pragma once

#include "backend/cpu/attention_parts.inc.hpp"
#include "backend/cpu/delta_chunk.inc.hpp"
#include "backend/cpu/state_scan_run.hpp"

namespace weft::cpu {
namespace {

constexpr int kStateTile = 4;  // channels that share loads

/// The numbers of some channels of a run that do not depend on the state: dt, dt x, and the share of a state that a step keeps
/// where all states of a channel share it.
template <class T, int kTile>
struct StateSteps {
  T dt[kTile][kStateSteps], moved[kTile][kStateSteps], kept[kTile][kStateSteps];

  StateSteps(const StateScanRun<T>& r, std::int64_t first) {
    for (int j = 0; j < kTile; ++j) {
      const std::int64_t channel = first + j;
      for (std::int64_t t = 0; t < r.steps; ++t) {
        dt[j][t] = r.dt[t * r.dt_step + channel * r.dt_channel];
        moved[j][t] = dt[j][t] * r.x[t * r.x_step + channel];
      }
      if (!r.shares_rate) continue;
      const auto rate = splat(r.a[channel * r.a_channel]);
      each_vector<T>(r.steps, [&](std::int64_t t, std::int64_t lanes) {
        store_some<T>(kept[j] + t, exp(load_some<T>(dt[j] + t, lanes) * rate), lanes);
      });
    }
  }
};

template <class T, int kTile, bool shares>
inline Native<T> state_kept(const StateScanRun<T>& r, const StateSteps<T, kTile>& steps, std::int64_t channel, int j,
                            std::int64_t t, std::int64_t n, std::int64_t lanes) {
  if constexpr (shares) return splat(steps.kept[j][t]);
  return exp(splat(steps.dt[j][t]) * load_some<T>(r.a + channel * r.a_channel + n, lanes));
}

template <class T, int kTile, bool shares>
void scan_tile(const StateScanRun<T>& r, std::int64_t first) {
  const StateSteps<T, kTile> steps(r, first);
  T* const states = r.state + first * r.states;
  for (std::int64_t t = 0; t < r.steps; ++t) {
    Native<T> sums[kTile] = {};
    each_vector<T>(r.states, [&](std::int64_t n, std::int64_t lanes) {
      const Native<T> b = load_some<T>(r.b + t * r.b_step + n, lanes), c = load_some<T>(r.c + t * r.b_step + n, lanes);
      for (int j = 0; j < kTile; ++j) {
        T* const at = states + j * r.states + n;
        const Native<T> kept = state_kept<T, kTile, shares>(r, steps, first + j, j, t, n, lanes);
        const Native<T> s = fma(load_some<T>(at, lanes), kept, splat(steps.moved[j][t]) * b);
        store_some<T>(at, s, lanes);
        sums[j] = fma(s, c, sums[j]);
      }
    });
    for (int j = 0; j < kTile; ++j) r.y[t * r.x_step + first + j] = static_cast<T>(across<Reduction::sum, T>(sums[j]));
  }
}

/// The states before every step and after the last, in r.states_of_steps; without shared rates also what each step keeps.
template <class T, int kTile, bool shares>
void recompute_states(const StateScanBackRun<T>& r, const StateSteps<T, kTile>& steps, std::int64_t first) {
  const std::int64_t row = kTile * r.states;
  for (std::int64_t i = 0; i < row; ++i) r.states_of_steps[i] = r.state[first * r.states + i];
  for (std::int64_t t = 0; t < r.steps; ++t)
    each_vector<T>(r.states, [&](std::int64_t n, std::int64_t lanes) {
      const Native<T> b = load_some<T>(r.b + t * r.b_step + n, lanes);
      for (int j = 0; j < kTile; ++j) {
        const std::int64_t at = t * row + j * r.states + n;
        const Native<T> kept = state_kept<T, kTile, shares>(r, steps, first + j, j, t, n, lanes);
        if constexpr (!shares) store_some<T>(r.kept_of_steps + at, kept, lanes);
        const Native<T> before = load_some<T>(r.states_of_steps + at, lanes);
        store_some<T>(r.states_of_steps + at + row, fma(before, kept, splat(steps.moved[j][t]) * b), lanes);
      }
    });
}

template <class T, int kTile, bool shares>
void scan_tile_back(const StateScanBackRun<T>& r, std::int64_t first) {
  const StateSteps<T, kTile> steps(r, first);
  recompute_states<T, kTile, shares>(r, steps, first);
  const std::int64_t row = kTile * r.states;
  T* const carry = r.carry + first * r.states;
  for (std::int64_t t = r.steps; t-- > 0;) {
    Native<T> of_moved[kTile] = {}, of_rate[kTile] = {};
    Native<T> d_y[kTile];
    for (int j = 0; j < kTile; ++j) d_y[j] = splat(r.d_y[t * r.x_step + first + j]);
    each_vector<T>(r.states, [&](std::int64_t n, std::int64_t lanes) {
      const Native<T> b = load_some<T>(r.b + t * r.b_step + n, lanes), c = load_some<T>(r.c + t * r.b_step + n, lanes);
      T *const at_b = r.d_b + t * r.states + n, *const at_c = r.d_c + t * r.states + n;
      Native<T> d_b = load_some<T>(at_b, lanes), d_c = load_some<T>(at_c, lanes);
      for (int j = 0; j < kTile; ++j) {
        const std::int64_t at = t * row + j * r.states + n;
        const Native<T> before = load_some<T>(r.states_of_steps + at, lanes);
        const Native<T> g = fma(d_y[j], c, load_some<T>(carry + j * r.states + n, lanes));
        d_c = fma(d_y[j], load_some<T>(r.states_of_steps + at + row, lanes), d_c);
        d_b = fma(splat(steps.moved[j][t]), g, d_b);
        of_moved[j] = fma(g, b, of_moved[j]);
        Native<T> kept;
        if constexpr (shares)
          kept = splat(steps.kept[j][t]);
        else
          kept = load_some<T>(r.kept_of_steps + at, lanes);
        const Native<T> earlier = g * kept, d_rate = earlier * before;
        store_some<T>(carry + j * r.states + n, earlier, lanes);
        if constexpr (shares) {
          of_rate[j] += d_rate;
        } else {
          const std::int64_t rate = (first + j) * r.a_channel + n;
          of_rate[j] = fma(d_rate, load_some<T>(r.a + rate, lanes), of_rate[j]);
          store_some<T>(r.d_a + rate, fma(d_rate, splat(steps.dt[j][t]), load_some<T>(r.d_a + rate, lanes)), lanes);
        }
      }
      store_some<T>(at_b, d_b, lanes);
      store_some<T>(at_c, d_c, lanes);
    });
    for (int j = 0; j < kTile; ++j) {
      const std::int64_t channel = first + j;
      const T moved = static_cast<T>(across<Reduction::sum, T>(of_moved[j]));
      const T rate = static_cast<T>(across<Reduction::sum, T>(of_rate[j]));
      r.d_x[t * r.x_step + channel] = moved * steps.dt[j][t];
      T& d_dt = r.d_dt[t * r.dt_step + channel * r.dt_channel];
      d_dt += moved * r.x[t * r.x_step + channel];
      if constexpr (shares) {
        d_dt += rate * r.a[channel * r.a_channel];
        r.d_a[channel * r.a_channel] += rate * steps.dt[j][t];
      } else {
        d_dt += rate;
      }
    }
  }
}

template <class T>
void scan_states(const StateScanRun<T>& r) {
  std::int64_t first = 0;
  const auto tiles = [&]<bool shares>() {
    for (; first + kStateTile <= r.channels; first += kStateTile) scan_tile<T, kStateTile, shares>(r, first);
    for (; first < r.channels; ++first) scan_tile<T, 1, shares>(r, first);
  };
  r.shares_rate ? tiles.template operator()<true>() : tiles.template operator()<false>();
}
template <class T>
void scan_states_back(const StateScanBackRun<T>& r) {
  std::int64_t first = 0;
  const auto tiles = [&]<bool shares>() {
    for (; first + kStateTile <= r.channels; first += kStateTile) scan_tile_back<T, kStateTile, shares>(r, first);
    for (; first < r.channels; ++first) scan_tile_back<T, 1, shares>(r, first);
  };
  r.shares_rate ? tiles.template operator()<true>() : tiles.template operator()<false>();
}

/// y_t = sum_k w_k x_{t+k} + bias over rows of `width` channels; the first kernel - 1 rows are those before x.
template <class T>
void convolve_steps(const T* const* rows, std::int64_t steps, std::int64_t kernel, std::int64_t width, const T* weights,
                    const T* bias, T* y, std::int64_t y_step) {
  each_vector<T>(width, [&](std::int64_t j, std::int64_t lanes) {
    const Native<T> start = load_some<T>(bias + j, lanes);
    for (std::int64_t t = 0; t < steps; ++t) {
      Native<T> sum = start;
      for (std::int64_t k = 0; k < kernel; ++k)
        sum = fma(load_some<T>(rows[t + k] + j, lanes), load_some<T>(weights + k * width + j, lanes), sum);
      store_some<T>(y + t * y_step + j, sum, lanes);
    }
  });
}

/// Some vectors of columns by the gated delta rule; `kept` is the share that each step keeps. Sums go over the keys, so no column
/// depends on another.
template <class T, int kTile>
void delta_columns(const DeltaScanRun<T>& r, const T* kept, std::int64_t first, std::int64_t columns) {
  constexpr std::int64_t N = kNative<T>;
  const std::int64_t lanes = kTile > 1 || columns >= N ? N : columns;
  T* const state = r.state + first;
  for (std::int64_t t = 0; t < r.steps; ++t) {
    const T *const k = r.k + t * r.key_step, *const q = r.q + t * r.key_step, *const v = r.v + t * r.value_step + first;
    const Native<T> keeps = splat(kept[t]), beta = splat(r.beta[t * r.head_step]);
    Native<T> known[kTile] = {}, y[kTile] = {}, added[kTile];
    for (std::int64_t n = 0; n < r.keys; ++n)
      for (int j = 0; j < kTile; ++j)
        known[j] = fma(load_some<T>(state + n * r.state_row + j * N, lanes), splat(k[n]), known[j]);
    for (int j = 0; j < kTile; ++j) added[j] = beta * (load_some<T>(v + j * N, lanes) - keeps * known[j]);
    for (std::int64_t n = 0; n < r.keys; ++n)
      for (int j = 0; j < kTile; ++j) {
        T* const at = state + n * r.state_row + j * N;
        const Native<T> s = fma(load_some<T>(at, lanes), keeps, splat(k[n]) * added[j]);
        store_some<T>(at, s, lanes);
        y[j] = fma(s, splat(q[n]), y[j]);
      }
    for (int j = 0; j < kTile; ++j) store_some<T>(r.y + t * r.value_step + first + j * N, y[j], lanes);
  }
}

template <class T>
void scan_delta(const DeltaScanRun<T>& r) {
  constexpr std::int64_t N = kNative<T>;
  T kept[kStateSteps];
  for (std::int64_t t = 0; t < r.steps; ++t) kept[t] = r.decay[t * r.head_step];
  each_vector<T>(r.steps, [&](std::int64_t t, std::int64_t lanes) {
    store_some<T>(kept + t, exp(load_some<T>(kept + t, lanes)), lanes);
  });
  std::int64_t first = 0;
  for (; first + 4 * N <= r.columns; first += 4 * N) delta_columns<T, 4>(r, kept, first, 4 * N);
  for (; first < r.columns; first += N) delta_columns<T, 1>(r, kept, first, r.columns - first);
}

template <class T>
StateScanParts<T> state_scan_parts_of() {
  return {scan_states<T>, scan_states_back<T>, convolve_steps<T>, scan_delta<T>, scan_delta_chunks<T>};
}

}  // namespace
}  // namespace weft::cpu
