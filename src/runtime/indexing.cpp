// Parts of tensors in brackets: x[i], x[{i, kAll, Slice{1, 4}}], x[positions], x[mask].
#include <fmt/format.h>

#include "graph/describe.hpp"
#include "graph/trace_scope.hpp"
#include "weft/ops.hpp"

namespace weft {
namespace {

using graph::describe;

/// The part along `axis`; a position removes the axis.
Tensor part(const Tensor& x, int axis, const Index& index) {
  if (!index.is_slice) {
    const Extent n = x.dim(axis), position = index.position;
    if (position < -n || position >= n)
      throw ShapeError(describe("[]",
                                fmt::format("position {} is outside of axis {} with extent {}", position, axis, n),
                                {{"x", x}}, index.where));
    return select(x, axis, position, index.where);
  }
  Slice slice = index.slice;
  if (slice.start == Slice::kStart) slice.start = slice.step < 0 ? kEnd : 0;
  return weft::slice(x, axis, slice.start, slice.stop, slice.step, index.where);
}

Shape shape_of(std::span<const Extent> first, std::span<const Extent> last) {
  std::vector<Extent> extents(first.begin(), first.end());
  extents.insert(extents.end(), last.begin(), last.end());
  return Shape(std::move(extents));
}

/// Rows of x [n, ...] at `positions`, all in [0, n).
Tensor rows_at(const Tensor& x, const Tensor& positions, Where where) {
  const std::span<const Extent> extents(x.shape().vector());
  Extent columns = 1;
  for (const Extent extent : extents.subspan(1)) columns *= extent;
  const Tensor rows = embedding(reshape(x, {x.dim(0), columns}, where), positions, where);
  return reshape(rows, shape_of(positions.shape().vector(), extents.subspan(1)), where);
}

Tensor where_true(const Tensor& x, const Tensor& mask, Where where) {
  bool fits = mask.rank() <= x.rank() && mask.rank() > 0;
  for (int i = 0; fits && i < mask.rank(); ++i) fits = mask.dim(i) == x.dim(i);
  if (!fits)
    throw ShapeError(
        describe("[]", "the mask is not of the shape of x's first axes", {{"x", x}, {"mask", mask}}, where));
  if (graph::TraceScope::current())
    throw UsageError(describe("[]",
                              "how many elements a mask picks is not known inside a compiled function; use "
                              "where(mask, x, 0), or pick before it",
                              {{"x", x}, {"mask", mask}}, where));
  std::vector<std::int32_t> chosen;
  const std::vector<bool> bits = mask.to_vector<bool>();
  for (std::size_t i = 0; i < bits.size(); ++i)
    if (bits[i]) chosen.push_back(static_cast<std::int32_t>(i));
  const Tensor positions =
      tensor_from_bytes(chosen.data(), {static_cast<Extent>(chosen.size())}, DType::i32, x.device());
  const std::span<const Extent> extents(x.shape().vector());
  const Shape flat =
      shape_of(std::vector<Extent>{mask.numel()}, extents.subspan(static_cast<std::size_t>(mask.rank())));
  return rows_at(reshape(x, flat, where), positions, where);
}

}  // namespace

Tensor Tensor::operator[](const Index& index) const { return (*this)[std::initializer_list<Index>{index}]; }

Tensor Tensor::operator[](std::initializer_list<Index> indices) const {
  Tensor result = *this;
  if (indices.size() > static_cast<std::size_t>(rank()))
    throw ShapeError(describe("[]", fmt::format("{} indices for a tensor of rank {}", indices.size(), rank()),
                              {{"x", *this}}, indices.begin()->where));
  int axis = 0;
  for (const Index& index : indices) {
    result = part(result, axis, index);
    if (index.is_slice) ++axis;
  }
  return result;
}

Tensor Tensor::operator[](const Term& positions_or_mask) const {
  const Tensor& at = positions_or_mask.tensor;
  const Where where = positions_or_mask.where;
  if (at.device() != device())
    throw DeviceError(
        describe("[]", "x and its positions are on different devices", {{"x", *this}, {"at", at}}, where));
  if (rank() == 0) throw ShapeError(describe("[]", "a scalar has no axis", {{"x", *this}}, where));
  if (at.dtype() == DType::boolean) return where_true(*this, at, where);
  if (!is_integer(at.dtype()))
    throw DTypeError(describe("[]", "positions are integers, and a mask is bool", {{"x", *this}, {"at", at}}, where));
  return rows_at(*this, element(at.dtype()).is_signed ? weft::where(lt(at, 0.0), at + dim(0), at) : at, where);
}

}  // namespace weft
