#include "compile/strided.hpp"

#include <algorithm>

#include "compile/fuse.hpp"
#include "compile/split_frames.hpp"

namespace weft::compiler {
namespace {

using graph::Kind;
using graph::Node;
using kernel::View;

// A value's axes as strides into its owner's memory: one view an axis.
struct Strided {
  const Node* owner = nullptr;
  Extent offset = 0;
  std::vector<View> axes;
};

// nullopt when no strides describe it, so that it must be copied.
std::optional<Strided> strided(const Node* node, const PlaceOf& place) {
  const Node* base = base_of(node);
  if (base->kind == Kind::constant || base->kind == Kind::iota) return std::nullopt;
  std::vector<Extent> extents = node->shape.vector();
  std::vector<int> axis;  // the value's axis that a frame extent is a part of
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
    if (!access.masks.empty()) return std::nullopt;
    const Place at = place(base);
    const Affine linear = linear_of(access.dims, at.strides, extents.size());
    Strided s{at.owner, linear.base + at.offset, std::vector<View>(node->shape.size())};
    if (s.offset < 0) return std::nullopt;
    for (std::size_t f = 0; f < extents.size(); ++f) {
      if (linear.coefficients[f] < 0) return std::nullopt;
      s.axes[static_cast<std::size_t>(axis[f])].extents.push_back(extents[f]);
      s.axes[static_cast<std::size_t>(axis[f])].strides.push_back(linear.coefficients[f]);
    }
    for (View& view : s.axes) view = simplified(std::move(view));
    return s;
  };
  return with_split_frames(extents, follow_views, [&](const SplitFrame& split) { repeat_entry(axis, split); });
}

// The one stride of an axis (0 for an extent of 1), if its parts lie in a row.
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
  Extent expected = 1;
  for (int d = node->shape.rank() - 1; d >= 0; --d) {
    const auto stride = stride_of(s->axes[static_cast<std::size_t>(d)]);
    if (!stride || (node->shape[d] > 1 && *stride != expected)) return std::nullopt;
    expected *= node->shape[d];
  }
  return ContiguousOperand{s->owner, s->offset};
}

std::optional<ChosenOperand> chosen_operand(const Node* node, const PlaceOf& place) {
  const auto s = strided(node, place);
  if (!s) return std::nullopt;
  const auto stride = stride_of(s->axes[0]);
  if (!stride) return std::nullopt;
  return ChosenOperand{s->owner, s->offset, *stride};
}

}  // namespace weft::compiler
