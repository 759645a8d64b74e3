#include "remote/http/operations_connection.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "base/quote.hpp"
#include "catalogue/frame.hpp"
#include "weft/error.hpp"

namespace weft::remote {
namespace {

namespace op = operations;
using namespace std::chrono_literals;

constexpr auto kLook = 100ms;     // how often a waiting connection looks for its client
constexpr auto kKeepAlive = 15s;  // between comments of a silent stream of events
constexpr std::string_view kOperations = "/v1/operations";
constexpr std::string_view kCalls = "/v1/calls/", kHandles = "/v1/handles/", kSessions = "/v1/sessions/";

std::string event_text(std::string_view name, const Value& data) {
  return fmt::format("event: {}\ndata: {}\n\n", name, data.to_json());
}

}  // namespace

void OperationsConnection::authorise(const Request& head) {
  identity_ = nullptr;
  specification_ = nullptr;
  if (path_of(view(head.target())) == "/health") return;
  if (const std::string_view token = bearer_token(head); !token.empty()) identity_ = shared_.tokens.find(token);
  if (!identity_) throw HttpError{401, "UNAUTHENTICATED", "a known token is needed: Authorization: Bearer TOKEN"};
}

Value OperationsConnection::error_body(int, const op::OperationError& error) const {
  return Value::object({{"error", serve::to_value(error)}});
}
int OperationsConnection::status_of(const op::OperationError& error) const {
  return serve::http_status(error, specification_.get());
}
void OperationsConnection::add_headers(Response& response) {
  if (!session_.empty()) response.set("Mcp-Session-Id", std::exchange(session_, {}));
}
std::string_view OperationsConnection::client() const { return identity_ ? std::string_view(identity_->id) : "-"; }

std::string OperationsConnection::session_key(std::string_view name) const {
  return fmt::format("http {} {}", identity_->id, name);
}

bool OperationsConnection::answer(const Request& request) {
  const std::string_view path = path_of(view(request.target()));
  const bool gets = request.method() == http::verb::get;
  if (path == "/health" && gets) return send(200, Value::object({{"status", "ok"}}));
  const op::Registry& registry = shared_.service.exchange.registry();
  if (path == "/mcp") return mcp(request);
  if (path == "/openapi.json" && gets) return send(200, serve::openapi(registry, shared_.options.version));
  if (path == kOperations && gets) {
    Value::Array all;
    for (const auto& each : registry.list()) all.push_back(op::to_value(*each));
    return send(200, Value::object({{"operations", std::move(all)}}));
  }
  if (path.starts_with(kOperations) && path.size() > kOperations.size() + 1 && path[kOperations.size()] == '/') {
    const std::string id(path.substr(kOperations.size() + 1));
    specification_ = registry.find(id);
    if (gets) {
      if (!specification_)
        throw op::OperationError(op::kNotFound, fmt::format("there is no operation {}", quote(id, 80)));
      return send(200, op::to_value(*specification_));
    }
    if (request.method() == http::verb::post) return call(id, request);
    throw HttpError{405, "METHOD_NOT_ALLOWED", "an operation is read by GET and called by POST"};
  }
  if (path.starts_with(kCalls) && request.method() == http::verb::delete_) {
    const bool aborted = shared_.service.exchange.abort(path.substr(kCalls.size()), identity_);
    if (!aborted) throw HttpError{404, "CALL_NOT_FOUND", "no such call is under way, or it is not yours"};
    return send(200, Value::object({{"aborted", true}}));
  }
  if (path.starts_with(kHandles) && request.method() == http::verb::delete_) {
    if (!shared_.service.handles.free(path.substr(kHandles.size()), identity_->id))
      throw HttpError{404, "HANDLE_NOT_FOUND", "there is no such handle, or it is not yours"};
    return send(200, Value::object({{"freed", true}}));
  }
  if (path.starts_with(kSessions) && request.method() == http::verb::delete_) {
    shared_.service.handles.free_session(session_key(path.substr(kSessions.size())));
    return send(200, Value::object({{"ended", true}}));
  }
  throw HttpError{404, "NOT_FOUND", "there is nothing at this path; GET /openapi.json describes what there is"};
}

bool OperationsConnection::call(const std::string& id, const Request& request) {
  const std::string_view header = view(request[http::field::content_type]);
  const std::string_view type = header.substr(0, header.find(';'));
  const bool framed = beast::iequals(type, op::kFrameType);
  if (!request.body().empty() && !framed && !beast::iequals(type, "application/json"))
    throw HttpError{415, "UNSUPPORTED_MEDIA_TYPE", fmt::format("the input is application/json or {}", op::kFrameType)};
  if (framed && !op::is_frame(request.body()))
    throw HttpError{400, std::string(op::kValidationError), "the body is not a frame"};
  op::CallOptions options{.identity = *identity_};
  if (const std::string_view text = view(request["Weft-Timeout"]); !text.empty()) {
    double seconds = 0;
    const auto read = std::from_chars(text.data(), text.data() + text.size(), seconds);
    if (read.ec != std::errc() || read.ptr != text.data() + text.size() || !(seconds > 0) || seconds > 1e6)
      throw HttpError{400, std::string(op::kValidationError), "Weft-Timeout is not a number of seconds"};
    options.deadline = op::Clock::now() + std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1000));
  }
  if (const std::string_view name = view(request["Weft-Request-Id"]); !name.empty()) {
    if (name.size() > 100)
      throw HttpError{400, std::string(op::kValidationError), "Weft-Request-Id has more than 100 characters"};
    options.request_id = fmt::format("{}/{}", identity_->id, name);  // so that nobody takes the name of another's call
    options.client_request_id = name;
  }
  options.via = serve::read_via(view(request["Weft-Via"]));
  if (const std::string_view name = view(request["Weft-Session"]); !name.empty()) {
    if (name.size() > 100)
      throw HttpError{400, std::string(op::kValidationError), "Weft-Session has more than 100 characters"};
    options.session = session_key(name);
  }
  const op::Holder holder(identity_->id, options.session);
  const std::string_view form_text = view(request["Weft-Tensors"]);
  if (!form_text.empty() && form_text != "data" && form_text != "handles")
    throw HttpError{400, std::string(op::kValidationError), "Weft-Tensors is data or handles"};
  const auto form = form_text == "handles" ? op::WireTensors::handles : op::WireTensors::data;
  Value input = Value::Object();
  if (framed)
    input = op::from_frame(request.body(), shared_.service.handles, identity_->id, shared_.options.values_max);
  else if (!request.body().empty())
    input = op::from_wire(Value::parse(request.body(), "the body", shared_.options.values_max), shared_.service.handles,
                          identity_->id);
  const std::string_view accepts = view(request[http::field::accept]);
  const bool wants_frame = accepts.find(op::kFrameType) != std::string_view::npos;
  const bool streams = (specification_ && specification_->kind == op::Kind::subscription) ||
                       accepts.find("text/event-stream") != std::string_view::npos;
  op::Subscription answers = shared_.service.exchange.subscribe(id, std::move(input), options);
  if (streams) return send_events(answers, form, holder);
  bool is_waiting = false;
  while (true) {
    const auto envelope = answers.next_until(op::Clock::now() + kLook, is_waiting);
    if (envelope && wants_frame)
      return send(200, op::kFrameType,
                  op::Frame(op::to_value(*envelope), form, shared_.service.handles, holder).to_string());
    if (envelope) return send(200, shared_.service.answer(*envelope, form, holder));
    if (!is_waiting) throw op::OperationError(op::kExecutionError, "the operation ended without an answer");
    if (client_has_gone()) return false;  // which aborts the call
  }
}

bool OperationsConnection::mcp(const Request& request) {
  if (const std::string_view origin = view(request[http::field::origin]); !origin.empty()) {
    // A page of another site has no business here, even in the browser of somebody who has.
    const std::string_view host = view(request[http::field::host]);
    if (origin.substr(std::min(origin.find("://") + 3, origin.size())) != host)
      throw HttpError{403, std::string(op::kAccessDenied), "the request comes from a page of another site"};
  }
  const std::string_view version = view(request["MCP-Protocol-Version"]);
  if (!version.empty() && !serve::knows_mcp_version(version))
    throw HttpError{400, "BAD_REQUEST", "this version of MCP is not spoken here"};
  std::string name(view(request["Mcp-Session-Id"]));
  if (request.method() == http::verb::delete_) {
    if (!shared_.mcp.close(name, *identity_)) throw HttpError{404, "NOT_FOUND", "there is no such session"};
    return send(200, Value(Value::Object()));
  }
  if (request.method() == http::verb::get) {
    if (view(request[http::field::accept]).find("text/event-stream") == std::string_view::npos)
      throw HttpError{406, "NOT_ACCEPTABLE", "the messages of the server are a stream: Accept: text/event-stream"};
    if (name.empty()) throw HttpError{400, "BAD_REQUEST", "the header Mcp-Session-Id is missing: initialize first"};
    const auto standing = shared_.mcp.listen(name, *identity_);
    if (!standing) throw HttpError{404, "NOT_FOUND", "there is no such session: initialize again"};
    return send_replies(*standing);
  }
  if (request.method() != http::verb::post)
    throw HttpError{405, "METHOD_NOT_ALLOWED", "messages of MCP come by POST, and leave by POST or GET"};
  const serve::McpMessage message = serve::look_at_mcp(request.body());
  if (message.is_initialize) name = session_ = shared_.mcp.open(*identity_);
  if (name.empty()) throw HttpError{400, "BAD_REQUEST", "the header Mcp-Session-Id is missing: initialize first"};
  const auto replies = shared_.mcp.take(name, *identity_, request.body());
  if (!replies) throw HttpError{404, "NOT_FOUND", "there is no such session: initialize again"};
  if (!message.is_request) return send(202, "application/json", "");
  const bool streams =
      message.is_tool_call && view(request[http::field::accept]).find("text/event-stream") != std::string_view::npos;
  return streams ? send_replies(*replies) : send_reply(*replies);
}

bool OperationsConnection::send_reply(McpReplies& replies) {
  for (bool ended = false; !ended;) {
    if (const auto text = replies.next_until(std::chrono::steady_clock::now() + kLook, ended)) {
      if (McpReplies::is_answer(*text)) return send(200, "application/json", *text);
    } else if (client_has_gone()) {
      return false;
    }
  }
  return send(202, "application/json", "");  // cancelled
}

bool OperationsConnection::send_replies(McpReplies& replies) {
  if (!begin_events({})) return false;
  auto spoken = std::chrono::steady_clock::now();
  for (bool ended = false; !ended;) {
    const auto text = replies.next_until(std::chrono::steady_clock::now() + kLook, ended);
    if (!text && client_has_gone()) return false;
    const bool silent = !text && std::chrono::steady_clock::now() - spoken > kKeepAlive;
    if (!text && !silent) continue;
    spoken = std::chrono::steady_clock::now();
    if (!write(text ? fmt::format("event: message\ndata: {}\n\n", *text) : ": still here\n\n")) return false;
    if (text && McpReplies::is_answer(*text)) return false;
  }
  return false;
}

// Server-sent events: one for each answer, then how the call ended.
bool OperationsConnection::send_events(op::Subscription& answers, op::WireTensors form, const op::Holder& holder) {
  if (!begin_events(fmt::format("Weft-Request-Id: {}\r\n", quote_header(answers.request_id())))) return false;
  auto spoken = op::Clock::now();
  while (true) {
    std::string event;
    bool ends = false;
    try {
      bool is_waiting = false;
      if (const auto envelope = answers.next_until(op::Clock::now() + kLook, is_waiting)) {
        event = event_text("call.responded", shared_.service.answer(*envelope, form, holder));
      } else if (is_waiting) {
        if (client_has_gone()) return false;
        if (op::Clock::now() - spoken < kKeepAlive) continue;
        event = ": still here\n\n";
      } else {
        event = event_text("call.completed", Value(Value::Object()));
        ends = true;
      }
    } catch (const op::OperationError& error) {
      event = event_text(error.code() == op::kAborted ? "call.aborted" : "call.error", serve::to_value(error));
      ends = true;
    }
    spoken = op::Clock::now();
    if (!write(event) || ends) return false;
  }
}

}  // namespace weft::remote
