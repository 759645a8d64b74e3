// A worker that serves operations over NATS, beside any number of others.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "remote/nats/connection.hpp"
#include "serve/service.hpp"

namespace weft::remote {

struct NatsWorkerOptions {
  NatsOptions nats;
  std::string version = "0.0.0";
  int threads_max = 64;                                       ///< calls that run at once
  std::size_t waiting_max = 1024;                             ///< calls that wait for a thread; more are OVERLOADED
  std::uint64_t waiting_bytes_max = std::uint64_t{64} << 20;  ///< of the messages of these; more are OVERLOADED
  std::uint64_t message_bytes_max = std::uint64_t{1} << 30;
  std::uint64_t values_max = 1'000'000;
  std::chrono::milliseconds heartbeat = std::chrono::milliseconds(300);
  std::chrono::milliseconds grant_time = std::chrono::seconds(5);  ///< for a caller to grant a mutation
  std::chrono::hours record_time =
      std::chrono::hours(24);                             ///< for which answers of mutations with a request id are kept
  std::size_t record_bytes_max = std::size_t{256} << 10;  ///< of such an answer; larger ones are not kept
  std::chrono::milliseconds repeat_time = std::chrono::seconds(10);  ///< that a repeated request waits for the first
  std::chrono::seconds handle_time = std::chrono::minutes(10);       ///< after which an unused handle is freed
  /// A line for each call: operation, how it ended, identity. Never a token or an input.
  std::function<void(std::string_view line)> log = {};
};

/// Serves until it is destroyed, which lets running calls end in `abort`. The operations are those of the registry when it begins.
/// A caller whose session (protocol.hpp) ends loses its handles, and its calls are aborted.
class NatsWorker {
 public:
  /// Errors: OperationError UNAVAILABLE.
  NatsWorker(const serve::Service& service, serve::Tokens tokens, const NatsWorkerOptions& options);
  ~NatsWorker();
  const std::string& id() const;
  /// Calls that run or wait.
  std::size_t calls() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace weft::remote
