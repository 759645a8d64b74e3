// A connection of a client to an HTTP server: requests arrive, answers leave. What they ask for is for derived classes.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "remote/http/server.hpp"
#include "remote/http/stream.hpp"
#include "weft/operations.hpp"

namespace weft::remote {

/// What ends a request early: a status and an error as JSON.
struct HttpError {
  int status;
  std::string code, message;
};

/// A socket that is closed with its owner, unless that gives it away.
class OpenSocket {
 public:
  using Time = std::chrono::steady_clock::time_point;
  explicit OpenSocket(int number, Time accepted = std::chrono::steady_clock::now())
      : number_(number), accepted_(accepted) {}
  OpenSocket(OpenSocket&& other) noexcept : number_(std::exchange(other.number_, -1)), accepted_(other.accepted_) {}
  OpenSocket& operator=(OpenSocket&&) = delete;
  ~OpenSocket();
  int number() const { return number_; }
  Time accepted() const { return accepted_; }
  int give() { return std::exchange(number_, -1); }

 private:
  int number_;
  Time accepted_;
};

/// What the connections of a server share.
struct HttpShared {
  HttpOptions options;
  std::optional<asio::ssl::context> tls = {};
  std::atomic<std::uint64_t> bodies_bytes = 0;  ///< of requests that arrive or are answered
};

/// Serves one client after the other's request, on the caller's thread. It has an io_context of its own, so that every read and
/// write has a time limit. Functions that answer return false once the connection is to be closed.
class HttpConnection {
 public:
  /// Takes over an open socket.
  HttpConnection(HttpShared& shared, OpenSocket socket);
  virtual ~HttpConnection() = default;
  /// Returns when the connection has ended.
  void serve();
  /// Since when it waits for a request, or for the head of one, the first time since its socket was accepted; none while a caller
  /// that may call is served. Any thread may ask.
  std::optional<std::chrono::steady_clock::time_point> waits_since() const;

 protected:
  using Request = http::request<http::string_body>;
  using Response = http::response<http::string_body>;

  /// Refuses a request by HttpError, before its body is read.
  virtual void authorise(const Request& head) = 0;
  virtual bool answer(const Request& request) = 0;
  /// The body of an error.
  virtual Value error_body(int status, const operations::OperationError& error) const = 0;
  /// The status of an error that `answer` threw.
  virtual int status_of(const operations::OperationError& error) const = 0;
  virtual void add_headers(Response&) {}
  /// Whom the log names.
  virtual std::string_view client() const { return "-"; }

  bool client_has_gone();
  bool send(int status, const Value& body) { return send(status, "application/json", body.to_json()); }
  bool send(int status, std::string_view type, std::string body);
  bool send_error(int status, const operations::OperationError& error);
  bool begin_events(std::string_view more_headers, std::string_view type = "text/event-stream");
  bool write(const std::string& text);

 private:
  template <class Start>
  beast::error_code wait(std::chrono::milliseconds limit, const Start& start);
  bool serve_one();
  bool refuse(const beast::error_code& error);
  void take_the_rest();
  void write_continue();
  void log(int status);

  HttpShared& shared_;
  asio::io_context context_{1};
  Stream stream_;
  beast::flat_buffer buffer_;
  bool keep_alive_ = false, is_all_read_ = true;
  std::atomic<std::chrono::steady_clock::time_point> waits_since_;
  std::string method_, target_;
};

/// The target of a request without its query.
std::string_view path_of(std::string_view target);
/// A text as a header's value: other characters become _.
std::string quote_header(std::string_view text);
inline std::string_view view(beast::string_view text) { return {text.data(), text.size()}; }
/// The token of "Authorization: Bearer TOKEN"; empty without one.
std::string_view bearer_token(const http::request<http::string_body>& head);

}  // namespace weft::remote
