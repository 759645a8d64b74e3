// Formulas of single families that a pass is lowered to.
#pragma once

#include "weft/tensor.hpp"

namespace weft::llm {

/// softplus(a) x^2 + beta x above 0, (beta + softplus(b)) (e^min(x, eps) - 1 - x) + beta x below.
Tensor xielu(const Tensor& x, const Tensor& a, const Tensor& b, const Tensor& beta, const Tensor& eps);
/// 1 + factor ln(1 + floor((p + offset) / each)) of each position, [T, 1].
Tensor growth(const Tensor& positions, Extent each, double offset, double factor);
/// Parts of `width` of x [T, n], each divided by its root mean square.
Tensor unit_norm(const Tensor& x, Extent width, double eps);
/// Heads of x [T, groups K], each of that length, `again` times one behind the other: [T, again groups, K].
Tensor heads_with_length(const Tensor& x, Extent groups, double length, Extent again);

}  // namespace weft::llm
