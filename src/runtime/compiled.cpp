// Explicit compilation: trace once for the shapes of the arguments, replay with new buffers.
#include <fmt/format.h>

#include <algorithm>
#include <list>

#include "compile/rewrite.hpp"
#include "runtime/devices.hpp"
#include "runtime/evaluate.hpp"
#include "weft/compile.hpp"

namespace weft {
namespace runtime {

using graph::NodeRef;

// One trace of the function.
struct Trace {
  struct Leaf {
    int argument = -1;                  // the argument's number, or
    std::shared_ptr<graph::Cell> cell;  // a Variable's current buffer, or
    NodeRef constant;                   // a value known when tracing
  };
  struct Update {
    std::shared_ptr<graph::Cell> cell;
    int external = -1;
    bool in_place = false;
  };
  std::vector<std::pair<DType, Shape>> signature;
  Device device;
  std::shared_ptr<Executable> executable;
  std::vector<Leaf> leaves;
  std::vector<Tensor> results;  // types and shapes of results; values that did not depend on the run stay as they are
  std::vector<int> result_external;  // -1: results[i] as it is
  std::vector<Update> updates;
  std::vector<backend::BufferPtr> last_externals;
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
      if (it->device == device && it->signature == signature) {
        traces_.splice(traces_.begin(), traces_, it);
        return traces_.front();
      }
    traces_.push_front(make_trace(signature, device));
    ++count_;
    if (traces_.size() > kTracesMax) traces_.pop_back();
    return traces_.front();
  }

  std::vector<Tensor> call(std::span<const Tensor> arguments) {
    if (Tracing::active()) return function_(arguments);  // part of the function being traced
    if (!graph::pending_cells().empty()) evaluate({});
    const std::vector<backend::BufferPtr> argument_buffers = buffers_of(arguments);
    Trace& trace = trace_for(arguments);
    const compiler::Compiled& plan = trace.executable->compiled;
    std::vector<backend::BufferPtr> externals(static_cast<std::size_t>(plan.external_count));
    for (const Trace::Update& update : trace.updates)
      if (update.in_place) make_exclusive(*update.cell);
    for (std::size_t i = 0; i < trace.leaves.size(); ++i) {
      const Trace::Leaf& leaf = trace.leaves[i];
      externals[i] = leaf.argument >= 0 ? argument_buffers[static_cast<std::size_t>(leaf.argument)]
                                        : buffer_of(leaf.cell ? *leaf.cell->committed : *leaf.constant);
    }
    for (std::size_t o = 0; o < plan.output_external.size(); ++o) {
      auto& slot = externals[static_cast<std::size_t>(plan.output_external[o])];
      if (!slot) slot = allocate(trace.device, trace.executable->output_bytes[o], "result of a compiled function");
    }
    trace.executable->program->run(externals);
    for (const Trace::Update& update : trace.updates)
      update.cell->committed = data_node(update.cell->type, update.cell->shape, trace.device,
                                         externals[static_cast<std::size_t>(update.external)]);
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

  std::string profile(std::span<const Tensor> arguments) {
    keep_externals_ = true;
    call(arguments);
    keep_externals_ = false;
    Trace& trace = traces_.front();
    std::vector<backend::KernelTime> times = trace.executable->program->profile(trace.last_externals);
    trace.last_externals.clear();
    if (times.empty()) return "this device does not time kernels\n";
    const auto& work = trace.executable->work;
    double total = 0;
    for (const auto& time : times) total += time.microseconds;
    std::string text = fmt::format("{:>10} {:>6} {:>10} {:>9}  {}\n", "us", "%", "GFLOP/s", "GB/s", "kernel");
    for (std::size_t i = 0; i < times.size(); ++i) {
      const bool matched = times.size() == work.size();
      const double us = std::max(times[i].microseconds, 1e-3);
      text += fmt::format("{:>10.1f} {:>6.1f} {:>10.1f} {:>9.1f}  {}\n", us, 100 * us / total,
                          matched ? work[i].flops / us / 1e3 : 0.0, matched ? work[i].bytes / us / 1e3 : 0.0,
                          times[i].name);
    }
    return text + fmt::format("{:>10.1f}  all {} kernels\n", total, times.size());
  }

  std::size_t count() const { return count_; }

 private:
  static constexpr std::size_t kTracesMax = 8;

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
    std::vector<std::pair<std::shared_ptr<graph::Cell>, NodeRef>> assigned;
    const std::vector<Tensor> results = traced(arguments, assigned);
    std::unordered_map<const graph::Node*, std::shared_ptr<graph::Cell>> cell_of;
    for (const auto& cell : graph::all_cells())
      if (cell->committed) cell_of[cell->committed.get()] = cell;
    compiler::Request request;
    trace.results = results;
    for (const Tensor& result : results) {
      if (!result.defined()) throw UsageError("compile: the function gave a tensor without a value");
      if (result.device() != device)
        throw DeviceError(fmt::format("compile: a result is on {}, the arguments are on {}",
                                      result.device().to_string(), device.to_string()));
      // A value in memory stays what it is, unless it is a Variable's, which changes from call to call.
      const bool known = result.node()->storage && !cell_of.contains(result.node().get());
      trace.result_external.push_back(known ? -1 : static_cast<int>(request.outputs.size()));
      if (known) continue;
      request.outputs.push_back(result.node());
      request.may_overwrite.push_back(nullptr);
    }
    for (const auto& [cell, next] : assigned) {
      request.outputs.push_back(next);
      request.may_overwrite.push_back(cell->committed.get());
      trace.updates.push_back({cell, static_cast<int>(request.outputs.size()) - 1, false});
    }
    trace.executable = make_executable(request, device);
    compiler::Compiled& plan = trace.executable->compiled;
    const int leaves = static_cast<int>(plan.leaves.size());
    for (const NodeRef& leaf : plan.leaves) {
      Trace::Leaf bound;
      if (leaf->kind == graph::Kind::input)
        bound.argument = static_cast<int>(leaf->ints[0]);
      else if (auto it = cell_of.find(leaf.get()); it != cell_of.end())
        bound.cell = it->second;
      else
        bound.constant = leaf;
      trace.leaves.push_back(std::move(bound));
    }
    plan.leaves.clear();
    for (int& external : trace.result_external)
      if (external >= 0) external = plan.output_external[static_cast<std::size_t>(external)];
    for (Trace::Update& update : trace.updates) {
      update.external = plan.output_external[static_cast<std::size_t>(update.external)];
      update.in_place = update.external < leaves;
    }
    // Results must not keep the traced graph alive; type and shape are enough.
    for (std::size_t i = 0; i < trace.results.size(); ++i)
      if (trace.result_external[i] >= 0)
        trace.results[i] = full(trace.results[i].shape(), 0, trace.results[i].dtype(), device);
    return trace;
  }

  // The function's results, and what it assigned to Variables. Whatever happens, Variables keep the values and gradients
  // that they had: what is made of arguments means nothing outside.
  std::vector<Tensor> traced(const std::vector<Tensor>& arguments,
                             std::vector<std::pair<std::shared_ptr<graph::Cell>, NodeRef>>& assigned) {
    struct Restore {
      std::vector<std::pair<std::shared_ptr<graph::Cell>, Tensor>> gradients;
      Restore() {
        for (const auto& cell : graph::all_cells()) gradients.emplace_back(cell, cell->grad);
      }
      ~Restore() {
        for (auto& [cell, gradient] : gradients) cell->grad = std::move(gradient);
        for (const auto& cell : graph::pending_cells()) graph::clear_pending(cell);
      }
    } restore;
    const Tracing tracing;
    std::vector<Tensor> results = function_(arguments);
    for (const auto& cell : graph::pending_cells()) {
      if (!cell->committed)
        throw UsageError(
            fmt::format("compile: variable \"{}\" was made inside the function, which runs once; make it before, so "
                        "that its value is kept",
                        cell->name));
      assigned.emplace_back(cell, cell->pending);
    }
    return results;
  }

  // Constants get a buffer for this call: a plan that makes one would be another for every value.
  static std::vector<backend::BufferPtr> buffers_of(std::span<const Tensor> arguments) {
    std::vector<backend::BufferPtr> buffers;
    for (const Tensor& argument : arguments) {
      argument.shape();  // complains when there is no value
      const graph::Node& node = *argument.node();
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

  // The plan will write into the Variable's buffer. If a tensor that somebody holds shares it, the Variable moves to a copy.
  static void make_exclusive(graph::Cell& cell) {
    const auto& storage = cell.committed->storage;
    if (cell.committed.use_count() == 1 && storage.use_count() == 1 && buffer_of(*cell.committed).use_count() == 1)
      return;
    const NodeRef copy = compiler::copy_of(cell.committed);
    const NodeRef list[] = {copy};
    evaluate(list);
    const backend::BufferPtr buffer = buffer_of(*copy);
    copy->storage = nullptr;
    cell.committed = data_node(cell.type, cell.shape, cell.device, buffer);
  }

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
std::string Compiled::profile(std::span<const Tensor> arguments) { return impl_->profile(arguments); }

std::string explain(const Tensor& tensor, bool source) {
  if (!tensor.defined()) throw UsageError("explain: the tensor has no value");
  if (tensor.node()->storage) return "the value is in memory; nothing would run\n";
  return runtime::explain(*runtime::make_executable({{tensor.node()}, {}}, tensor.device()), source);
}

}  // namespace weft
