#include "catalogue/wire.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/quote.hpp"
#include "runtime/host_memory.hpp"
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

// What tensors of a value are made from.
struct Source {
  Handles& handles;
  std::string_view owner;
  const std::string_view* section = nullptr;  // the bytes of tensors, for values that came with some
  std::shared_ptr<const void> memory = {};    // which holds the section
};

std::uint64_t count_of(const Value& value, std::string_view name, const std::string& path) {
  if (!value.is_integer() || value.number() < 0 || value.number() > 0x1p52)
    refuse(path, fmt::format("\"{}\" is not a count", name));
  return value.unsigned_integer();
}

Tensor tensor_from(const Value& value, const Source& source, const std::string& path) {
  if (!value.is_object()) refuse(path, "\"$tensor\" is not an object");
  const Value::Object& object = value.members();
  if (const Value* handle = object.find("handle")) {
    if (!handle->is_string() || object.size() != 1) refuse(path, "\"handle\" is not a string on its own");
    if (auto tensor = source.handles.find(handle->string(), source.owner)) return std::move(*tensor);
    refuse(path, fmt::format("there is no handle {}", quote(handle->string(), 64)));
  }
  const Value *dtype = object.find("dtype"), *shape = object.find("shape"), *data = object.find("data"),
              *offset = object.find("offset");
  if (!dtype || !shape || !(data || offset) || object.size() != 3 || !dtype->is_string() || !shape->is_array() ||
      (data && !data->is_string()))
    refuse(path,
           "a tensor has \"dtype\", \"shape\", and its bytes: \"data\" in base64, or an \"offset\" into a section of "
           "bytes; or it has a \"handle\"");
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
  const std::uint64_t wanted = bytes_of(*type, static_cast<std::size_t>(count));
  std::string decoded;
  std::string_view bytes;
  if (offset) {
    const std::uint64_t first = count_of(*offset, "offset", path);
    if (!source.section) refuse(path, "an \"offset\" needs a message with a section of bytes");
    if (first > source.section->size() || wanted > source.section->size() - first)
      refuse(path, fmt::format("its {} bytes at {} are not within the {} bytes that came with the message", wanted,
                               first, source.section->size()));
    bytes = source.section->substr(first, wanted);
  } else {
    try {
      decoded = text::decode_base64(data->string());
    } catch (const UsageError&) {
      refuse(path, "\"data\" is not base64");
    }
    bytes = decoded;
    if (bytes.size() != wanted)
      refuse(path,
             fmt::format("\"data\" has {} bytes, and {} of this shape has {}", bytes.size(), name_of(*type), wanted));
  }
  if (*type == DType::boolean)
    for (const char c : bytes)
      if (c != 0 && c != 1) refuse(path, "a bool is neither 0 nor 1");
  // A tensor that is a small part of its message would keep all of it.
  if (source.memory && !data && default_device() == kCpu && bytes.size() >= source.section->size() / 2)
    return runtime::borrow_host(source.memory, bytes.data(), Shape(extents), *type);
  return tensor_from_bytes(bytes.data(), Shape(extents), *type);
}

void decode(Value& value, const Source& source, const std::string& path, int depth) {
  if (depth > kDepthMax) refuse(path, "values are nested too deep");
  if (value.is_array()) {
    Value::Array& elements = value.elements();
    for (std::size_t i = 0; i < elements.size(); ++i)
      if (elements[i].is_array() || elements[i].is_object())
        decode(elements[i], source, fmt::format("{}/{}", path, i), depth + 1);
  } else if (value.is_object()) {
    Value::Object& members = value.members();
    if (const Value* tensor = members.find(kTensor)) {
      if (members.size() != 1) refuse(path, "\"$tensor\" has other members beside it");
      value = Value(tensor_from(*tensor, source, path));
      return;
    }
    for (std::size_t i = 0; i < members.size(); ++i)
      if (members[i].value.is_array() || members[i].value.is_object())
        decode(members.value(i), source, fmt::format("{}/{}", path, members[i].key), depth + 1);
  }
}

// Where tensors of a value go.
struct Target {
  WireTensors form;
  Handles& handles;
  const Holder& holder;
  TensorSection* section = nullptr;
};

Value encode_tensor(const Tensor& tensor, const Target& target) {
  Value::Object object{{"dtype", name_of(tensor.dtype())},
                       {"shape", Value::Array(tensor.shape().begin(), tensor.shape().end())}};
  if (target.form == WireTensors::handles) {
    object.set("handle", target.handles.put(tensor, target.holder.owner, target.holder.session));
  } else if (target.section) {
    object.set("offset", target.section->add(tensor));
  } else {
    std::string bytes(bytes_of(tensor.dtype(), static_cast<std::size_t>(tensor.numel())), '\0');
    tensor.copy_to(bytes.data(), bytes.size());
    object.set("data", encode_base64(bytes));
  }
  return Value::object({{std::string(kTensor), std::move(object)}});
}

Value encode(const Value& value, const Target& target) {
  switch (value.kind()) {
    case Value::Kind::tensor: return encode_tensor(value.tensor(), target);
    case Value::Kind::array: {
      Value::Array elements;
      elements.reserve(value.elements().size());
      for (const Value& each : value.elements()) elements.push_back(encode(each, target));
      return elements;
    }
    case Value::Kind::object: {
      std::vector<Value::Object::Member> members;
      for (const auto& [key, each] : value.members()) members.push_back({key, encode(each, target)});
      return Value::Object(std::move(members));
    }
    default: return value;
  }
}

Value encoded(const Value& value, const Target& target) {
  try {
    return encode(value, target);
  } catch (const OperationError&) {
    throw;
  } catch (const Error& error) {
    throw OperationError(kExecutionError, error.what());
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
  decode(value, {handles, owner}, "", 0);
  return value;
}

Value from_wire(Value value, std::string_view section, Handles& handles, std::string_view owner,
                const std::shared_ptr<const void>& memory) {
  decode(value, {handles, owner, &section, memory}, "", 0);
  return value;
}

Value to_wire(const Value& value, WireTensors form, Handles& handles, const Holder& holder) {
  return encoded(value, {form, handles, holder});
}

Value to_wire(const Value& value, WireTensors form, TensorSection& section, Handles& handles, const Holder& holder) {
  return encoded(value, {form, handles, holder, &section});
}

std::uint64_t TensorSection::add(const Tensor& tensor) {
  const std::uint64_t at = (bytes_ + kAlignment - 1) / kAlignment * kAlignment;
  parts_.push_back({tensor, at});
  bytes_ = at + bytes_of(tensor.dtype(), static_cast<std::size_t>(tensor.numel()));
  return at;
}

void TensorSection::write(char* out) const {
  std::uint64_t end = 0;
  for (const auto& [tensor, at] : parts_) {
    std::fill(out + end, out + at, '\0');
    const std::uint64_t bytes = bytes_of(tensor.dtype(), static_cast<std::size_t>(tensor.numel()));
    try {
      tensor.copy_to(out + at, bytes);
    } catch (const Error& error) {
      throw OperationError(kExecutionError, error.what());
    }
    end = at + bytes;
  }
}

std::vector<TensorSection::Piece> TensorSection::pieces() const {
  static constexpr char kZeros[kAlignment] = {};
  std::vector<Piece> pieces;
  std::uint64_t end = 0;
  for (const auto& [tensor, at] : parts_) {
    if (at > end) pieces.push_back({nullptr, {kZeros, static_cast<std::size_t>(at - end)}});
    const std::uint64_t bytes = bytes_of(tensor.dtype(), static_cast<std::size_t>(tensor.numel()));
    try {
      runtime::HostView view = runtime::view_host(tensor);
      pieces.push_back({std::move(view.owner), {static_cast<const char*>(view.data), static_cast<std::size_t>(bytes)}});
    } catch (const Error& error) {
      throw OperationError(kExecutionError, error.what());
    }
    end = at + bytes;
  }
  return pieces;
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
