#include "backend/cpu/conv_adjoint.hpp"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "backend/cpu/channels_last.hpp"
#include "backend/cpu/gemm.hpp"
#include "backend/cpu/gemm_kernels.hpp"
#include "backend/cpu/scratch_block.hpp"
#include "backend/cpu/window_parts.hpp"
#include "base/threads.hpp"
#include "compile/call_attributes.hpp"
#include "graph/convolution.hpp"

namespace weft::cpu {
namespace {

using std::int32_t;
using std::int64_t;

constexpr int64_t kTaskBytes = 512 * 1024;  // of the bands of a task, which share the weights of a strip
constexpr int64_t kChannelsPacked = 64;     // by a task

struct Range {
  int64_t begin, end;
};

/// The elements stride * q + r of an axis of y. Their sums are over the taps first + stride * j of the weights, each with the
/// element q + shift - j of x.
struct Phase {
  int64_t count;
  int64_t first, taps, shift;
};

struct Axis {
  int64_t x, y, taps, stride, before;
  std::vector<Phase> phases = {};
  int64_t lowest = std::numeric_limits<int64_t>::max(), highest = std::numeric_limits<int64_t>::min();  // of shift - j

  void find_phases() {
    for (int64_t r = 0; r < stride; ++r) {
      Phase phase{r < y ? ceil_divide(y - r, stride) : 0, (r + before) % stride, 0, (r + before) / stride};
      if (phase.first < taps) {
        phase.taps = ceil_divide(taps - phase.first, stride);
        lowest = std::min(lowest, phase.shift - phase.taps + 1);
        highest = std::max(highest, phase.shift);
      }
      phases.push_back(phase);
    }
  }
  /// The largest number of elements of a phase.
  int64_t positions() const { return phases[0].count; }
  /// Elements of x, and of its padding, that `positions` neighbours of all phases meet.
  int64_t reach(int64_t positions) const { return positions + highest - lowest; }
};

struct Scratch {
  ScratchBlock weights, shared, copies, line;
};
thread_local Scratch scratch;

/// A task copies bands of rows of x, with zeros around them and the channels of a place side by side. A kernel computes
/// neighbouring elements of a phase for a strip of results; all phases of a row of y are computed before it is stored.
class ConvAdjoint {
 public:
  ConvAdjoint(const Shape& x, const Shape& weight, const Shape& y, const graph::ConvAdjointAttributes& a)
      : images_(x[0]), groups_(a.groups), channels_(x[1] / a.groups), outs_(weight[1]) {
    const int axes = x.rank() - 2;
    for (int i = 0; i < axes; ++i) {
      const auto k = static_cast<std::size_t>(i);
      Axis& axis = axes == 1 || i == 1 ? across_ : down_;
      axis = {x[2 + i], y[2 + i], weight[2 + i], a.stride[k], a.before[k]};
    }
    down_.find_phases();
    across_.find_phases();
    pitch_ = ceil_divide(channels_, kernels_.lanes) * kernels_.lanes;
    row_pitch_ = across_.reach(across_.positions()) * pitch_;
    const auto bytes = [&](int64_t rows) { return down_.reach(rows) * row_pitch_ * int64_t{sizeof(float)}; };
    int64_t rows = down_.positions();
    while (rows > 1 && bytes(rows) > kWindowCopyBytes) --rows;
    bands_ = ceil_divide(down_.positions(), rows);
    copy_size_ = down_.reach(ceil_divide(down_.positions(), bands_)) * row_pitch_;
  }

  /// Whether places in tables, which are 32-bit numbers, reach everything.
  bool fits() const {
    constexpr double kMax = std::numeric_limits<int32_t>::max();
    return static_cast<double>(down_.reach(1)) * static_cast<double>(row_pitch_) < kMax &&
           static_cast<double>(taps()) * static_cast<double>(channels_ * width()) < kMax;
  }
  void run(const float* x, const float* weight, float* y);

 private:
  /// Neighbouring rows q of all phases, of one image and group.
  struct Band {
    int64_t image, group;
    Range rows;
  };
  int64_t width() const { return kGemmVectors * kernels_.lanes; }
  int64_t strips() const { return ceil_divide(outs_, width()); }
  int64_t taps() const { return down_.taps * across_.taps; }
  int64_t strip_size() const { return taps() * channels_ * width(); }
  Band band(int64_t i) const {
    const int64_t b = i % bands_, rows = down_.positions();
    return {i / bands_ / groups_, i / bands_ % groups_, {rows * b / bands_, rows * (b + 1) / bands_}};
  }
  std::vector<GemmRun> runs_of(const Phase& down, const Phase& across) const;
  void pack_weights(float* to) const;
  void copy(const Band& band, float* to) const;
  void compute(Range bands, Range strips) const;
  void compute_row(const Band& band, int64_t r, int64_t q, int64_t strip, const float* copy, float* line) const;

  const GemmKernels<float>& kernels_ = gemm_kernels_in_use<float>();
  int64_t images_, groups_, channels_, outs_;
  Axis down_{1, 1, 1, 1, 0}, across_{1, 1, 1, 1, 0};
  int64_t pitch_ = 0, row_pitch_ = 0, copy_size_ = 0, bands_ = 1;

  const float *x_ = nullptr, *weight_ = nullptr;
  float* y_ = nullptr;
  std::vector<std::vector<GemmRun>> runs_;  // of each pair of phases
  std::vector<int32_t> places_;             // of neighbours in a copy
  const float* packed_ = nullptr;           // weights as [group][strip][tap][channel][width]
  const float* copies_ = nullptr;           // of all bands, if several tasks read each
};

/// Runs over the channels of each tap, taps down outermost.
std::vector<GemmRun> ConvAdjoint::runs_of(const Phase& down, const Phase& across) const {
  std::vector<GemmRun> runs;
  for (int64_t i = 0; i < down.taps; ++i)
    for (int64_t j = 0; j < across.taps; ++j) {
      const int64_t tap = (down.first + down_.stride * i) * across_.taps + across.first + across_.stride * j;
      const int64_t place = (down.shift - i - down_.lowest) * row_pitch_ + (across.shift - j - across_.lowest) * pitch_;
      runs.push_back({static_cast<int32_t>(place), static_cast<int32_t>(tap * channels_ * width()),
                      static_cast<int32_t>(channels_)});
    }
  return runs;
}

void ConvAdjoint::pack_weights(float* to) const {
  const int64_t chunks = ceil_divide(channels_, kChannelsPacked);
  parallel_for(groups_ * strips() * chunks, [&](int64_t task) {
    const int64_t chunk = task % chunks, strip = task / chunks % strips(), group = task / chunks / strips();
    const int64_t first = strip * width(), count = std::min(width(), outs_ - first);
    float* const strip_to = to + (group * strips() + strip) * strip_size();
    const int64_t end = std::min(channels_, (chunk + 1) * kChannelsPacked);
    for (int64_t c = chunk * kChannelsPacked; c < end; ++c) {
      const float* from = weight_ + ((group * channels_ + c) * outs_ + first) * taps();
      if (taps() == 1)
        kernels_.pack(1, static_cast<int>(count), from, 0, strip_to + c * width(), static_cast<int>(width()));
      else
        kernels_.pack_transposed(taps(), static_cast<int>(count), from, taps(), strip_to + c * width(),
                                 static_cast<int>(channels_ * width()));
      if (count == width()) continue;
      for (int64_t tap = 0; tap < taps(); ++tap) {
        float* const row = strip_to + (tap * channels_ + c) * width();
        std::fill(row + count, row + width(), 0.0f);
      }
    }
  });
}

void ConvAdjoint::copy(const Band& band, float* to) const {
  const int64_t size = across_.reach(across_.positions());
  const int64_t begin = std::clamp<int64_t>(-across_.lowest, 0, size);
  const int64_t end = std::clamp<int64_t>(across_.x - across_.lowest, begin, size);
  const float* const image = x_ + (band.image * groups_ + band.group) * channels_ * down_.x * across_.x;
  const int64_t first = band.rows.begin + down_.lowest;
  for (int64_t row = first; row < first + down_.reach(band.rows.end - band.rows.begin); ++row, to += row_pitch_) {
    if (row < 0 || row >= down_.x)
      std::fill(to, to + row_pitch_, 0.0f);
    else
      copy_channels_last(kernels_, image + row * across_.x + begin + across_.lowest, 1, down_.x * across_.x, channels_,
                         {begin, end, size}, to, pitch_);
  }
}

void ConvAdjoint::run(const float* x, const float* weight, float* y) {
  x_ = x, weight_ = weight, y_ = y;
  for (const Phase& down : down_.phases)
    for (const Phase& across : across_.phases) runs_.push_back(runs_of(down, across));
  for (int64_t q = 0; q < across_.positions(); ++q) places_.push_back(static_cast<int32_t>(q * pitch_));
  float* const packed = scratch.weights.as<float>(groups_ * strips() * strip_size());
  pack_weights(packed);
  packed_ = packed;

  const int64_t bands = images_ * groups_ * bands_;
  const int64_t together =
      std::clamp<int64_t>(kTaskBytes / (copy_size_ * int64_t{sizeof(float)}), 1, std::max<int64_t>(1, bands / 2));
  const int64_t parts = ceil_divide(bands, together);
  const int64_t strip_parts = std::clamp<int64_t>(ceil_divide(kWindowTasks, parts), 1, strips());
  if (strip_parts > 1) {
    float* const copies = scratch.shared.as<float>(bands * copy_size_);
    parallel_for(bands, [&](int64_t i) { copy(band(i), copies + i * copy_size_); });
    copies_ = copies;
  }
  parallel_for(parts * strip_parts, [&](int64_t task) {
    const int64_t part = task % parts, strip_part = task / parts;
    compute({bands * part / parts, bands * (part + 1) / parts},
            {strips() * strip_part / strip_parts, strips() * (strip_part + 1) / strip_parts});
  });
}

void ConvAdjoint::compute(Range bands, Range strips) const {
  const float* copies = copies_ + bands.begin * copy_size_;
  if (copies_ == nullptr) {
    float* const own = scratch.copies.as<float>((bands.end - bands.begin) * copy_size_);
    for (int64_t i = bands.begin; i < bands.end; ++i) copy(band(i), own + (i - bands.begin) * copy_size_);
    copies = own;
  }
  // Phases without taps stay 0. A vector's lanes of rows are read when the line is transposed.
  const int64_t line_size = (across_.y + kernels_.lanes) * width();
  float* const line = scratch.line.as<float>(line_size);
  std::fill(line, line + line_size, 0.0f);
  for (int64_t strip = strips.begin; strip < strips.end; ++strip)
    for (int64_t r = 0; r < down_.stride; ++r)
      for (int64_t i = bands.begin; i < bands.end; ++i) {
        const Band at = band(i);
        const int64_t end = std::min(at.rows.end, down_.phases[static_cast<std::size_t>(r)].count);
        for (int64_t q = at.rows.begin; q < end; ++q)
          compute_row(at, r, q, strip, copies + (i - bands.begin) * copy_size_, line);
      }
}

/// Row stride * q + r of y, for the results of a strip.
void ConvAdjoint::compute_row(const Band& band, int64_t r, int64_t q, int64_t strip, const float* copy,
                              float* line) const {
  const Phase& down = down_.phases[static_cast<std::size_t>(r)];
  const int64_t first = strip * width(), outs = std::min(width(), outs_ - first), plane = down_.y * across_.y;
  float* const to =
      y_ + ((band.image * groups_ + band.group) * outs_ + first) * plane + (down_.stride * q + r) * across_.y;
  // Taps that meet rows of x
  const int64_t begin = std::max<int64_t>(0, q + down.shift - (down_.x - 1));
  const int64_t end = std::min(down.taps, q + down.shift + 1);
  if (begin >= end) {
    for (int64_t o = 0; o < outs; ++o) std::fill(to + o * plane, to + o * plane + across_.y, 0.0f);
    return;
  }
  const float* const weights = packed_ + (band.group * strips() + strip) * strip_size();
  for (int64_t s = 0; s < across_.stride; ++s) {
    const Phase& across = across_.phases[static_cast<std::size_t>(s)];
    if (across.taps == 0 || across.count == 0) continue;
    const GemmRun* const runs = runs_[static_cast<std::size_t>(r * across_.stride + s)].data() + begin * across.taps;
    const int64_t panels = ceil_divide(across.count, kernels_.rows);
    for (int64_t panel = 0; panel < panels; ++panel) {
      const int64_t from = across.count * panel / panels, until = across.count * (panel + 1) / panels;
      kernels_.by_runs[until - from - 1]((end - begin) * across.taps, runs, copy + (q - band.rows.begin) * row_pitch_,
                                         places_.data() + from, 1, weights,
                                         line + (across_.stride * from + s) * width(), across_.stride * width(), false);
    }
  }
  for (int64_t x = 0; x < across_.y; x += kernels_.lanes)
    kernels_.store_transposed(static_cast<int>(std::min<int64_t>(kernels_.lanes, across_.y - x)),
                              static_cast<int>(outs), line + x * width(), width(), to + x, plane);
}

}  // namespace

bool accepts_conv_adjoint(const graph::Call& call) {
  const Tensor &x = call.input(0), &weight = call.input(1);
  if (x.dtype() != DType::f32 || weight.dtype() != DType::f32 || x.rank() > 4) return false;
  const Shape y = call.row().infer(call)[0].shape;
  return x.numel() > 0 && y.numel() > 0 &&
         ConvAdjoint(x.shape(), weight.shape(), y, call.attributes<graph::ConvAdjointAttributes>()).fits();
}

void run_conv_adjoint(const kernel::CallKernel& kernel, std::span<char* const> reads, std::span<char* const> outs) {
  ConvAdjoint adjoint(kernel.shapes[0], kernel.shapes[1], kernel.shape(),
                      kernel::attributes_of<graph::ConvAdjointAttributes>(kernel));
  adjoint.run(reinterpret_cast<const float*>(reads[0]), reinterpret_cast<const float*>(reads[1]),
              reinterpret_cast<float*>(outs[0]));
}

}  // namespace weft::cpu
