#include "graph/axes.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "graph/describe.hpp"

namespace weft::graph {

const Tensor& with_value(std::string_view op, const Tensor& x) {
  if (!x.defined()) throw UsageError(fmt::format("{}: the tensor has no value", op));
  return x;
}

int normalized_axis(std::string_view op, const Tensor& x, int axis, Where where) {
  const int rank = x.rank();
  if (axis < -rank || axis >= rank)
    throw ShapeError(describe(op, fmt::format("axis {} is outside of [{}, {})", axis, -rank, rank), {{"x", x}}, where));
  return axis < 0 ? axis + rank : axis;
}

std::vector<int> normalized_axes(std::string_view op, const Tensor& x, const Axes& axes, Where where) {
  std::vector<int> result;
  for (int axis : axes) {
    const int a = normalized_axis(op, x, axis, where);
    if (std::find(result.begin(), result.end(), a) != result.end())
      throw ShapeError(describe(op, fmt::format("axis {} is given twice", axis), {{"x", x}}, where));
    result.push_back(a);
  }
  return result;
}

}  // namespace weft::graph
