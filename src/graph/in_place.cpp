// What the functions of weft/in_place.hpp share.
#include "weft/in_place.hpp"

#include <fmt/format.h>

#include "graph/describe.hpp"
#include "weft/ops.hpp"

namespace weft {

void detail::assign_in_place(Tensor& x, Tensor result, const char* name, Where where) {
  if (result.shape() != x.shape())
    throw ShapeError(graph::describe(name, "the result has another shape than x, which it would replace",
                                     {{"x", x}, {"result", result}}, where));
  if (result.dtype() != x.dtype())
    throw DTypeError(graph::describe(name, "the result has another dtype than x, which it would replace; cast it",
                                     {{"x", x}, {"result", result}}, where));
  x = std::move(result);
}

void detail::assign_in_place(Variable& x, Tensor result, const char*, Where where) { x.assign(result, where); }

Tensor detail::copied_to(const Tensor& x, const Tensor& y, Where where) {
  return expand(cast(y, x.dtype(), where), x.shape(), where);
}

}  // namespace weft
