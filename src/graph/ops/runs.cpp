#include "graph/ops/runs.hpp"

#include "graph/op.hpp"
#include "weft/ops.hpp"
#include "weft/ops/indexing.hpp"
#include "weft/ops/making.hpp"
#include "weft/ops/order.hpp"

namespace weft::graph {

RunNumbers numbers_of_runs(const Tensor& first, const Tensor& counts, Extent total, Where where) {
  if (total == 0) return {zeros({0}, DType::i32, first.device()), zeros({0}, DType::i32, first.device())};
  const Tensor ends = cast(cumsum(counts, 0, false, false, where), DType::i32, where);
  const Tensor at = arange(total, DType::i32, first.device());
  // Runs without numbers end where the next one begins, and are passed over.
  const Tensor run = cast(searchsorted(ends, at, true, where), DType::i32, where);
  return {run, at + index_select(first - (ends - counts), 0, run, where)};
}

}  // namespace weft::graph
