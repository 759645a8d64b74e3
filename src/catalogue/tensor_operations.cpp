// Every op of the table as an operation: tensor.NAME. Names, schemas and texts come from the rows.
#include "catalogue/engine_errors.hpp"
#include "catalogue/families.hpp"
#include "catalogue/op_values.hpp"
#include "graph/op.hpp"

namespace weft::operations {
namespace {

Specification tensor_specification(const graph::OpRow& row) {
  Specification s{.space = "tensor", .name = row.name, .title = row.name, .description = row.doc, .tags = {row.family}};
  s.input = input_schema(row);
  s.output = output_schema(row);
  s.errors = engine_errors();
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
