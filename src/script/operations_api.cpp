// operations: list, describe, call and subscribe to what is allowed.
#include "script/operations.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/quote.hpp"
#include "script/loop.hpp"
#include "weft/operations/schema_import.hpp"

namespace weft::script {
namespace {

namespace op = operations;

bool matches(const std::vector<std::string>& patterns, std::string_view id) {
  return std::any_of(patterns.begin(), patterns.end(), [&](const std::string& pattern) {
    return pattern == id || pattern == "*" ||
           (pattern.ends_with(".*") && id.starts_with(std::string_view(pattern).substr(0, pattern.size() - 1)));
  });
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

Local describe_operation(Engine& engine, JSValueConst, Arguments arguments) {
  const OperationsState& state = operations_of(engine);
  const std::string id = engine.text(at(arguments, 0));
  require_granted(engine, state, id);
  const auto found = state.exchange->registry().find(id);
  if (!found) throw UsageError(fmt::format("operations: there is no operation {}", quote(id)));
  return value_to(engine, op::to_value(*found));
}

// fromSchema(document, {namespace}): specifications, as `register` takes them.
Local operations_from_schema(Engine& engine, JSValueConst, Arguments arguments) {
  Options options(engine, at(arguments, 1), "operations.fromSchema");
  const std::string space = options.text("namespace", "");
  options.finish();
  const Value document = value_from(engine, at(arguments, 0));
  Value::Array list;
  for (const op::Specification& s : op::specifications_from_schema(document, {.space = space})) {
    Value::Object errors;
    for (const op::DeclaredError& each : s.errors) errors.set(each.code, each.description);
    list.push_back(Value::object({{"namespace", s.space},
                                  {"name", s.name},
                                  {"version", s.version},
                                  {"kind", op::name_of(s.kind)},
                                  {"title", s.title},
                                  {"description", s.description},
                                  {"input", s.input},
                                  {"output", s.output},
                                  {"scopes", Value::Array(s.access.scopes.begin(), s.access.scopes.end())},
                                  {"errors", std::move(errors)}}));
  }
  return value_to(engine, list);
}

// What `call` and `subscribe` are given: (id, input, {timeout}).
struct OperationRequest {
  std::string id;
  Value input;
  op::CallOptions options;
};
OperationRequest request_from(Engine& engine, OperationsState& state, Arguments arguments, std::string_view function) {
  OperationRequest request{.id = engine.text(at(arguments, 0)), .input = Value::Object(), .options = {}};
  require_granted(engine, state, request.id);
  Options options(engine, at(arguments, 2), function);
  const double timeout = options.number("timeout", 0);
  options.finish();
  // All rights: what the script may call was decided above. Scopes of operations registered since count too.
  state.identity.scopes = state.exchange->registry().owner().scopes;
  request.options.identity = state.identity;
  if (timeout > 0)
    request.options.deadline =
        op::Clock::now() + std::chrono::milliseconds(static_cast<std::int64_t>(std::min(timeout, 1e6) * 1000));
  if (!JS_IsUndefined(at(arguments, 1))) request.input = value_from(engine, arguments[1]);
  return request;
}

// A promise of the answer's data.
Local call_operation(Engine& engine, JSValueConst, Arguments arguments) {
  OperationsState& state = operations_of(engine);
  OperationRequest request = request_from(engine, state, arguments, "operations.call");
  const auto answer = std::make_shared<Value>();
  return engine.loop->promise(
      [exchange = state.exchange, outer = state.outer, inner = state.inner, request = std::move(request), answer] {
        const op::Envelope envelope = exchange->call(request.id, in_session(request.input, *outer), request.options);
        *answer = in_session(envelope.data, *inner);
      },
      [&engine, answer] { return value_to(engine, *answer); }, true);
}

// ---- Subscriptions --------------------------------------------------------------------------------------------------------------

// The iterator of a subscription. Freeing it ends the call.
struct SubscriptionHandle final : Handle {
  SubscriptionHandle(Engine& engine, op::Subscription answers)
      : Handle(engine), answers(std::make_shared<op::Subscription>(std::move(answers))) {}
  ~SubscriptionHandle() override { answers->abort(); }
  std::string_view kind() const override { return "Subscription"; }
  std::shared_ptr<op::Subscription> answers;
  std::shared_ptr<bool> is_waiting = std::make_shared<bool>(false);  // used on the isolate's thread only
  bool is_over = false;
};

SubscriptionHandle& subscription_of(Engine& engine, JSValueConst value) {
  auto* const handle =
      static_cast<SubscriptionHandle*>(static_cast<Handle*>(JS_GetOpaque(value, engine.subscription_class)));
  if (!handle) throw UsageError("the value is not the subscription of operations.subscribe");
  return *handle;
}

Local step(Engine& engine, Local value, bool done) {
  Local object = engine.object();
  engine.set(object.get(), "value", std::move(value));
  engine.set(object.get(), "done", {engine.context, JS_NewBool(engine.context, done)});
  return object;
}

Local subscribe(Engine& engine, JSValueConst, Arguments arguments) {
  OperationsState& state = operations_of(engine);
  OperationRequest request = request_from(engine, state, arguments, "operations.subscribe");
  engine.check_handles();
  op::Subscription answers =
      state.exchange->subscribe(request.id, in_session(std::move(request.input), *state.outer), request.options);
  Local made = engine.checked(JS_NewObjectClass(engine.context, static_cast<int>(engine.subscription_class)));
  JS_SetOpaque(made.get(), static_cast<Handle*>(new SubscriptionHandle(engine, std::move(answers))));
  return made;
}

// next(): a promise of {value, done}.
Local next_answer(Engine& engine, JSValueConst self, Arguments) {
  SubscriptionHandle& handle = subscription_of(engine, self);
  if (*handle.is_waiting) throw UsageError("a subscription gives one answer after the other; await next() first");
  struct Found {
    Value value;
    bool done = true;
  };
  const auto found = std::make_shared<Found>();
  const auto wait = [found, answers = handle.answers, is_over = handle.is_over, inner = operations_of(engine).inner] {
    if (is_over) return;
    if (auto answer = answers->next()) {
      found->value = in_session(std::move(answer->data), *inner);
      found->done = false;
    }
  };
  // The promise is settled once, with an error too; then the next answer may be asked for.
  struct Waiting {
    explicit Waiting(std::shared_ptr<bool> given) : flag(std::move(given)) { *flag = true; }
    ~Waiting() { *flag = false; }
    Waiting(const Waiting&) = delete;
    std::shared_ptr<bool> flag;
  };
  const auto waiting = std::make_shared<Waiting>(handle.is_waiting);
  return engine.loop->promise(
      wait,
      [&engine, found, waiting] {
        return found->done ? step(engine, {}, true) : step(engine, value_to(engine, found->value), false);
      },
      true);
}

// return(): ends the call, as `break` in a loop does.
Local end_subscription(Engine& engine, JSValueConst self, Arguments) {
  SubscriptionHandle& handle = subscription_of(engine, self);
  handle.is_over = true;
  handle.answers->abort();
  return engine.loop->promise([] {}, [&engine] { return step(engine, {}, true); });
}
Local dispose_subscription(Engine& engine, JSValueConst self, Arguments) {
  SubscriptionHandle& handle = subscription_of(engine, self);
  handle.is_over = true;
  handle.answers->abort();
  return {};
}
Local same_iterator(Engine& engine, JSValueConst self, Arguments) {
  return {engine.context, JS_DupValue(engine.context, self)};
}

}  // namespace

void require_granted(Engine& engine, const OperationsState& state, const std::string& id) {
  if (!is_allowed(engine, state, id))
    throw AccessError(fmt::format("operations: {} is not granted; grant it with --allow-operations", quote(id)));
}

void OperationsState::end() {
  {
    const std::lock_guard lock(gate->mutex);
    gate->engine = nullptr;
  }
  for (const std::string& id : registered) exchange->registry().remove(id);
  exchange->abort_all_of(identity.id);
}

OperationsState& operations_of(Engine& engine) {
  if (!engine.operations) throw AccessError("operations: none are granted; grant some with --allow-operations");
  return *static_cast<OperationsState*>(engine.operations.get());
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
  const Local iterator = engine.make_class(engine.subscription_class, "Subscription");
  engine.method(iterator.get(), "next", native<next_answer>, 0);
  engine.method(iterator.get(), "return", native<end_subscription>, 0);
  define_symbol(engine, iterator.get(), "asyncIterator", native<same_iterator>);
  define_symbol(engine, iterator.get(), "dispose", native<dispose_subscription>);
  Local space = engine.object();
  engine.method(space.get(), "list", native<list_operations>, 0);
  engine.method(space.get(), "describe", native<describe_operation>, 1);
  engine.method(space.get(), "fromSchema", native<operations_from_schema>, 1);
  engine.method(space.get(), "call", native<call_operation>, 1);
  engine.method(space.get(), "subscribe", native<subscribe>, 1);
  engine.method(space.get(), "register", native<register_operation>, 2);
  engine.checked(JS_FreezeObject(engine.context, space.get()));
  add_export(engine, "operations", std::move(space));
}

}  // namespace weft::script
