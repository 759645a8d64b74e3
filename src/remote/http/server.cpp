// A thread a connection, with an io_context of its own, so that every read and write has a time limit. Calls run on threads of
// the exchange; the connection's thread waits for them and looks whether the client is still there.
#include "remote/http/server.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <condition_variable>
#include <list>
#include <mutex>
#include <optional>
#include <thread>

#include "base/quote.hpp"
#include "catalogue/frame.hpp"
#include "remote/http/mcp_sessions.hpp"
#include "remote/http/stream.hpp"
#include "weft/error.hpp"

namespace weft::remote {
namespace {

namespace op = operations;
using namespace serve;
using Request = http::request<http::string_body>;
using Response = http::response<http::string_body>;
using namespace std::chrono_literals;

constexpr auto kLook = 100ms;      // how often a waiting connection looks for its client
constexpr auto kFarewell = 200ms;  // for a client to end TLS, too
constexpr auto kKeepAlive = 15s;   // between comments of a silent stream of events
constexpr std::string_view kOperations = "/v1/operations";
constexpr std::string_view kCalls = "/v1/calls/", kHandles = "/v1/handles/", kSessions = "/v1/sessions/";

// What ends a request early: a status and an error as JSON.
struct HttpError {
  int status;
  std::string code, message;
};

std::string_view view(beast::string_view text) { return {text.data(), text.size()}; }

struct Shared {
  Service service;
  Tokens tokens;
  HttpOptions options;
  McpSessions mcp{service, options.version};
  std::optional<asio::ssl::context> tls = {};
  std::atomic<std::uint64_t> bodies_bytes = 0;  // of requests that arrive or are answered
};

// A part of the memory for bodies.
class BodyShare {
 public:
  BodyShare(Shared& shared, std::uint64_t bytes) : shared_(shared), bytes_(bytes) {
    if (shared.bodies_bytes.fetch_add(bytes) + bytes <= shared.options.bodies_bytes_max) return;
    shared.bodies_bytes -= bytes;
    throw HttpError{503, std::string(op::kOverloaded), "too many large requests at once; send it again later"};
  }
  ~BodyShare() { shared_.bodies_bytes -= bytes_; }
  BodyShare(const BodyShare&) = delete;
  BodyShare& operator=(const BodyShare&) = delete;

 private:
  Shared& shared_;
  std::uint64_t bytes_;
};

class Connection {
 public:
  Connection(Shared& shared, int socket) : shared_(shared), stream_(context_) {
    stream_.tcp().socket().assign(Tcp::v4(), socket);
    if (shared.tls) stream_.use_tls(*shared.tls);
  }

  void serve() {
    Stream::Tls* const tls = stream_.tls();
    if (tls && wait(shared_.options.request_time,
                    [&](auto done) { tls->async_handshake(asio::ssl::stream_base::server, Untransferred{done}); }))
      return;
    while (serve_one()) {
    }
    if (tls) wait(kFarewell, [&](auto done) { tls->async_shutdown(Untransferred{done}); });
    beast::error_code ignored;
    stream_.tcp().socket().shutdown(Tcp::socket::shutdown_send, ignored);
  }

 private:
  // The completion of an operation that transfers nothing.
  template <class Done>
  struct Untransferred {
    Done done;
    void operator()(beast::error_code error) { done(error, 0); }
  };
  // Runs one operation of the stream to its end, or to its time limit.
  template <class Start>
  beast::error_code wait(std::chrono::milliseconds limit, const Start& start) {
    beast::error_code result = asio::error::operation_aborted;
    stream_.tcp().expires_after(limit);
    start([&](beast::error_code error, std::size_t) { result = error; });
    context_.restart();
    context_.run();
    return result;
  }

  // False once the connection is to be closed.
  bool serve_one() {
    http::request_parser<http::string_body> parser;
    parser.header_limit(shared_.options.header_bytes_max);
    parser.body_limit(shared_.options.body_bytes_max);
    if (buffer_.size() == 0) {
      // A connection may be idle for long between requests, but a request that has begun must arrive soon.
      const auto idle = wait(shared_.options.idle_time, [&](auto done) {
        stream_.async_read_some(buffer_.prepare(4096), [&, done](beast::error_code error, std::size_t size) {
          buffer_.commit(size);
          done(error, size);
        });
      });
      if (idle) return false;
    }
    const auto deadline = std::chrono::steady_clock::now() + shared_.options.request_time;
    const auto left = [&] {
      return std::max(
          1ms, std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now()));
    };
    if (const auto error = wait(left(), [&](auto done) { http::async_read_header(stream_, buffer_, parser, done); }))
      return refuse(error);
    const Request& head = parser.get();
    keep_alive_ = head.keep_alive();
    method_ = head.method_string();
    target_ = head.target();
    identity_ = nullptr;
    try {
      // Refuses requests whose length another server could read differently (request smuggling).
      if (parser.chunked() && head.count(http::field::content_length))
        throw HttpError{400, "BAD_REQUEST", "a chunked body with a length"};
      if (head.count(http::field::host) != 1 && head.version() >= 11)
        throw HttpError{400, "BAD_REQUEST", "one Host header is needed"};
      authorise(head);  // before the body is read
      const auto length = parser.content_length();
      const BodyShare share(shared_, std::min(length             ? *length
                                              : parser.chunked() ? shared_.options.body_bytes_max
                                                                 : 0,
                                              shared_.options.body_bytes_max));
      if (view(head[http::field::expect]) == "100-continue") write_continue();
      if (const auto error = wait(left(), [&](auto done) { http::async_read(stream_, buffer_, parser, done); }))
        return refuse(error);
      const Request request = parser.release();
      return answer(request);
    } catch (const HttpError& error) {
      if (!parser.is_done()) keep_alive_ = false;
      return send_error(error.status, op::OperationError(error.code, error.message)) && keep_alive_;
    } catch (const op::OperationError& error) {
      return send_error(http_status(error, specification_.get()), error) && keep_alive_;
    } catch (const Error& error) {
      return send_error(400, op::OperationError(op::kValidationError, error.what())) && keep_alive_;
    } catch (const std::exception&) {
      keep_alive_ = false;
      return send_error(500, op::OperationError(op::kExecutionError, "the server failed"));
    }
  }

  // Of a request that could not be read.
  bool refuse(const beast::error_code& error) {
    keep_alive_ = false;
    if (error == http::error::body_limit)
      send_error(413, op::OperationError("TOO_LARGE",
                                         fmt::format("a body has at most {} bytes", shared_.options.body_bytes_max)));
    else if (error == http::error::header_limit)
      send_error(431, op::OperationError("TOO_LARGE", fmt::format("the head of a request has at most {} bytes",
                                                                  shared_.options.header_bytes_max)));
    else if (error == beast::error::timeout)
      send_error(408, op::OperationError(op::kTimeout, "the request did not arrive in time"));
    else if (error.category() == make_error_code(http::error::bad_method).category() &&
             error != http::error::end_of_stream && error != http::error::partial_message)
      send_error(400, op::OperationError("BAD_REQUEST", "this is not an HTTP request"));
    return false;
  }

  void authorise(const Request& head) {
    if (path_of(head) == "/health") return;
    const std::string_view header = view(head[http::field::authorization]);
    constexpr std::string_view kBearer = "Bearer ";
    if (head.count(http::field::authorization) == 1 && header.size() > kBearer.size() &&
        beast::iequals(header.substr(0, kBearer.size()), kBearer))
      identity_ = shared_.tokens.find(header.substr(kBearer.size()));
    if (!identity_) throw HttpError{401, "UNAUTHENTICATED", "a known token is needed: Authorization: Bearer TOKEN"};
  }

  std::string session_key(std::string_view name) const { return fmt::format("http {} {}", identity_->id, name); }

  static std::string_view path_of(const Request& request) {
    const std::string_view target = view(request.target());
    return target.substr(0, target.find('?'));
  }

  void write_continue() {
    http::response<http::empty_body> go_on{http::status::continue_, 11};
    wait(shared_.options.write_time, [&](auto done) { http::async_write(stream_, go_on, done); });
  }

  // ---- Routes -----------------------------------------------------------------------------------------------------------------

  bool answer(const Request& request) {
    specification_ = nullptr;
    const std::string_view path = path_of(request);
    const bool gets = request.method() == http::verb::get;
    if (path == "/health" && gets) return send(200, Value::object({{"status", "ok"}}));
    const op::Registry& registry = shared_.service.exchange.registry();
    if (path == "/mcp") return mcp(request);
    if (path == "/openapi.json" && gets) return send(200, openapi(registry, shared_.options.version));
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

  bool call(const std::string& id, const Request& request) {
    const std::string_view header = view(request[http::field::content_type]);
    const std::string_view type = header.substr(0, header.find(';'));
    const bool framed = beast::iequals(type, op::kFrameType);
    if (!request.body().empty() && !framed && !beast::iequals(type, "application/json"))
      throw HttpError{415, "UNSUPPORTED_MEDIA_TYPE",
                      fmt::format("the input is application/json or {}", op::kFrameType)};
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
      options.request_id =
          fmt::format("{}/{}", identity_->id, name);  // so that nobody takes the name of another's call
    }
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
      input = op::from_wire(Value::parse(request.body(), "the body", shared_.options.values_max),
                            shared_.service.handles, identity_->id);
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

  // ---- MCP ("streamable HTTP") --------------------------------------------------------------------------------------------------

  bool mcp(const Request& request) {
    if (const std::string_view origin = view(request[http::field::origin]); !origin.empty()) {
      // A page of another site has no business here, even in the browser of somebody who has.
      const std::string_view host = view(request[http::field::host]);
      if (origin.substr(std::min(origin.find("://") + 3, origin.size())) != host)
        throw HttpError{403, std::string(op::kAccessDenied), "the request comes from a page of another site"};
    }
    const std::string_view version = view(request["MCP-Protocol-Version"]);
    if (!version.empty() && !knows_mcp_version(version))
      throw HttpError{400, "BAD_REQUEST", "this version of MCP is not spoken here"};
    std::string name(view(request["Mcp-Session-Id"]));
    if (request.method() == http::verb::delete_) {
      if (!shared_.mcp.close(name, *identity_)) throw HttpError{404, "NOT_FOUND", "there is no such session"};
      return send(200, Value(Value::Object()));
    }
    if (request.method() != http::verb::post)
      throw HttpError{405, "METHOD_NOT_ALLOWED", "messages of MCP come by POST; this server sends none of its own"};
    const McpMessage message = look_at_mcp(request.body());
    if (message.is_initialize) name = session_ = shared_.mcp.open(*identity_);
    if (name.empty()) throw HttpError{400, "BAD_REQUEST", "the header Mcp-Session-Id is missing: initialize first"};
    const auto replies = shared_.mcp.take(name, *identity_, request.body());
    if (!replies) throw HttpError{404, "NOT_FOUND", "there is no such session: initialize again"};
    if (!message.is_request) return send(202, "application/json", "");
    const bool streams =
        message.is_tool_call && view(request[http::field::accept]).find("text/event-stream") != std::string_view::npos;
    return streams ? send_replies(*replies) : send_reply(*replies);
  }

  bool send_reply(McpReplies& replies) {
    for (bool ended = false; !ended;) {
      if (const auto text = replies.next_until(std::chrono::steady_clock::now() + kLook, ended)) {
        if (McpReplies::is_answer(*text)) return send(200, "application/json", *text);
      } else if (client_has_gone()) {
        return false;
      }
    }
    return send(202, "application/json", "");  // cancelled
  }

  bool send_replies(McpReplies& replies) {
    keep_alive_ = false;
    log(200);
    if (!write("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-store\r\nConnection: "
               "close\r\n\r\n"))
      return false;
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

  bool client_has_gone() {
    // Bytes may wait to be read, of the next request or of the end of TLS, so that reading does not tell.
    pollfd end{stream_.tcp().socket().native_handle(), POLLRDHUP, 0};
    return ::poll(&end, 1, 0) > 0;
  }

  // ---- Answers ----------------------------------------------------------------------------------------------------------------

  bool send(int status, const Value& body) { return send(status, "application/json", body.to_json()); }

  bool send(int status, std::string_view type, std::string body) {
    Response response{static_cast<http::status>(status), 11};
    response.set(http::field::content_type, beast::string_view(type.data(), type.size()));
    response.set(http::field::cache_control, "no-store");
    response.set("X-Content-Type-Options", "nosniff");
    if (!session_.empty()) response.set("Mcp-Session-Id", std::exchange(session_, {}));
    if (status == 401) response.set(http::field::www_authenticate, "Bearer");
    if (status == 503) response.set(http::field::retry_after, "1");
    response.keep_alive(keep_alive_);
    response.body() = std::move(body);
    response.prepare_payload();
    log(status);
    return !wait(shared_.options.write_time, [&](auto done) { http::async_write(stream_, response, done); }) &&
           keep_alive_;
  }

  bool send_error(int status, const op::OperationError& error) {
    send(status, Value::object({{"error", to_value(error)}}));
    return keep_alive_;
  }

  // Server-sent events: one for each answer, then how the call ended.
  bool send_events(op::Subscription& answers, op::WireTensors form, const op::Holder& holder) {
    keep_alive_ = false;  // the end of the connection is the end of the body
    log(200);
    const std::string head = fmt::format(
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-store\r\nWeft-Request-Id: "
        "{}\r\nConnection: close\r\n\r\n",
        quote_header(answers.request_id()));
    if (!write(head)) return false;
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
        event = event_text(error.code() == op::kAborted ? "call.aborted" : "call.error", to_value(error));
        ends = true;
      }
      spoken = op::Clock::now();
      if (!write(event) || ends) return false;
    }
  }

  static std::string event_text(std::string_view name, const Value& data) {
    return fmt::format("event: {}\ndata: {}\n\n", name, data.to_json());
  }
  static std::string quote_header(std::string_view text) {
    std::string out;
    for (const char c : text) out += c > ' ' && c < 0x7f ? c : '_';
    return out;
  }

  bool write(const std::string& text) {
    return !wait(shared_.options.write_time, [&](auto done) { asio::async_write(stream_, asio::buffer(text), done); });
  }

  void log(int status) {
    if (!shared_.options.log) return;
    const std::string target = target_.substr(0, target_.find('?'));
    shared_.options.log(fmt::format("{} {} {} {}", quote_header(method_), quote_header(target.substr(0, 200)), status,
                                    identity_ ? identity_->id : "-"));
  }

  Shared& shared_;
  asio::io_context context_{1};
  Stream stream_;
  beast::flat_buffer buffer_;
  bool keep_alive_ = false;
  std::string method_, target_, session_;
  const op::Identity* identity_ = nullptr;
  std::shared_ptr<const op::Specification> specification_;
};

}  // namespace

struct HttpServer::State {
  Shared shared;
  asio::io_context context{1};
  Tcp::acceptor acceptor{context};
  std::mutex mutex;
  std::condition_variable changed;
  struct Open {
    int socket;
    std::thread thread;
    bool done = false;
  };
  std::list<Open> open;
  bool ending = false;
  std::thread accepting, sweeping;

  State(const Service& service, Tokens tokens, const HttpOptions& options)
      : shared{service, std::move(tokens), options} {
    if (options.certificate.empty()) return;
    beast::error_code error;
    asio::ssl::context& tls = shared.tls.emplace(asio::ssl::context::tls_server);
    const auto check = [&](const std::filesystem::path& file) {
      if (error) throw FileError(fmt::format("TLS: {} cannot be used: {}", quote(file.string()), error.message()));
    };
    tls.set_options(asio::ssl::context::default_workarounds | asio::ssl::context::no_sslv2 |
                    asio::ssl::context::no_sslv3 | asio::ssl::context::no_tlsv1 | asio::ssl::context::no_tlsv1_1);
    tls.use_certificate_chain_file(options.certificate.string(), error);
    check(options.certificate);
    tls.use_private_key_file(options.key.string(), asio::ssl::context::pem, error);
    check(options.key);
    if (options.client_authority.empty()) return;
    tls.load_verify_file(options.client_authority.string(), error);
    check(options.client_authority);
    tls.set_verify_mode(asio::ssl::verify_peer | asio::ssl::verify_fail_if_no_peer_cert);
  }

  void listen() {
    beast::error_code error;
    const auto address =
        asio::ip::make_address(shared.options.host == "localhost" ? "127.0.0.1" : shared.options.host, error);
    if (error) throw UsageError(fmt::format("{} is not an IP address to listen on", quote(shared.options.host)));
    const Tcp::endpoint endpoint(address, shared.options.port);
    const auto check = [&](std::string_view doing) {
      if (error)
        throw FileError(
            fmt::format("cannot {} {}:{}: {}", doing, shared.options.host, shared.options.port, error.message()));
    };
    acceptor.open(endpoint.protocol(), error);
    check("open a socket for");
    acceptor.set_option(asio::socket_base::reuse_address(true), error);
    acceptor.bind(endpoint, error);
    check("listen on");
    acceptor.listen(asio::socket_base::max_listen_connections, error);
    check("listen on");
    accept();
    accepting = std::thread([this] { context.run(); });
    sweeping = std::thread([this] { sweep(); });
  }

  void accept() {
    acceptor.async_accept([this](beast::error_code error, Tcp::socket socket) {
      if (error == asio::error::operation_aborted) return;
      if (!error) {
        socket.set_option(Tcp::no_delay(true), error);
        begin(socket.release());
      }
      accept();
    });
  }

  void begin(int socket) {
    reap();
    const std::lock_guard lock(mutex);
    if (ending || open.size() >= shared.options.connections_max) {
      // No thread is spent on it; the client sees that the connection ends.
      constexpr std::string_view kBusy =
          "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
      [[maybe_unused]] const ssize_t sent = ::send(socket, kBusy.data(), kBusy.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      ::close(socket);
      return;
    }
    open.push_back({socket, {}, false});
    const auto place = std::prev(open.end());
    place->thread = std::thread([this, place] {
      std::optional<Connection> connection;
      try {
        connection.emplace(shared, place->socket);
        connection->serve();
      } catch (const std::exception&) {  // a connection that cannot be set up ends alone
      }
      // Done before the socket is closed: `close` shuts down sockets that are not done, and a closed one's number may be another's.
      {
        const std::lock_guard guard(mutex);
        place->done = true;
      }
      changed.notify_all();
    });
  }

  // Joins threads whose connections have ended.
  void reap() {
    std::list<Open> ended;
    {
      const std::lock_guard lock(mutex);
      for (auto it = open.begin(); it != open.end();) {
        const auto at = it++;
        if (at->done) ended.splice(ended.end(), open, at);
      }
    }
    for (Open& each : ended) each.thread.join();
  }

  void sweep() {
    std::unique_lock lock(mutex);
    while (!ending) {
      changed.wait_for(lock, std::min<std::chrono::seconds>(shared.options.handle_time, 30s));
      lock.unlock();
      shared.service.handles.free_unused_for(shared.options.handle_time);
      shared.mcp.close_unused_for(shared.options.handle_time);
      reap();
      lock.lock();
    }
  }

  void close() {
    {
      const std::lock_guard lock(mutex);
      ending = true;
      for (const Open& each : open)
        if (!each.done) ::shutdown(each.socket, SHUT_RDWR);
    }
    changed.notify_all();
    asio::post(context, [this] {
      beast::error_code ignored;
      acceptor.close(ignored);
    });
    if (accepting.joinable()) accepting.join();
    if (sweeping.joinable()) sweeping.join();
    {
      std::unique_lock lock(mutex);
      changed.wait(lock,
                   [&] { return std::all_of(open.begin(), open.end(), [](const Open& each) { return each.done; }); });
    }
    reap();
    shared.mcp.close_all();
  }
};

HttpServer::HttpServer(const Service& service, Tokens tokens, const HttpOptions& options)
    : state_(std::make_unique<State>(service, std::move(tokens), options)) {
  state_->listen();
}

HttpServer::~HttpServer() { state_->close(); }

std::uint16_t HttpServer::port() const { return state_->acceptor.local_endpoint().port(); }

}  // namespace weft::remote
