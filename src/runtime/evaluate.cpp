#include "runtime/evaluate.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <unordered_map>

#include "base/hash.hpp"
#include "compile/emit.hpp"
#include "runtime/devices.hpp"
#include "weft/compile.hpp"

namespace weft {

CompileSettings& compile_settings() {
  static CompileSettings settings = [] {
    CompileSettings s;
    const char* text = std::getenv("WEFT_DISABLE");
    std::string_view rest = text ? text : "";
    while (!rest.empty()) {
      const std::size_t comma = rest.find(',');
      const std::string_view word = rest.substr(0, comma);
      if (word == "fusion")
        s.fusion = false;
      else if (word == "fused_composites")
        s.fused_composites = false;
      else if (!word.empty())
        s.disabled_rewrites.emplace_back(word);
      rest = comma == std::string_view::npos ? std::string_view() : rest.substr(comma + 1);
    }
    return s;
  }();
  return settings;
}

namespace runtime {

using graph::Node;
using graph::NodeRef;

namespace {

int& tracing_depth() {
  thread_local int depth = 0;
  return depth;
}
int& without_plans_depth() {
  thread_local int depth = 0;
  return depth;
}

}  // namespace

Tracing::Tracing() { ++tracing_depth(); }
Tracing::~Tracing() { --tracing_depth(); }
bool Tracing::active() { return tracing_depth() > 0; }

WithoutPlans::WithoutPlans() { ++without_plans_depth(); }
WithoutPlans::~WithoutPlans() { --without_plans_depth(); }

std::shared_ptr<Executable> make_executable(const compiler::Request& request, Device device) {
  const CompileSettings& s = compile_settings();
  auto executable = std::make_shared<Executable>();
  const compiler::Target target = target_of(device);
  executable->compiled = compiler::compile(request, target, {s.fusion, s.fused_composites, s.disabled_rewrites});
  executable->program = backend_of(device).compile(executable->compiled.plan);
  for (const NodeRef& output : request.outputs)
    executable->output_bytes.push_back(static_cast<std::size_t>(output->shape.numel()) *
                                       target.storage_bytes(output->type));
  kernel::Plan& plan = executable->compiled.plan;
  for (const kernel::Kernel& each : plan.kernels)
    executable->work.push_back({kernel::flops(each), kernel::bytes_moved(each)});
  if (without_plans_depth() > 0) plan = {};
  return executable;
}

namespace {

// The structure of a graph: everything that a plan depends on, leaves by type and shape only. Leaves are numbered by a
// depth-first walk from the outputs, so that equal programs have equal keys whatever the identities of their leaves.
struct Structure {
  std::vector<std::uint64_t> key;
  std::vector<const Node*> leaves;
};

Structure structure_of(std::span<const NodeRef> outputs) {
  Structure s;
  std::unordered_map<const Node*, std::uint64_t> number;
  std::vector<std::pair<const Node*, std::size_t>> stack;
  auto put = [&](std::uint64_t value) { s.key.push_back(value); };
  const CompileSettings& settings = compile_settings();
  put(settings.fusion | settings.fused_composites << 1);
  for (const std::string& name : settings.disabled_rewrites) {
    Hasher h;
    h.add(name);
    put(h.digest());
  }
  for (const NodeRef& output : outputs) {
    stack.emplace_back(output.get(), 0);
    while (!stack.empty()) {
      auto& [node, next] = stack.back();
      if (number.contains(node)) {
        stack.pop_back();
        continue;
      }
      const bool leaf = compiler::is_leaf(*node);
      if (!leaf && next < node->inputs.size()) {
        const Node* input = node->inputs[next++].get();
        if (!number.contains(input)) stack.emplace_back(input, 0);
        continue;
      }
      const Node* n = node;
      stack.pop_back();
      number.emplace(n, number.size());
      put(static_cast<std::uint64_t>(leaf ? graph::Kind::data : n->kind) | static_cast<std::uint64_t>(n->type) << 8 |
          static_cast<std::uint64_t>(n->shape.size()) << 16 | static_cast<std::uint64_t>(n->device.kind) << 24 |
          static_cast<std::uint64_t>(n->device.index) << 32);
      for (Extent e : n->shape) put(static_cast<std::uint64_t>(e));
      if (leaf) {
        s.leaves.push_back(n);
        continue;
      }
      put(n->inputs.size());
      for (const NodeRef& input : n->inputs) put(number.at(input.get()));
      // The number that tells assignments apart is identity, not structure.
      if (n->kind != graph::Kind::detach)
        for (Extent e : n->ints) put(static_cast<std::uint64_t>(e));
      put(std::bit_cast<std::uint64_t>(n->value));
      put(static_cast<std::uint64_t>(n->reduction));
      put(reinterpret_cast<std::uintptr_t>(n->expression.get()));  // interned for ever
      put(reinterpret_cast<std::uintptr_t>(n->row));
    }
    put(~number.at(output.get()));
  }
  return s;
}

struct KeyHash {
  std::size_t operator()(const std::vector<std::uint64_t>& key) const {
    Hasher h;
    for (std::uint64_t value : key) h.add(value);
    return h.digest();
  }
};

struct CachedPlan {
  std::shared_ptr<Executable> executable;
  std::vector<std::size_t> leaf_at;  // for each external leaf of the plan its number in the structure
  std::uint64_t last_use = 0;
};

struct PlanCache {
  std::mutex mutex;
  std::unordered_map<std::vector<std::uint64_t>, CachedPlan, KeyHash> plans;
  std::uint64_t clock = 0;
  std::size_t compiled = 0;
};
PlanCache& plan_cache() {
  static PlanCache* cache = new PlanCache;
  return *cache;
}
constexpr std::size_t kPlansMax = 256;

// Computes `outputs`, all on one device.
void run_outputs(const std::vector<NodeRef>& outputs, Device device) {
  const Structure structure = structure_of(outputs);
  PlanCache& cache = plan_cache();
  std::lock_guard lock(cache.mutex);
  auto found = cache.plans.find(structure.key);
  if (found == cache.plans.end()) {
    CachedPlan plan;
    plan.executable = make_executable({outputs, {}}, device);
    std::unordered_map<const Node*, std::size_t> at;
    for (std::size_t i = 0; i < structure.leaves.size(); ++i) at[structure.leaves[i]] = i;
    for (const NodeRef& leaf : plan.executable->compiled.leaves) plan.leaf_at.push_back(at.at(leaf.get()));
    plan.executable->compiled.leaves.clear();  // the plan must not keep the values of its first run alive
    ++cache.compiled;
    if (cache.plans.size() >= kPlansMax) {
      auto oldest = std::min_element(cache.plans.begin(), cache.plans.end(), [](const auto& a, const auto& b) {
        return a.second.last_use < b.second.last_use;
      });
      cache.plans.erase(oldest);
    }
    found = cache.plans.emplace(structure.key, std::move(plan)).first;
  }
  CachedPlan& plan = found->second;
  plan.last_use = ++cache.clock;
  Executable& executable = *plan.executable;
  std::vector<backend::BufferPtr> externals(static_cast<std::size_t>(executable.compiled.external_count));
  for (std::size_t i = 0; i < plan.leaf_at.size(); ++i) {
    const Node& leaf = *structure.leaves[plan.leaf_at[i]];
    if (!leaf.storage)
      throw UsageError(
          "eval: the value depends on an argument of a function that was compiled; only results of the function have "
          "elements");
    externals[i] = buffer_of(leaf);
  }
  for (std::size_t o = 0; o < outputs.size(); ++o) {
    auto& slot = externals[static_cast<std::size_t>(executable.compiled.output_external[o])];
    if (!slot) slot = allocate(device, executable.output_bytes[o], compiler::title(*outputs[o]));
  }
  executable.program->run(externals);
  for (std::size_t o = 0; o < outputs.size(); ++o)
    outputs[o]->storage =
        std::make_shared<BufferStorage>(externals[static_cast<std::size_t>(executable.compiled.output_external[o])]);
}

}  // namespace

std::size_t compiled_plan_count() {
  PlanCache& cache = plan_cache();
  std::lock_guard lock(cache.mutex);
  return cache.compiled;
}

void evaluate(std::span<const NodeRef> nodes) {
  std::vector<std::pair<Device, std::vector<NodeRef>>> by_device;
  auto list_of = [&](Device device) -> std::vector<NodeRef>& {
    for (auto& [d, list] : by_device)
      if (d == device) return list;
    return by_device.emplace_back(device, std::vector<NodeRef>()).second;
  };
  if (Tracing::active())
    throw UsageError(
        "eval: a value was asked for inside a function that is being compiled, where arguments have no elements yet; "
        "return it as a result");
  for (const NodeRef& node : nodes) {
    if (node->kind == graph::Kind::input)
      throw UsageError("eval: the value is an argument of a function that was compiled; it has no elements of its own");
    if (!node->storage && node->kind != graph::Kind::constant) list_of(node->device).push_back(node);
  }
  // Asking for anything also brings the Variables of those devices up to date.
  const auto cells = graph::pending_cells();
  std::vector<std::shared_ptr<graph::Cell>> committed;
  for (const auto& cell : cells) {
    bool wanted = nodes.empty();
    for (const NodeRef& node : nodes) wanted |= node->device == cell->device;
    if (!wanted) continue;
    if (!cell->pending->storage) {
      const Node* value = cell->pending.get();
      while (value->kind == graph::Kind::detach) value = value->inputs[0].get();
      if (backend::BufferPtr buffer = small_constant(*value))
        cell->pending->storage = std::make_shared<BufferStorage>(std::move(buffer));
      else
        list_of(cell->device).push_back(cell->pending);
    }
    committed.push_back(cell);
  }
  for (auto& [device, outputs] : by_device) {
    std::sort(outputs.begin(), outputs.end(), [](const NodeRef& a, const NodeRef& b) { return a->id < b->id; });
    outputs.erase(std::unique(outputs.begin(), outputs.end()), outputs.end());
    if (!outputs.empty()) run_outputs(outputs, device);
  }
  for (const auto& cell : committed) {
    const NodeRef value = cell->pending;
    graph::clear_pending(cell);
    cell->committed = data_node(cell->type, cell->shape, cell->device, buffer_of(*value));
  }
}

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
    constexpr const char* forms[] = {"loop", "matmul", "scatter", "attention", "routine"};
    const std::string name = std::visit([](const auto& kernel) { return kernel.name; }, k);
    std::string shape;
    if (const auto* loop = std::get_if<kernel::LoopKernel>(&k))
      shape = fmt::format(" [{} x {}]", loop->outer, loop->inner);
    if (const auto* product = std::get_if<kernel::MatmulKernel>(&k))
      shape = fmt::format(" [{} x {}x{}x{}]", product->batch, product->m, product->n, product->k);
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
