// Inputs and attributes of ops as values, and their schemas.
#pragma once

#include <optional>

#include "graph/op.hpp"
#include "weft/value.hpp"

namespace weft::operations {

/// Attributes from an object {name: value}: numbers ("inf", "-inf" and "nan" too), booleans, lists of integers, lists of pairs,
/// names of dtypes, words, null for the default. Errors: UsageError if it is not an object, or for a value that no attribute
/// takes.
graph::CaseAttributes attributes_from(const graph::OpRow& row, const Value& object);
/// Infinities and NaN, which JSON lacks, become "inf", "-inf" and "nan".
Value value_of(const graph::AttributeValue& value);

/// A number as an operand: it has the common dtype of the tensors beside it, if that can hold it.
Tensor number_operand(double number, std::optional<DType> common, Device device);

/// The input of an op as an operation: an object of its inputs, tensors or numbers, and of its attributes.
Value input_schema(const graph::OpRow& row);
/// The output: {"result": tensor}, or {"results": [tensor, ...]}.
Value output_schema(const graph::OpRow& row);

/// Applies an op to such an object.
graph::Tensors apply_to(const graph::OpRow& row, const Value& object);

}  // namespace weft::operations
