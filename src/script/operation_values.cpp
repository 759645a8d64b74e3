// Values of operations and of scripts.
#include <fmt/format.h>

#include "base/session_state.hpp"
#include "graph/node.hpp"
#include "script/engine.hpp"
#include "script/operations.hpp"

namespace weft::script {
namespace {

constexpr int kDepthMax = 64;
constexpr std::size_t kValuesMax = 2'000'000;

Value converted(Engine& engine, JSValueConst value, int depth, std::size_t& count) {
  if (depth > kDepthMax) throw UsageError(fmt::format("a value nests deeper than {}", kDepthMax));
  if (++count > kValuesMax) throw UsageError(fmt::format("a value has more than {} parts", kValuesMax));
  if (engine.is_nullish(value)) return nullptr;
  if (JS_IsBool(value)) return static_cast<bool>(JS_VALUE_GET_BOOL(value));
  if (JS_IsBigInt(value)) return engine.integer(value, "a value");
  if (JS_IsNumber(value)) {
    const double number = engine.number(value, "a value");
    if (std::trunc(number) == number && std::abs(number) < 0x1p53) return static_cast<std::int64_t>(number);
    return number;
  }
  if (JS_IsString(value)) return engine.text(value);
  if (Tensor tensor = engine.tensor_or_none(value); tensor.defined()) return tensor;
  if (JS_IsArray(value)) {
    Value::Array list;
    const std::uint32_t length = engine.length(value, "a value", kValuesMax);
    for (std::uint32_t i = 0; i < length; ++i)
      list.push_back(converted(engine, engine.element(value, i).get(), depth + 1, count));
    return list;
  }
  if (!engine.is_plain_object(value))
    throw UsageError(fmt::format("{} is not a value that operations take", inspect(engine, value)));
  Value::Object object;
  for (const std::string& key : engine.names(value)) {
    const Local member = engine.property(value, key.c_str());
    if (!JS_IsUndefined(member.get())) object.set(key, converted(engine, member.get(), depth + 1, count));
  }
  return object;
}

}  // namespace

Value value_from(Engine& engine, JSValueConst value) {
  std::size_t count = 0;
  return converted(engine, value, 0, count);
}

Local value_to(Engine& engine, const Value& value) {
  switch (value.kind()) {
    case Value::Kind::null: return {engine.context, JS_NULL};
    case Value::Kind::boolean: return {engine.context, JS_NewBool(engine.context, value.boolean())};
    case Value::Kind::integer:
    case Value::Kind::number: return {engine.context, JS_NewNumber(engine.context, value.number())};
    case Value::Kind::string: return engine.string(value.string());
    case Value::Kind::tensor: return engine.make(value.tensor());
    case Value::Kind::array: {
      Local list = engine.array();
      for (std::size_t i = 0; i < value.elements().size(); ++i)
        engine.set(list.get(), static_cast<std::uint32_t>(i), value_to(engine, value[i]));
      return list;
    }
    case Value::Kind::object: break;
  }
  Local object = engine.object();
  for (const auto& [key, member] : value.members()) engine.set(object.get(), key.c_str(), value_to(engine, member));
  return object;
}

Value in_session(Value value, SessionState& to) {
  if (value.is_tensor()) {
    const Tensor& tensor = value.tensor();
    SessionState& from = graph::session_of(*tensor.node());
    if (&from == &to) return value;
    std::vector<std::byte> bytes(bytes_of(tensor.dtype(), static_cast<std::size_t>(tensor.numel())));
    {
      const SessionState::Scope scope(from);
      tensor.copy_to(bytes.data(), bytes.size());
    }
    const SessionState::Scope scope(to);
    return tensor_from_bytes(bytes.data(), tensor.shape(), tensor.dtype(), tensor.device());
  }
  if (value.is_array())
    for (Value& each : value.elements()) each = in_session(std::move(each), to);
  if (value.is_object())
    for (std::size_t i = 0; i < value.members().size(); ++i)
      value.members().value(i) = in_session(std::move(value.members().value(i)), to);
  return value;
}

}  // namespace weft::script
