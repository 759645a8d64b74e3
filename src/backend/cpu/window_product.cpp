#include "backend/cpu/window_product.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <tuple>
#include <utility>

#include "backend/cpu/channels_last.hpp"
#include "backend/cpu/common_extents.hpp"
#include "backend/cpu/gemm_view.hpp"
#include "backend/cpu/scratch_block.hpp"
#include "backend/cpu/window_weights.hpp"
#include "base/threads.hpp"

namespace weft::cpu {
namespace {

using std::int32_t;
using std::int64_t;

constexpr int64_t kCopyBytes =
    256 * 1024;  // of a block's copy, which stays in an L2 cache of 1 MiB beside a strip of A
constexpr int64_t kCopyBytesMax = 2 * 1024 * 1024;  // of a block of one row
constexpr int64_t kStripBytes = 192 * 1024;         // of A that all tiles of a task use before the next
constexpr int64_t kPositions = 1024;                // of a block
constexpr int64_t kNearPositions = 256;             // that a gradient goes through for all taps before the next
constexpr int64_t kTasks = 16;
constexpr int64_t kDepthOfTask = 256;             // of A that a task packs
constexpr int64_t kRoundBytes = 4 * 1024 * 1024;  // of all copies and strips of one round of a gradient
constexpr int64_t kRunMin = 4;                    // positions in a row
constexpr int64_t kChannelsMin = 16;              // side by side in a copy
constexpr int32_t kRunOfChannels = 256;           // at most, so that a strip can be cut between runs
constexpr double kWorkMin = 1e6;                  // multiply-adds

constexpr int64_t ceil_divide(int64_t a, int64_t b) { return (a + b - 1) / b; }

bool is_zero(const kernel::View& view) {
  return view.offset == 0 && std::all_of(view.strides.begin(), view.strides.end(), [](int64_t s) { return s == 0; });
}

bool is_one_matrix(const GemmSource<float>& source, int64_t batch) {
  if (source.view != nullptr) {
    const auto& strides = source.view->at.batch.strides;
    return std::all_of(strides.begin(), strides.end(), [](int64_t s) { return s == 0; });
  }
  for (int64_t i = 1; i < batch; ++i)
    if (source.batch[i] != source.batch[0]) return false;
  return true;
}

/// Coordinates of element `i` of the space of these extents.
template <class Dims>
std::vector<int64_t> coordinates(const Dims& dims, int64_t i) {
  std::vector<int64_t> at(dims.size());
  for (std::size_t d = dims.size(); d-- > 0; i /= dims[d].extent) at[d] = i % dims[d].extent;
  return at;
}

struct Scratch {
  ScratchBlock a, copies, sums;
};
thread_local Scratch window_scratch;

}  // namespace

std::optional<WindowProduct> WindowProduct::of(const GemmArgs<float>& args, const GemmKernels<float>& kernels) {
  const int64_t width = kGemmVectors * kernels.lanes;
  const double work = static_cast<double>(args.batch) * static_cast<double>(args.m) * static_cast<double>(args.n) *
                      static_cast<double>(args.k);
  if (kernels.by_runs[0] == nullptr || args.b.view == nullptr || args.b.narrow || args.a.narrow || args.accumulate ||
      work < kWorkMin || args.m * 5 < ceil_divide(args.m, width) * width * 3 || !is_one_matrix(args.a, args.batch))
    return std::nullopt;
  WindowProduct product(args, kernels);
  if (!product.describe() || !product.lay_out()) return std::nullopt;
  return product;
}

bool WindowProduct::describe() {
  const kernel::MatrixView& view = *args_.b.view;
  std::vector<const kernel::View*> rows{&view.at.rows}, columns{&view.at.columns};
  for (const kernel::MatrixView::Edge& edge : view.edges) {
    if (!is_zero(kernel::View{{}, edge.value.batch.strides})) return false;
    rows.push_back(&edge.value.rows);
    columns.push_back(&edge.value.columns);
    const kernel::MatrixView::Sum& value = edge.value;
    axes_.push_back({0, edge.lo, edge.hi, value.batch.offset + value.rows.offset + value.columns.offset});
  }
  const auto dims_of = [&](const std::vector<const kernel::View*>& views, int64_t size, std::vector<Dim>& dims) {
    int64_t period = size;
    for (const int64_t extent : common_extents(views, size)) {
      period /= extent;
      Dim dim{extent, stride_at(*views[0], period)};
      for (std::size_t e = 0; e < axes_.size(); ++e) {
        const int64_t step = stride_at(*views[e + 1], period);
        if (step == 0) continue;
        Axis& axis = axes_[e];
        if (dim.axis >= 0 || dim.stride % step != 0) return false;
        if (axis.stride != 0 && axis.stride != dim.stride / step) return false;
        axis.stride = dim.stride / step;
        if (axis.stride <= 0) return false;
        dim.axis = static_cast<int>(e), dim.step = step;
      }
      dims.push_back(dim);
    }
    return period == 1 && !dims.empty();
  };
  std::vector<Dim> k, n;
  if (!dims_of(rows, args_.k, k) || !dims_of(columns, args_.n, n)) return false;
  if (std::any_of(axes_.begin(), axes_.end(), [](const Axis& axis) { return axis.stride == 0; })) return false;

  // Along a padded axis there are more positions than elements of a window. Without padding, positions are closer in memory.
  const auto along_axes = [](const std::vector<Dim>& dims) {
    int64_t size = 1;
    for (const Dim& dim : dims) size *= dim.axis >= 0 ? dim.extent : 1;
    return size;
  };
  const int64_t k_stride = std::abs(k.back().stride), n_stride = std::abs(n.back().stride);
  positions_are_k_ = !axes_.empty()         ? along_axes(k) > along_axes(n)
                     : k_stride != n_stride ? k_stride < n_stride
                                            : k.back().extent > n.back().extent;
  positions_ = std::move(positions_are_k_ ? k : n);
  elements_ = std::move(positions_are_k_ ? n : k);
  offset_ = view.at.rows.offset + view.at.columns.offset;
  if (positions_are_k_ && args_.batch != 1) return false;
  return x().extent >= kRunMin && x().stride != 0;
}

/// Gives positions without padding axes too, so that their windows can be copied.
void WindowProduct::add_axes() {
  for (std::size_t p = positions_.size(); p-- > 0 && p + 2 >= positions_.size();) {
    Dim& position = positions_[p];
    if (position.axis >= 0) continue;
    Dim* along = nullptr;  // the element's coordinate on this axis
    for (Dim& element : elements_)
      if (element.axis < 0 && element.stride > 0 && element.stride <= position.stride &&
          position.stride % element.stride == 0 && (along == nullptr || element.stride > along->stride))
        along = &element;
    const int64_t stride = along != nullptr ? along->stride : position.stride;
    if (stride <= 0) continue;
    constexpr int64_t kFar = std::numeric_limits<int64_t>::max() / 4;
    position.axis = static_cast<int>(axes_.size());
    position.step = position.stride / stride;
    if (along != nullptr) along->axis = position.axis, along->step = 1;
    axes_.push_back({stride, -kFar, kFar});
  }
}

bool WindowProduct::lay_out() {
  const auto channel_dims = [&] {
    return std::count_if(elements_.begin(), elements_.end(), [](const Dim& dim) { return dim.axis < 0; });
  };
  if (!positions_are_k_ && elements_[0].extent >= kChannelsMin) {
    const auto given = std::tuple(positions_, elements_, axes_);
    add_axes();
    channels_last_ = channel_dims() == 1 && elements_[0].axis < 0 && x().axis >= 0;
    if (!channels_last_) std::tie(positions_, elements_, axes_) = given;
  }
  if (!axes_.empty() && x().axis < 0) return false;
  // The axis with the smallest stride comes last.
  std::vector<std::size_t> order(axes_.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::sort(order.begin(), order.end(),
            [&](std::size_t i, std::size_t j) { return axes_[i].stride > axes_[j].stride; });
  std::vector<Axis> sorted;
  std::vector<int> place(order.size());
  for (std::size_t i = 0; i < order.size(); ++i)
    sorted.push_back(axes_[order[i]]), place[order[i]] = static_cast<int>(i);
  axes_ = std::move(sorted);
  for (std::vector<Dim>* dims : {&positions_, &elements_})
    for (Dim& dim : *dims)
      if (dim.axis >= 0) dim.axis = place[static_cast<std::size_t>(dim.axis)];

  for (const Dim& dim : elements_)
    if (dim.axis < 0) channels_ *= dim.extent;
  for (std::size_t d = 0; d + 2 < positions_.size(); ++d) outer_ *= positions_[d].extent;

  const Dim row = y();
  const bool copies = !axes_.empty();
  const auto sizes_with = [&](int64_t rows) {
    for (Axis& axis : axes_) axis.before = 0, axis.size = 1;
    const auto reach = [&](const Dim& dim, int64_t count) {
      if (dim.axis < 0) return;
      Axis& axis = axes_[static_cast<std::size_t>(dim.axis)];
      const int64_t far = dim.step * (count - 1);
      axis.size += std::abs(far);
      if (far < 0) axis.before -= far;
    };
    for (const Dim& dim : elements_) reach(dim, dim.extent);
    reach(x(), x().extent);
    reach(row, rows);
    channel_pitch_ = channels_last_ ? ceil_divide(channels_, kernels_.lanes) * kernels_.lanes : 1;
    for (std::size_t e = axes_.size(); e-- > 0; channel_pitch_ *= axes_[e].size) axes_[e].pitch = channel_pitch_;
    copy_size_ = !copies ? 0 : channels_last_ ? channel_pitch_ : channels_ * channel_pitch_;
    return copy_size_ * static_cast<int64_t>(sizeof(float));
  };
  int64_t most = copies && row.axis < 0 ? 1 : std::clamp<int64_t>(kPositions / x().extent, 1, row.extent);
  if (copies)
    while (most > 1 && sizes_with(most) > kCopyBytes) --most;
  bands_ = ceil_divide(row.extent, most);
  band_rows_ = ceil_divide(row.extent, bands_);
  if (copies && sizes_with(band_rows_) > kCopyBytesMax) return false;

  int64_t pitch = channel_pitch_;
  for (std::size_t d = elements_.size(); d-- > 0;) {
    Dim& dim = elements_[d];
    if (!copies) {
      dim.staged = dim.stride;
    } else if (dim.axis >= 0) {
      dim.staged = dim.step * axes_[static_cast<std::size_t>(dim.axis)].pitch;
    } else {
      dim.staged = channels_last_ ? 1 : pitch;
      pitch *= dim.extent;
    }
  }
  for (std::size_t d = 0; d < elements_.size(); ++d)
    if (channels_last_ ? elements_[d].axis < 0 : elements_[d].extent >= elements_[inner_].extent) inner_ = d;
  for (Dim& dim : positions_)
    dim.staged = !copies ? dim.stride : dim.axis < 0 ? 0 : dim.step * axes_[static_cast<std::size_t>(dim.axis)].pitch;

  // Places in tables are 32-bit numbers.
  double reach = 0;
  for (const Dim& dim : elements_) reach += std::abs(static_cast<double>(dim.staged)) * static_cast<double>(dim.extent);
  reach += std::abs(static_cast<double>(row.stride)) * static_cast<double>(band_rows_) +
           std::abs(static_cast<double>(x().stride)) * static_cast<double>(x().extent);
  const double depth = static_cast<double>(positions_are_k_ ? band_rows_ * x().extent : args_.k);
  if (std::max(reach, depth * static_cast<double>(width())) > std::numeric_limits<std::int32_t>::max()) return false;

  if (copies && positions_.size() > 1 && row.axis >= 0 && row.step > 0) {
    int found = 0;
    for (std::size_t d = 0; d < elements_.size(); ++d)
      if (elements_[d].axis == row.axis && elements_[d].step > 0) row_part_ = static_cast<int>(d), ++found;
    for (std::size_t d = 0; d < positions_.size(); ++d)
      if (positions_[d].axis == row.axis && d + 2 != positions_.size()) found = 0;
    if (found != 1) row_part_ = -1;
  }
  return true;
}

WindowProduct::Block WindowProduct::block(int64_t i) const {
  const int64_t band = i % bands_, rest = i / bands_, rows = y().extent;
  const int64_t begin = rows * band / bands_;
  return {rest / outer_, rest % outer_, begin, rows * (band + 1) / bands_ - begin};
}

int64_t WindowProduct::in_memory(const Block& block) const {
  int64_t at = offset_ + offset_at(args_.b.view->at.batch, block.batch) + y().stride * block.y, rest = block.outer;
  for (std::size_t d = positions_.size(); d-- > 0;) {
    if (d + 2 >= positions_.size()) continue;
    at += rest % positions_[d].extent * positions_[d].stride;
    rest /= positions_[d].extent;
  }
  return at;
}

int64_t WindowProduct::coordinate(int axis, const Block& block) const {
  int64_t value = axes_[static_cast<std::size_t>(axis)].start, rest = block.outer;
  if (y().axis == axis) value += y().step * block.y;
  for (std::size_t d = positions_.size(); d-- > 0;) {
    if (d + 2 >= positions_.size()) continue;
    if (positions_[d].axis == axis) value += rest % positions_[d].extent * positions_[d].step;
    rest /= positions_[d].extent;
  }
  return value;
}

void WindowProduct::stage(const Block& block, Range channels, float* to) const {
  const int64_t start = in_memory(block);
  const std::size_t last = axes_.size() - 1;
  std::vector<int64_t> first(axes_.size()), at(last);
  int64_t corner = start, lines = 1;
  for (std::size_t e = 0; e < axes_.size(); ++e) {
    first[e] = coordinate(static_cast<int>(e), block) - axes_[e].before;
    corner -= axes_[e].before * axes_[e].stride;
    if (e < last) lines *= axes_[e].size;
  }
  const Axis& along = axes_[last];
  const int64_t from = std::clamp<int64_t>(along.lo - first[last], 0, along.size);
  const int64_t until = std::clamp<int64_t>(along.hi - first[last], from, along.size);
  for (int64_t channel = channels.begin; channel < channels.end; ++channel) {
    int64_t of_channel = corner, rest = channel;
    for (std::size_t d = elements_.size(); d-- > 0;) {
      if (elements_[d].axis >= 0) continue;
      of_channel += rest % elements_[d].extent * elements_[d].stride;
      rest /= elements_[d].extent;
    }
    float* line_to = to + channel * channel_pitch_;
    std::fill(at.begin(), at.end(), 0);
    for (int64_t line = 0; line < lines; ++line, line_to += along.size) {
      bool inside = true;
      int64_t of_line = of_channel;
      for (std::size_t e = 0; e < last; ++e) {
        inside = inside && first[e] + at[e] >= axes_[e].lo && first[e] + at[e] < axes_[e].hi;
        of_line += at[e] * axes_[e].stride;
      }
      const int64_t begin = inside ? from : along.size, end = inside ? until : along.size;
      std::fill(line_to, line_to + begin, 0.0f);
      if (along.stride == 1) {
        if (end > begin)
          std::memcpy(line_to + begin, args_.b.data + of_line + begin,
                      static_cast<std::size_t>(end - begin) * sizeof(float));
      } else {
        for (int64_t i = begin; i < end; ++i) line_to[i] = args_.b.data[of_line + i * along.stride];
      }
      std::fill(line_to + end, line_to + along.size, 0.0f);
      for (std::size_t e = last; e-- > 0;) {
        if (++at[e] < axes_[e].size) break;
        at[e] = 0;
      }
    }
  }
}

/// The same with the channels of a place side by side.
void WindowProduct::stage_channels_last(const Block& block, float* to) const {
  const std::size_t last = axes_.size() - 1;
  const Axis& along = axes_[last];
  std::vector<int64_t> first(axes_.size());
  int64_t corner = in_memory(block), lines = 1;
  for (std::size_t e = 0; e < axes_.size(); ++e) {
    first[e] = coordinate(static_cast<int>(e), block) - axes_[e].before;
    corner -= axes_[e].before * axes_[e].stride;
    if (e < last) lines *= axes_[e].size;
  }
  const int64_t begin = std::clamp<int64_t>(along.lo - first[last], 0, along.size);
  const int64_t end = std::clamp<int64_t>(along.hi - first[last], begin, along.size), pitch = along.pitch;
  for (int64_t line = 0; line < lines; ++line, to += along.size * pitch) {
    bool inside = true;
    const float* from = args_.b.data + corner + begin * along.stride;
    int64_t rest = line;
    for (std::size_t e = last; e-- > 0; rest /= axes_[e].size) {
      const int64_t at = rest % axes_[e].size;
      inside = inside && first[e] + at >= axes_[e].lo && first[e] + at < axes_[e].hi;
      from += at * axes_[e].stride;
    }
    if (inside)
      copy_channels_last(kernels_, from, along.stride, elements_[inner_].stride, channels_, {begin, end, along.size},
                         to, pitch);
    else
      std::fill(to, to + along.size * pitch, 0.0f);
  }
}

void WindowProduct::copy_block(const Block& block, float* to) const {
  if (channels_last_)
    stage_channels_last(block, to);
  else
    stage(block, {0, channels_}, to);
}

const float* WindowProduct::start_of(const Block& block, const float* copy) const {
  if (axes_.empty()) return args_.b.data + in_memory(block);
  for (const Axis& axis : axes_) copy += axis.before * axis.pitch;
  return copy;
}

WindowProduct::Range WindowProduct::elements_inside(int64_t position) const {
  if (row_part_ < 0) return {0, 1};
  const Dim& part = elements_[static_cast<std::size_t>(row_part_)];
  const Axis& axis = axes_[static_cast<std::size_t>(part.axis)];
  const int64_t at = axis.start + y().step * position;
  Range range{0, part.extent};
  while (range.begin < range.end && at + part.step * range.begin < axis.lo) ++range.begin;
  while (range.begin < range.end && at + part.step * (range.end - 1) >= axis.hi) --range.end;
  return range;
}

/// Elements along k of a strip of A, which is the gradient of the results.
void WindowProduct::pack_a(int64_t strip, Range depth, float* to) const {
  const GemmSource<float>& a = args_.a;
  const int64_t first = strip * width(), count = std::min(width(), args_.m - first), size = depth.end - depth.begin;
  if (a.view != nullptr) {
    const kernel::MatrixView::Sum& at = a.view->at;
    const int64_t run = at.columns.strides.back() == 1 ? at.columns.extents.back() : 1;
    if (a.view->edges.empty() && at.rows.extents.size() == 1 && depth.begin % run + size <= run) {
      const int64_t start = offset_at(at.batch, 0) + at.rows.offset + first * at.rows.strides[0];
      return kernels_.pack_transposed(size, static_cast<int>(count),
                                      a.data + start + offset_at(at.columns, depth.begin), at.rows.strides[0], to,
                                      static_cast<int>(width()));
    }
    PackedElements<float> target{kernels_, to, width()};
    return pack_view<MatrixAxis::rows>(target, PlainElements<float>{a.data}, *a.view, 0, {first, count},
                                       {depth.begin, size});
  }
  const float* from = a.data + a.batch[0] + first * a.row + depth.begin * a.column;
  if (a.column == 1)
    kernels_.pack_transposed(size, static_cast<int>(count), from, a.row, to, static_cast<int>(width()));
  else
    kernels_.pack(size, static_cast<int>(count), from, a.column, to, static_cast<int>(width()));
}

void WindowProduct::run() const {
  const std::optional<Winograd> fewer = winograd();
  if (!fewer || !fewer->run()) {
    if (positions_are_k_)
      run_gradient();
    else
      run_convolution();
  }
  if (positions_are_k_ && args_.after_block)
    parallel_for(kTasks, [&](int64_t task) {
      const int64_t begin = args_.m * task / kTasks, end = args_.m * (task + 1) / kTasks;
      if (begin < end) args_.after_block(0, begin, end, 0, args_.n);
    });
}

/// 3 x 3 windows, one beside the other along both axes.
std::optional<Winograd> WindowProduct::winograd() const {
  const std::size_t images = positions_are_k_ ? positions_.size() - 2 : 0;
  if (elements_.size() != 3 || positions_.size() != 2 + images || images > 1 || elements_[0].axis >= 0) return {};
  Winograd::Axis along[2];
  for (std::size_t i = 0; i < 2; ++i) {
    const Dim &element = elements_[1 + i], &position = positions_[images + i];
    if (element.extent != 3 || element.stride != position.stride || element.axis != position.axis ||
        element.step != position.step)
      return {};
    along[i] = {position.extent, 0, 0, position.extent + 2};
    if (element.axis < 0) continue;
    const Axis& axis = axes_[static_cast<std::size_t>(element.axis)];
    if (element.step != 1) return {};
    along[i] = {position.extent, axis.start, axis.lo, axis.hi};
  }
  if (positions_.back().stride != 1 || (images > 0 && positions_[0].axis >= 0)) return {};
  if (elements_[1].axis >= 0 && elements_[1].axis == elements_[2].axis) return {};
  Winograd::Image image{args_.b.data, {}, elements_[0].extent, elements_[0].stride, y().stride, along[0], along[1]};
  const int64_t count = images > 0 ? positions_[0].extent : args_.batch;
  for (int64_t i = 0; i < count; ++i)
    image.at.push_back(offset_ + offset_at(args_.b.view->at.batch, images > 0 ? 0 : i) +
                       (images > 0 ? i * positions_[0].stride : 0));
  return Winograd::of(args_, kernels_, std::move(image), positions_are_k_);
}

/// A in strips, each in the order of its runs.
void WindowProduct::pack_weights(float* to) const {
  int64_t before = 1, after = 1;
  for (std::size_t d = 0; d < elements_.size(); ++d)
    if (d != inner_) (d < inner_ ? before : after) *= elements_[d].extent;
  const int64_t inner = elements_[inner_].extent, first = elements_[0].extent, each = args_.k / first;
  const int64_t chunk = ceil_divide(kDepthOfTask, each), chunks = ceil_divide(first, chunk);
  const WindowWeights weights(args_, kernels_, each);
  parallel_for(strips() * chunks, [&](int64_t task) {
    const int64_t strip = task / chunks, begin = task % chunks * chunk, count = std::min(chunk, first - begin);
    float* const strip_to = to + strip * args_.k * width();
    if (after == 1) return weights.pack(strip, begin, count, strip_to + begin * each * width());
    float* const taps = window_scratch.sums.as<float>(count * each * width());
    weights.pack(strip, begin, count, taps);
    for (int64_t i = 0; i < count * each; ++i) {
      const int64_t k = begin * each + i, outer = k / (after * inner);
      const int64_t place = (outer * after + k % after) * inner + k / after % inner;
      std::memcpy(strip_to + place * width(), taps + i * width(), static_cast<std::size_t>(width()) * sizeof(float));
    }
  });
}

/// The runs over the elements of a window whose coordinate along y is in `part`.
std::vector<GemmRun> WindowProduct::runs_within(Range part) const {
  std::vector<Dim> outer = elements_;
  outer.erase(outer.begin() + static_cast<std::ptrdiff_t>(inner_));
  int64_t count = 1;
  for (const Dim& dim : outer) count *= dim.extent;
  const Dim& inner = elements_[inner_];
  std::vector<GemmRun> runs;
  for (int64_t i = 0; i < count; ++i) {
    const std::vector<int64_t> at = coordinates(outer, i);
    int64_t begin = 0, end = inner.extent, place = 0;
    for (std::size_t d = 0; d < outer.size(); ++d) place += at[d] * outer[d].staged;
    if (row_part_ >= 0) {
      const auto row = static_cast<std::size_t>(row_part_);
      if (row == inner_) {
        begin = part.begin, end = part.end;
      } else {
        const int64_t y = at[row - (row > inner_ ? 1 : 0)];
        if (y < part.begin || y >= part.end) continue;
      }
    }
    for (; begin < end; begin += kRunOfChannels)
      runs.push_back({static_cast<int32_t>(place + begin * inner.staged),
                      static_cast<int32_t>((i * inner.extent + begin) * width()),
                      static_cast<int32_t>(std::min<int64_t>(kRunOfChannels, end - begin))});
  }
  return runs;
}

WindowProduct::Convolution WindowProduct::plan() const {
  Convolution all;
  const int64_t columns = x().extent;
  for (int64_t p = 0; p < band_rows_ * columns; ++p)
    all.places.push_back(static_cast<int32_t>(p / columns * y().staged + p % columns * x().staged));
  for (int64_t band = 0; band < bands_; ++band) {
    const Block of_band = block(band);
    std::vector<Panel> panels;
    // Places of a few rows are free, so that panels go on in the next row of the image.
    const bool joined = kernels_.rows <= kGemmFreeRows;
    const int64_t lines = joined ? 1 : of_band.rows, line = joined ? of_band.rows * columns : columns;
    const int64_t count = ceil_divide(line, kernels_.rows);
    for (int64_t i = 0; i < lines * count; ++i) {
      const int64_t from = i / count * line;
      Panel panel{from + line * (i % count) / count, from + line * (i % count + 1) / count, 0};
      Range part{std::numeric_limits<int64_t>::max(), 0};
      for (int64_t row = panel.begin / columns; row <= (panel.end - 1) / columns; ++row) {
        const Range inside = elements_inside(of_band.y + row);
        if (inside.begin >= inside.end) continue;
        part = {std::min(part.begin, inside.begin), std::max(part.end, inside.end)};
      }
      if (part.begin >= part.end) part = {0, 0};
      const auto found = std::find(all.parts.begin(), all.parts.end(), part);
      panel.runs = static_cast<std::size_t>(found - all.parts.begin());
      if (found == all.parts.end()) {
        all.parts.push_back(part);
        all.runs.push_back(runs_within(part));
      }
      panels.push_back(panel);
    }
    all.panels.push_back(std::move(panels));
  }
  return all;
}

void WindowProduct::run_convolution() const {
  Convolution shared = plan();
  float* const packed = window_scratch.a.as<float>(strips() * args_.k * width());
  pack_weights(packed);
  shared.packed = packed;
  const int64_t blocks = args_.batch * outer_ * bands_;
  const int64_t bytes = copy_size_ * static_cast<int64_t>(sizeof(float));
  const int64_t each = std::clamp<int64_t>(
      std::min(kPositions / (band_rows_ * x().extent), 2 * kCopyBytes / std::max<int64_t>(bytes, 1)), 1, blocks);
  int64_t groups = ceil_divide(blocks, each);
  if (groups > 1 && groups % 2 != 0) groups = std::min(groups + 1, blocks);  // for a common number of cores
  const int64_t strip_groups = std::clamp<int64_t>(ceil_divide(kTasks, groups), 1, strips());
  if (strip_groups > 1 && copy_size_ > 0) {
    float* const copies = window_scratch.copies.as<float>(blocks * copy_size_);
    parallel_for(blocks, [&](int64_t i) { copy_block(block(i), copies + i * copy_size_); });
    shared.copies = copies;
  }
  parallel_for(groups * strip_groups, [&](int64_t task) {
    const int64_t group = task % groups, strip_group = task / groups;
    convolve({blocks * group / groups, blocks * (group + 1) / groups},
             {strips() * strip_group / strip_groups, strips() * (strip_group + 1) / strip_groups}, shared);
  });
}

void WindowProduct::convolve(Range blocks, Range strips, const Convolution& shared) const {
  const float* copies = shared.copies + blocks.begin * copy_size_;
  if (shared.copies == nullptr && copy_size_ > 0) {
    float* const own = window_scratch.copies.as<float>((blocks.end - blocks.begin) * copy_size_);
    for (int64_t i = blocks.begin; i < blocks.end; ++i) copy_block(block(i), own + (i - blocks.begin) * copy_size_);
    copies = own;
  }
  // A strip that is too long for the cache is used in parts, each for all tiles of C, which wait with their sums.
  const int64_t tile_size = kernels_.rows * width();
  const int64_t strip_bytes = args_.k * width() * static_cast<int64_t>(sizeof(float));
  const int64_t parts_of_strip = ceil_divide(strip_bytes, kStripBytes);
  std::size_t panels = 0;  // of a block
  for (const std::vector<Panel>& of_band : shared.panels) panels = std::max(panels, of_band.size());
  const int64_t tiles = parts_of_strip > 1 ? (blocks.end - blocks.begin) * static_cast<int64_t>(panels) : 1;
  // A vector's lanes of rows are read when a tile is transposed.
  float* const sums = window_scratch.sums.as<float>(tiles * tile_size + kGemmRowsMax * width());
  for (int64_t strip = strips.begin; strip < strips.end; ++strip) {
    const int64_t out = strip * width(), outs = std::min(width(), args_.m - out);
    const float* const b = shared.packed + strip * args_.k * width();
    for (int64_t part = 0; part < parts_of_strip; ++part) {
      const bool is_last = part + 1 == parts_of_strip;
      float* tile = sums;
      for (int64_t i = blocks.begin; i < blocks.end; ++i) {
        const Block at = block(i);
        const float* const start = start_of(at, copies + (i - blocks.begin) * copy_size_);
        const int64_t first = (at.outer * y().extent + at.y) * x().extent;
        float* const c = args_.c.data + args_.c.batch[at.batch] + out * args_.c.row + first;
        for (const Panel& panel : shared.panels[static_cast<std::size_t>(i % bands_)]) {
          const std::vector<GemmRun>& runs = shared.runs[panel.runs];
          const auto count = static_cast<int64_t>(runs.size()), rows = panel.end - panel.begin;
          const int64_t begin = count * part / parts_of_strip, end = count * (part + 1) / parts_of_strip;
          kernels_.by_runs[rows - 1](end - begin, runs.data() + begin, start, shared.places.data() + panel.begin,
                                     elements_[inner_].staged, b, tile, width(), part > 0);
          if (is_last)
            kernels_.store_transposed(static_cast<int>(rows), static_cast<int>(outs), tile, width(), c + panel.begin,
                                      args_.c.row);
          if (parts_of_strip > 1) tile += tile_size;
        }
        if (is_last && args_.after_block)
          args_.after_block(at.batch, out, out + outs, first, first + at.rows * x().extent);
      }
    }
  }
}

void WindowProduct::run_gradient() const {
  // The kernel's rows go along one coordinate of the elements; the others are its taps.
  std::size_t chosen = 0;
  const auto rows_along = [&](std::size_t d) {
    return static_cast<double>(elements_[d].extent) /
           static_cast<double>(ceil_divide(elements_[d].extent, kernels_.rows));
  };
  for (std::size_t d = 1; d < elements_.size(); ++d)
    if (rows_along(d) > rows_along(chosen)) chosen = d;
  const Dim along = elements_[chosen];
  const int64_t panels = ceil_divide(along.extent, kernels_.rows);
  int64_t along_stride = 1;  // in n
  for (std::size_t d = chosen + 1; d < elements_.size(); ++d) along_stride *= elements_[d].extent;
  struct Tap {
    int64_t staged, n;
    Range rows;  // of positions whose element lies inside
  };
  std::vector<Tap> taps;
  for (int64_t n = 0; n < args_.n; ++n) {
    const std::vector<int64_t> at = coordinates(elements_, n);
    if (at[chosen] != 0) continue;
    Tap tap{0, n, {0, y().extent}};
    for (std::size_t d = 0; d < elements_.size(); ++d) tap.staged += at[d] * elements_[d].staged;
    if (row_part_ >= 0 && static_cast<std::size_t>(row_part_) != chosen) {
      const int64_t part = at[static_cast<std::size_t>(row_part_)];
      const auto outside = [&](int64_t row) {
        const Range inside = elements_inside(row);
        return part < inside.begin || part >= inside.end;
      };
      while (tap.rows.begin < tap.rows.end && outside(tap.rows.begin)) ++tap.rows.begin;
      while (tap.rows.begin < tap.rows.end && outside(tap.rows.end - 1)) --tap.rows.end;
    }
    taps.push_back(tap);
  }
  const auto tap_count = static_cast<int64_t>(taps.size());

  const int64_t blocks = outer_ * bands_, depth = band_rows_ * x().extent;
  const int64_t copy_size = copy_size_, strip_size = depth * width();
  const int64_t bytes = (copy_size + strips() * strip_size) * static_cast<int64_t>(sizeof(float));
  const int64_t together = std::clamp<int64_t>(kRoundBytes / bytes, 1, blocks);
  const int64_t tile_size = kernels_.rows * width();
  float* const packed = window_scratch.a.as<float>(together * strips() * strip_size);
  float* const copies = window_scratch.copies.as<float>(together * copy_size);
  float* const sums = window_scratch.sums.as<float>(strips() * panels * tap_count * tile_size);
  std::vector<GemmRun> runs;  // a row of positions each
  for (int64_t row = 0; row < band_rows_; ++row)
    runs.push_back({static_cast<int32_t>(row * y().staged), static_cast<int32_t>(row * x().extent * width()),
                    static_cast<int32_t>(x().extent)});
  std::vector<int32_t> places;  // of a panel's elements
  for (int64_t i = 0; i < kernels_.rows; ++i) places.push_back(static_cast<int32_t>(i * along.staged));
  const auto panel_of = [&](int64_t panel) {
    return Range{along.extent * panel / panels, along.extent * (panel + 1) / panels};
  };
  const auto sums_of = [&](int64_t strip, int64_t panel, int64_t tap) {
    return sums + ((strip * panels + panel) * tap_count + tap) * tile_size;
  };

  const int64_t near_rows = std::max<int64_t>(1, kNearPositions / x().extent);
  constexpr int64_t kChannels = 16;  // that a task copies
  const int64_t copy_tasks = axes_.empty() ? 0 : ceil_divide(channels_, kChannels);
  const int64_t tap_groups = std::clamp<int64_t>(ceil_divide(kTasks, strips() * panels), 1, tap_count);
  for (int64_t first = 0; first < blocks; first += together) {
    const int64_t count = std::min(together, blocks - first);
    parallel_for(count * (copy_tasks + strips()), [&](int64_t task) {
      const int64_t i = task % count, part = task / count;
      const Block at = block(first + i);
      if (part < copy_tasks)
        return stage(at, {part * kChannels, std::min(channels_, (part + 1) * kChannels)}, copies + i * copy_size);
      const int64_t strip = part - copy_tasks, begin = (at.outer * y().extent + at.y) * x().extent;
      pack_a(strip, {begin, begin + at.rows * x().extent}, packed + (i * strips() + strip) * strip_size);
    });
    parallel_for(strips() * panels * tap_groups, [&](int64_t task) {
      const int64_t group = task % tap_groups, panel = task / tap_groups % panels, strip = task / tap_groups / panels;
      const Range part = panel_of(panel);
      for (int64_t i = 0; i < count; ++i) {
        const Block at = block(first + i);
        const float* const start = start_of(at, copies + i * copy_size) + part.begin * along.staged;
        const float* const b = packed + (i * strips() + strip) * strip_size;
        // All taps read the same few rows, which stay in the L1 cache.
        for (int64_t row = 0; row < at.rows; row += near_rows) {
          const int64_t row_end = std::min(at.rows, row + near_rows);
          for (int64_t t = tap_count * group / tap_groups; t < tap_count * (group + 1) / tap_groups; ++t) {
            const Tap& tap = taps[static_cast<std::size_t>(t)];
            const int64_t begin = std::clamp<int64_t>(tap.rows.begin - at.y, row, row_end);
            const int64_t end = std::clamp<int64_t>(tap.rows.end - at.y, begin, row_end);
            kernels_.by_runs[part.end - part.begin - 1](end - begin, runs.data() + begin, start + tap.staged,
                                                        places.data(), x().staged, b, sums_of(strip, panel, t), width(),
                                                        first + i + row > 0);
          }
        }
      }
    });
  }

  parallel_for(strips() * panels, [&](int64_t task) {
    const int64_t strip = task / panels, panel = task % panels, lanes = kernels_.lanes;
    const Range part = panel_of(panel);
    const int64_t out = strip * width(), outs = std::min(width(), args_.m - out), turned_size = width() * lanes;
    float* const turned = window_scratch.copies.as<float>(tap_count * turned_size);
    for (int64_t t = 0; t < tap_count; ++t)
      kernels_.pack_transposed(outs, static_cast<int>(part.end - part.begin), sums_of(strip, panel, t), width(),
                               turned + t * turned_size, static_cast<int>(lanes));
    for (int64_t j = 0; j < outs; ++j)
      for (int64_t t = 0; t < tap_count; ++t) {
        const float* from = turned + t * turned_size + j * lanes;
        float* to = args_.c.data + args_.c.batch[0] + (out + j) * args_.c.row + taps[static_cast<std::size_t>(t)].n +
                    part.begin * along_stride;
        for (int64_t r = 0; r < part.end - part.begin; ++r) to[r * along_stride] = from[r];
      }
  });
}

}  // namespace weft::cpu
