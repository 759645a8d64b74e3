#include "compile/strided.hpp"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "compile/sources.hpp"
#include "compile/split_frames.hpp"

namespace weft::compiler {
namespace {

using graph::Kind;
using graph::Node;
using kernel::View;

// A sum over a value's axes, each of which may be split: one view for each axis.
struct AxisSum {
  Extent base = 0;
  std::vector<View> axes;
};

// A value's axes as strides into its owner's memory.
struct Strided {
  const Node* owner = nullptr;
  Extent offset = 0;
  std::vector<View> axes;
  struct Edge {
    AxisSum value;
    Extent lo, hi;
  };
  std::vector<Edge> edges;  // the zeros of pads
};

enum class Steps : bool { increase, any };

// The affine form as a sum over axes; nullopt if it decreases along an axis and must not. `axis` gives the axis of each frame
// extent.
std::optional<AxisSum> axis_sum(const Affine& linear, const std::vector<Extent>& extents, const std::vector<int>& axis,
                                int axes, Steps steps = Steps::increase) {
  AxisSum sum{linear.base, std::vector<View>(static_cast<std::size_t>(axes))};
  for (std::size_t f = 0; f < extents.size(); ++f) {
    if (linear.coefficients[f] < 0 && steps == Steps::increase) return std::nullopt;
    View& view = sum.axes[static_cast<std::size_t>(axis[f])];
    view.extents.push_back(extents[f]);
    view.strides.push_back(linear.coefficients[f]);
  }
  for (View& view : sum.axes) view = simplified(std::move(view));
  return sum;
}

Extent largest_of(const AxisSum& sum) {
  Extent largest = sum.base;
  for (const View& view : sum.axes)
    for (std::size_t d = 0; d < view.extents.size(); ++d) largest += (view.extents[d] - 1) * view.strides[d];
  return largest;
}

// The mask as an edge of values that are not negative. nullopt if it has no such form.
std::optional<Strided::Edge> edge_of(const Mask& mask, const std::vector<Extent>& extents, const std::vector<int>& axis,
                                     int axes) {
  auto value = axis_sum(mask.value, extents, axis, axes);
  if (!value) return std::nullopt;
  const Extent up = std::max<Extent>(0, -value->base);
  value->base += up;
  return Strided::Edge{std::move(*value), mask.lo + up, mask.hi + up};
}

// Operands of products may have pads, and decrease along an axis.
enum class Form : bool { plain, matrix };

// nullopt when no strides describe it, so that it must be copied.
std::optional<Strided> strided(const Node* node, const PlaceOf& place, Form form = Form::plain) {
  const Node* base = base_of(node);
  if (base->kind == Kind::constant || base->kind == Kind::iota) return std::nullopt;
  std::vector<Extent> extents = node->shape.vector();
  std::vector<int> axis;  // the value's axis of each frame extent
  for (int d = 0; d < node->shape.rank(); ++d) axis.push_back(d);
  auto follow_views = [&]() -> std::optional<Strided> {
    Access access;
    for (int d = 0; d < node->shape.rank(); ++d) {
      Affine a{0, std::vector<Extent>(extents.size(), 0)};
      Extent stride = 1;
      for (std::size_t f = extents.size(); f-- > 0;)
        if (axis[f] == d) {
          a.coefficients[f] = stride;
          stride *= extents[f];
        }
      access.dims.push_back(std::move(a));
    }
    for (const Node* view = node; view != base; view = view->inputs[0].get())
      access = through_view(*view, access, extents);
    if (!access.masks.empty() && form == Form::plain) return std::nullopt;
    const Place at = place(base);
    auto sum = axis_sum(linear_of(access.dims, at.strides, extents.size()), extents, axis, node->shape.rank(),
                        form == Form::plain ? Steps::increase : Steps::any);
    if (!sum) return std::nullopt;
    Strided s{at.owner, sum->base + at.offset, std::move(sum->axes), {}};
    for (const Mask& mask : access.masks) {
      auto edge = edge_of(mask, extents, axis, node->shape.rank());
      if (!edge || edge->hi <= edge->lo) return std::nullopt;
      if (edge->value.base < edge->lo || largest_of(edge->value) >= edge->hi) s.edges.push_back(std::move(*edge));
    }
    if (s.offset < 0 && s.edges.empty()) return std::nullopt;
    return s;
  };
  return with_split_frames(extents, follow_views, [&](const SplitFrame& split) { repeat_entry(axis, split); });
}

// The one stride of an axis (0 for an extent of 1), if its parts are contiguous.
std::optional<Extent> stride_of(const View& axis) {
  if (axis.extents.empty()) return 0;
  return axis.extents.size() == 1 ? std::optional(axis.strides[0]) : std::nullopt;
}

}  // namespace

Place contiguous_place(const Node* node) { return {node, 0, contiguous_strides(node->shape)}; }

std::optional<MatmulOperand> matmul_operand(const Node* node, const PlaceOf& place) {
  const auto s = strided(node, place);
  if (!s) return std::nullopt;
  const auto row = stride_of(s->axes[1]), column = stride_of(s->axes[2]);
  if (!row || !column) return std::nullopt;
  MatmulOperand operand{s->owner, s->offset, *row, *column, s->axes[0]};
  const Extent rows = node->shape[1], columns = node->shape[2];
  // One of the two strides must be 1; an axis of extent 1 may have any.
  if (columns == 1 && operand.row != 1)
    operand.column = 1;
  else if (rows == 1 && operand.column != 1)
    operand.row = 1;
  if (rows == 1 && operand.column == 1) operand.row = std::max(operand.row, columns);
  if (columns == 1 && operand.row == 1) operand.column = std::max(operand.column, rows);
  if (operand.row != 1 && operand.column != 1) return std::nullopt;
  if (operand.row == 0 || operand.column == 0) return std::nullopt;  // rows that repeat
  return operand;
}

bool reads_windows(const Node* node) {
  for (const Node* base = base_of(node); node != base; node = node->inputs[0].get())
    if (node->kind == Kind::window) return true;
  return false;
}

bool is_read_well(const Node* node, const MatrixOperand& operand) {
  constexpr Extent kRunMin = 16;  // a cache line of f32
  const auto has_runs = [](const View& axis) {
    return !axis.extents.empty() && axis.strides.back() == 1 && axis.extents.back() >= kRunMin;
  };
  const kernel::MatrixView& view = operand.view;
  for (const View* axis : {&view.at.batch, &view.at.rows, &view.at.columns})
    if (std::any_of(axis->strides.begin(), axis->strides.end(), [](Extent stride) { return stride < 0; })) return false;
  if (view.is_plain() && std::min(view.row(), view.column()) == 1) return true;
  return reads_windows(node) || has_runs(view.at.rows) || has_runs(view.at.columns);
}

bool is_dense(const kernel::MatrixView& view) {
  if (!view.edges.empty()) return false;
  std::vector<std::pair<Extent, Extent>> steps;  // stride, extent
  for (const View* axis : {&view.at.rows, &view.at.columns})
    for (std::size_t d = 0; d < axis->extents.size(); ++d)
      if (axis->extents[d] > 1) steps.emplace_back(std::abs(axis->strides[d]), axis->extents[d]);
  std::sort(steps.begin(), steps.end());
  Extent size = 1;
  for (const auto& [stride, extent] : steps) {
    if (stride != size) return false;
    size *= extent;
  }
  return true;
}

namespace {

kernel::MatrixView::Sum matrix_sum(AxisSum sum) {
  kernel::MatrixView::Sum views{std::move(sum.axes[0]), std::move(sum.axes[1]), std::move(sum.axes[2])};
  views.batch.offset = sum.base;
  return views;
}

}  // namespace

std::optional<MatrixOperand> matrix_operand(const Node* node, const PlaceOf& place) {
  if (const auto plain = matmul_operand(node, place))
    return MatrixOperand{plain->owner, plain->offset,
                         kernel::matrix_view(plain->batch, node->shape[1], plain->row, node->shape[2], plain->column)};
  auto s = strided(node, place, Form::matrix);
  if (!s) return std::nullopt;
  if (s->edges.size() > kernel::MatrixView::kEdgesMax) return std::nullopt;
  // The operand begins at its lowest element. A padded value may begin anywhere in its owner.
  Extent offset = s->offset;
  for (const View& axis : s->axes)
    for (std::size_t d = 0; d < axis.extents.size(); ++d)
      offset += std::min<Extent>(axis.strides[d], 0) * (axis.extents[d] - 1);
  if (!s->edges.empty()) offset = 0;
  MatrixOperand operand{s->owner, offset, {matrix_sum({s->offset - offset, std::move(s->axes)}), {}}};
  for (Strided::Edge& edge : s->edges)
    operand.view.edges.push_back({matrix_sum(std::move(edge.value)), edge.lo, edge.hi});
  return operand;
}

std::optional<AttentionOperand> attention_operand(const Node* node, const PlaceOf& place) {
  const auto s = strided(node, place);
  if (!s) return std::nullopt;
  const auto batch = stride_of(s->axes[0]), row = stride_of(s->axes[1]), head = stride_of(s->axes[2]),
             channel = stride_of(s->axes[3]);
  if (!batch || !row || !head || !channel || (node->shape[3] > 1 && *channel != 1)) return std::nullopt;
  return AttentionOperand{s->owner, s->offset, *batch, *row, *head};
}

std::optional<ContiguousOperand> contiguous_operand(const Node* node, const PlaceOf& place) {
  const auto s = strided(node, place);
  if (!s) return std::nullopt;
  if (node->shape.numel() == 0) return ContiguousOperand{s->owner, s->offset};  // nothing is read
  Extent expected = 1;
  for (int d = node->shape.rank() - 1; d >= 0; --d) {
    const auto stride = stride_of(s->axes[static_cast<std::size_t>(d)]);
    if (!stride || (node->shape[d] > 1 && *stride != expected)) return std::nullopt;
    expected *= node->shape[d];
  }
  return ContiguousOperand{s->owner, s->offset};
}

}  // namespace weft::compiler
