// What calls on states have in common: checks of their operands, and states that are rows of a cache.
#pragma once

#include <initializer_list>

#include "graph/op.hpp"

namespace weft::graph {

void require_shape(const Call& c, const Tensor& x, const Shape& shape, const char* name);
void require_indices(const Call& c, std::initializer_list<Tensor> indices);
/// That the first `count` inputs are floats of one dtype.
void require_floats(const Call& c, std::size_t count);
void require_count(const Call& c, std::size_t count);
/// That sequence and is_first have a number for each of `batch`, and that the cache has rows of `width`.
void require_cache(const Call& c, const Tensor& cache, const Tensor& sequence, const Tensor& is_first, Extent batch,
                   Extent width);

/// x with zeros after its last step, up to `steps` of axis 1.
Tensor with_steps(const Tensor& x, Extent steps);
/// The rows of sequences in a cache, zeros for those that begin or have none.
Tensor rows_before(const Tensor& cache, const Tensor& sequence, const Tensor& is_first);
/// The cache with the rows of the sequences that have one.
Tensor with_rows(const Tensor& cache, const Tensor& rows, const Tensor& sequence);

}  // namespace weft::graph
