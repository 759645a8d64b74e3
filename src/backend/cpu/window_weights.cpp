#include "backend/cpu/window_weights.hpp"

#include <algorithm>
#include <cstring>

#include "backend/cpu/gemm_view.hpp"

namespace weft::cpu {
namespace {

using std::int64_t;

constexpr int64_t kRunMax = 32;

}  // namespace

WindowWeights::WindowWeights(const GemmArgs<float>& args, const GemmKernels<float>& kernels, int64_t taps)
    : args_(args), kernels_(kernels), taps_(taps), in_runs_(describe()) {}

bool WindowWeights::describe() {
  const kernel::MatrixView* view = args_.a.view;
  if (view == nullptr || !view->edges.empty() || view->at.rows.extents.size() != 1) return false;
  std::vector<int64_t> at(static_cast<std::size_t>(args_.k));
  offsets_of(view->at.columns, {0, args_.k}, at.data());
  const auto taps_end = at.begin() + taps_;
  const int64_t lowest = *std::min_element(at.begin(), taps_end);
  run_ = *std::max_element(at.begin(), taps_end) - lowest + 1;
  if (run_ > kRunMax || run_ > 4 * taps_) return false;
  for (int64_t t = 0; t < taps_; ++t) places_.push_back(at[static_cast<std::size_t>(t)] - lowest);
  channel_ = args_.k > taps_ ? at[static_cast<std::size_t>(taps_)] - at[0] : 0;
  for (int64_t i = 0; i < args_.k; ++i)
    if (at[static_cast<std::size_t>(i)] != lowest + i / taps_ * channel_ + places_[static_cast<std::size_t>(i % taps_)])
      return false;
  row_ = view->at.rows.strides[0];
  offset_ = offset_at(view->at.batch, 0) + view->at.rows.offset + lowest;
  return true;
}

void WindowWeights::pack(int64_t strip, int64_t begin, int64_t channels, float* to) const {
  const GemmSource<float>& a = args_.a;
  const int64_t width = kGemmVectors * kernels_.lanes, first = strip * width;
  const auto count = static_cast<int>(std::min(width, args_.m - first)), w = static_cast<int>(width);
  const int64_t depth = channels * taps_;
  if (in_runs_) {
    float run[kRunMax * kViewLanes];
    const float* from = a.data + offset_ + first * row_ + begin * channel_;
    float* next = to;
    for (int64_t c = 0; c < channels; ++c, from += channel_) {
      kernels_.pack_transposed(run_, count, from, row_, run, w);
      for (const int64_t place : places_) {
        std::memcpy(next, run + place * width, static_cast<std::size_t>(count) * sizeof(float));
        next += width;
      }
    }
  } else if (a.view != nullptr) {
    PackedElements<float> target{kernels_, to, width};
    pack_view<MatrixAxis::rows>(target, PlainElements<float>{a.data}, *a.view, 0, {first, count},
                                {begin * taps_, depth});
  } else {
    const float* from = a.data + a.batch[0] + first * a.row + begin * taps_ * a.column;
    if (a.column == 1)
      kernels_.pack_transposed(depth, count, from, a.row, to, w);
    else
      kernels_.pack(depth, count, from, a.column, to, w);
  }
  if (count < w)
    for (int64_t k = 0; k < depth; ++k) std::fill(to + k * width + count, to + (k + 1) * width, 0.0f);
}

}  // namespace weft::cpu
