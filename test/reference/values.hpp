// Buffers of the reference: vectors of doubles, one element each (an f32, i32, u32 or bool is exact in a double), so that a
// buffer holds one element type.
#pragma once

#include <vector>

#include "compile/kernel.hpp"

namespace weft::reference {

using Values = std::vector<double>;

double round_half_even(double x);
double to_type(double value, DType type);
/// scalar::Op::cast: float to integer truncates and saturates, NaN gives 0; integer to integer keeps the low bits.
double cast(double value, DType from, DType to);
/// Element offset of linear index `i` in a view, or -1 where a bound excludes it.
Extent locate(const kernel::View& view, Extent i);
double read(const kernel::Operand& operand, Extent at, const std::vector<Values>& buffers);
void write(const kernel::Operand& operand, Extent at, double value, std::vector<Values>& buffers);

}  // namespace weft::reference
