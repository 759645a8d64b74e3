// The instructions of an elementwise op as nodes of ONNX.
#pragma once

#include <span>
#include <string>

#include "onnx/record.hpp"
#include "ops/scalar.hpp"

namespace weft::onnx {

/// A value of the record.
struct Operand {
  std::string name;
  DType type;
};

/// Records the typed expression on these operands; gives the name of the result.
/// Errors  UsageError: an instruction that ONNX lacks.
std::string record_expression(Record& record, const scalar::Expression& expression, std::span<const Operand> operands);

/// c ? a : b.
std::string record_select(Record& record, const std::string& c, const std::string& a, const std::string& b, DType type);

}  // namespace weft::onnx
