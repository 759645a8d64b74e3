// Every op of the table as an operation: tensor.NAME. Names, schemas and texts come from the rows.
#include <fmt/format.h>

#include "catalogue/families.hpp"
#include "catalogue/op_values.hpp"
#include "graph/op.hpp"
#include "weft/error.hpp"

namespace weft::operations {
namespace {

const std::vector<DeclaredError>& tensor_errors() {
  static const std::vector<DeclaredError> errors = {
      {"SHAPE_ERROR", "shapes that do not fit the op"},
      {"DTYPE_ERROR", "a dtype that the op or the device does not take"},
      {"USAGE_ERROR", "an attribute or operand that the op does not take"},
      {"DEVICE_ERROR", "no memory, or a lost device", true, 503},
      {"TENSOR_TOO_LARGE", "a result with more bytes than one may have", true, 413},
  };
  return errors;
}

// Turns errors of the engine into declared codes.
template <class Function>
auto with_codes(const Function& function) {
  try {
    return function();
  } catch (const OperationError&) {
    throw;
  } catch (const ShapeError& error) {
    throw OperationError("SHAPE_ERROR", error.what());
  } catch (const DTypeError& error) {
    throw OperationError("DTYPE_ERROR", error.what());
  } catch (const UsageError& error) {
    throw OperationError("USAGE_ERROR", error.what());
  } catch (const DeviceError& error) {
    throw OperationError("DEVICE_ERROR", error.what());
  }
}

Specification tensor_specification(const graph::OpRow& row) {
  Specification s{.space = "tensor", .name = row.name, .title = row.name, .description = row.doc, .tags = {row.family}};
  s.input = input_schema(row);
  s.output = output_schema(row);
  s.errors = tensor_errors();
  s.access.scopes = {"tensor:run"};
  Value::Object metadata{{"family", row.family}, {"differentiable", row.differentiable}, {"result_dtype", row.result}};
  if (!row.aliases.empty()) metadata.set("aliases", Value::Array(row.aliases.begin(), row.aliases.end()));
  if (!row.formula.empty()) metadata.set("formula", row.formula);
  for (const auto& [key, text] :
       {std::pair{"torch", &row.torch}, std::pair{"numpy", &row.numpy}, std::pair{"onnx", &row.onnx}})
    if (!text->empty()) metadata.set(key, *text);
  s.metadata = std::move(metadata);
  return s;
}

void check_size(const Tensor& tensor, std::uint64_t bytes_max) {
  const std::uint64_t bytes = bytes_of(tensor.dtype(), static_cast<std::size_t>(tensor.numel()));
  if (bytes > bytes_max)
    throw OperationError("TENSOR_TOO_LARGE",
                         fmt::format("a result {} {} has {} bytes; at most {} are allowed", name_of(tensor.dtype()),
                                     tensor.shape().to_string(), bytes, bytes_max));
}

}  // namespace

void add_tensor_operations(Registry& registry, const CatalogueOptions& options) {
  for (const graph::OpRow* row : graph::op_rows())
    registry.add(tensor_specification(*row), [row, bytes_max = options.tensor_bytes_max](Context& call) {
      return with_codes([&]() -> Value {
        graph::Tensors results = apply_to(*row, call.input());
        for (const Tensor& result : results) check_size(result, bytes_max);
        if (!row->several_outputs) return Value::object({{"result", std::move(results.at(0))}});
        return Value::object({{"results", Value::Array(results.begin(), results.end())}});
      });
    });
}

}  // namespace weft::operations
