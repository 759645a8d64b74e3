// Workflows on an exchange: run from outside, and as operations themselves.
#include "weft/workflow/run.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "operations/registry_entry.hpp"
#include "weft/error.hpp"
#include "weft/schema.hpp"
#include "weft/workflow/check.hpp"
#include "workflow/engine.hpp"

namespace weft::workflow {
namespace {

using operations::Clock;
using operations::OperationError;
using Deadline = std::optional<Clock::time_point>;
using Begun = std::function<void(const std::string& request_id)>;

Value fitted_to(const operations::Registry& registry, const std::string& operation, Value value) {
  const auto entry = registry.entry(operation);
  return entry ? entry->input.normalised(std::move(value)) : value;
}

/// Calls from outside.
class OutsideCalls : public detail::Calls {
 public:
  OutsideCalls(operations::Exchange& exchange, operations::CallOptions options)
      : exchange_(exchange), options_(std::move(options)) {
    options_.request_id.clear();
    options_.client_request_id.clear();
  }
  Value call(const std::string&, const std::string& operation, Value input, const Deadline& deadline,
             const Begun& begun) override {
    operations::CallOptions options = options_;
    options.deadline = deadline;
    operations::PendingCall call = exchange_.start(operation, std::move(input), options);
    begun(call.request_id());
    return call.get().data;
  }
  Value fitted(const std::string& operation, Value value) override {
    return fitted_to(exchange_.registry(), operation, std::move(value));
  }
  void abort(const std::string& request_id) override { exchange_.abort(request_id); }

 private:
  operations::Exchange& exchange_;
  operations::CallOptions options_;
};

/// Calls of a workflow that is an operation: nested in its call, with the authority and the reach of its handler.
class NestedCalls : public detail::Calls {
 public:
  NestedCalls(operations::Context& context, const operations::Registry& registry, OnFailure policy)
      : context_(context), registry_(registry), policy_(policy) {}
  Value call(const std::string& node, const std::string& operation, Value input, const Deadline& deadline,
             const Begun& begun) override {
    operations::CallOptions options;
    options.deadline = deadline;
    options.request_id = fmt::format("{}/{}", context_.request_id(), node);
    if (policy_ == OnFailure::continue_running) options.on_abort = operations::OnAbort::continue_running;
    begun(options.request_id);
    return context_.call(operation, std::move(input), options);
  }
  Value fitted(const std::string& operation, Value value) override {
    return fitted_to(registry_, operation, std::move(value));
  }
  // The exchange aborts nested calls with the call that made them.
  void abort(const std::string&) override {}

 private:
  operations::Context& context_;
  const operations::Registry& registry_;
  const OnFailure policy_;
};

void require_sound(const Template& workflow, const operations::Registry& registry, bool internal) {
  if (const auto problems = check(workflow, registry, internal); !problems.empty())
    throw UsageError("the workflow cannot run:\n" + to_string(problems));
}

void collect(const Element& element, std::vector<std::string>& ids) {
  if (element.type == Type::operation && std::find(ids.begin(), ids.end(), element.operation) == ids.end())
    ids.push_back(element.operation);
  for (const Element& child : element.children) collect(child, ids);
}

}  // namespace

// ---- From outside -------------------------------------------------------------------------------------------------------------

Run start(operations::Exchange& exchange, const Template& workflow, Value input, const RunOptions& options) {
  require_sound(workflow, exchange.registry(), false);
  return detail::start_sound(exchange, workflow, std::move(input), options);
}

Run detail::start_sound(operations::Exchange& exchange, const Template& workflow, Value input,
                        const RunOptions& options) {
  const schema::Schema schema(workflow.input_schema);
  if (const auto violations = schema.check(input); !violations.empty())
    throw OperationError(operations::kValidationError,
                         fmt::format("the workflow's input does not fit:\n{}", schema::to_string(violations)));
  auto engine = std::make_shared<detail::Engine>(workflow, schema.with_defaults(std::move(input)), options,
                                                 std::make_shared<OutsideCalls>(exchange, options.call));
  engine->start();
  return Run(std::move(engine));
}

Value run(operations::Exchange& exchange, const Template& workflow, Value input, const RunOptions& options) {
  return start(exchange, workflow, std::move(input), options).get();
}

Value Run::get() {
  engine_->wait_until(std::nullopt);
  return engine_->result();
}

std::optional<Value> Run::get_until(Clock::time_point time) {
  if (!engine_->wait_until(time)) return std::nullopt;
  return engine_->result();
}

void Run::abort() { engine_->end(OperationError(operations::kAborted, "the workflow was aborted")); }
Status Run::status() const { return engine_->status(); }
CallGraph Run::graph() const { return engine_->graph(); }

Run& Run::operator=(Run&& other) noexcept {
  std::swap(engine_, other.engine_);
  return *this;
}

Run::~Run() {
  if (!engine_) return;
  abort();
  engine_->wait_until(std::nullopt);
  engine_->join();
}

// ---- As an operation ----------------------------------------------------------------------------------------------------------

void add(operations::Registry& registry, operations::Specification specification, const Template& workflow,
         operations::Identity authority, const RunOptions& options) {
  require_sound(workflow, registry, true);
  std::vector<std::string> reach;
  collect(workflow.tree, reach);
  if (specification.input == Value(true)) specification.input = workflow.input_schema;
  if (specification.output == Value(true)) specification.output = workflow.output_schema;
  if (specification.description.empty()) specification.description = workflow.description;
  for (const std::string& id : reach)
    for (const operations::DeclaredError& error : registry.find(id, true)->errors)
      if (std::none_of(specification.errors.begin(), specification.errors.end(),
                       [&](const operations::DeclaredError& each) { return each.code == error.code; }))
        specification.errors.push_back(error);
  const auto handle = [workflow, options, &registry](operations::Context& call) {
    RunOptions own = options;
    own.call = {.deadline = call.deadline()};
    const OnFailure policy = own.on_failure.value_or(workflow.on_failure);
    const auto engine = std::make_shared<detail::Engine>(workflow, call.input(), own,
                                                         std::make_shared<NestedCalls>(call, registry, policy));
    {
      const std::stop_callback stop(call.stop(), [&] {
        engine->end(OperationError(operations::kAborted, "the call of the workflow has ended"));
      });
      engine->start();
      engine->wait_until(std::nullopt);
    }
    engine->join();
    return engine->result();
  };
  registry.add(std::move(specification),
               operations::Handler{.run = handle, .authority = std::move(authority), .reach = std::move(reach)});
}

}  // namespace weft::workflow
