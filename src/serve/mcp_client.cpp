#include "serve/mcp_client.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <map>
#include <mutex>
#include <set>
#include <shared_mutex>

#include "base/log.hpp"
#include "base/quote.hpp"
#include "catalogue/wire.hpp"
#include "operations/names.hpp"
#include "serve/mcp.hpp"
#include "weft/schema.hpp"

namespace weft::serve {
namespace {

namespace op = operations;
using Steady = std::chrono::steady_clock;

constexpr std::size_t kTextMax = 10'000;
constexpr int kNoMethod = -32601, kBadParams = -32602;
constexpr int kRenewalsMax = 2;                       // of the session, for one request
constexpr auto kYear = std::chrono::hours(24 * 365);  // for waits without an end

std::string text_of(const Value& object, std::string_view member) {
  const Value* value = object.find(member);
  return value && value->is_string() ? value->string().substr(0, kTextMax) : "";
}

// Schemas as operations have them: of 2020-12, with x-tensor alone where `schema_for_wire` wrote the JSON form of tensors, too.
Value schema_from_mcp(const Value& schema, int depth = 0) {
  if (depth > 60) return schema;
  if (schema.is_array()) {
    Value::Array elements;
    for (const Value& each : schema.elements()) elements.push_back(schema_from_mcp(each, depth + 1));
    return elements;
  }
  if (!schema.is_object()) return schema;
  const bool is_tensor = schema.members().contains("x-tensor");
  const Value form = is_tensor ? op::tensor_wire_schema() : Value(Value::Object());
  Value::Object out;
  for (const auto& [key, value] : schema.members()) {
    if (const Value* written = form.find(key); written && *written == value) continue;
    const bool is_data = key == "default" || key == "const" || key == "enum" || key == "examples";
    out.set(key, is_data ? value : schema_from_mcp(value, depth + 1));
  }
  return out;
}

// The schema of a tool. One that is not a schema of 2020-12 is left to the server, which checks inputs anyway.
Value tool_schema(const Value* schema) {
  const Value any = Value::object({{"type", "object"}});
  if (!schema || !schema->is_object()) return any;
  Value own = schema_from_mcp(*schema);
  own.members().remove("$schema");  // older drafts differ in little that tools use
  try {
    schema::Schema{Value(own)};
    return own;
  } catch (const Error&) {
    return any;
  }
}

Value message_of(std::string_view method, Value params) {
  return Value::object({{"jsonrpc", "2.0"}, {"method", method}, {"params", std::move(params)}});
}

}  // namespace

struct McpClient::State {
  struct Tool {
    std::string name;
    bool has_output = false, may_repeat = false;
    bool is_weft = false;  // of another Weft: structured content is always there, and errors have their codes
  };
  // Of a request that waits.
  struct Outcome {
    Value reply;  // null until it comes
    std::optional<McpFailure> failure;
  };
  struct Asking {
    Steady::time_point end;
    bool may_repeat = true;  // running the request twice does no harm
    bool greets = false;
  };
  using Kind = McpFailure::Kind;

  State(std::unique_ptr<McpTransport> transport_, const McpClientOptions& options_)
      : options(options_), transport(std::move(transport_)) {}

  ~State() {
    ending.request_stop();
    follower = {};
    transport.reset();  // before the rest, which its threads use
  }

  void begin() {
    transport->start({[this](std::string_view message) { return take(message); },
                      [this](std::int64_t request, McpFailure failure) {
                        const std::lock_guard lock(mutex);
                        if (const auto found = outcomes.find(request); found != outcomes.end())
                          found->second.failure = std::move(failure);
                        changed.notify_all();
                      },
                      [this](std::string reason) {
                        const std::lock_guard lock(mutex);
                        gone = std::move(reason);
                        changed.notify_all();
                      }});
    greet({}, Steady::now() + options.patience);
  }

  // Begins a session.
  void greet(const RemoteCallOptions& call, Steady::time_point end) {
    const Value greeting =
        ask("initialize",
            Value::object(
                {{"protocolVersion", newest_mcp_version()},
                 {"capabilities", Value::Object()},
                 {"clientInfo", Value::object({{"name", "weft"}, {"title", "Weft"}, {"version", options.version}})}}),
            call, {.end = end, .greets = true});
    const std::string version = text_of(greeting, "protocolVersion");
    if (!knows_mcp_version(version))
      throw op::OperationError(
          "UNAVAILABLE", fmt::format("the MCP server speaks version {}, which is not known here", quote(version, 40)));
    if (const Value* info = greeting.find("serverInfo"); info && info->is_object() && sessions == 0)
      space = op::name_from(text_of(*info, "name"));
    const Value* capabilities = greeting.find("capabilities");
    const Value* offered = capabilities && capabilities->is_object() ? capabilities->find("tools") : nullptr;
    const Value* told = offered && offered->is_object() ? offered->find("listChanged") : nullptr;
    tells_changes = told && *told == Value(true);
    transport->agreed(version);
    transport->send(Value::object({{"jsonrpc", "2.0"}, {"method", "notifications/initialized"}}).to_json(), 0);
    ++sessions;
  }

  // The server has forgotten session number `old`. One of the threads that notice begins a new one.
  void renew(int old, const RemoteCallOptions& call, Steady::time_point end) {
    const std::unique_lock lock(greeting);
    if (sessions != old) return;
    transport->forget_session();
    greet(call, std::min(end, Steady::now() + options.patience));
    if (!is_observed) return;
    if (tells_changes) transport->listen();
    list_changed();  // nobody told meanwhile
  }

  // The result of a request. Errors: OperationError.
  Value ask(std::string_view method, const Value& params, const RemoteCallOptions& call, const Asking& asking) {
    auto pause = options.pause;
    for (int attempts = 1, renewals = 0;;) {
      int session = 0;
      const Outcome outcome = attempt(method, params, call, asking, session);
      if (!outcome.failure) return result_of(outcome.reply);
      const McpFailure& failure = *outcome.failure;
      if (failure.kind == Kind::expired && !asking.greets && ++renewals <= kRenewalsMax) {
        renew(session, call, asking.end);
        continue;
      }
      if (failure.kind == Kind::unknown && !asking.may_repeat)
        throw op::OperationError(
            "UNAVAILABLE", fmt::format("{}; it is not known whether the call has had its effect", failure.reason));
      if (failure.kind == Kind::refused || failure.kind == Kind::expired)
        throw op::OperationError("UNAVAILABLE", failure.reason);
      if (++attempts > options.attempts_max)
        throw op::OperationError("UNAVAILABLE", fmt::format("{} ({} attempts)", failure.reason, options.attempts_max));
      const auto wait = std::max(pause, failure.wait.value_or(pause));
      pause *= 2;
      const auto until = Steady::now() + wait;
      if (until > asking.end || wait > options.patience)
        throw op::OperationError(
            "UNAVAILABLE", fmt::format("{}; there is no time to ask again in {} ms", failure.reason, wait.count()));
      std::unique_lock lock(mutex);
      changed.wait_until(lock, call.stop, until, [] { return false; });
      if (call.stop.stop_requested()) throw op::OperationError(op::kAborted, "the call was aborted");
    }
  }

  // Sends a request once and waits for what becomes of it. Sets `session` to the number of the session. Errors: OperationError.
  Outcome attempt(std::string_view method, const Value& params, const RemoteCallOptions& call, const Asking& asking,
                  int& session) {
    std::unique_lock lock(mutex);
    const std::int64_t id = ++last;
    outcomes.emplace(id, Outcome());
    lock.unlock();
    try {
      Value message = message_of(method, params);
      message.members().set("id", id);
      std::shared_lock sending(greeting, std::defer_lock);
      if (!asking.greets) sending.lock();  // not while another thread begins a new session
      session = sessions;
      transport->send(message.to_json(), id);
    } catch (...) {
      lock.lock();
      outcomes.erase(id);
      throw;
    }
    lock.lock();
    Outcome& outcome = outcomes[id];  // stays where it is while others come and go
    const auto done = [&] { return !outcome.reply.is_null() || outcome.failure || !gone.empty(); };
    changed.wait_until(lock, call.stop, std::min(asking.end, Steady::now() + kYear), done);
    Outcome found = std::move(outcome);
    outcomes.erase(id);
    const std::string reason = gone;
    lock.unlock();
    if (!found.reply.is_null()) {
      found.failure.reset();
      return found;
    }
    if (found.failure) return found;
    if (!reason.empty()) throw op::OperationError("UNAVAILABLE", reason);
    const bool stopped = call.stop.stop_requested();
    if (method != "initialize") {
      try {
        transport->send(message_of("notifications/cancelled",
                                   Value::object({{"requestId", id}, {"reason", stopped ? "aborted" : "too late"}}))
                            .to_json(),
                        0);
      } catch (const op::OperationError&) {  // then nobody runs the call
      }
    }
    transport->drop(id);
    if (stopped) throw op::OperationError(op::kAborted, "the call was aborted");
    if (call.deadline) throw op::OperationError(op::kTimeout, "the deadline has passed");
    throw op::OperationError("UNAVAILABLE", fmt::format("the MCP server does not answer {}", method));
  }

  static Value result_of(const Value& reply) {
    if (const Value* error = reply.find("error")) {
      const Value* code = error->find("code");
      const std::int64_t number = code && code->is_integer() ? code->integer() : 0;
      throw op::OperationError(number == kNoMethod    ? op::kNotFound
                               : number == kBadParams ? op::kValidationError
                                                      : op::kExecutionError,
                               fmt::format("MCP: {}", text_of(*error, "message")));
    }
    const Value* result = reply.find("result");
    if (!result || !result->is_object())
      throw op::OperationError(op::kExecutionError, "the MCP server's answer has no result");
    return *result;
  }

  // A message of the server, on a thread of the transport. Returns the id of the request that it answers, or 0.
  std::int64_t take(std::string_view text) noexcept {
    try {
      const Value message = Value::parse(text, "a message of the MCP server", options.values_max);
      if (!message.is_object()) return 0;
      const Value *method = message.find("method"), *id = message.find("id");
      if (method && id) {
        answer(*method, *id);
        return 0;
      }
      if (method && *method == Value("notifications/tools/list_changed")) list_changed();
      if (method || !id || !id->is_integer()) return 0;  // a report
      const std::int64_t request = id->integer();
      const std::lock_guard lock(mutex);
      if (const auto found = outcomes.find(request); found != outcomes.end()) {
        found->second.reply = message;
        changed.notify_all();
      }
      return request;
    } catch (const std::exception& error) {
      log(LogLevel::warning, "mcp", error.what());
      return 0;
    }
  }

  void list_changed() {
    {
      const std::lock_guard lock(mutex);
      has_changed = true;
    }
    changed.notify_all();
  }

  // The thread that tells of changes: observers ask the server, so the transport's threads cannot.
  void follow(const std::stop_token& stop) {
    while (true) {
      std::unique_lock lock(mutex);
      if (!changed.wait(lock, stop, [&] { return has_changed; })) return;
      has_changed = false;
      lock.unlock();
      const std::lock_guard telling(following);
      for (const auto& [number, observer] : observers) observer();
    }
  }

  std::size_t observe(std::function<void()> observer) {
    const std::lock_guard lock(following);
    observers.emplace(++last_observer, std::move(observer));
    if (tells_changes && !follower.joinable()) {
      follower = std::jthread([this](const std::stop_token& stop) { follow(stop); });
      is_observed = true;
      transport->listen();
    }
    return last_observer;
  }
  void forget(std::size_t observer) {
    const std::lock_guard lock(following);
    observers.erase(observer);
  }

  // Servers may ask whether this client lives. It offers nothing else.
  void answer(const Value& method, const Value& id) const {
    Value::Object reply{{"jsonrpc", "2.0"}, {"id", id}};
    if (method == Value("ping"))
      reply.set("result", Value::Object());
    else
      reply.set("error", Value::object({{"code", kNoMethod}, {"message", "this client offers no such method"}}));
    transport->send(Value(std::move(reply)).to_json(), 0);
  }

  // What another Weft says of its operation beyond MCP. Damaged parts count as missing.
  static void add_from_weft(const Value& operation, op::Specification& s, Tool& tool) {
    tool.is_weft = true;
    if (const Value* output = operation.find("output"); output && output->is_object()) s.output = tool_schema(output);
    try {
      const Value errors =
          Value::object({{"namespace", s.space}, {"name", s.name}, {"type", "query"}, {"errors", operation["errors"]}});
      for (op::DeclaredError& error : op::specification_from(errors).errors) s.errors.push_back(std::move(error));
    } catch (const Error& error) {
      log(LogLevel::warning, "mcp", fmt::format("{}: {}", s.id(), error.what()));
    }
  }

  op::Specification specification(const Value& tool, std::set<std::string>& ids) {
    op::Specification s;
    const std::string name = text_of(tool, "name");
    std::tie(s.space, s.name) = op::id_from(name, space);
    for (int i = 2; !ids.insert(s.id()).second; ++i)
      s.name = fmt::format("{}_{}", op::name_from(name.substr(0, 100)), i);
    s.title = text_of(tool, "title");
    s.description = text_of(tool, "description");
    s.input = tool_schema(tool.find("inputSchema"));
    const Value* output = tool.find("outputSchema");
    if (output) s.output = tool_schema(output);
    s.kind = op::Kind::mutation;
    const Value* hints = tool.find("annotations");
    const auto has_hint = [&](std::string_view name) {
      const Value* hint = hints && hints->is_object() ? hints->find(name) : nullptr;
      return hint && *hint == Value(true);
    };
    if (has_hint("readOnlyHint")) s.kind = op::Kind::query;
    s.access.scopes = {"mcp:call"};
    s.tags = {"mcp"};
    s.errors = {{.code = "TOOL_ERROR", .description = "the tool failed; the details are its content"}};
    Tool made{.name = name,
              .has_output = output != nullptr,
              .may_repeat = has_hint("readOnlyHint") || has_hint("idempotentHint")};
    if (const Value* meta = tool.find("_meta"); meta && meta->is_object())
      if (const Value* operation = meta->find(kOperationKey); operation && operation->is_object())
        add_from_weft(*operation, s, made);
    const std::lock_guard lock(mutex);
    tools[s.id()] = std::move(made);
    return s;
  }

  McpClientOptions options;
  std::string space = "mcp";
  std::shared_mutex greeting;     // held while a session begins; shared while a request is sent
  std::atomic<int> sessions = 0;  // that have begun
  std::mutex mutex;
  std::condition_variable_any changed;
  std::int64_t last = 0;
  std::map<std::int64_t, Outcome> outcomes;  // of the requests that wait
  std::map<std::string, Tool, std::less<>> tools;
  std::string gone;
  std::atomic<bool> tells_changes = false, is_observed = false;
  bool has_changed = false;
  std::stop_source ending;
  std::mutex following;  // held while observers are called
  std::map<std::size_t, std::function<void()>> observers;
  std::size_t last_observer = 0;
  std::jthread follower;
  op::Handles handles;  // none: answers have their tensors' bytes
  std::unique_ptr<McpTransport> transport;
};

McpClient::McpClient(std::unique_ptr<McpTransport> transport, const McpClientOptions& options)
    : state_(std::make_unique<State>(std::move(transport), options)) {
  state_->begin();
}
McpClient::~McpClient() = default;
std::size_t McpClient::on_change(std::function<void()> changed) { return state_->observe(std::move(changed)); }
void McpClient::forget(std::size_t observer) { state_->forget(observer); }

std::vector<op::Specification> McpClient::operations() {
  std::vector<op::Specification> all;
  std::set<std::string> ids, cursors;
  Value params = Value::Object();
  while (true) {
    const Value page = state_->ask("tools/list", params, {.stop = state_->ending.get_token()},
                                   {.end = Steady::now() + state_->options.patience});
    const Value* tools = page.find("tools");
    if (!tools || !tools->is_array())
      throw op::OperationError(op::kExecutionError, "the MCP server's list has no tools");
    for (const Value& each : tools->elements())
      if (each.is_object() && !text_of(each, "name").empty()) all.push_back(state_->specification(each, ids));
    if (all.size() > state_->options.tools_max)
      throw op::OperationError("TOO_LARGE",
                               fmt::format("the MCP server offers more than {} tools", state_->options.tools_max));
    const std::string cursor = text_of(page, "nextCursor");
    if (cursor.empty()) return all;
    if (!cursors.insert(cursor).second)
      throw op::OperationError(op::kExecutionError, "the MCP server's list of tools never ends");
    params = Value::object({{"cursor", cursor}});
  }
}

void McpClient::run(std::string_view id, const Value& input, const RemoteCallOptions& options,
                    const std::function<bool(op::Envelope)>& take) {
  State::Tool tool;
  {
    const std::lock_guard lock(state_->mutex);
    const auto found = state_->tools.find(id);
    if (found == state_->tools.end())
      throw op::OperationError(op::kNotFound, fmt::format("there is no tool {}", quote(id, 80)));
    tool = found->second;
  }
  Value::Object params(
      {{"name", tool.name}, {"arguments", op::to_wire(input, op::WireTensors::data, state_->handles, "")}});
  Value::Object meta;
  if (!options.via.empty()) meta.set(std::string(kViaKey), via_text(options.via));
  if (!options.request_id.empty()) meta.set(std::string(kRequestIdKey), options.request_id);
  if (!options.via.empty() || !options.request_id.empty()) params.set("_meta", std::move(meta));
  const Value result = state_->ask(
      "tools/call", std::move(params), options,
      {.end = options.deadline ? Steady::now() + (*options.deadline - op::Clock::now()) : Steady::time_point::max(),
       .may_repeat = tool.may_repeat});
  const Value *content = result.find("content"), *structured = result.find("structuredContent"),
              *failed = result.find("isError"), *about = result.find("_meta");
  if (about && !about->is_object()) about = nullptr;
  op::McpSource source{.is_error = failed && *failed == Value(true)};
  if (content && content->is_array()) source.content = *content;
  if (structured) source.structured_content = *structured;
  if (source.is_error) {
    if (const Value* error = tool.is_weft && about ? about->find("error") : nullptr;
        error && error->is_object() && !text_of(*error, "code").empty()) {
      const Value* details = error->find("details");
      throw op::OperationError(text_of(*error, "code"), text_of(*error, "message").substr(0, kTextMax),
                               details ? *details : Value());
    }
    std::string text;
    for (const Value& each : source.content.elements())
      if (each.is_object()) text += text_of(each, "text");
    throw op::OperationError("TOOL_ERROR", text.empty() ? "the tool failed" : text.substr(0, kTextMax), source.content);
  }
  Value data =
      (tool.has_output || tool.is_weft) && structured ? *structured : Value::object({{"content", source.content}});
  const Value* wrapped = tool.is_weft && about ? about->find(kWrappedKey) : nullptr;
  if (wrapped && *wrapped == Value(true) && data.is_object() && data.members().contains("data"))
    data = Value(data["data"]);
  try {
    data = op::from_wire(std::move(data), state_->handles, "");
  } catch (const Error& error) {
    throw op::OperationError(op::kExecutionError,
                             fmt::format("{}: the tool's answer cannot be read: {}", id, error.what()));
  }
  take({.data = std::move(data), .source = std::move(source)});
}

}  // namespace weft::serve
