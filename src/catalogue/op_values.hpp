// Inputs and attributes of ops as values, and their schemas.
#pragma once

#include <optional>

#include "graph/op.hpp"
#include "weft/value.hpp"

namespace weft::operations {

/// Attributes from an object {name: value}: numbers ("inf", "-inf" and "nan" too), booleans, lists of integers, lists of
/// pairs, names of dtypes, words, null for the default.
/// Errors: UsageError for what is not an object, or a value that no attribute takes.
graph::CaseAttributes attributes_from(const graph::OpRow& row, const Value& object);
/// "inf", "-inf" and "nan" stand for what JSON has no numbers for.
Value value_of(const graph::AttributeValue& value);

/// A number as an operand: of the dtype that the tensors beside it have in common, if that can hold it.
Tensor number_operand(double number, std::optional<DType> common, Device device);

/// What an op takes as an operation: an object of its inputs, tensors or numbers, and of its attributes.
Value input_schema(const graph::OpRow& row);
/// And gives: {"result": tensor}, or {"results": [tensor, ...]}.
Value output_schema(const graph::OpRow& row);

/// The results of an op for such an object.
graph::Tensors apply_to(const graph::OpRow& row, const Value& object);

}  // namespace weft::operations
