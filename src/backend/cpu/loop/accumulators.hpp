// Accumulators of reductions between tiles, and between parts of a divided axis.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/cpu/loop/code.hpp"

namespace weft::cpu {

/// An accumulator of 64-bit integers holds their bits, every other accumulator the number.
bool carries_bits(DType type);
/// The accumulator of no elements.
double empty_value(scalar::Reduction reduction, DType type);
/// Joins the accumulators of a later part of the inner axis to those of an earlier one. Positions count only for argmax and argmin, and for
/// sums of squares around the mean, where they are the means of `count_before` and of `count_later` elements.
void join_accumulators(const ReductionInfo& info, std::size_t count, double* values, std::int64_t* positions,
                       const double* later, const std::int64_t* later_positions, Extent count_before,
                       Extent count_later);

}  // namespace weft::cpu
