#include "runtime/evaluate.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <unordered_map>
#include <unordered_set>

#include "base/hash.hpp"
#include "base/scope_depth.hpp"
#include "compile/emit.hpp"
#include "graph/graph_state.hpp"
#include "graph/op.hpp"
#include "graph/trace_scope.hpp"
#include "runtime/anomaly.hpp"
#include "runtime/devices.hpp"
#include "weft/anomaly.hpp"
#include "weft/compile.hpp"

namespace weft {

CompileSettings& compile_settings() { return runtime::RuntimeState::current().settings; }

namespace runtime {

using graph::Node;
using graph::NodeRef;

WithoutPlans::WithoutPlans() { ++scope_depth<WithoutPlans>(); }
WithoutPlans::~WithoutPlans() { --scope_depth<WithoutPlans>(); }

std::shared_ptr<Executable> make_executable(const compiler::Request& request, Device device) {
  const CompileSettings& s = compile_settings();
  auto executable = std::make_shared<Executable>();
  executable->device = RuntimeState::current().device(device).shared_from_this();
  const compiler::Target target = target_of(device);
  executable->compiled =
      compiler::compile(request, target, {s.fusion, s.fused_composites, s.disabled_rewrites, s.products});
  const auto scratch = [&] {
    std::uint64_t bytes = 0;
    for (const auto& buffer : executable->compiled.plan.buffers)
      if (buffer.external < 0) bytes += buffer.bytes;
    return bytes;
  };
  RuntimeState::current().check_limit(*executable->device, scratch(), [] { return std::string("scratch of a plan"); });
  executable->program = executable->device->backend->compile(executable->compiled.plan);
  for (const NodeRef& output : request.outputs) executable->output_bytes.push_back(target.storage_bytes(*output));
  kernel::Plan& plan = executable->compiled.plan;
  for (const kernel::Kernel& each : plan.kernels)
    executable->work.push_back({kernel::flops(each), kernel::bytes_moved(each)});
  if (scope_depth<WithoutPlans>() > 0) plan = {};
  return executable;
}

namespace {

std::uint64_t settings_word() {
  const CompileSettings& settings = compile_settings();
  const auto switches = static_cast<std::uint64_t>(settings.fusion | settings.fused_composites << 1 |
                                                   static_cast<int>(settings.products) << 2);
  if (settings.disabled_rewrites.empty()) return switches;
  Hasher h;
  h.add(switches);
  for (const std::string& name : settings.disabled_rewrites) h.add(name);
  return h.digest();
}

void compile(CachedPlan& plan, const Structure& structure, std::span<const NodeRef> outputs, Device device) {
  const graph::PrivateGraph graph;
  Blueprint blueprint = blueprint_of(outputs, structure, plan.is_operand);
  auto executable = make_executable({blueprint.outputs, {}}, device);
  std::unordered_map<const Node*, int> binding;
  for (std::size_t i = 0; i < blueprint.leaves.size(); ++i) binding[blueprint.leaves[i].get()] = static_cast<int>(i);
  for (std::size_t i = 0; i < blueprint.operands.size(); ++i) {
    binding[blueprint.operands[i].node.get()] = -1 - static_cast<int>(i);
    blueprint.operands[i].node = nullptr;
  }
  for (const NodeRef& leaf : executable->compiled.leaves) plan.bindings.push_back(binding.at(leaf.get()));
  executable->compiled.leaves.clear();
  plan.operands = std::move(blueprint.operands);
  plan.executable = std::move(executable);
}

void run(const CachedPlan& plan, const Structure& structure, std::span<const NodeRef> outputs, Device device) {
  Executable& executable = *plan.executable;
  std::vector<backend::BufferPtr> externals(static_cast<std::size_t>(executable.compiled.external_count));
  for (std::size_t i = 0; i < plan.bindings.size(); ++i) {
    if (plan.bindings[i] < 0) {
      const Blueprint::Operand& operand = plan.operands[static_cast<std::size_t>(-1 - plan.bindings[i])];
      const std::vector<std::byte> bytes = operand_bytes(operand, structure);
      backend::Backend& backend = *executable.device->backend;
      externals[i] =
          allocate(device, backend.storage_bytes(operand.type, static_cast<Extent>(operand.holes.size())), "numbers");
      backend.upload(*externals[i], 0, static_cast<Extent>(operand.holes.size()), operand.type, bytes.data());
      continue;
    }
    const Node& leaf = *structure.leaves[static_cast<std::size_t>(plan.bindings[i])];
    if (!leaf.storage)
      throw UsageError(
          "eval: the value depends on an argument of a function that was compiled, or is given to vmap; only results "
          "of "
          "the function have elements");
    externals[i] = buffer_of(leaf);
  }
  for (std::size_t o = 0; o < outputs.size(); ++o) {
    auto& slot = externals[static_cast<std::size_t>(executable.compiled.output_external[o])];
    if (!slot) slot = allocate(device, executable.output_bytes[o], [&] { return compiler::title(*outputs[o]); });
  }
  executable.program->run(externals);
  for (std::size_t o = 0; o < outputs.size(); ++o)
    graph::set_storage(*outputs[o], std::make_unique<BufferStorage>(
                                        externals[static_cast<std::size_t>(executable.compiled.output_external[o])]));
}

const Node* base_of(const Node* node) {
  while (graph::is_view(node->kind) && !node->storage) node = node->inputs[0].get();
  return node;
}

// A concat of very many parts would need a plan with as many kernels. Pieces of it have equal programs, and share one plan.
void compute_wide(const Node& concat, Device device) {
  const std::vector<NodeRef>& parts = concat.inputs;
  const auto axis = static_cast<int>(concat.ints[0]);
  // Values that several pieces read are computed once.
  std::unordered_map<const Node*, std::size_t> piece_of;
  std::vector<NodeRef> common;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const Node* base = base_of(parts[i].get());
    if (base->storage || base->inputs.empty()) continue;
    const auto [at, is_new] = piece_of.try_emplace(base, i / kWideConcat);
    if (is_new || at->second == i / kWideConcat) continue;
    if (at->second != parts.size()) common.push_back(base->shared_from_this());
    at->second = parts.size();
  }
  for (std::size_t i = 0; i < common.size(); i += kWideConcat)
    compute(std::span(common).subspan(i, std::min(kWideConcat, common.size() - i)), device);

  std::vector<NodeRef> level = parts;
  while (level.size() > kWideConcat) {
    std::vector<NodeRef> next;
    for (std::size_t i = 0; i < level.size(); i += kWideConcat) {
      const auto first = level.begin() + static_cast<std::ptrdiff_t>(i);
      const auto last = first + static_cast<std::ptrdiff_t>(std::min(kWideConcat, level.size() - i));
      next.push_back(graph::concat({first, last}, axis));
      if (next.back()->kind == graph::Kind::concat && !next.back()->storage) compute({&next.back(), 1}, device);
    }
    level = std::move(next);
  }
  const NodeRef whole = graph::concat(std::move(level), axis);
  if (!whole->storage) compute({&whole, 1}, device);
  concat.storage.set(whole->storage.get()->shared());
}

// Programs with more nodes are computed in pieces, because compiling takes longer for each node of a longer program, and because
// the pieces of a loop often have one plan.
constexpr std::size_t kLongProgram = 8192, kPiece = 2048;

// `order`: the program's nodes, inputs before readers.
void compute_pieces(const std::vector<const Node*>& order, Device device) {
  const auto computed = [](const Node* node) { return node->storage ? node : graph::written_out(node); };
  std::unordered_map<const Node*, std::size_t> last_reader;           // through views, which are not stored
  std::unordered_map<const Node*, std::vector<const Node*>> results;  // of calls with several
  for (std::size_t i = 0; i < order.size(); ++i)
    for (const NodeRef& input : order[i]->inputs) {
      const Node* source = computed(input.get());
      if (source->kind == graph::Kind::call && graph::has_several_results(*source)) results[source].push_back(order[i]);
      while (graph::is_view(source->kind) && !source->storage) source = computed(source->inputs[0].get());
      last_reader[source] = i;
    }
  for (std::size_t begin = 0; begin + kPiece < order.size(); begin += kPiece) {
    std::vector<NodeRef> wanted;
    for (std::size_t i = begin; i < begin + kPiece; ++i) {
      const Node* node = order[i];
      const auto reader = last_reader.find(node);
      if (node->storage || node->inputs.empty() || graph::is_view(node->kind) || reader == last_reader.end() ||
          reader->second < begin + kPiece)
        continue;
      const auto several = results.find(node);
      if (several == results.end())
        wanted.push_back(node->shared_from_this());
      else
        for (const Node* result : several->second) wanted.push_back(result->shared_from_this());
    }
    if (!wanted.empty()) compute(wanted, device);
  }
}

}  // namespace

void compute(std::span<const NodeRef> outputs, Device device) {
  thread_local bool in_pieces = false;
  thread_local std::unique_ptr<Structure> kept;  // kept to reuse its memory; empty while in use
  std::unique_ptr<Structure> structure = kept ? std::move(kept) : std::make_unique<Structure>();
  const std::uint64_t settings = settings_word();
  structure_of(outputs, settings, *structure);
  if (!structure->wide_concats.empty()) {
    const std::vector<const Node*> wide = structure->wide_concats;
    for (const Node* concat : wide)
      if (!concat->storage) compute_wide(*concat, device);
    std::vector<NodeRef> left;
    for (const NodeRef& output : outputs)
      if (!output->storage) left.push_back(output);
    if (!left.empty()) compute(left, device);
    return;
  }
  if (structure->nodes.size() > kLongProgram && !in_pieces) {
    in_pieces = true;
    try {
      compute_pieces(structure->nodes, device);
      std::vector<NodeRef> left;
      for (const NodeRef& output : outputs)
        if (!output->storage) left.push_back(output);
      if (!left.empty()) compute(left, device);
    } catch (...) {
      in_pieces = false;
      throw;
    }
    in_pieces = false;
    return;
  }
  RuntimeState& state = RuntimeState::current();
  const std::shared_ptr<CachedPlan> plan = state.plans.find(*structure);
  {
    const std::lock_guard lock(plan->mutex);
    if (!plan->executable) {
      try {
        compile(*plan, *structure, outputs, device);
      } catch (...) {
        state.plans.remove(plan);
        throw;
      }
    }
    run(*plan, *structure, outputs, device);
  }
  kept = std::move(structure);
}

std::size_t compiled_plan_count() { return RuntimeState::current().plans.made(); }

void evaluate(std::span<const NodeRef> nodes, std::optional<Device> device) {
  if (graph::TraceScope::current())
    throw UsageError(
        "eval: a value was asked for inside a function that is being compiled, where arguments have no elements yet; "
        "return it as a result");
  graph::GraphState& graph_state = graph::GraphState::current();
  std::vector<std::pair<Device, std::vector<NodeRef>>> by_device;
  auto list_of = [&](Device device) -> std::vector<NodeRef>& {
    for (auto& [d, list] : by_device)
      if (d == device) return list;
    return by_device.emplace_back(device, std::vector<NodeRef>()).second;
  };
  for (const NodeRef& node : nodes) {
    if (node->storage || node->kind == graph::Kind::constant) continue;
    if (node->kind == graph::Kind::input)
      throw UsageError(
          "eval: the value is an argument of a function that was compiled, or is given to vmap; it has no elements of "
          "its "
          "own");
    if (is_block(node->type) && node->kind == graph::Kind::permute)
      throw DTypeError(
          fmt::format("eval: blocks of {} are along the last axis, so only matmul can read a transposed matrix of "
                      "them; cast it to f32 before transposing",
                      name_of(node->type)));
    if (&node->table != &graph_state.table)
      throw UsageError(
          "eval: the value belongs to another session; ask for it where that session is entered, or give a copy to "
          "this "
          "one with Session::copy");
    list_of(node->device).push_back(node);
  }
  // Every evaluation also computes the pending Variables of its devices.
  std::vector<graph::PendingUpdate> updates = graph::pending_updates();
  std::erase_if(updates, [&](const graph::PendingUpdate& update) {
    const Device on = update.cell->device;
    return (!nodes.empty() || device) && device != on &&
           std::none_of(nodes.begin(), nodes.end(), [&](const NodeRef& node) { return node->device == on; });
  });
  for (const graph::PendingUpdate& update : updates) {
    if (update.next->storage) continue;
    const Node* value = update.next.get();
    while (value->kind == graph::Kind::detach) value = value->inputs[0].get();
    if (const graph::Storage* storage = value->storage.get())
      update.next->storage.set(storage->shared());  // tensors never change, so the Variable may share the memory of one
    else if (backend::BufferPtr buffer = small_constant(*value))
      update.next->storage.set(std::make_unique<BufferStorage>(std::move(buffer)));
    else
      list_of(update.cell->device).push_back(update.next);
  }
  if (by_device.empty() && updates.empty()) return;
  graph_state.evaluated_up_to = graph_state.table.made();
  for (auto& [on, outputs] : by_device) {
    std::sort(outputs.begin(), outputs.end(), [](const NodeRef& a, const NodeRef& b) { return a->id < b->id; });
    outputs.erase(std::unique(outputs.begin(), outputs.end()), outputs.end());
    compute(outputs, on);
  }
  if (anomaly_detection_enabled())
    for (const auto& [on, outputs] : by_device) check_for_anomalies(outputs);
  for (const graph::PendingUpdate& update : updates)
    graph::commit(update.cell, update.next,
                  data_node(update.cell->type, update.cell->shape, update.cell->device, buffer_of(*update.next)));
}

namespace {

// Computes the held values of the session up to a node: the values that no other value of the session reads.
void evaluate_held(std::uint64_t last_id) {
  graph::GraphState& state = graph::GraphState::current();
  std::vector<NodeRef> nodes = state.table.nodes_after(state.held_up_to);
  std::erase_if(nodes, [&](const NodeRef& node) { return node->id > last_id; });
  state.held_up_to = last_id;
  std::unordered_set<const Node*> used;
  for (const NodeRef& node : nodes)
    for (const std::vector<NodeRef>* sources : {&node->inputs, &node->parts})
      for (const NodeRef& source : *sources) used.insert(source.get());
  std::vector<NodeRef> held;
  for (const NodeRef& node : nodes)
    if (!used.contains(node.get()) && !node->storage && !node->inputs.empty() &&
        !(node->kind == graph::Kind::call && graph::has_several_results(*node)))
      held.push_back(node);
  // Values of a function that another thread is tracing have no elements.
  std::unordered_map<const Node*, bool> is_traced;
  const auto ends = [](const Node& node) { return node.storage || node.inputs.empty(); };
  for (const Node* node : graph::topological_order(held, ends)) {
    bool& traced = is_traced[node];
    if (ends(*node))
      traced = !node->storage && (node->kind == graph::Kind::data || node->kind == graph::Kind::input);
    else
      for (const NodeRef& input : node->inputs) traced |= is_traced[input.get()];
  }
  std::erase_if(held, [&](const NodeRef& node) { return is_traced[node.get()]; });
  evaluate(held);
}

const bool evaluator_is_set = (graph::set_evaluator(evaluate_held), true);

}  // namespace

std::string explain(const Executable& executable, bool source) {
  const kernel::Plan& plan = executable.compiled.plan;
  if (plan.kernels.size() != executable.work.size())
    return fmt::format("{} kernels, whose plan was not kept\n", executable.work.size()) +
           (source ? executable.program->source() : std::string());
  std::string text;
  double flops = 0, bytes = 0;
  std::size_t external = 0, scratch = 0;
  for (const auto& buffer : plan.buffers) (buffer.external >= 0 ? external : scratch) += buffer.bytes;
  text += fmt::format("{:>4}  {:<10} {:>12} {:>12}  {}\n", "#", "form", "MFLOP", "MB", "name");
  for (std::size_t i = 0; i < plan.kernels.size(); ++i) {
    const kernel::Kernel& k = plan.kernels[i];
    constexpr const char* forms[] = {"loop", "matmul", "packed", "scatter", "attention", "routine"};
    const std::string name = std::visit([](const auto& kernel) { return kernel.name; }, k);
    std::string shape;
    if (const auto* loop = std::get_if<kernel::LoopKernel>(&k))
      shape = fmt::format(" [{} x {}]", loop->outer, loop->inner);
    if (const auto* product = std::get_if<kernel::MatmulKernel>(&k))
      shape = fmt::format(" [{} x {}x{}x{}]{}", product->batch, product->m, product->n, product->k,
                          product->precision == ProductPrecision::exact || product->type() != DType::f32
                              ? ""
                              : fmt::format(", {} precision", name_of(product->precision)));
    if (const auto* product = std::get_if<kernel::PackedMatmulKernel>(&k))
      shape = fmt::format(" [{}x{}x{}]", product->m, product->n, product->k);
    text += fmt::format("{:>4}  {:<10} {:>12.3f} {:>12.3f}  {}{}\n", i, forms[k.index()],
                        executable.work[i].flops / 1e6, executable.work[i].bytes / 1e6, name, shape);
    flops += executable.work[i].flops;
    bytes += executable.work[i].bytes;
  }
  text +=
      fmt::format("{} kernels, {:.3f} MFLOP, {:.3f} MB moved at least; buffers: {:.3f} MB given, {:.3f} MB scratch\n",
                  plan.kernels.size(), flops / 1e6, bytes / 1e6, static_cast<double>(external) / 1e6,
                  static_cast<double>(scratch) / 1e6);
  if (source) text += kernel::to_string(plan) + executable.program->source();
  return text;
}

}  // namespace runtime
}  // namespace weft
