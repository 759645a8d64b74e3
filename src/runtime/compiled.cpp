// Explicit compilation: trace once for the shapes of the arguments, replay with new buffers.
#include <fmt/format.h>

#include <algorithm>
#include <list>
#include <mutex>
#include <set>

#include "base/scope_depth.hpp"
#include "compile/rewrite.hpp"
#include "graph/autocast.hpp"
#include "graph/graph_state.hpp"
#include "graph/trace_scope.hpp"
#include "runtime/devices.hpp"
#include "runtime/evaluate.hpp"
#include "weft/anomaly.hpp"
#include "weft/compile.hpp"
#include "weft/profile.hpp"

namespace weft {
namespace runtime {

using graph::NodeRef;

// One trace of the function.
struct Trace {
  struct Leaf {
    int argument = -1;                  // the argument's number, or
    std::shared_ptr<graph::Cell> cell;  // a Variable's current buffer, or
    NodeRef constant;                   // a value that is known during the trace
    bool is_updated = false;            // the Variable is one that the function assigns to
  };
  struct Update {
    int external = -1;
    bool in_place = false;
  };
  std::vector<std::pair<DType, Shape>> signature;
  DType autocast = graph::autocast_state();                          // of the scope around the call
  std::vector<std::pair<graph::TraceScope::Switch, bool>> switches;  // that the function read, and their values
  Device device;
  std::shared_ptr<Executable> executable;
  std::vector<Leaf> leaves;
  std::vector<Tensor> results;  // types and shapes of results; results that do not depend on the run keep their values
  std::vector<int> result_external;  // -1: results[i] itself
  std::vector<Update> updates;
  std::vector<std::shared_ptr<graph::Cell>> updated;  // the Variables that are updated
  std::vector<backend::BufferPtr> last_externals;
  bool was_called = false;

  bool serves(const std::vector<std::pair<DType, Shape>>& wanted, Device on) const {
    return device == on && signature == wanted && autocast == graph::autocast_state() &&
           std::all_of(switches.begin(), switches.end(), [](const auto& s) { return *s.first == s.second; });
  }
};

// A call of a compiled function by another, or by itself, on this thread.
class NestedCall {
 public:
  NestedCall() {
    if (scope_depth<NestedCall>() == kNestedMax)
      throw UsageError(
          fmt::format("compile: compiled functions call themselves or each other {} deep, as if without end; a call in "
                      "the function "
                      "has to depend on what is known while it is traced, such as shapes and numbers of the program, "
                      "and not on the "
                      "elements of tensors",
                      kNestedMax));
    ++scope_depth<NestedCall>();
  }
  ~NestedCall() { --scope_depth<NestedCall>(); }
  NestedCall(const NestedCall&) = delete;
  NestedCall& operator=(const NestedCall&) = delete;
  bool is_inner() const { return scope_depth<NestedCall>() > 1; }

 private:
  static constexpr int kNestedMax = 200;
};

class CompiledFunction {
 public:
  explicit CompiledFunction(Compiled::Function function) : function_(std::move(function)) {}

  Trace& trace_for(std::span<const Tensor> arguments) {
    std::vector<std::pair<DType, Shape>> signature;
    for (const Tensor& argument : arguments) signature.emplace_back(argument.dtype(), argument.shape());
    const Device device = arguments.empty() ? default_device() : arguments[0].device();
    for (const Tensor& argument : arguments)
      if (argument.device() != device)
        throw DeviceError(fmt::format("compile: arguments on {} and {}; move one with .to(device)", device.to_string(),
                                      argument.device().to_string()));
    for (auto it = traces_.begin(); it != traces_.end(); ++it)
      if (it->serves(signature, device)) {
        traces_.splice(traces_.begin(), traces_, it);
        return traces_.front();
      }
    traces_.push_front(make_trace(signature, device));
    // Results must not keep the traced graph alive; type and shape are enough.
    Trace& made = traces_.front();
    for (std::size_t i = 0; i < made.results.size(); ++i)
      if (made.result_external[i] >= 0)
        made.results[i] = Tensor(graph::make_node({.kind = graph::Kind::input,
                                                   .type = made.results[i].dtype(),
                                                   .shape = made.results[i].shape(),
                                                   .device = device,
                                                   .ints = {0}}));
    ++count_;
    if (traces_.size() > kTracesMax) traces_.pop_back();
    return traces_.front();
  }

  std::vector<Tensor> call(std::span<const Tensor> arguments) {
    const NestedCall nested;
    // Part of the function being traced, or run op by op.
    if (graph::TraceScope::current() || (nested.is_inner() && anomaly_detection_enabled())) return function_(arguments);
    const std::lock_guard lock(mutex_);
    if (anomaly_detection_enabled()) {  // which names the ops and lines of an ordinary function
      const std::vector<Tensor> results = function_(arguments);
      std::vector<NodeRef> nodes;
      for (const Tensor& result : results)
        if (result.defined()) nodes.push_back(result.node());
      evaluate(nodes);
      return results;
    }
    if (!graph::pending_cells().empty()) evaluate({});
    const std::vector<backend::BufferPtr> argument_buffers = buffers_of(arguments);
    Trace& trace = trace_for(arguments);
    const compiler::Compiled& plan = trace.executable->compiled;
    std::vector<backend::BufferPtr> externals(static_cast<std::size_t>(plan.external_count));
    // Computes Variables whose first value is still pending.
    if (!std::exchange(trace.was_called, true) &&
        !std::all_of(trace.leaves.begin(), trace.leaves.end(),
                     [](const Trace::Leaf& leaf) { return !leaf.cell || graph::committed_of(*leaf.cell); }))
      evaluate({});
    const graph::CellUpdate alone(trace.updated);
    for (std::size_t u = 0; u < trace.updates.size(); ++u)
      if (trace.updates[u].in_place) make_exclusive(*trace.updated[u]);
    for (std::size_t i = 0; i < trace.leaves.size(); ++i) {
      const Trace::Leaf& leaf = trace.leaves[i];
      if (leaf.argument >= 0)
        externals[i] = argument_buffers[static_cast<std::size_t>(leaf.argument)];
      else if (leaf.is_updated && leaf.cell->committed)
        externals[i] = buffer_of(*leaf.cell->committed);  // only this thread may write it now
      else
        externals[i] = buffer_of(leaf.cell ? *committed(*leaf.cell) : *leaf.constant);
    }
    for (std::size_t o = 0; o < plan.output_external.size(); ++o) {
      auto& slot = externals[static_cast<std::size_t>(plan.output_external[o])];
      if (!slot)
        slot = allocate(trace.device, trace.executable->output_bytes[o],
                        std::string_view("result of a compiled function"));
    }
    trace.executable->program->run(externals);
    for (std::size_t u = 0; u < trace.updates.size(); ++u) {
      graph::Cell& cell = *trace.updated[u];
      const backend::BufferPtr& buffer = externals[static_cast<std::size_t>(trace.updates[u].external)];
      // Updated in place: nobody else holds the value's node, which has the new value by now.
      if (trace.updates[u].in_place && buffer_of(*cell.committed) == buffer) continue;
      graph::set_committed(cell, data_node(cell.type, cell.shape, trace.device, buffer));
    }
    std::vector<Tensor> results;
    for (std::size_t i = 0; i < trace.results.size(); ++i) {
      const Tensor& like = trace.results[i];
      const int external = trace.result_external[i];
      results.push_back(external < 0 ? like
                                     : Tensor(data_node(like.dtype(), like.shape(), trace.device,
                                                        externals[static_cast<std::size_t>(external)])));
    }
    trace.last_externals = std::move(externals);
    if (!keep_externals_) trace.last_externals.clear();
    return results;
  }

  const Trace& last() const {
    if (traces_.empty()) throw UsageError("compile: call or prepare the function once before asking for its plan");
    return traces_.front();
  }

  Profile measure(std::span<const Tensor> arguments) {
    keep_externals_ = true;
    call(arguments);
    keep_externals_ = false;
    Trace& trace = traces_.front();
    const graph::CellUpdate alone(trace.updated);
    const std::vector<backend::KernelTime> times = trace.executable->program->profile(trace.last_externals);
    trace.last_externals.clear();
    const backend::Description& description = backend_of(trace.device).describe();
    Profile profile{.device = description.name, .hardware = description.hardware};
    std::set<int> current;  // kernels of the last row
    for (const backend::KernelTime& time : times) {
      const bool joins =
          std::any_of(time.kernels.begin(), time.kernels.end(), [&](int kernel) { return current.contains(kernel); });
      if (!joins) {
        current.clear();
        profile.kernels.push_back({.name = time.name, .begin = time.begin});
      }
      KernelProfile& row = profile.kernels.back();
      if (joins) row.name += " + " + time.name;
      row.microseconds += time.microseconds;
      row.on_matrices = row.on_matrices || time.name.find(".matrices") != std::string::npos;
      for (const int kernel : time.kernels) {
        if (!current.insert(kernel).second) continue;
        const Executable::Work& work = trace.executable->work.at(static_cast<std::size_t>(kernel));
        row.operations += work.flops;
        row.bytes += work.bytes;
      }
    }
    return profile;
  }

  std::size_t count() const { return count_; }

 private:
  static constexpr std::size_t kTracesMax = PlanCache::kPlansMax;

  // The value in memory of a Variable that a trace reads.
  static NodeRef committed(const graph::Cell& cell) {
    if (NodeRef value = graph::committed_of(cell)) return value;
    throw UsageError(
        fmt::format("compile: variable \"{}\" has become a slice of another since the function was traced; flatten "
                    "variables together before the first call",
                    cell.name));
  }

  Trace make_trace(std::vector<std::pair<DType, Shape>> signature, Device device) {
    Trace trace;
    trace.signature = std::move(signature);
    trace.device = device;
    std::vector<Tensor> arguments;
    for (std::size_t i = 0; i < trace.signature.size(); ++i)
      arguments.emplace_back(graph::make_node({.kind = graph::Kind::input,
                                               .type = trace.signature[i].first,
                                               .shape = trace.signature[i].second,
                                               .device = device,
                                               .ints = {static_cast<Extent>(i)}}));
    graph::TraceScope scope;
    const std::vector<Tensor> results = function_(arguments);
    trace.switches = scope.switches();
    std::unordered_map<const graph::Node*, std::shared_ptr<graph::Cell>> cell_of;
    for (const graph::TraceScope::Entry& entry : scope.entries())
      if (entry.stand_in) cell_of[entry.stand_in.get()] = entry.cell;

    std::vector<NodeRef> outputs;
    trace.results = results;
    for (const Tensor& result : results) {
      if (!result.defined()) throw UsageError("compile: the function gave a tensor without a value");
      if (result.device() != device)
        throw DeviceError(fmt::format("compile: a result is on {}, the arguments are on {}",
                                      result.device().to_string(), device.to_string()));
      const bool known = static_cast<bool>(result.node()->storage);  // a value in memory does not change
      trace.result_external.push_back(known ? -1 : static_cast<int>(outputs.size()));
      if (!known) outputs.push_back(result.node());
    }
    const std::size_t result_count = outputs.size();
    for (const std::size_t index : scope.assigned()) {
      const graph::TraceScope::Entry& entry = scope.entries()[index];
      if (entry.cell->made_in_trace && !graph::committed_of(*entry.cell))
        throw UsageError(
            fmt::format("compile: variable \"{}\" was made inside the function, which runs once; make it before, so "
                        "that its value is kept",
                        entry.cell->name));
      outputs.push_back(entry.next);
      trace.updated.push_back(entry.cell);
    }

    // Compiles a copy that no other thread knows, without the memory that the function's values keep alive.
    Structure structure;
    structure_of(outputs, 0, structure);
    const graph::PrivateGraph graph;
    Blueprint blueprint = blueprint_of(outputs, structure, std::vector<bool>(structure.holes.size(), false));
    std::unordered_map<const graph::Node*, const graph::Node*> original;
    std::unordered_map<const graph::Cell*, const graph::Node*> old_value;
    for (std::size_t i = 0; i < structure.leaves.size(); ++i) {
      original[blueprint.leaves[i].get()] = structure.leaves[i];
      if (const auto it = cell_of.find(structure.leaves[i]); it != cell_of.end())
        old_value[it->second.get()] = blueprint.leaves[i].get();
    }
    compiler::Request request{blueprint.outputs, std::vector<const graph::Node*>(outputs.size(), nullptr)};
    for (std::size_t u = 0; u < trace.updated.size(); ++u) {
      const auto it = old_value.find(trace.updated[u].get());
      if (it != old_value.end() && !graph::has_packed_layout(*it->second))
        request.may_overwrite[result_count + u] = it->second;
    }
    trace.executable = make_executable(request, device);

    compiler::Compiled& plan = trace.executable->compiled;
    const int leaves = static_cast<int>(plan.leaves.size());
    for (const NodeRef& leaf : plan.leaves) {
      const graph::Node* node = original.at(leaf.get());
      Trace::Leaf bound;
      if (node->kind == graph::Kind::input && node->ints[0] < 0)
        throw UsageError("compile: a result depends on an argument of a function given to vmap; return it from there");
      if (node->kind == graph::Kind::input)
        bound.argument = static_cast<int>(node->ints[0]);
      else if (auto it = cell_of.find(node); it != cell_of.end()) {
        bound.cell = it->second;
        bound.is_updated = std::find(trace.updated.begin(), trace.updated.end(), it->second) != trace.updated.end();
      } else
        bound.constant = node->shared_from_this();
      trace.leaves.push_back(std::move(bound));
    }
    plan.leaves.clear();
    for (int& external : trace.result_external)
      if (external >= 0) external = plan.output_external[static_cast<std::size_t>(external)];
    for (std::size_t u = 0; u < trace.updated.size(); ++u) {
      const int external = plan.output_external[result_count + u];
      trace.updates.push_back({external, external < leaves});
    }
    return trace;
  }

  // Constants get a buffer for this call, because a plan that makes the constant would differ for every value.
  static std::vector<backend::BufferPtr> buffers_of(std::span<const Tensor> arguments) {
    std::vector<backend::BufferPtr> buffers;
    for (const Tensor& argument : arguments) {
      argument.shape();  // throws if there is no value
      const graph::Node& node = *argument.node();
      if (node.packed) throw UsageError("compile: an argument is a packed matrix; let the function hold it");
      if (node.storage) {
        buffers.push_back(buffer_of(node));
      } else if (backend::BufferPtr constant = small_constant(node)) {
        buffers.push_back(std::move(constant));
      } else {
        const NodeRef value = node.kind == graph::Kind::constant ? compiler::copy_of(argument.node()) : argument.node();
        const NodeRef list[] = {value};
        evaluate(list);
        buffers.push_back(buffer_of(*value));
      }
    }
    return buffers;
  }

  // The plan will write into the Variable's buffer. If a tensor that is still held shares it, the Variable moves to a copy.
  // Only this thread uses the Variable now.
  static void make_exclusive(graph::Cell& cell) {
    if (!cell.committed) committed(cell);  // throws the right error
    if (cell.committed.use_count() == 1 && buffer_of(*cell.committed).use_count() == 1 &&
        !buffer_of(*cell.committed)->is_borrowed()) {
      // Others have dropped their handles of the node or of its buffer. Reading a count orders nothing, but taking a handle after
      // that does: what they did with the memory comes before the plan's writes.
      const NodeRef node = cell.committed;
      const backend::BufferPtr buffer = buffer_of(*node);
      return;
    }
    const NodeRef value = cell.committed;
    const NodeRef copy = compiler::copy_of(value);
    if (!copy->storage) compute({&copy, 1}, cell.device);
    backend::BufferPtr buffer = buffer_of(*copy);
    if (copy.use_count() > 1 || buffer.use_count() > 2) {  // the copy is also shared
      const NodeRef second = compiler::copy_of(copy);
      compute({&second, 1}, cell.device);
      buffer = buffer_of(*second);
    }
    graph::set_committed(cell, data_node(cell.type, cell.shape, cell.device, std::move(buffer)));
  }

  std::mutex mutex_;  // one thread calls at a time
  Compiled::Function function_;
  std::list<Trace> traces_;
  bool keep_externals_ = false;
  std::size_t count_ = 0;
};

}  // namespace runtime

Compiled::Compiled(Function function) : impl_(std::make_shared<runtime::CompiledFunction>(std::move(function))) {}
std::vector<Tensor> Compiled::operator()(std::span<const Tensor> arguments) { return impl_->call(arguments); }
void Compiled::prepare(std::span<const Tensor> arguments) {
  eval_pending();
  impl_->trace_for(arguments);
}
std::string Compiled::explain(bool source) const { return runtime::explain(*impl_->last().executable, source); }
std::size_t Compiled::kernel_count() const { return impl_->last().executable->work.size(); }
std::size_t Compiled::scratch_bytes() const { return impl_->last().executable->program->scratch_bytes(); }
std::size_t Compiled::trace_count() const { return impl_->count(); }
std::string Compiled::profile(std::span<const Tensor> arguments) { return to_table(impl_->measure(arguments)); }
Profile Compiled::measure(std::span<const Tensor> arguments) { return impl_->measure(arguments); }

std::string explain(const Tensor& tensor, bool source) {
  if (!tensor.defined()) throw UsageError("explain: the tensor has no value");
  if (tensor.node()->storage) return "the value is in memory; nothing would run\n";
  const graph::NodeRef outputs[] = {tensor.node()};
  runtime::Structure structure;
  runtime::structure_of(outputs, 0, structure);
  const graph::PrivateGraph graph;
  const runtime::Blueprint blueprint =
      runtime::blueprint_of(outputs, structure, std::vector<bool>(structure.holes.size(), false));
  const auto executable = runtime::make_executable({blueprint.outputs, {}}, tensor.device());
  const std::string text = runtime::explain(*executable, source);
  executable->compiled.leaves.clear();
  return text;
}

}  // namespace weft
