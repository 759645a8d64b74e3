// The order in which an elementwise kernel goes through its space. Its points do not depend on each other, so another order
// gives the same values, and may read memory in longer runs.
#include <algorithm>
#include <cstdlib>

#include "backend/cpu/common_extents.hpp"
#include "backend/cpu/loop/nodes.hpp"
#include "backend/cpu/run_writer.hpp"

namespace weft::cpu {
namespace {

using kernel::StepKind;
using kernel::View;

constexpr Extent kStrip = 32;  // columns of which a gather along columns reads a cache line or two
constexpr Extent kRowBytesMin = 256, kRowBytesMax = 4096;  // of rows that are copied to other places
constexpr Extent kGatheredBytes = 512 << 10;  // larger columns are lost from the nearer caches before the next row

bool has_view(const kernel::Step& step) {
  return step.kind == StepKind::load || step.kind == StepKind::gather || step.kind == StepKind::index;
}

class SpaceOrder {
 public:
  explicit SpaceOrder(const kernel::LoopKernel& kernel) : kernel_(kernel) {}

  std::optional<kernel::LoopKernel> find() {
    if (kernel_.outer < kTransposedMin || !describe()) return std::nullopt;
    if (!turns() && !copies_rows() && !gathers_down_columns()) return std::nullopt;
    kernel::LoopKernel ordered = kernel_;
    std::size_t i = 0;
    const auto change = [&](View& view) {
      View& now = views_[i++];
      view.extents.clear();
      view.strides.clear();
      for (const std::size_t d : order_) {
        view.extents.push_back(extents_[d]);
        view.strides.push_back(now.strides[d]);
      }
    };
    for (kernel::Step& step : ordered.steps)
      if (has_view(step)) change(step.view);
    for (kernel::Store& store : ordered.stores) change(store.view);
    return ordered;
  }

 private:
  static constexpr Extent kTransposedMin = 1 << 14;  // points; less is in the nearest cache

  /// Sees all views over the same coordinates, as few as possible.
  bool describe() {
    std::vector<const View*> views;
    for (const kernel::Step& step : kernel_.steps) {
      if (step.level != kernel::Level::outer || step.kind == StepKind::reduce) return false;
      if (has_view(step)) views.push_back(&step.view);
    }
    for (const kernel::Store& store : kernel_.stores) views.push_back(&store.view);
    if (std::any_of(views.begin(), views.end(), [](const View* view) { return !view->bounds.empty(); })) return false;
    Extent period = kernel_.outer;
    views_.resize(views.size());
    for (const Extent extent : common_extents(views, kernel_.outer)) {
      period /= extent;
      bool continues = !extents_.empty();
      for (std::size_t v = 0; v < views.size() && continues; ++v)
        continues = views_[v].strides.back() == stride_at(*views[v], period) * extent;
      if (continues)
        extents_.back() *= extent;
      else
        extents_.push_back(extent);
      for (std::size_t v = 0; v < views.size(); ++v) {
        if (continues) views_[v].strides.pop_back();
        views_[v].strides.push_back(stride_at(*views[v], period));
      }
    }
    for (std::size_t d = 0; d < extents_.size(); ++d) order_.push_back(d);
    return extents_.size() > 1;
  }

  /// A load that runs along neither of the last two coordinates is transposed if its own comes next to the last.
  bool turns() {
    const std::size_t last = extents_.size() - 1;
    std::size_t v = 0;
    for (const kernel::Step& step : kernel_.steps) {
      if (!has_view(step)) continue;
      const std::vector<Extent>& strides = views_[v++].strides;
      if (step.kind != StepKind::load || std::abs(strides[last]) < 2) continue;
      const auto unit = std::find(strides.begin(), strides.end(), 1);
      if (unit == strides.end()) continue;
      const auto d = static_cast<std::size_t>(unit - strides.begin());
      if (d + 1 >= last || extents_[d] < 16) return false;
      std::rotate(order_.begin() + static_cast<Extent>(d), order_.begin() + static_cast<Extent>(d) + 1,
                  order_.begin() + static_cast<Extent>(last));
      return true;
    }
    return false;
  }

  /// A copy of short rows to other places goes through the source in its order: memory reads long runs faster than pieces, and
  /// does not mind pieces that are whole cache lines when they are written.
  bool copies_rows() {
    if (kernel_.steps.size() != 1 || kernel_.stores.size() != 1) return false;
    const std::vector<Extent>&from = views_.front().strides, &to = views_.back().strides;
    const Extent row = extents_.back() * static_cast<Extent>(size_bytes(kernel_.steps[0].type));
    if (from.back() != 1 || to.back() != 1 || row < kRowBytesMin || row > kRowBytesMax ||
        kernel_.outer * static_cast<Extent>(size_bytes(kernel_.steps[0].type)) <= kStreamBytes)
      return false;
    const auto by_source = [&](std::size_t a, std::size_t b) { return from[a] > from[b]; };
    if (std::any_of(from.begin(), from.end(), [](Extent stride) { return stride < 1; })) return false;
    if (std::is_sorted(order_.begin(), order_.end(), by_source)) return false;
    std::stable_sort(order_.begin(), order_.end(), by_source);
    return true;
  }

  /// For each step, whether its value varies along the last coordinate.
  std::vector<bool> varying() const {
    std::vector<bool> varies;
    std::size_t v = 0;
    for (const kernel::Step& step : kernel_.steps) {
      bool any = has_view(step) && views_[v++].strides.back() != 0;
      for (const int arg : {step.a, step.b, step.c}) any = any || (arg >= 0 && varies[static_cast<std::size_t>(arg)]);
      varies.push_back(any);
    }
    return varies;
  }

  /// Where each column has indices of its own, strips of columns stay in the caches.
  bool gathers_down_columns() {
    const Extent columns = extents_.back();
    if (columns % kStrip != 0 || columns < 2 * kStrip) return false;
    const std::vector<bool> varies = varying();
    const bool found = std::any_of(kernel_.steps.begin(), kernel_.steps.end(), [&](const kernel::Step& step) {
      return step.kind == StepKind::gather && step.axis_stride >= columns &&
             step.axis_stride * step.axis_extent * 4 > kGatheredBytes && varies[static_cast<std::size_t>(step.a)];
    });
    if (!found) return false;
    for (View& view : views_) {
      const Extent stride = view.strides.back();
      view.strides.back() = stride * kStrip;
      view.strides.push_back(stride);
    }
    extents_.back() /= kStrip;
    extents_.push_back(kStrip);
    order_.back() = extents_.size() - 1;
    order_.insert(order_.begin(), extents_.size() - 2);
    return true;
  }

  const kernel::LoopKernel& kernel_;
  std::vector<Extent> extents_;  // of the common coordinates
  std::vector<View> views_;      // their strides, in the order of the steps and stores
  std::vector<std::size_t> order_;
};

}  // namespace

std::optional<kernel::LoopKernel> reordered(const kernel::LoopKernel& kernel) { return SpaceOrder(kernel).find(); }

}  // namespace weft::cpu
