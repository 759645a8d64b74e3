#include "serve/mcp.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <map>
#include <mutex>
#include <set>
#include <system_error>
#include <thread>

#include "base/quote.hpp"
#include "weft/error.hpp"

namespace weft::serve {
namespace {

namespace op = operations;

// The versions of the protocol that differ in nothing that this server does.
constexpr std::string_view kVersions[] = {"2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"};

// Codes of JSON-RPC.
constexpr int kParseError = -32700, kInvalidRequest = -32600, kMethodNotFound = -32601, kInvalidParams = -32602,
              kInternalError = -32603;

struct RpcError {
  int code;
  std::string message;
};

// Where the answer of a message goes.
class McpOutlet {
 public:
  explicit McpOutlet(McpWrite write) : write_(std::move(write)) {}
  void send(const Value& message) const { write_(message.to_json()); }
  void result(const Value& id, Value result) const {
    send(Value::object({{"jsonrpc", "2.0"}, {"id", id}, {"result", std::move(result)}}));
  }
  void error(const Value& id, const RpcError& error) const {
    send(Value::object({{"jsonrpc", "2.0"},
                        {"id", id},
                        {"error", Value::object({{"code", error.code}, {"message", error.message}})}}));
  }

 private:
  McpWrite write_;
};

}  // namespace

struct McpSession::State {
  State(const Service& service, const McpOptions& options)
      : service_(service), options_(options), observer_(service.exchange.registry().observe([this] { changed(); })) {}

  ~State() {
    service_.exchange.registry().forget(observer_);
    std::unique_lock lock(mutex_);
    ending_ = true;
    std::vector<std::string> requests;
    for (const auto& [id, call] : calls_) requests.push_back(call);
    lock.unlock();
    for (const std::string& request : requests) service_.exchange.abort(request, &options_.identity);
    lock.lock();
    changed_.wait(lock, [&] { return running_ == 0; });
    lock.unlock();
    service_.handles.free_session(options_.session);
  }

  void line(const std::string& text, const McpOutlet& out) {
    Value message;
    try {
      if (text.size() > options_.line_bytes_max)
        throw FileError(fmt::format("a message has at most {} bytes", options_.line_bytes_max));
      message = Value::parse(text, "the message");
    } catch (const Error& error) {
      return out.error(nullptr, {kParseError, error.what()});
    }
    if (!message.is_object())
      return out.error(nullptr, {kInvalidRequest, "a message is an object; batches are not taken"});
    const Value* id = message.find("id");
    const Value* method = message.find("method");
    if (!method) return;  // an answer; this server asks nothing
    if (id && !id->is_string() && !id->is_integer())
      return out.error(nullptr, {kInvalidRequest, "\"id\" is neither a string nor an integer"});
    const Value* version = message.find("jsonrpc");
    if (!method->is_string() || !version || *version != Value("2.0"))
      return out.error(id ? *id : Value(), {kInvalidRequest, "this is not JSON-RPC 2.0"});
    const Value none = Value::Object();
    const Value* params = message.find("params");
    if (!params) params = &none;
    try {
      if (!params->is_object()) throw RpcError{kInvalidParams, "\"params\" is not an object"};
      if (!id) return notification(method->string(), *params);
      request(*id, method->string(), *params, out);
    } catch (const RpcError& error) {
      if (id) out.error(*id, error);
    } catch (const Error& error) {
      if (id) out.error(*id, {kInvalidParams, error.what()});
    }
  }

  void request(const Value& id, const std::string& method, const Value& params, const McpOutlet& out) {
    if (method == "initialize") return out.result(id, initialize(params));
    if (method == "ping") return out.result(id, Value(Value::Object()));
    if (method == "tools/list") return out.result(id, tools(params));
    if (method == "tools/call") return call(id, params, out);
    throw RpcError{kMethodNotFound, fmt::format("there is no method {}", quote(method))};
  }

  void listen(McpWrite write) {
    const std::lock_guard lock(listening_);
    outlet_ = std::move(write);
    if (tells_ && !is_listed_) tell();
  }

  // The tools have changed.
  void changed() {
    const std::lock_guard lock(listening_);
    if (tells_ && is_listed_) tell();
    is_listed_ = false;
  }
  void tell() const {
    if (outlet_) McpOutlet(outlet_).send(message_of("notifications/tools/list_changed"));
  }
  static Value message_of(std::string_view method) { return Value::object({{"jsonrpc", "2.0"}, {"method", method}}); }

  void notification(const std::string& method, const Value& params) {
    if (method == "notifications/initialized") {
      const std::lock_guard lock(listening_);
      tells_ = true;
    }
    if (method != "notifications/cancelled") return;
    const Value* id = params.find("requestId");
    if (!id) return;
    std::string request;
    {
      const std::lock_guard lock(mutex_);
      const auto found = calls_.find(id->to_json());
      if (found == calls_.end()) return;
      request = found->second;
      cancelled_.insert(id->to_json());
    }
    service_.exchange.abort(request, &options_.identity);
  }

  Value initialize(const Value& params) const {
    std::string_view version = kVersions[0];
    if (const Value* wanted = params.find("protocolVersion"); wanted && wanted->is_string())
      for (const std::string_view each : kVersions)
        if (each == wanted->string()) version = each;
    return Value::object(
        {{"protocolVersion", version},
         {"capabilities", Value::object({{"tools", Value::object({{"listChanged", true}})}})},
         {"serverInfo", Value::object({{"name", "weft"}, {"title", "Weft"}, {"version", options_.version}})},
         {"instructions",
          "Tensor ops, language models, training runs and files as tools. A tensor is {\"$tensor\": {dtype, shape, "
          "data}} with "
          "its elements in base64; handle.create keeps one, and {\"$tensor\": {\"handle\": ...}} names it."}});
  }

  // ---- Tools ------------------------------------------------------------------------------------------------------------------

  // Tools take and give objects.
  static Value object_schema(const Value& schema) {
    Value wired = op::schema_for_wire(schema);
    if (!wired.is_object()) return Value::object({{"type", "object"}});
    wired.members().set("type", "object");
    return wired;
  }
  static bool gives_objects(const op::Specification& specification) {
    if (specification.kind == op::Kind::subscription || !specification.output.is_object()) return false;
    const Value* type = specification.output.find("type");
    return type && *type == Value("object");
  }

  Value tool(const op::Specification& s) const {
    Value::Object tool{{"name", s.id()},
                       {"title", s.title.empty() ? s.id() : s.title},
                       {"description", s.description},
                       {"inputSchema", object_schema(s.input)}};
    if (gives_objects(s)) tool.set("outputSchema", object_schema(s.output));
    tool.set("annotations", Value::object({{"readOnlyHint", s.kind == op::Kind::query}, {"openWorldHint", false}}));
    const Value whole = op::to_value(s);
    const Value* errors = whole.find("errors");
    Value::Object operation{{"errors", errors ? *errors : Value::Array()}};
    if (!gives_objects(s) && s.kind != op::Kind::subscription) operation.set("output", s.output);
    tool.set("_meta", Value::object({{std::string(kOperationKey), std::move(operation)}}));
    return tool;
  }

  Value tools(const Value& params) {
    {
      const std::lock_guard lock(listening_);
      is_listed_ = true;  // before the list is read, so that no change is missed
    }
    const auto all = service_.exchange.registry().list();
    std::size_t first = 0;
    if (const Value* cursor = params.find("cursor"); cursor && !cursor->is_null()) {
      // The cursor is the id of the last tool of the page before.
      if (!cursor->is_string()) throw RpcError{kInvalidParams, "the cursor is not one of this server"};
      while (first < all.size() && all[first]->id() != cursor->string()) ++first;
      if (first++ == all.size()) throw RpcError{kInvalidParams, "the cursor is not one of this server"};
    }
    const std::size_t end = std::min(all.size(), first + options_.page);
    Value::Array list;
    for (std::size_t i = first; i < end; ++i) list.push_back(tool(*all[i]));
    Value::Object result{{"tools", std::move(list)}};
    if (end < all.size()) result.set("nextCursor", all[end - 1]->id());
    return result;
  }

  void call(const Value& id, const Value& params, const McpOutlet& out) {
    const std::string name = params["name"].string();
    const Value* arguments = params.find("arguments");
    const auto specification = service_.exchange.registry().find(name);
    if (!specification) throw RpcError{kInvalidParams, fmt::format("there is no tool {}", quote(name, 100))};
    Value progress;
    op::CallOptions options{.identity = options_.identity, .session = options_.session};
    if (const Value* meta = params.find("_meta"); meta && meta->is_object()) {
      if (const Value* token = meta->find("progressToken")) progress = *token;
      if (const Value* via = meta->find(kViaKey); via && via->is_string()) options.via = read_via(via->string());
      if (const Value* name = meta->find(kRequestIdKey); name && name->is_string())
        options.client_request_id = name->string();
    }
    {
      const std::lock_guard lock(mutex_);
      if (running_ >= options_.calls_max)
        throw RpcError{kInternalError, fmt::format("{} calls are under way, which is the limit", running_)};
      if (calls_.contains(id.to_json())) throw RpcError{kInvalidRequest, "the id is that of a call which is under way"};
      calls_.emplace(id.to_json(), "");
      ++running_;
    }
    try {
      std::thread([this, id, specification, progress, out, options,
                   input = arguments ? *arguments : Value(Value::Object())]() mutable {
        run(id, *specification, std::move(input), options, progress, out);
        const std::lock_guard lock(mutex_);
        --running_;
        changed_.notify_all();
      }).detach();
    } catch (const std::system_error&) {
      const std::lock_guard lock(mutex_);
      forget(id);
      --running_;
      throw RpcError{kInternalError, "the system has no thread for the call; call again later"};
    }
  }

  void run(const Value& id, const op::Specification& specification, Value input, const op::CallOptions& options,
           const Value& progress, const McpOutlet& out) {
    Value result;
    try {
      op::Subscription answers = service_.start(specification.id(), std::move(input), options);
      {
        const std::lock_guard lock(mutex_);
        calls_[id.to_json()] = answers.request_id();
        if (ending_ || cancelled_.contains(id.to_json())) {
          forget(id);
          return;
        }
      }
      result = specification.kind == op::Kind::subscription ? all_answers(answers, progress, out) : one_answer(answers);
    } catch (const op::OperationError& error) {
      const Value data = to_value(error);
      result = Value::object({{"content", text_content(fmt::format("{}: {}", error.code(), error.what()))},
                              {"isError", true},
                              {"_meta", Value::object({{"error", data}})}});
    } catch (const std::exception& error) {
      result = Value::object({{"content", text_content(error.what())}, {"isError", true}});
    }
    {
      // Before the answer is sent, as its id may then be that of the next call.
      const std::lock_guard lock(mutex_);
      if (forget(id)) return;  // a cancelled request has no answer
    }
    out.result(id, std::move(result));
  }

  // True if the call was cancelled. The caller holds mutex_.
  bool forget(const Value& id) {
    calls_.erase(id.to_json());
    return cancelled_.erase(id.to_json()) > 0;
  }

  static Value text_content(std::string_view text) {
    return Value::array({Value::object({{"type", "text"}, {"text", text}})});
  }

  static Value tool_result(Value data) {
    Value::Object result{{"content", text_content(data.to_json())}};
    const bool wraps = !data.is_object() || data.members().contains("$tensor");
    if (wraps) result.set("_meta", Value::object({{std::string(kWrappedKey), true}}));
    result.set("structuredContent", wraps ? Value::object({{"data", std::move(data)}}) : std::move(data));
    result.set("isError", false);
    return result;
  }

  Value one_answer(op::Subscription& answers) const {
    const auto envelope = answers.next();
    if (!envelope) throw op::OperationError(op::kExecutionError, "the operation ended without an answer");
    return tool_result(op::to_wire(envelope->data, op::WireTensors::data, service_.handles, options_.identity.id));
  }

  Value all_answers(op::Subscription& answers, const Value& progress, const McpOutlet& out) {
    Value::Array all;
    bool ended_early = false;
    while (const auto envelope = answers.next()) {
      all.push_back(op::to_wire(envelope->data, op::WireTensors::data, service_.handles, options_.identity.id));
      if (!progress.is_null())
        out.send(Value::object({{"jsonrpc", "2.0"},
                                {"method", "notifications/progress"},
                                {"params", Value::object({{"progressToken", progress},
                                                          {"progress", all.size()},
                                                          {"message", all.back().to_json()}})}}));
      if (all.size() >= options_.answers_max) {
        ended_early = true;
        break;
      }
    }
    return tool_result(Value::object({{"answers", std::move(all)}, {"ended_early", ended_early}}));
  }

  const Service service_;
  const McpOptions options_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> calls_;  // the id of the message -> that of the call
  std::set<std::string> cancelled_;
  std::size_t running_ = 0;
  bool ending_ = false;
  std::mutex listening_;  // held while the client is told
  McpWrite outlet_;
  bool tells_ = false;          // the client has begun
  bool is_listed_ = true;       // nothing changed since the client listed the tools, or it knows that something did
  const std::size_t observer_;  // last, because it may be called at once
};

McpSession::McpSession(const Service& service, const McpOptions& options)
    : state_(std::make_unique<State>(service, options)) {}
McpSession::~McpSession() = default;

bool McpSession::is_busy() const {
  const std::lock_guard lock(state_->mutex_);
  return state_->running_ > 0;
}

void McpSession::take(const std::string& message, McpWrite write) {
  state_->line(message, McpOutlet(std::move(write)));
}

void McpSession::listen(McpWrite write) { state_->listen(std::move(write)); }

bool knows_mcp_version(std::string_view version) {
  return std::find(std::begin(kVersions), std::end(kVersions), version) != std::end(kVersions);
}

std::string_view newest_mcp_version() { return kVersions[0]; }

McpMessage look_at_mcp(std::string_view message) {
  try {
    const Value value = Value::parse(message, "the message");
    const Value *id = value.find("id"), *method = value.find("method");
    if (!method || !method->is_string()) return {.is_request = id != nullptr && method != nullptr};
    if (!id) return {};
    return {.is_request = true,
            .is_tool_call = *method == Value("tools/call"),
            .is_initialize = *method == Value("initialize"),
            .id = *id};
  } catch (const Error&) {
    return {.is_request = true};
  }
}

void serve_mcp(const Service& service, const McpOptions& options,
               const std::function<std::optional<std::string>()>& read_line, const McpWrite& write_line) {
  std::mutex writing;
  const McpWrite write = [&](std::string_view text) {
    const std::lock_guard lock(writing);
    return write_line(text);
  };
  McpSession session(service, options);
  session.listen(write);
  while (const auto line = read_line())
    if (!line->empty()) session.take(*line, write);
}

}  // namespace weft::serve
