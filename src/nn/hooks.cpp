#include "weft/nn/hooks.hpp"

#include <fmt/format.h>

#include <utility>

#include "weft/error.hpp"

namespace weft::nn {
namespace detail {

struct ModuleHooks : std::enable_shared_from_this<ModuleHooks> {
  template <class F>
  using List = std::vector<std::pair<std::uint64_t, F>>;
  List<ForwardPreHook> before;
  List<ForwardHook> after;
  List<ModuleGradientHook> output_gradients, input_gradients;
  std::uint64_t next = 1;

  template <class F>
  ModuleHookHandle add(List<F>& list, F hook) {
    ModuleHookHandle handle;
    handle.hooks_ = weak_from_this();
    handle.number_ = next++;
    list.emplace_back(handle.number_, std::move(hook));
    return handle;
  }
  void remove(std::uint64_t number) {
    const auto is_it = [number](const auto& entry) { return entry.first == number; };
    std::erase_if(before, is_it);
    std::erase_if(after, is_it);
    std::erase_if(output_gradients, is_it);
    std::erase_if(input_gradients, is_it);
  }
};

namespace {

// x, whose gradients pass the hooks on their way on. A gradient meets the hook that was put on last first. Gradients may be
// taken when the module is gone; the hooks, which it owns, are gone then too.
Tensor watched(const Module& module, Tensor x, ModuleHooks& owner, const ModuleHooks::List<ModuleGradientHook>& hooks) {
  if (!x.defined() || !is_float(x.dtype())) return x;
  for (auto entry = hooks.rbegin(); entry != hooks.rend(); ++entry)
    x = with_gradient_hook(x, [&module, alive = owner.weak_from_this(), hook = entry->second](const Tensor& g) {
      return alive.expired() ? Tensor() : hook(module, g);
    });
  return x;
}

}  // namespace
}  // namespace detail

detail::ModuleHooks& hooks_of(Module& module) {
  if (!module.runs_hooks())
    throw UsageError(
        fmt::format("hooks: {} returns several tensors and runs no hooks; hook a module around it", module.describe()));
  if (!module.hooks_) module.hooks_ = std::make_shared<detail::ModuleHooks>();
  return *module.hooks_;
}

// Both go over copies, because a hook may remove itself.
Tensor Module::before_call(const Tensor& x) const {
  Tensor input = x;
  for (const auto& [number, hook] : std::vector(hooks_->before))
    if (Tensor other = hook(*this, input); other.defined()) input = other;
  return detail::watched(*this, input, *hooks_, hooks_->input_gradients);
}

Tensor Module::after_call(const Tensor& input, const Tensor& given) const {
  Tensor output = given;
  for (const auto& [number, hook] : std::vector(hooks_->after))
    if (Tensor other = hook(*this, input, output); other.defined()) output = other;
  return detail::watched(*this, output, *hooks_, hooks_->output_gradients);
}

namespace {

template <class F>
ModuleHookHandle register_in(Module& module, std::vector<std::pair<std::uint64_t, F>> detail::ModuleHooks::*list,
                             F hook) {
  if (!hook) throw UsageError("hooks: the hook is empty");
  detail::ModuleHooks& hooks = hooks_of(module);
  return hooks.add(hooks.*list, std::move(hook));
}

}  // namespace

ModuleHookHandle register_forward_pre_hook(Module& module, ForwardPreHook hook) {
  return register_in(module, &detail::ModuleHooks::before, std::move(hook));
}
ModuleHookHandle register_forward_hook(Module& module, ForwardHook hook) {
  return register_in(module, &detail::ModuleHooks::after, std::move(hook));
}
ModuleHookHandle register_output_gradient_hook(Module& module, ModuleGradientHook hook) {
  return register_in(module, &detail::ModuleHooks::output_gradients, std::move(hook));
}
ModuleHookHandle register_input_gradient_hook(Module& module, ModuleGradientHook hook) {
  return register_in(module, &detail::ModuleHooks::input_gradients, std::move(hook));
}

void ModuleHookHandle::remove() {
  if (const auto hooks = hooks_.lock()) hooks->remove(number_);
}

}  // namespace weft::nn
