#include "backend/cpu/window_product.hpp"

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <tuple>
#include <utility>

#include "backend/cpu/common_extents.hpp"
#include "backend/cpu/gemm_view.hpp"
#include "backend/cpu/window_parts.hpp"
#include "base/threads.hpp"

namespace weft::cpu {
namespace {

using std::int64_t;

constexpr int64_t kCopyBytesMax = 2 * 1024 * 1024;  // of a block of one row
constexpr int64_t kRunMin = 4;                      // positions in a row
constexpr int64_t kChannelsMin = 16;                // side by side in a copy
constexpr double kWorkMin = 1e6;                    // multiply-adds

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
  int64_t most = copies && row.axis < 0 ? 1 : std::clamp<int64_t>(kWindowPositions / x().extent, 1, row.extent);
  if (copies)
    while (most > 1 && sizes_with(most) > kWindowCopyBytes) --most;
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

void WindowProduct::run() const {
  const std::optional<Winograd> fewer = winograd();
  if (!fewer || !fewer->run()) {
    if (positions_are_k_)
      run_gradient();
    else
      run_convolution();
  }
  if (positions_are_k_ && args_.after_block)
    parallel_for(kWindowTasks, [&](int64_t task) {
      const int64_t begin = args_.m * task / kWindowTasks, end = args_.m * (task + 1) / kWindowTasks;
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

}  // namespace weft::cpu
