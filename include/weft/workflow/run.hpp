// Running workflows on the exchange of operations.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>

#include "weft/operations/exchange.hpp"
#include "weft/workflow/call_graph.hpp"
#include "weft/workflow/template.hpp"

namespace weft::workflow {

/// An element of a run has another status.
struct NodeEvent {
  std::string node;       ///< "root.1[7]", as in CallGraph
  std::string operation;  ///< "" for an element that is not an operation
  std::string name;       ///< the element's id
  Status status = Status::idle;
  std::string request_id;     ///< of the call, from running on
  std::string code, message;  ///< of a failure
};

struct RunOptions {
  /// Identity and deadline hold for every call. `on_abort` and the request's id have no meaning here.
  operations::CallOptions call = {};
  std::optional<OnFailure> on_failure = {};  ///< unset: that of the template
  std::size_t threads_max = 16;              ///< calls at once
  std::size_t nodes_max = 100'000;           ///< elements that may be made, with those of maps
  /// Is called for each change, one at a time, on the threads of the run. It must not throw, and not use the run.
  std::function<void(const NodeEvent&)> observer = {};
};

class Run;
namespace detail {
class Engine;
/// `start` for a template that was checked before.
Run start_sound(operations::Exchange& exchange, const Template& workflow, Value input, const RunOptions& options);
}  // namespace detail

/// A workflow that runs. Destroying it aborts it and waits for its end. Thread safety: any thread may call any function.
class Run {
 public:
  /// Waits. Errors: OperationError of the element that failed first, with its place; ABORTED, TIMEOUT.
  Value get();
  /// Waits until `time`; nothing if it still runs.
  std::optional<Value> get_until(operations::Clock::time_point time);
  /// Ends it, as `OnFailure` says. Does nothing to one that has ended.
  void abort();
  Status status() const;
  /// What has happened so far.
  CallGraph graph() const;

  Run(Run&&) noexcept = default;
  Run& operator=(Run&&) noexcept;
  ~Run();

 private:
  friend Run detail::start_sound(operations::Exchange&, const Template&, Value, const RunOptions&);
  explicit Run(std::shared_ptr<detail::Engine> engine) : engine_(std::move(engine)) {}
  std::shared_ptr<detail::Engine> engine_;
};

/// Starts a workflow: its operations are calls from outside, with the identity and the deadline of `options.call`. Nothing runs
/// unless `check` finds no problem and the input fits the template's schema. The exchange must outlive the run. Errors: UsageError
/// with all problems; OperationError VALIDATION_ERROR.
Run start(operations::Exchange& exchange, const Template& workflow, Value input, const RunOptions& options = {});
/// The same, and waits. Errors: as `start` and `Run::get`.
Value run(operations::Exchange& exchange, const Template& workflow, Value input, const RunOptions& options = {});

/// Makes a workflow an operation: its calls are nested calls, with this authority, and reach the template's operations only.
/// Schemas and description are the template's unless the specification has its own; the errors that its operations declare are
/// declared too. Operations must be registered before workflows that use them. Errors: UsageError with all problems; as
/// Registry::add.
void add(operations::Registry& registry, operations::Specification specification, const Template& workflow,
         operations::Identity authority = {}, const RunOptions& options = {});

}  // namespace weft::workflow
