#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "catalogue/frame.hpp"
#include "serve/service.hpp"

namespace weft::serve {
namespace {

namespace op = operations;

Value reference(std::string_view name) {
  return Value::object({{"$ref", fmt::format("#/components/schemas/{}", name)}});
}

Value json_content(Value schema) {
  return Value::object({{"application/json", Value::object({{"schema", std::move(schema)}})}});
}

bool has_references(const Value& schema) {
  if (schema.is_array()) return std::any_of(schema.elements().begin(), schema.elements().end(), has_references);
  if (!schema.is_object()) return false;
  return std::any_of(schema.members().begin(), schema.members().end(), [](const Value::Object::Member& member) {
    return member.key == "$ref" || member.key == "$dynamicRef" || has_references(member.value);
  });
}

// A schema in which `x-tensor` refers to the one description of tensors.
Value with_references(const Value& schema) {
  if (schema.is_array()) {
    Value::Array elements;
    for (const Value& each : schema.elements()) elements.push_back(with_references(each));
    return elements;
  }
  if (!schema.is_object()) return schema;
  Value::Object out;
  for (const auto& [key, value] : schema.members()) {
    // Generators of clients write these into their language as numbers, which few languages have.
    if (key == "default" && (value == Value("inf") || value == Value("-inf") || value == Value("nan"))) continue;
    const bool is_data = key == "default" || key == "const" || key == "enum" || key == "examples";
    out.set(key, is_data ? value : with_references(value));
  }
  if (schema.members().contains("x-tensor")) out.set("$ref", "#/components/schemas/Tensor");
  return out;
}

// A schema as a part of the description. References inside it lead to itself, so it becomes a resource of its own.
Value embedded(const Value& schema, std::string_view id, std::string_view part) {
  // Any value: generators of clients know {} and not true, which means the same.
  if (schema == Value(true)) return Value::Object();
  if (!has_references(schema)) return with_references(schema);
  Value own = op::schema_for_wire(schema);
  if (!own.find("$id")) own.members().set("$id", fmt::format("urn:weft:{}:{}", id, part));
  return own;
}

Value frame_content() {
  return Value::object(
      {{"schema", Value::object({{"type", "string"},
                                 {"format", "binary"},
                                 {"description", "the JSON, and behind it the bytes of its tensors"}})}});
}

Value responses_of(const op::Specification& specification) {
  const Value envelope = Value::object(
      {{"type", "object"},
       {"required", Value::array({"data", "meta"})},
       {"properties", Value::object({{"data", embedded(specification.output, specification.id(), "output")},
                                     {"meta", Value::object({{"type", "object"}})}})}});
  Value::Object content;
  if (specification.kind != op::Kind::subscription)
    content = {{"application/json", Value::object({{"schema", envelope}})},
               {std::string(op::kFrameType), frame_content()}};
  content.set("text/event-stream",
              Value::object(
                  {{"schema",
                    Value::object({{"type", "string"},
                                   {"description",
                                    "an event call.responded for each answer, then call.completed or call.error"}})}}));
  Value::Object responses{
      {"200", Value::object({{"description", specification.kind == op::Kind::subscription ? "the answers, as they come"
                                                                                          : "the answer"},
                             {"content", std::move(content)}})}};
  std::set<int> statuses = {400, 401, 403, 404, 500, 503, 504};
  for (const op::DeclaredError& error : specification.errors) statuses.insert(error.http_status);
  for (const int status : statuses) {
    std::string text = status == 400   ? "the input does not fit"
                       : status == 401 ? "no token, or an unknown one"
                       : status == 403 ? "access denied"
                       : status == 404 ? "not found"
                       : status == 503 ? "overloaded"
                       : status == 504 ? "the deadline has passed"
                       : status == 500 ? "the operation failed"
                                       : "";
    for (const op::DeclaredError& error : specification.errors)
      if (error.http_status == status)
        text += fmt::format("{}{}: {}", text.empty() ? "" : "; ", error.code, error.description);
    responses.set(std::to_string(status),
                  Value::object({{"description", text}, {"content", json_content(reference("Error"))}}));
  }
  return responses;
}

}  // namespace

Value openapi(const op::Registry& registry, std::string_view version) {
  Value::Object paths;
  for (const auto& specification : registry.list()) {
    Value::Object post{{"operationId", specification->id()}, {"tags", Value::array({specification->space})}};
    if (!specification->title.empty()) post.set("summary", specification->title);
    if (!specification->description.empty()) post.set("description", specification->description);
    post.set("parameters", Value::array({Value::object({{"$ref", "#/components/parameters/Tensors"}}),
                                         Value::object({{"$ref", "#/components/parameters/Timeout"}})}));
    Value content = json_content(embedded(specification->input, specification->id(), "input"));
    content.members().set(op::kFrameType, frame_content());
    post.set("requestBody", Value::object({{"required", true}, {"content", std::move(content)}}));
    post.set("responses", responses_of(*specification));
    post.set("x-version", specification->version);
    post.set("x-kind", op::name_of(specification->kind));
    const Value access = op::to_value(*specification);
    if (const Value* control = access.find("accessControl")) post.set("x-access-control", *control);
    paths.set("/v1/operations/" + specification->id(), Value::object({{"post", std::move(post)}}));
  }
  const auto header = [](const char* name, const char* description, Value schema) {
    return Value::object(
        {{"name", name}, {"in", "header"}, {"description", description}, {"schema", std::move(schema)}});
  };
  return Value::object(
      {{"openapi", "3.1.0"},
       {"info", Value::object({{"title", "Weft operations"}, {"version", version}})},
       {"jsonSchemaDialect", "https://json-schema.org/draft/2020-12/schema"},
       {"security", Value::array({Value::object({{"token", Value::Array()}})})},
       {"paths", std::move(paths)},
       {"components",
        Value::object(
            {{"securitySchemes", Value::object({{"token", Value::object({{"type", "http"}, {"scheme", "bearer"}})}})},
             {"parameters",
              Value::object(
                  {{"Tensors",
                    header("Weft-Tensors",
                           "how tensors of answers go out: their elements, or handles that are held here",
                           Value::object({{"enum", Value::array({"data", "handles"})}, {"default", "data"}}))},
                   {"Timeout", header("Weft-Timeout", "seconds after which the call ends",
                                      Value::object({{"type", "number"}, {"exclusiveMinimum", 0}}))}})},
             {"schemas",
              Value::object(
                  {{"Tensor", op::tensor_wire_schema()},
                   {"Error",
                    Value::parse(R"({"type": "object", "required": ["error"], "properties": {"error": {"type": "object",
                                                    "required": ["code", "message"], "properties": {"code": {"type": "string"}, "message": {"type": "string"}, "details": {}}}}})")}})}})}});
}

}  // namespace weft::serve
