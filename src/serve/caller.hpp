// What can call operations elsewhere: over NATS, over gRPC. And a registry in which they look local.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "weft/operations/envelope.hpp"
#include "weft/operations/registry.hpp"

namespace weft::serve {

/// The server of a URL, for messages: without user, password or token.
std::string server_of(std::string_view url);

struct RemoteCallOptions {
  std::optional<operations::Clock::time_point> deadline = {};
  std::stop_token stop = {};  ///< aborts the call
  bool keeps_tensors =
      false;                  ///< tensors of answers stay where they are, under handles that live as long as the caller
  std::string worker = {};    ///< NATS: calls this worker only, as for its handles
  std::string* by = nullptr;  ///< NATS: is set to the worker that answered
  /// What the caller calls the request. Over NATS a mutation runs at most once for all calls with this id: a later call has the
  /// answer of the first, and so has one whose worker dies after it ran (needs JetStream). Other servers pass it on.
  std::string request_id = {};
  std::vector<std::string> via = {};  ///< as operations::CallOptions has it
};

/// Thread safety: any thread may call any function.
class Caller {
 public:
  virtual ~Caller() = default;
  /// What is offered there, once for each id.
  virtual std::vector<operations::Specification> operations() = 0;
  /// All answers, to `take`, which returns false to leave. Errors: OperationError of the operation; UNAVAILABLE; TIMEOUT; ABORTED.
  virtual void run(std::string_view id, const Value& input, const RemoteCallOptions& options,
                   const std::function<bool(operations::Envelope)>& take) = 0;
  /// One answer; of a subscription, the first. Errors: as `run`.
  virtual operations::Envelope call(std::string_view id, const Value& input, const RemoteCallOptions& options = {});
  /// Calls the function, on a thread of the caller's, when `operations` may have changed; only some places tell. Returns a number for
  /// `forget`, or 0.
  virtual std::size_t on_change(std::function<void()> /*changed*/) { return 0; }
  /// The function is not called once this returns. Not to be called by the function.
  virtual void forget(std::size_t /*observer*/) {}
};

/// Adds the operations of another place to a registry, where they look as if they were local: with their schemas and their access
/// control; the place checks the caller's token, too. Their errors have those of the way there beside their own. Ids that the registry has are left out. Returns the number of those added.
/// Where the place tells that its operations have changed, the registry follows.
/// Errors: OperationError UNAVAILABLE if nothing is offered.
std::size_t from_call(operations::Registry& registry, const std::shared_ptr<Caller>& caller);

}  // namespace weft::serve
