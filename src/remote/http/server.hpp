// Operations over HTTP/1.1.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "serve/service.hpp"

namespace weft::remote {

struct HttpOptions {
  std::string host = "127.0.0.1";
  std::uint16_t port = 0;  ///< 0: any that is free
  std::string version = "0";
  std::filesystem::path certificate, key;  ///< PEM files; TLS if they are set
  std::filesystem::path client_authority;  ///< PEM file: clients need a certificate that it signed
  std::size_t connections_max = 256;
  std::uint64_t body_bytes_max = std::uint64_t{256} << 20;
  std::uint64_t bodies_bytes_max = std::uint64_t{1} << 30;  ///< of all requests that arrive at once
  std::uint64_t values_max = 1'000'000;                     ///< keys and values of a body
  std::uint32_t header_bytes_max = 16 << 10;
  std::chrono::milliseconds request_time =
      std::chrono::seconds(30);                                    ///< for the head and the body of a request to arrive
  std::chrono::milliseconds idle_time = std::chrono::seconds(60);  ///< between requests
  std::chrono::milliseconds write_time = std::chrono::seconds(30);  ///< for a client to take an answer
  std::chrono::seconds handle_time = std::chrono::minutes(10);      ///< after which an unused handle is freed
  /// A line for each request: method, path, status, identity. Never a token, a query or a body.
  std::function<void(std::string_view line)> log = {};
};

/// Serves until it is destroyed. Routes:
///
///     GET    /health                      without a token
///     GET    /openapi.json                the OpenAPI 3.1 description
///     GET    /v1/operations               specifications
///     GET    /v1/operations/ID            one of them
///     POST   /v1/operations/ID            calls: the body is the input, the answer an envelope. A subscription, or a request
///                                         that accepts text/event-stream, is answered by server-sent events. Inputs and
///                                         answers may be frames (catalogue/frame.hpp), which hold tensors as bytes
///     DELETE /v1/calls/REQUEST            aborts a call of the same identity
///     DELETE /v1/handles/HANDLE           frees a tensor that is held
///     DELETE /v1/sessions/NAME            frees those that calls with the header Weft-Session: NAME left here
///     POST   /mcp                         a message of the Model Context Protocol (streamable HTTP); DELETE ends a session
///
/// Every request but that for /health needs "Authorization: Bearer TOKEN". Headers of a call: Weft-Tensors (data or handles),
/// Weft-Timeout (seconds), Weft-Request-Id, Weft-Session. A client that leaves aborts its call.
class HttpServer {
 public:
  /// Errors: UsageError for a host that is not an address; FileError for certificates that cannot be used, and if it cannot listen there.
  HttpServer(const serve::Service& service, serve::Tokens tokens, const HttpOptions& options);
  ~HttpServer();
  std::uint16_t port() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace weft::remote
