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

/// The ops of these names of ir.hpp.
Tensor cut_below(const Tensor& x, double deviations);
Tensor mix_streams(const Tensor& x, const Tensor& numbers, Extent streams, double offset);
Tensor add_to_streams(const Tensor& x, const Tensor& y, Extent first);
Tensor match_magnitude(const Tensor& x, const Tensor& y);

}  // namespace weft::llm
