// Tested cases of op rows as tensors: what the self-test and the tests of every device run.
#pragma once

#include <cstdint>
#include <vector>

#include "graph/op.hpp"

namespace weft::runtime {

/// Random numbers between lo and hi, the same on every machine; exact in f32.
std::vector<double> random_numbers(Extent count, double lo, double hi, std::uint32_t seed);
/// A tensor on the default device of these numbers, converted to the dtype.
Tensor tensor_of(const std::vector<double>& numbers, const Shape& shape, DType type);
/// All elements as f64.
std::vector<double> numbers_of(const Tensor& tensor);

/// Inputs of a case on the default device. A float input takes `type`.
graph::Tensors case_inputs(const std::vector<graph::CaseInput>& inputs, DType type);
/// Whether every input of the case can be of this float type.
bool takes(const graph::OpRow& row, const std::vector<graph::CaseInput>& inputs, DType type);
/// The op's results; with gradients also those of sum(weights * result 0) with respect to every float input.
graph::Tensors case_results(const graph::OpRow& row, const graph::OpCase& one, DType type, bool with_gradients);

}  // namespace weft::runtime
