// What a script holds: handles of tensors and variables, and the memory behind them.
#include <fmt/format.h>

#include <algorithm>

#include "catalogue/op_values.hpp"
#include "graph/graph_state.hpp"
#include "runtime/evaluate.hpp"
#include "script/engine.hpp"
#include "weft/memory_limit.hpp"

namespace weft::script {

Handle::Handle(Engine& engine) : engine(engine), before(engine.newest) {
  if (before) before->after = this;
  engine.newest = this;
  ++engine.handles;
  if (engine.options.track_handles) {
    // The place comes from the stack of an error: "    at f (file.js:3:5)".
    const Local stack(engine.context, JS_Call(engine.context, engine.stack_function, JS_UNDEFINED, 0, nullptr));
    if (JS_IsException(stack.get())) JS_FreeValue(engine.context, JS_GetException(engine.context));
    const char* const text = JS_IsString(stack.get()) ? JS_ToCString(engine.context, stack.get()) : nullptr;
    std::string_view rest = text ? text : "", place;
    while (!rest.empty() && place.empty()) {
      const std::string_view row = rest.substr(0, rest.find('\n'));
      rest.remove_prefix(std::min(rest.size(), row.size() + 1));
      if (row.find("(native)") != std::string_view::npos || row.find(':') == std::string_view::npos ||
          row.find("weft:") != std::string_view::npos)
        continue;
      place = row.substr(row.find("at ") == std::string_view::npos ? 0 : row.find("at ") + 3);
    }
    const auto [found, is_new] = engine.line_numbers.try_emplace(std::string(place), engine.lines.size());
    if (is_new) engine.lines.emplace_back(place);
    line = found->second;
    if (text) JS_FreeCString(engine.context, text);
  }
}

Handle::~Handle() {
  if (before) before->after = after;
  if (after) after->before = before;
  if (engine.newest == this) engine.newest = before;
  --engine.handles;
}

std::uint64_t TensorHandle::bytes() const {
  if (!value.defined() || !value.node()->storage) return 0;
  return bytes_of(value.dtype(), static_cast<std::size_t>(value.numel()));
}
std::uint64_t VariableHandle::bytes() const {
  return value.defined() ? bytes_of(value.dtype(), static_cast<std::size_t>(value.numel())) : 0;
}

Local Engine::make(Tensor tensor) {
  check_handles();
  JSValue object = JS_NewObjectClass(context, static_cast<int>(tensor_class));
  if (JS_IsException(object)) throw ScriptThrew{};
  Local owned(context, object);
  JS_SetOpaque(object, static_cast<Handle*>(new TensorHandle(*this, std::move(tensor))));
  return owned;
}

Local Engine::make(Variable variable) {
  check_handles();
  JSValue object = JS_NewObjectClass(context, static_cast<int>(variable_class));
  if (JS_IsException(object)) throw ScriptThrew{};
  Local owned(context, object);
  JS_SetOpaque(object, static_cast<Handle*>(new VariableHandle(*this, std::move(variable))));
  return owned;
}

Tensor Engine::tensor_or_none(JSValueConst value) {
  if (in_kernel && (tensor_handle(value) || variable_handle(value)))
    throw UsageError("a kernel computes with its typed arrays only; tensors cannot be used inside");
  if (const TensorHandle* handle = tensor_handle(value)) {
    if (!handle->value.defined()) throw UsageError("the tensor was disposed; make another, or dispose it later");
    return handle->value;
  }
  if (const VariableHandle* handle = variable_handle(value)) {
    if (!handle->value.defined()) throw UsageError("the variable was disposed; make another, or dispose it later");
    return handle->value.value();
  }
  return {};
}

Tensor Engine::tensor(JSValueConst value, std::string_view what) {
  Tensor tensor = tensor_or_none(value);
  if (!tensor.defined()) throw UsageError(fmt::format("{} is {}, not a tensor", what, inspect(*this, value)));
  return tensor;
}

Tensor Engine::operand(JSValueConst value, const Tensor& like, std::string_view what) {
  if (!JS_IsNumber(value) && !JS_IsBool(value) && !JS_IsBigInt(value)) return tensor(value, what);
  const std::optional<DType> type = like.defined() ? std::optional<DType>(like.dtype()) : std::nullopt;
  return operations::number_operand(number(value, what), type, like.defined() ? like.device() : default_device());
}

std::vector<Tensor> Engine::tensors(JSValueConst array, std::string_view what) {
  const std::uint32_t count = length(array, what, 1u << 16);
  std::vector<Tensor> list;
  for (std::uint32_t i = 0; i < count; ++i) {
    const Local value = element(array, i);
    list.push_back(tensor(value.get(), what));
  }
  return list;
}

Local Engine::make_array(std::span<const Tensor> tensors) {
  Local list = array();
  for (std::size_t i = 0; i < tensors.size(); ++i) set(list.get(), static_cast<std::uint32_t>(i), make(tensors[i]));
  return list;
}

void Engine::evaluate(const Tensor& tensor) {
  try {
    runtime::evaluate({&tensor.node(), 1});
  } catch (const DeviceMemoryError&) {
    JS_RunGC(runtime);
    runtime::evaluate({&tensor.node(), 1});
  }
}

void Engine::check_host_bytes(std::uint64_t bytes) const {
  if (bytes > options.memory_limit)
    throw UsageError(
        fmt::format("{} bytes would be read, and the script may hold {}; read a part", bytes, options.memory_limit));
}

void Engine::count_work() {
  constexpr std::uint32_t kInterval = 64;
  constexpr std::size_t kBarrier = 4096, kTracedMax = 200'000, kTogether = 64;
  if (++work % kInterval != 0) return;
  if (is_late()) ran_out_of_time = true;  // the next poll ends the script
  graph::NodeTable& table = graph::GraphState::current().table;
  const std::size_t live = table.live();
  if (depth > 0) {
    if (live > kTracedMax)
      throw UsageError(fmt::format("compile: the function makes more than {} values; make it shorter", kTracedMax));
    return;
  }
  if (live < next_barrier) return;
  std::vector<Tensor> held;
  for (const Handle* handle = newest; handle; handle = handle->before)
    if (const Tensor* value = handle->tensor(); value && value->defined() && !value->node()->storage)
      held.push_back(*value);
  // Groups of a few values often have equal plans, which are found again.
  for (std::size_t i = 0; i < held.size(); i += kTogether) {
    weft::eval(std::span(held).subspan(i, std::min(kTogether, held.size() - i)));
    if (is_late()) break;
  }
  next_barrier = 2 * table.live() + kBarrier;
}

void Engine::check_handles() {
  if (handles < options.memory_limit >> 10) return;  // a handle takes about 1 KB of memory that the engine does not see
  JS_RunGC(runtime);
  if (handles < options.memory_limit >> 10) return;
  JS_ThrowOutOfMemory(context);
  throw ScriptThrew{};
}

}  // namespace weft::script
