// The meaning of kernels, slowly: evaluates kernel IR element by element in double, as the yardstick of every backend.
// Each f32 step is rounded to f32 after being computed in double, as a correctly rounded device would.
#pragma once

#include <cstdint>
#include <vector>

#include "compile/kernel.hpp"
#include "reference/values.hpp"

namespace weft::reference {

/// Philox 4x32-10 with key (seed, stream) and counter (index, 0, 0, 0): the first word.
std::uint32_t philox(std::uint32_t seed, std::uint32_t stream, std::uint32_t index);

/// One scalar op. Operands are first brought to the type they meet in: the result type, except for comparisons (the
/// promoted type of both operands), logical ops and a select's condition (bool), and is_nan (their own).
double apply(scalar::Op op, DType type, double a, DType ta, double b = 0, DType tb = DType::f32, double c = 0,
             DType tc = DType::f32);

/// Runs a kernel over `buffers`, one for each buffer of its plan.
void run(const kernel::Kernel& kernel, std::vector<Values>& buffers);
void run(const kernel::Plan& plan, std::vector<Values>& buffers);

}  // namespace weft::reference
