// Operations over gRPC: the service of operations.proto, with reflection and health.
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

struct GrpcOptions {
  std::string address = "127.0.0.1:0";     ///< HOST:PORT; port 0: any that is free
  std::filesystem::path certificate, key;  ///< PEM files; TLS if they are set
  std::filesystem::path client_authority;  ///< PEM file: clients need a certificate that it signed
  std::uint64_t message_bytes_max = std::uint64_t{256} << 20;
  std::uint64_t values_max = 1'000'000;                         ///< keys and values of an input
  int threads_max = 2'048;                                      ///< so many calls and streams at once
  std::chrono::seconds handle_time = std::chrono::minutes(10);  ///< after which an unused handle is freed
  /// A line for each call: method, operation, how it ended, identity. Never a token or an input.
  std::function<void(std::string_view line)> log = {};
};

/// Serves until it is destroyed, which aborts running calls.
class GrpcServer {
 public:
  /// Errors: FileError for certificates that cannot be read, and if it cannot listen there.
  GrpcServer(const serve::Service& service, serve::Tokens tokens, const GrpcOptions& options);
  ~GrpcServer();
  int port() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace weft::remote
