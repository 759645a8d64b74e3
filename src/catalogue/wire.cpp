#include "catalogue/wire.hpp"

#include <fmt/format.h>

#include "base/quote.hpp"
#include "text/character_map.hpp"
#include "weft/error.hpp"

namespace weft::operations {
namespace {

constexpr std::string_view kTensor = "$tensor";
constexpr int kDepthMax = 64;

[[noreturn]] void refuse(const std::string& path, std::string_view fact) {
  throw OperationError(kValidationError, fmt::format("{}: {}", path.empty() ? "the value" : path, fact),
                       Value::array({Value::object({{"path", path}, {"schema", ""}, {"message", fact}})}));
}

Tensor tensor_from(const Value& value, Handles& handles, std::string_view owner, const std::string& path) {
  if (!value.is_object()) refuse(path, "\"$tensor\" is not an object");
  const Value::Object& object = value.members();
  if (const Value* handle = object.find("handle")) {
    if (!handle->is_string() || object.size() != 1) refuse(path, "\"handle\" is not a string on its own");
    if (auto tensor = handles.find(handle->string(), owner)) return std::move(*tensor);
    refuse(path, fmt::format("there is no handle {}", quote(handle->string(), 64)));
  }
  const Value *dtype = object.find("dtype"), *shape = object.find("shape"), *data = object.find("data");
  if (!dtype || !shape || !data || object.size() != 3 || !dtype->is_string() || !shape->is_array() ||
      !data->is_string())
    refuse(path, "a tensor has \"dtype\", \"shape\" and \"data\" in base64, or a \"handle\"");
  const auto type = dtype_from_name(dtype->string());
  if (!type || is_block(*type) || is_storage(*type))
    refuse(path, fmt::format("{} is not a dtype of tensors on a wire", quote(dtype->string(), 40)));
  if (shape->elements().size() > 16) refuse(path, "a shape has at most 16 axes");
  std::vector<Extent> extents;
  Extent count = 1;
  for (const Value& extent : shape->elements()) {
    if (!extent.is_integer() || extent.number() < 0 || extent.number() > 0x1p40)
      refuse(path, "a shape has an extent that is not a count");
    extents.push_back(extent.integer());
    if (__builtin_mul_overflow(count, extents.back(), &count) || count > Extent{1} << 40)
      refuse(path, "the shape has too many elements");
  }
  std::string bytes;
  try {
    bytes = text::decode_base64(data->string());
  } catch (const UsageError&) {
    refuse(path, "\"data\" is not base64");
  }
  const std::uint64_t wanted = bytes_of(*type, static_cast<std::size_t>(count));
  if (bytes.size() != wanted)
    refuse(path,
           fmt::format("\"data\" has {} bytes, and {} of this shape has {}", bytes.size(), name_of(*type), wanted));
  if (*type == DType::boolean)
    for (const char c : bytes)
      if (c != 0 && c != 1) refuse(path, "a bool is neither 0 nor 1");
  return tensor_from_bytes(bytes.data(), Shape(extents), *type);
}

void decode(Value& value, Handles& handles, std::string_view owner, const std::string& path, int depth) {
  if (depth > kDepthMax) refuse(path, "values are nested too deep");
  if (value.is_array()) {
    Value::Array& elements = value.elements();
    for (std::size_t i = 0; i < elements.size(); ++i)
      if (elements[i].is_array() || elements[i].is_object())
        decode(elements[i], handles, owner, fmt::format("{}/{}", path, i), depth + 1);
  } else if (value.is_object()) {
    Value::Object& members = value.members();
    if (const Value* tensor = members.find(kTensor)) {
      if (members.size() != 1) refuse(path, "\"$tensor\" has other members beside it");
      value = Value(tensor_from(*tensor, handles, owner, path));
      return;
    }
    for (std::size_t i = 0; i < members.size(); ++i)
      if (members[i].value.is_array() || members[i].value.is_object())
        decode(members.value(i), handles, owner, fmt::format("{}/{}", path, members[i].key), depth + 1);
  }
}

Value encode_tensor(const Tensor& tensor, WireTensors form, Handles& handles, std::string_view owner) {
  Value::Object object{{"dtype", name_of(tensor.dtype())},
                       {"shape", Value::Array(tensor.shape().begin(), tensor.shape().end())}};
  if (form == WireTensors::handles) {
    object.set("handle", handles.put(tensor, owner));
  } else {
    std::string bytes(bytes_of(tensor.dtype(), static_cast<std::size_t>(tensor.numel())), '\0');
    tensor.copy_to(bytes.data(), bytes.size());
    object.set("data", encode_base64(bytes));
  }
  return Value::object({{std::string(kTensor), std::move(object)}});
}

Value encode(const Value& value, WireTensors form, Handles& handles, std::string_view owner) {
  switch (value.kind()) {
    case Value::Kind::tensor: return encode_tensor(value.tensor(), form, handles, owner);
    case Value::Kind::array: {
      Value::Array elements;
      elements.reserve(value.elements().size());
      for (const Value& each : value.elements()) elements.push_back(encode(each, form, handles, owner));
      return elements;
    }
    case Value::Kind::object: {
      std::vector<Value::Object::Member> members;
      for (const auto& [key, each] : value.members()) members.push_back({key, encode(each, form, handles, owner)});
      return Value::Object(std::move(members));
    }
    default: return value;
  }
}

}  // namespace

std::string encode_base64(std::string_view bytes) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    std::uint32_t group = 0;
    for (std::size_t k = 0; k < 3; ++k)
      group = group << 8 | (i + k < bytes.size() ? static_cast<unsigned char>(bytes[i + k]) : 0u);
    for (std::size_t k = 0; k < 4; ++k) text += i + k > bytes.size() ? '=' : kDigits[group >> (18 - 6 * k) & 63];
  }
  return text;
}

Value from_wire(Value value, Handles& handles, std::string_view owner) {
  decode(value, handles, owner, "", 0);
  return value;
}

Value to_wire(const Value& value, WireTensors form, Handles& handles, std::string_view owner) {
  try {
    return encode(value, form, handles, owner);
  } catch (const OperationError&) {
    throw;
  } catch (const Error& error) {
    throw OperationError(kExecutionError, error.what());
  }
}

Value tensor_wire_schema() {
  return Value::parse(R"({
    "description": "A tensor: its elements row-major and little-endian in base64, or the handle of one that is held.",
    "type": "object", "required": ["$tensor"], "additionalProperties": false,
    "properties": {"$tensor": {"type": "object", "properties": {
      "dtype": {"type": "string"}, "shape": {"type": "array", "items": {"type": "integer", "minimum": 0}},
      "data": {"type": "string", "contentEncoding": "base64"}, "handle": {"type": "string"}},
      "anyOf": [{"required": ["dtype", "shape", "data"]}, {"required": ["handle"]}]}}})");
}

Value schema_for_wire(const Value& schema) {
  if (schema.is_array()) {
    Value::Array elements;
    for (const Value& each : schema.elements()) elements.push_back(schema_for_wire(each));
    return elements;
  }
  if (!schema.is_object()) return schema;
  Value::Object out;
  for (const auto& [key, value] : schema.members()) {
    const bool is_data = key == "default" || key == "const" || key == "enum" || key == "examples";
    out.set(key, is_data ? value : schema_for_wire(value));
  }
  if (schema.members().contains("x-tensor")) {
    const Value form = tensor_wire_schema();
    for (const auto& [key, value] : form.members())
      if (!out.contains(key)) out.set(key, value);
  }
  return out;
}

}  // namespace weft::operations
