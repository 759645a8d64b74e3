// Lengths of the rows of changed matrices, which adapters with magnitudes (DoRA) replace by their own.
#pragma once

#include <vector>

#include "llm/adapter.hpp"
#include "llm/weights.hpp"

namespace weft::llm {

/// The sum of squares of each row of a matrix, f32 [out]; the matrix may be in blocks.
Tensor row_squares(const Tensor& weight);
/// The lengths of the rows of W + scale B A, f32 [out]: their squares are |W|^2 + 2 scale (W A^T) . B + scale^2 (B A A^T) . B, so that
/// the sum is never in memory. `squares` are those of W. It has no gradient.
Tensor row_lengths(const Tensor& weight, const Tensor& squares, const Tensor& a, const Tensor& b, double scale);

/// Magnitudes of changes as gains, with B times the same: m / |W + scale B A| for each row, of which `strength` counts. The matrices
/// are read from the model's file.
void make_gains(std::vector<LowRank>& changes, const ModelGraph& graph, const TensorNames& names);
/// Gains of 1 in their place, for plans of models whose values are not at hand.
void forget_magnitudes(std::vector<LowRank>& changes);

}  // namespace weft::llm
