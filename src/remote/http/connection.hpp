// A connection of a client to the HTTP server, and what all of them share.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "remote/http/mcp_sessions.hpp"
#include "remote/http/server.hpp"
#include "remote/http/stream.hpp"
#include "serve/service.hpp"

namespace weft::remote {

/// What ends a request early: a status and an error as JSON.
struct HttpError {
  int status;
  std::string code, message;
};

struct HttpShared {
  serve::Service service;
  serve::Tokens tokens;
  HttpOptions options;
  McpSessions mcp{service, options.version};
  std::optional<asio::ssl::context> tls = {};
  std::atomic<std::uint64_t> bodies_bytes = 0;  ///< of requests that arrive or are answered
};

/// Serves one client after the other's request, on the caller's thread. It has an io_context of its own, so that every read and
/// write has a time limit. Calls run on threads of the exchange; the connection waits for them and looks whether the client is
/// still there.
class HttpConnection {
 public:
  /// Takes over an open socket.
  HttpConnection(HttpShared& shared, int socket);
  /// Returns when the connection has ended.
  void serve();

 private:
  using Request = http::request<http::string_body>;

  // connection.cpp: requests arrive, answers leave. A function that answers returns false once the connection is to be closed.
  template <class Start>
  beast::error_code wait(std::chrono::milliseconds limit, const Start& start);
  bool serve_one();
  bool refuse(const beast::error_code& error);
  void authorise(const Request& head);
  void write_continue();
  bool client_has_gone();
  bool send(int status, const Value& body) { return send(status, "application/json", body.to_json()); }
  bool send(int status, std::string_view type, std::string body);
  bool send_error(int status, const operations::OperationError& error);
  bool begin_events(std::string_view more_headers);
  bool write(const std::string& text);
  void log(int status);

  // routes.cpp: what requests ask for.
  bool answer(const Request& request);
  bool call(const std::string& id, const Request& request);
  bool mcp(const Request& request);
  bool send_reply(McpReplies& replies);
  bool send_replies(McpReplies& replies);
  bool send_events(operations::Subscription& answers, operations::WireTensors form, const operations::Holder& holder);
  std::string session_key(std::string_view name) const;

  HttpShared& shared_;
  asio::io_context context_{1};
  Stream stream_;
  beast::flat_buffer buffer_;
  bool keep_alive_ = false;
  std::string method_, target_, session_;
  const operations::Identity* identity_ = nullptr;
  std::shared_ptr<const operations::Specification> specification_;
};

/// The target of a request without its query.
std::string_view path_of(std::string_view target);
/// A text as a header's value: other characters become _.
std::string quote_header(std::string_view text);
inline std::string_view view(beast::string_view text) { return {text.data(), text.size()}; }

}  // namespace weft::remote
