#include "remote/http/connection.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>

#include "weft/error.hpp"

namespace weft::remote {
namespace {

namespace op = operations;
using namespace std::chrono_literals;

constexpr std::chrono::steady_clock::time_point kServes{};  // instead of a time since when it waits
constexpr auto kRestTime = 1000ms;
constexpr std::size_t kRestBytesMax = 8 << 20;
constexpr auto kFarewell = 200ms;  // for a client to end TLS, too

// A part of the memory for bodies.
class BodyShare {
 public:
  BodyShare(HttpShared& shared, std::uint64_t bytes) : shared_(shared), bytes_(bytes) {
    if (shared.bodies_bytes.fetch_add(bytes) + bytes <= shared.options.bodies_bytes_max) return;
    shared.bodies_bytes -= bytes;
    throw HttpError{503, std::string(op::kOverloaded), "too many large requests at once; send it again later"};
  }
  ~BodyShare() { shared_.bodies_bytes -= bytes_; }
  BodyShare(const BodyShare&) = delete;
  BodyShare& operator=(const BodyShare&) = delete;

 private:
  HttpShared& shared_;
  std::uint64_t bytes_;
};

// The completion of an operation that transfers nothing.
template <class Done>
struct Untransferred {
  Done done;
  void operator()(beast::error_code error) { done(error, 0); }
};

}  // namespace

std::string_view path_of(std::string_view target) { return target.substr(0, target.find('?')); }

std::string quote_header(std::string_view text) {
  std::string out;
  for (const char c : text) out += c > ' ' && c < 0x7f ? c : '_';
  return out;
}

std::string_view bearer_token(const http::request<http::string_body>& head) {
  const std::string_view header = view(head[http::field::authorization]);
  constexpr std::string_view kBearer = "Bearer ";
  const bool has_one = head.count(http::field::authorization) == 1 && header.size() > kBearer.size() &&
                       beast::iequals(header.substr(0, kBearer.size()), kBearer);
  return has_one ? header.substr(kBearer.size()) : std::string_view();
}

OpenSocket::~OpenSocket() {
  if (number_ >= 0) ::close(number_);
}

HttpConnection::HttpConnection(HttpShared& shared, OpenSocket socket)
    : shared_(shared), stream_(context_), waits_since_(socket.accepted()) {
  stream_.tcp().socket().assign(Tcp::v4(), socket.number());
  socket.give();
  if (shared.tls) stream_.use_tls(*shared.tls);
}

// Runs one operation of the stream to its end, or to its time limit.
template <class Start>
beast::error_code HttpConnection::wait(std::chrono::milliseconds limit, const Start& start) {
  beast::error_code result = asio::error::operation_aborted;
  stream_.tcp().expires_after(limit);
  start([&](beast::error_code error, std::size_t) { result = error; });
  context_.restart();
  context_.run();
  return result;
}

void HttpConnection::serve() {
  Stream::Tls* const tls = stream_.tls();
  if (tls && wait(shared_.options.request_time,
                  [&](auto done) { tls->async_handshake(asio::ssl::stream_base::server, Untransferred{done}); }))
    return;
  while (serve_one()) waits_since_ = std::chrono::steady_clock::now();
  take_the_rest();
  if (tls) wait(kFarewell, [&](auto done) { tls->async_shutdown(Untransferred{done}); });
  beast::error_code ignored;
  stream_.tcp().socket().shutdown(Tcp::socket::shutdown_send, ignored);
}

std::optional<std::chrono::steady_clock::time_point> HttpConnection::waits_since() const {
  const auto since = waits_since_.load();
  return since == kServes ? std::nullopt : std::optional(since);
}

// A refused client may still be sending its body. If the socket were closed with bytes unread, the kernel would throw away the
// answer with them.
void HttpConnection::take_the_rest() {
  if (is_all_read_) return;
  beast::error_code error;
  if (!stream_.tls()) stream_.tcp().socket().shutdown(Tcp::socket::shutdown_send, error);
  waits_since_ = std::chrono::steady_clock::now();
  const auto end = std::chrono::steady_clock::now() + kRestTime;
  for (std::size_t taken = 0; !error && taken < kRestBytesMax && std::chrono::steady_clock::now() < end;) {
    buffer_.clear();
    error = wait(kRestTime, [&](auto done) {
      stream_.async_read_some(buffer_.prepare(64 << 10), [&, done](beast::error_code failure, std::size_t size) {
        taken += size;
        done(failure, size);
      });
    });
  }
}

// False once the connection is to be closed.
bool HttpConnection::serve_one() {
  is_all_read_ = true;
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
  is_all_read_ = false;
  const auto deadline = std::chrono::steady_clock::now() + shared_.options.request_time;
  const auto left = [&] {
    return std::max(1ms,
                    std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now()));
  };
  if (const auto error = wait(left(), [&](auto done) { http::async_read_header(stream_, buffer_, parser, done); }))
    return refuse(error);
  is_all_read_ = parser.is_done();
  const Request& head = parser.get();
  keep_alive_ = head.keep_alive();
  method_ = head.method_string();
  target_ = head.target();
  try {
    // Refuses requests whose length another server could read differently (request smuggling).
    if (parser.chunked() && head.count(http::field::content_length))
      throw HttpError{400, "BAD_REQUEST", "a chunked body with a length"};
    if (head.count(http::field::host) != 1 && head.version() >= 11)
      throw HttpError{400, "BAD_REQUEST", "one Host header is needed"};
    authorise(head);  // before the body is read
    waits_since_ = kServes;
    const auto length = parser.content_length();
    const BodyShare share(shared_, std::min(length             ? *length
                                            : parser.chunked() ? shared_.options.body_bytes_max
                                                               : 0,
                                            shared_.options.body_bytes_max));
    if (view(head[http::field::expect]) == "100-continue") write_continue();
    if (const auto error = wait(left(), [&](auto done) { http::async_read(stream_, buffer_, parser, done); }))
      return refuse(error);
    is_all_read_ = true;
    const Request request = parser.release();
    return answer(request);
  } catch (const HttpError& error) {
    if (!parser.is_done()) keep_alive_ = false;
    return send_error(error.status, op::OperationError(error.code, error.message)) && keep_alive_;
  } catch (const op::OperationError& error) {
    return send_error(status_of(error), error) && keep_alive_;
  } catch (const Error& error) {
    return send_error(400, op::OperationError(op::kValidationError, error.what())) && keep_alive_;
  } catch (const std::exception&) {
    keep_alive_ = false;
    return send_error(500, op::OperationError(op::kExecutionError, "the server failed"));
  }
}

// Of a request that could not be read.
bool HttpConnection::refuse(const beast::error_code& error) {
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

void HttpConnection::write_continue() {
  http::response<http::empty_body> go_on{http::status::continue_, 11};
  wait(shared_.options.write_time, [&](auto done) { http::async_write(stream_, go_on, done); });
}

bool HttpConnection::client_has_gone() {
  // Bytes may wait to be read, of the next request or of the end of TLS, so that reading does not tell.
  pollfd end{stream_.tcp().socket().native_handle(), POLLRDHUP, 0};
  return ::poll(&end, 1, 0) > 0;
}

bool HttpConnection::send(int status, std::string_view type, std::string body) {
  Response response{static_cast<http::status>(status), 11};
  response.set(http::field::content_type, beast::string_view(type.data(), type.size()));
  response.set(http::field::cache_control, "no-store");
  response.set("X-Content-Type-Options", "nosniff");
  add_headers(response);
  if (status == 401) response.set(http::field::www_authenticate, "Bearer");
  if (status == 429 || status == 503) response.set(http::field::retry_after, "1");
  response.keep_alive(keep_alive_);
  response.body() = std::move(body);
  response.prepare_payload();
  log(status);
  return !wait(shared_.options.write_time, [&](auto done) { http::async_write(stream_, response, done); }) &&
         keep_alive_;
}

bool HttpConnection::send_error(int status, const op::OperationError& error) {
  send(status, error_body(status, error));
  return keep_alive_;
}

// The end of the connection is the end of the events.
bool HttpConnection::begin_events(std::string_view more_headers, std::string_view type) {
  keep_alive_ = false;
  log(200);
  return write(
      fmt::format("HTTP/1.1 200 OK\r\nContent-Type: {}\r\nCache-Control: no-store\r\n{}Connection: close\r\n\r\n", type,
                  more_headers));
}

bool HttpConnection::write(const std::string& text) {
  return !wait(shared_.options.write_time, [&](auto done) { asio::async_write(stream_, asio::buffer(text), done); });
}

void HttpConnection::log(int status) {
  if (!shared_.options.log) return;
  const std::string_view path = path_of(target_);
  shared_.options.log(
      fmt::format("{} {} {} {}", quote_header(method_), quote_header(path.substr(0, 200)), status, client()));
}

}  // namespace weft::remote
