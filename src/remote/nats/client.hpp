// Calls of operations that workers serve over NATS.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "remote/nats/connection.hpp"
#include "serve/caller.hpp"

namespace weft::remote {

struct NatsClientOptions {
  NatsOptions nats;
  std::string token;
  /// A worker that says nothing for this time is taken for dead.
  std::chrono::milliseconds silence = std::chrono::milliseconds(1500);
  /// For a worker that offers the operation, and has room, to appear.
  std::chrono::milliseconds find_time = std::chrono::seconds(3);
  std::uint64_t message_bytes_max = std::uint64_t{1} << 30;
  int window = 64;  ///< answers of a subscription that may be under way
};

/// Calls are answered once. A call whose worker dies is sent again, to another worker, with one exception: a mutation that a worker
/// has begun (protocol.hpp), and a subscription that has answered, end in WORKER_LOST.
/// Thread safety: any thread may call any function.
class NatsClient : public serve::Caller {
 public:
  /// Errors: OperationError UNAVAILABLE.
  explicit NatsClient(const NatsClientOptions& options);
  ~NatsClient() override;

  /// What all workers offer. Waits half a second, and for workers that have begun to answer.
  std::vector<operations::Specification> operations() override;
  /// Errors: also WORKER_LOST; UNAVAILABLE if no worker offers the operation.
  void run(std::string_view id, const Value& input, const serve::RemoteCallOptions& options,
           const std::function<bool(operations::Envelope)>& take) override;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace weft::remote
