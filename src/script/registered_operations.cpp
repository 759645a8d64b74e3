// Functions of a script as operations. Threads of the exchange wait for the isolate's thread, which runs the functions.
#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <deque>

#include "base/quote.hpp"
#include "script/loop.hpp"
#include "script/operations.hpp"

namespace weft::script {
namespace {

namespace op = operations;

constexpr std::size_t kRegisteredMax = 256;
constexpr std::string_view kScriptError = "SCRIPT_ERROR", kScriptLimit = "SCRIPT_LIMIT", kScriptEnded = "SCRIPT_ENDED";

struct Failure {
  std::string code, message;
  Value details;
};

Failure late_failure(std::chrono::milliseconds limit) {
  return {std::string(op::kTimeout),
          fmt::format("the script worked longer than its limit of {} s", static_cast<double>(limit.count()) / 1000),
          nullptr};
}

// The answers that a script owes to one call.
class Answer {
 public:
  // ---- The isolate's thread
  void begin() {
    const std::lock_guard lock(mutex_);
    began_ = std::chrono::steady_clock::now();
  }
  void set(Value value, std::optional<Failure> failure = std::nullopt) {
    const std::lock_guard lock(mutex_);
    if (is_done_) return;
    value_ = std::move(value);
    failure_ = std::move(failure);
    is_done_ = true;
    changed_.notify_all();
  }

  // Whether nobody waits for it any more.
  bool is_left() {
    const std::lock_guard lock(mutex_);
    return has_left_;
  }

  // ---- A thread of the loop: gives an answer of a subscription, and waits until it is taken.
  void emit(Value value, const std::atomic<bool>& ending) {
    std::unique_lock lock(mutex_);
    const std::size_t number = ++offered_;
    emitted_.push_back(std::move(value));
    changed_.notify_all();
    while (taken_ < number && !has_left_ && !ending) changed_.wait_for(lock, std::chrono::milliseconds(50));
    if (taken_ < number) throw op::OperationError(op::kAborted, "the caller has left");
  }

  // ---- The thread of the call: waits for the answer, and passes on those that are emitted.
  Value wait(op::Context& call, std::chrono::milliseconds limit, SessionState& outer) {
    struct Leaving {
      Answer& answer;
      ~Leaving() {
        const std::lock_guard lock(answer.mutex_);
        answer.has_left_ = true;
        answer.changed_.notify_all();
      }
    };
    const Leaving leaving{*this};
    std::unique_lock lock(mutex_);
    for (;;) {
      if (!emitted_.empty()) {
        Value value = std::move(emitted_.front());
        emitted_.pop_front();
        lock.unlock();
        call.emit(in_session(std::move(value), outer));
        lock.lock();
        ++taken_;
        if (began_) began_ = std::chrono::steady_clock::now();  // the limit is of the time between two answers
        changed_.notify_all();
        continue;
      }
      if (is_done_) break;
      if (began_ && limit.count() > 0 && std::chrono::steady_clock::now() >= *began_ + limit)
        throw op::OperationError(op::kTimeout, late_failure(limit).message);
      changed_.wait_for(lock, std::chrono::milliseconds(50));
      call.check();
    }
    if (failure_) throw op::OperationError(failure_->code, failure_->message, failure_->details);
    return in_session(value_, outer);
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_done_ = false, has_left_ = false;
  std::optional<std::chrono::steady_clock::time_point> began_;  // the function; before, it waits for others
  Value value_;
  std::optional<Failure> failure_;
  std::deque<Value> emitted_;
  std::size_t offered_ = 0, taken_ = 0;
};

// Its owner on the script's side: when nobody can answer any more, there is an error.
struct Debt {
  explicit Debt(Engine& engine) : engine(engine) {}
  ~Debt() {
    if (engine.stopping)
      answer->set(nullptr, Failure{std::string(kScriptEnded), "the script has ended", nullptr});
    else if (engine.ran_out_of_time)
      answer->set(nullptr, late_failure(engine.options.time_limit));
    else
      answer->set(nullptr, Failure{std::string(kScriptError), "the script gave no answer", nullptr});
  }
  Engine& engine;
  std::shared_ptr<Answer> answer = std::make_shared<Answer>();
};

struct Registered {
  std::string id;
  JSValue function = JS_UNDEFINED;
  bool is_subscription = false;
  std::vector<std::string> codes;  // of errors that it declares
};

// What the caller learns of an exception: its text without the lines of the script, which the console gets.
Failure failure_of(Engine& engine, const Registered& registered, Answer& answer, JSValueConst error) {
  if (engine.ran_out_of_time.exchange(false)) {
    JS_ResetUncatchableError(engine.context);
    return late_failure(engine.options.time_limit);
  }
  const MemoryForErrors memory(engine);
  const Result result = result_of(engine, error);
  if (engine.options.print && !answer.is_left())
    engine.options.print(fmt::format("{}: {}", registered.id, result.message), true);
  Failure failure{std::string(kScriptError), result.message.substr(0, result.message.find("\n    at ")), nullptr};
  while (failure.message.ends_with('\n')) failure.message.pop_back();
  if (result.outcome == Outcome::memory || result.outcome == Outcome::stack ||
      result.outcome == Outcome::device_memory) {
    failure.code = kScriptLimit;
  } else if (JS_IsError(error)) {
    const Local code = engine.property(error, "code");
    if (!JS_IsString(code.get())) return failure;
    const std::string given = engine.text(code.get());
    if (std::find(registered.codes.begin(), registered.codes.end(), given) == registered.codes.end()) return failure;
    failure.code = given;
    failure.message = engine.text(engine.property(error, "message").get());
    if (const Local details = engine.property(error, "details"); !JS_IsUndefined(details.get()))
      failure.details = value_from(engine, details.get());
  }
  return failure;
}

// The exception of the current call, as the call's answer.
void fail(Engine& engine, const Registered& registered, Answer& answer) {
  engine.throw_current();
  const Local error = engine.take_exception();
  try {
    answer.set(nullptr, failure_of(engine, registered, answer, error.get()));
  } catch (...) {  // telling it failed too
    engine.throw_current();
    engine.take_exception();
    answer.set(nullptr, Failure{std::string(kScriptError), "the script failed, and cannot tell how", nullptr});
  }
}

// A closure of the script over the debt of a call.
struct Owed {
  std::shared_ptr<const Registered> registered;
  std::shared_ptr<Debt> debt;
};
Local closure(Engine& engine, JSCClosure* function, int magic, const Owed& owed) {
  return engine.checked(JS_NewCClosure(
      engine.context, function, "answer", [](void* opaque) { delete static_cast<Owed*>(opaque); }, 1, magic,
      new Owed(owed)));
}

JSValue settled(JSContext* context, JSValueConst, int count, JSValueConst* arguments, int failed, void* opaque) {
  Engine& engine = Engine::of(context);
  const Owed& owed = *static_cast<Owed*>(opaque);
  Answer& answer = *owed.debt->answer;
  try {
    const JSValueConst value = count > 0 ? arguments[0] : JS_UNDEFINED;
    if (failed) {
      answer.set(nullptr, failure_of(engine, *owed.registered, answer, value));
    } else {
      Value made = owed.registered->is_subscription ? Value() : value_from(engine, value);
      evaluate(engine, made);
      answer.set(std::move(made));
    }
  } catch (...) {
    fail(engine, *owed.registered, answer);
  }
  return JS_UNDEFINED;
}

// emit(value): a promise that is settled when the caller has taken the value.
JSValue emit(JSContext* context, JSValueConst, int count, JSValueConst* arguments, int, void* opaque) {
  Engine& engine = Engine::of(context);
  try {
    Value value = value_from(engine, count > 0 ? arguments[0] : JS_UNDEFINED);
    evaluate(engine, value);
    return engine.loop
        ->promise([value = std::move(value), answer = static_cast<Owed*>(opaque)->debt->answer,
                   ending = engine.loop->ending] { answer->emit(value, *ending); },
                  [] { return Local(); }, true)
        .release();
  } catch (...) {
    return engine.throw_current();
  }
}

// Who calls, for the function: {identity, requestId}.
struct Caller {
  std::string identity, request;
  bool has_identity = false;
  std::stop_token stop;
};

void run_function(Engine& engine, const Owed& owed, const Value& input, const Caller& caller) {
  owed.debt->answer->begin();
  engine.turn_stop = caller.stop;
  try {
    const Local given = value_to(engine, input), about = engine.object();
    engine.set(about.get(), "identity",
               caller.has_identity ? engine.string(caller.identity) : Local(engine.context, JS_NULL));
    engine.set(about.get(), "requestId", engine.string(caller.request));
    Local result = engine.call(owed.registered->function, JS_UNDEFINED, {given.get(), about.get()});
    if (owed.registered->is_subscription) {
      const Local give = closure(engine, emit, 0, owed);
      result = engine.call(engine.drive_function, JS_UNDEFINED, {result.get(), give.get()});
    }
    const Local good = closure(engine, settled, 0, owed), bad = closure(engine, settled, 1, owed);
    if (JS_IsPromise(result.get()))
      engine.checked(JS_PromiseThen(engine.context, result.get(), good.get(), bad.get()));
    else
      engine.call(good.get(), JS_UNDEFINED, {result.get()});
  } catch (...) {
    fail(engine, *owed.registered, *owed.debt->answer);
  }
  engine.turn_stop = {};
}

// Runs on a thread of the exchange.
Value answer_call(op::Context& call, const std::shared_ptr<Gate>& gate,
                  const std::shared_ptr<const Registered>& registered, SessionState& outer, SessionState& inner,
                  std::chrono::milliseconds limit) {
  std::shared_ptr<Answer> answer;
  {
    const std::lock_guard lock(gate->mutex);
    if (!gate->engine)
      throw op::OperationError(kScriptEnded, fmt::format("the script that registered {} has ended", registered->id));
    Engine& engine = *gate->engine;
    const Owed owed{registered, std::make_shared<Debt>(engine)};
    answer = owed.debt->answer;
    Caller caller{.request = call.request_id(), .has_identity = call.identity() != nullptr, .stop = call.stop()};
    if (call.identity()) caller.identity = call.identity()->id;
    engine.loop->post([&engine, owed, input = in_session(call.input(), inner), caller = std::move(caller)] {
      run_function(engine, owed, input, caller);
    });
  }
  return answer->wait(call, limit, outer);
}

op::Specification specification_from(Engine& engine, JSValueConst given) {
  Options options(engine, given, "operations.register");
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
  if (const Local errors = options.value("errors"); !JS_IsUndefined(errors.get())) {
    if (!engine.is_plain_object(errors.get()))
      Engine::refuse("operations.register", "errors is not an object of codes and descriptions");
    for (const std::string& code : engine.names(errors.get()))
      s.errors.push_back({code, engine.text(engine.property(errors.get(), code.c_str()).get())});
  }
  options.finish();
  if (kind != "query" && kind != "mutation" && kind != "subscription")
    Engine::refuse("operations.register", "kind " + quote(kind) + "; it may be query, mutation or subscription");
  s.kind = kind == "query" ? op::Kind::query : kind == "mutation" ? op::Kind::mutation : op::Kind::subscription;
  return s;
}

}  // namespace

void evaluate(Engine& engine, const Value& value) {
  if (value.is_tensor()) engine.evaluate(value.tensor());
  if (value.is_array())
    for (const Value& element : value.elements()) evaluate(engine, element);
  if (value.is_object())
    for (const auto& [key, member] : value.members()) evaluate(engine, member);
}

// register({namespace, name, kind, title, description, input, output, scopes, errors}, function)
Local register_operation(Engine& engine, JSValueConst, Arguments arguments) {
  op::Specification s = specification_from(engine, at(arguments, 0));
  const auto& granted = engine.options.registers;
  if (std::find(granted.begin(), granted.end(), s.space) == granted.end())
    throw AccessError(
        fmt::format("operations: the namespace {} is not granted; grant it with --allow-register", quote(s.space)));
  OperationsState& state = operations_of(engine);
  if (!JS_IsFunction(engine.context, at(arguments, 1)))
    Engine::refuse("operations.register", "the second argument is not a function");
  if (state.registered.size() >= kRegisteredMax)
    Engine::refuse("operations.register", fmt::format("a script may register {} operations", kRegisteredMax));
  const auto registered = std::make_shared<Registered>();
  registered->id = s.id();
  registered->is_subscription = s.kind == op::Kind::subscription;
  for (const op::DeclaredError& error : s.errors) registered->codes.push_back(error.code);
  s.errors.push_back({std::string(kScriptError), "the function of the script failed", true, 500});
  s.errors.push_back({std::string(kScriptLimit), "the script needs more memory or stack than it may have", true, 500});
  s.errors.push_back({std::string(kScriptEnded), "the script has ended", true, 503});
  state.exchange->registry().add(std::move(s), [gate = state.gate, registered, outer = state.outer, inner = state.inner,
                                                limit = engine.options.time_limit](op::Context& call) {
    return answer_call(call, gate, registered, *outer, *inner, limit);
  });
  registered->function = JS_DupValue(engine.context, arguments[1]);
  engine.at_end.push_back([registered, context = engine.context] { JS_FreeValue(context, registered->function); });
  state.registered.push_back(registered->id);
  engine.loop->serves_operations = true;
  return engine.string(registered->id);
}

}  // namespace weft::script
