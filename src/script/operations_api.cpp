// operations: list, describe and call what is allowed, and register functions of the script.
#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>

#include "base/quote.hpp"
#include "base/session_state.hpp"
#include "graph/node.hpp"
#include "script/engine.hpp"
#include "script/loop.hpp"
#include "weft/catalogue.hpp"

namespace weft::script {
namespace {

namespace op = operations;

// ---- Values ---------------------------------------------------------------------------------------------------------------------

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

// The value with its tensors in another session.
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

// ---- What the isolate shares with threads of the exchange ----------------------------------------------------------------------

struct Gate {
  std::mutex mutex;
  Engine* engine = nullptr;  // null once the isolate has ended
};

struct OperationsState {
  std::shared_ptr<op::Exchange> exchange;
  std::shared_ptr<op::Registry> own_registry;
  std::unique_ptr<op::Catalogue> own_catalogue;
  SessionState* outer = nullptr;  // the session of the exchange
  SessionState* inner = nullptr;
  op::Identity identity;
  std::shared_ptr<Gate> gate = std::make_shared<Gate>();
  std::vector<std::string> registered;

  // Ends what waits for the script. Threads of the loop may still use the rest.
  void end() {
    {
      const std::lock_guard lock(gate->mutex);
      gate->engine = nullptr;
    }
    for (const std::string& id : registered) exchange->registry().remove(id);
    exchange->abort_all_of(identity.id);
  }
};

bool matches(const std::vector<std::string>& patterns, std::string_view id) {
  return std::any_of(patterns.begin(), patterns.end(), [&](const std::string& pattern) {
    return pattern == id || pattern == "*" ||
           (pattern.ends_with(".*") && id.starts_with(std::string_view(pattern).substr(0, pattern.size() - 1)));
  });
}

OperationsState& operations_of(Engine& engine) {
  if (!engine.operations) throw AccessError("operations: none are granted; grant some with --allow-operations");
  return *static_cast<OperationsState*>(engine.operations.get());
}

bool is_allowed(Engine& engine, const OperationsState& state, std::string_view id) {
  return matches(engine.options.operations, id) ||
         std::find(state.registered.begin(), state.registered.end(), id) != state.registered.end();
}

Local list_operations(Engine& engine, JSValueConst, Arguments) {
  const OperationsState& state = operations_of(engine);
  Value::Array all;
  for (const auto& each : state.exchange->registry().list())
    if (is_allowed(engine, state, each->id()))
      all.push_back(
          Value::object({{"id", each->id()}, {"kind", op::name_of(each->kind)}, {"description", each->description}}));
  return value_to(engine, all);
}

void check_allowed(Engine& engine, const OperationsState& state, const std::string& id) {
  if (!is_allowed(engine, state, id))
    throw AccessError(fmt::format("operations: {} is not granted; grant it with --allow-operations", quote(id)));
}

Local describe_operation(Engine& engine, JSValueConst, Arguments arguments) {
  const OperationsState& state = operations_of(engine);
  const std::string id = engine.text(at(arguments, 0));
  check_allowed(engine, state, id);
  const auto found = state.exchange->registry().find(id);
  if (!found) throw UsageError(fmt::format("operations: there is no operation {}", quote(id)));
  return value_to(engine, op::to_value(*found));
}

// call(id, input, {timeout}): a promise of the answer's data.
Local call_operation(Engine& engine, JSValueConst, Arguments arguments) {
  OperationsState& state = operations_of(engine);
  const std::string id = engine.text(at(arguments, 0));
  check_allowed(engine, state, id);
  Options options(engine, at(arguments, 2), "operations.call");
  const double timeout = options.number("timeout", 0);
  options.finish();
  // All rights: what the script may call was decided above. Scopes of operations registered since count too.
  state.identity.scopes = state.exchange->registry().owner().scopes;
  op::CallOptions call{.identity = state.identity};
  if (timeout > 0)
    call.deadline =
        op::Clock::now() + std::chrono::milliseconds(static_cast<std::int64_t>(std::min(timeout, 1e6) * 1000));
  const Value input = JS_IsUndefined(at(arguments, 1)) ? Value(Value::Object()) : value_from(engine, arguments[1]);
  const auto answer = std::make_shared<Value>();
  return engine.loop->promise(
      [exchange = state.exchange, outer = state.outer, inner = state.inner, id, input, call, answer] {
        const op::Envelope envelope = exchange->call(id, in_session(input, *outer), call);
        *answer = in_session(envelope.data, *inner);
      },
      [&engine, answer] { return value_to(engine, *answer); }, true);
}

// ---- Functions of the script as operations --------------------------------------------------------------------------------------

// An answer that the script owes to a thread of the exchange.
struct Answer {
  std::mutex mutex;
  std::condition_variable changed;
  bool is_done = false;
  Value value;
  std::optional<std::string> error;

  void set(Value given, std::optional<std::string> problem) {
    const std::lock_guard lock(mutex);
    if (is_done) return;
    value = std::move(given);
    error = std::move(problem);
    is_done = true;
    changed.notify_all();
  }
};

// Its owner on the script's side: without an answer, there is an error.
struct Debt {
  std::shared_ptr<Answer> answer;
  ~Debt() {
    if (answer) answer->set(nullptr, "the script gave no answer");
  }
};

JSValue settled(JSContext* context, JSValueConst, int count, JSValueConst* arguments, int failed, void* opaque) {
  Engine& engine = Engine::of(context);
  Answer& answer = *static_cast<std::shared_ptr<Debt>*>(opaque)->get()->answer;
  try {
    const JSValueConst value = count > 0 ? arguments[0] : JS_UNDEFINED;
    if (failed) {
      answer.set(nullptr, inspect(engine, value));
    } else {
      Value made = value_from(engine, value);
      const auto evaluate = [&](const auto& self, const Value& each) -> void {
        if (each.is_tensor()) engine.evaluate(each.tensor());
        if (each.is_array())
          for (const Value& element : each.elements()) self(self, element);
        if (each.is_object())
          for (const auto& [key, member] : each.members()) self(self, member);
      };
      evaluate(evaluate, made);
      answer.set(std::move(made), std::nullopt);
    }
  } catch (...) {
    engine.throw_current();
    answer.set(nullptr, inspect(engine, engine.take_exception().get()));
  }
  return JS_UNDEFINED;
}

void run_function(Engine& engine, JSValueConst function, const Value& input, const std::shared_ptr<Answer>& answer) {
  const auto debt = std::make_shared<Debt>();
  debt->answer = answer;
  try {
    const Local given = value_to(engine, input);
    Local result = engine.call(function, JS_UNDEFINED, {given.get()});
    const auto closure = [&](int failed) {
      return engine.checked(JS_NewCClosure(
          engine.context, settled, "settled", [](void* opaque) { delete static_cast<std::shared_ptr<Debt>*>(opaque); },
          1, failed, new std::shared_ptr<Debt>(debt)));
    };
    const Local good = closure(0), bad = closure(1);
    if (JS_IsPromise(result.get()))
      engine.checked(JS_PromiseThen(engine.context, result.get(), good.get(), bad.get()));
    else
      engine.call(good.get(), JS_UNDEFINED, {result.get()});
  } catch (...) {
    engine.throw_current();
    answer->set(nullptr, inspect(engine, engine.take_exception().get()));
  }
}

// register({namespace, name, kind, title, description, input, output, scopes}, function)
Local register_operation(Engine& engine, JSValueConst, Arguments arguments) {
  Options options(engine, at(arguments, 0), "operations.register");
  op::Specification s;
  s.space = options.text("namespace", "");
  s.name = options.text("name", "");
  s.version = options.text("version", "1.0.0");
  const std::string kind = options.text("kind", "query");
  s.title = options.text("title", s.name);
  s.description = options.text("description", "");
  if (const Local schema = options.value("input"); !JS_IsUndefined(schema.get()))
    s.input = value_from(engine, schema.get());
  if (const Local schema = options.value("output"); !JS_IsUndefined(schema.get()))
    s.output = value_from(engine, schema.get());
  if (const Local scopes = options.value("scopes"); !JS_IsUndefined(scopes.get())) {
    const std::uint32_t count = engine.length(scopes.get(), "operations.register: scopes", 64);
    for (std::uint32_t i = 0; i < count; ++i)
      s.access.scopes.push_back(engine.text(engine.element(scopes.get(), i).get()));
  }
  options.finish();
  if (kind != "query" && kind != "mutation")
    Engine::refuse("operations.register", "kind " + quote(kind) + "; it may be query or mutation");
  s.kind = kind == "query" ? op::Kind::query : op::Kind::mutation;
  const auto& granted = engine.options.registers;
  if (std::find(granted.begin(), granted.end(), s.space) == granted.end())
    throw AccessError(
        fmt::format("operations: the namespace {} is not granted; grant it with --allow-register", quote(s.space)));
  OperationsState& state = operations_of(engine);
  if (!JS_IsFunction(engine.context, at(arguments, 1)))
    Engine::refuse("operations.register", "the second argument is not a function");
  if (state.registered.size() >= 256) Engine::refuse("operations.register", "a script may register 256 operations");
  const std::string id = s.id();
  const auto function = std::make_shared<JSValue>(JS_DupValue(engine.context, arguments[1]));
  engine.at_end.push_back([function, context = engine.context] { JS_FreeValue(context, *function); });
  state.exchange->registry().add(
      std::move(s), [gate = state.gate, function, id, outer = state.outer, inner = state.inner](op::Context& call) {
        const auto answer = std::make_shared<Answer>();
        {
          const std::lock_guard lock(gate->mutex);
          if (!gate->engine)
            throw op::OperationError("SCRIPT_ENDED", fmt::format("the script that registered {} has ended", id));
          Engine& engine = *gate->engine;
          gate->engine->loop->post([&engine, function, input = in_session(call.input(), *inner), answer] {
            run_function(engine, *function, input, answer);
          });
        }
        std::unique_lock lock(answer->mutex);
        while (!answer->is_done) {
          answer->changed.wait_for(lock, std::chrono::milliseconds(50));
          if (!answer->is_done) call.check();
        }
        if (answer->error) throw op::OperationError("SCRIPT_ERROR", *answer->error);
        return in_session(answer->value, *outer);
      });
  state.registered.push_back(id);
  engine.loop->serves_operations = true;
  return engine.string(id);
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

void define_operations(Engine& engine) {
  const IsolateOptions& options = engine.options;
  if (!options.operations.empty() || !options.registers.empty()) {
    auto state = std::make_shared<OperationsState>();
    state->inner = &SessionState::current();
    if (options.exchange) {
      state->exchange = options.exchange;
      state->outer = engine.outer;
    } else {
      // An exchange of its own, in the isolate's session: tensors are shared.
      state->outer = state->inner;
      state->own_registry = std::make_shared<op::Registry>();
      state->own_catalogue = std::make_unique<op::Catalogue>(
          state->own_registry,
          op::CatalogueOptions{.read_folders = options.read_folders, .write_folders = options.write_folders});
      state->exchange = std::make_shared<op::Exchange>(state->own_registry);
    }
    state->identity = state->exchange->registry().owner();
    state->identity.id = fmt::format("script-{}", static_cast<const void*>(&engine));
    state->gate->engine = &engine;
    engine.operations = state;
    engine.end_operations = [state = state.get()] { state->end(); };
  }
  Local space = engine.object();
  engine.method(space.get(), "list", native<list_operations>, 0);
  engine.method(space.get(), "describe", native<describe_operation>, 1);
  engine.method(space.get(), "call", native<call_operation>, 1);
  engine.method(space.get(), "register", native<register_operation>, 2);
  engine.checked(JS_FreezeObject(engine.context, space.get()));
  add_export(engine, "operations", std::move(space));
}

}  // namespace weft::script
