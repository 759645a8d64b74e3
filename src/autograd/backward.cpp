// backward(): gradients into the Variables that a value was made from.
#include <algorithm>
#include <iterator>
#include <mutex>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "autograd/variable_hooks.hpp"
#include "graph/node.hpp"
#include "weft/grad.hpp"
#include "weft/hooks.hpp"
#include "weft/ops.hpp"

namespace weft {

namespace {

// Hooks of Variables. They are few, and cells have no place for them.
class VariableHooks {
 public:
  static VariableHooks& all() {
    static auto& hooks = *new VariableHooks;
    return hooks;
  }
  std::uint64_t add(const std::shared_ptr<graph::Cell>& cell, GradientHook hook) {
    Hooks gone;  // destroyed after the lock: what a hook holds may wait for another lock, such as Python's
    const std::lock_guard lock(mutex_);
    std::erase_if(of_, [&](auto& each) {
      if (!each.second.cell.expired()) return false;
      std::move(each.second.hooks.begin(), each.second.hooks.end(), std::back_inserter(gone));
      return true;
    });
    Entry& entry = of_[cell.get()];
    entry.cell = cell;
    entry.hooks.emplace_back(++count_, std::move(hook));
    return count_;
  }
  void remove(const std::shared_ptr<graph::Cell>& cell, std::uint64_t number) {
    GradientHook gone;
    const std::lock_guard lock(mutex_);
    const auto found = of_.find(cell.get());
    if (found == of_.end()) return;
    std::erase_if(found->second.hooks, [&](auto& each) {
      if (each.first != number) return false;
      gone = std::move(each.second);
      return true;
    });
  }
  void remove_all(const std::shared_ptr<graph::Cell>& cell) {
    Hooks gone;
    const std::lock_guard lock(mutex_);
    if (const auto found = of_.find(cell.get()); found != of_.end()) gone = std::exchange(found->second.hooks, {});
  }
  /// `visit` may not call back.
  void visit(const std::shared_ptr<graph::Cell>& cell, FunctionRef<void(const GradientHook&)> visit) {
    const std::lock_guard lock(mutex_);
    const auto found = of_.find(cell.get());
    if (found == of_.end() || found->second.cell.lock() != cell) return;
    for (const auto& [number, hook] : found->second.hooks) visit(hook);
  }
  Tensor apply(const std::shared_ptr<graph::Cell>& cell, Tensor gradient) {
    for (const auto& [number, hook] : hooks_of(cell))
      if (Tensor replaced = hook(gradient); replaced.defined()) {
        if (replaced.shape() != gradient.shape())
          throw ShapeError("backward: a hook of the Variable \"" + cell->name + "\" gave " +
                           replaced.shape().to_string() + " for a gradient " + gradient.shape().to_string());
        gradient = cast(replaced, gradient.dtype());
      }
    return gradient;
  }

 private:
  using Hooks = std::vector<std::pair<std::uint64_t, GradientHook>>;
  struct Entry {
    std::weak_ptr<graph::Cell> cell;
    Hooks hooks;
  };
  Hooks hooks_of(const std::shared_ptr<graph::Cell>& cell) {
    const std::lock_guard lock(mutex_);
    const auto found = of_.find(cell.get());
    // An entry of a cell that is gone may have the address of this one.
    return found == of_.end() || found->second.cell.lock() != cell ? Hooks() : found->second.hooks;
  }
  std::mutex mutex_;
  std::unordered_map<const graph::Cell*, Entry> of_;
  std::uint64_t count_ = 0;
};

}  // namespace

HookHandle register_hook(const Variable& variable, GradientHook hook) {
  if (!variable.defined()) throw UsageError("register_hook: the Variable has no value");
  if (!hook) throw UsageError("register_hook: the hook is empty");
  HookHandle handle;
  handle.cell_ = variable.cell();
  handle.number_ = VariableHooks::all().add(variable.cell(), std::move(hook));
  return handle;
}

void HookHandle::remove() {
  if (const auto cell = cell_.lock()) VariableHooks::all().remove(cell, number_);
}

void visit_hooks_of_last(const Variable& variable, FunctionRef<void(const GradientHook&)> visit) {
  if (variable.defined() && variable.cell().use_count() == 1) VariableHooks::all().visit(variable.cell(), visit);
}

void remove_hooks(const Variable& variable) {
  if (variable.defined()) VariableHooks::all().remove_all(variable.cell());
}

void backward(const Tensor& output, const Tensor& seed, Where where) {
  if (!output.defined()) throw UsageError("backward: the output has no value");
  std::unordered_set<const graph::Node*> below;
  const graph::NodeRef roots[] = {output.node()};
  // No gradient flows through a detached value, and assigned values are detached. So the walk ends there, however many
  // assignments are pending below.
  const auto ends = [](const graph::Node& node) { return node.kind == graph::Kind::detach; };
  for (const graph::Node* node : graph::topological_order(roots, ends)) below.insert(node);
  std::vector<std::shared_ptr<graph::Cell>> cells;
  std::vector<Tensor> values;
  for (const auto& cell : graph::all_cells()) {
    if (!cell->requires_grad) continue;
    const graph::NodeRef value = graph::value_of(cell);
    if (!value) continue;  // made by another thread in a trace, which alone has its value
    if (!below.contains(value.get()) && !below.contains(graph::twin_of(*value).get())) continue;
    cells.push_back(cell);
    values.emplace_back(value);
  }
  const std::vector<Tensor> gradients = grad(output, values, seed, where);
  for (std::size_t i = 0; i < cells.size(); ++i) {
    Tensor& held = graph::gradient_of(cells[i]);
    const Tensor gradient = VariableHooks::all().apply(cells[i], gradients[i]);
    held = held.defined() ? held + gradient : gradient;
  }
}

}  // namespace weft
