#include "graph/state_operands.hpp"

#include <fmt/format.h>

#include "graph/cache.hpp"
#include "weft/ops.hpp"

namespace weft::graph {

void require_shape(const Call& c, const Tensor& x, const Shape& shape, const char* name) {
  if (x.shape() != shape)
    c.shape_error(fmt::format("{} is {}, not {}", name, x.shape().to_string(), shape.to_string()));
}
void require_indices(const Call& c, std::initializer_list<Tensor> indices) {
  for (const Tensor& x : indices)
    if (x.dtype() != DType::i32) c.dtype_error("indices are not i32; cast them");
}
void require_floats(const Call& c, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i)
    if (!is_float(c.input(i).dtype()) || c.input(i).dtype() != c.input(0).dtype())
      c.dtype_error("floats of one dtype are needed; cast them");
}
void require_count(const Call& c, std::size_t count) {
  if (c.inputs().size() != count)
    c.usage_error(fmt::format("there are {} inputs; {} are needed", c.inputs().size(), count));
}
void require_cache(const Call& c, const Tensor& cache, const Tensor& sequence, const Tensor& is_first, Extent batch,
                   Extent width) {
  require_indices(c, {sequence, is_first});
  require_shape(c, sequence, {batch}, "sequence");
  require_shape(c, is_first, {batch}, "is_first");
  require_shape(c, cache, {cache.rank() > 0 ? cache.dim(0) : 0, width}, "the cache");
}

Tensor with_steps(const Tensor& x, Extent steps) {
  if (x.dim(1) == steps) return x;
  Shape rest = x.shape();
  rest[1] = steps - x.dim(1);
  return weft::concat(Tensors{x, zeros(rest, x.dtype(), x.device())}, 1);
}

Tensor rows_before(const Tensor& cache, const Tensor& sequence, const Tensor& is_first) {
  const Tensor rows = embedding(cache, elementwise("maximum", {sequence, scalar_like(0, sequence)}));
  const Tensor begins = (is_first > 0.0) | (sequence < 0.0);
  // A row that no sequence has used may hold anything, so it is not multiplied away.
  return elementwise("where", {weft::unsqueeze(begins, 1), zeros_like(rows), rows});
}
Tensor with_rows(const Tensor& cache, const Tensor& rows, const Tensor& sequence) {
  return call(write_rows_row(), {cache, rows, sequence}, WriteRows{CacheType::f32}, Where::current());
}

}  // namespace weft::graph
