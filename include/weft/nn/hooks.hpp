// Hooks on modules: functions that see, and may replace, what goes into a module and comes out of it, and the gradients of both.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "weft/hooks.hpp"
#include "weft/nn/module.hpp"

namespace weft::nn {

/// Gets the input of a call; returns what the module computes with in its place, or an undefined Tensor to leave it.
using ForwardPreHook = std::function<Tensor(const Module& module, const Tensor& input)>;
/// Gets the input and the output of a call; returns what the caller gets in place of the output, or an undefined Tensor.
using ForwardHook = std::function<Tensor(const Module& module, const Tensor& input, const Tensor& output)>;
/// Gets a gradient; returns what goes on in its place, or an undefined Tensor.
using ModuleGradientHook = std::function<Tensor(const Module& module, const Tensor& gradient)>;

/// A registered hook. It stays until `remove`, or as long as its module.
class ModuleHookHandle {
 public:
  void remove();

 private:
  friend struct detail::ModuleHooks;
  std::weak_ptr<detail::ModuleHooks> hooks_;
  std::uint64_t number_ = 0;
};

/// Hooks of one kind run in the order of registration, and each sees what the one before it returned. They run when operator() of
/// the module is called. Inside `compile` this is once, while the function is traced; a compiled function keeps the hooks that it
/// was traced with. The modules of Weft run their hooks, except RNN, GRU and LSTM, which return several tensors; a module of your
/// own does so by `with_hooks`:
///
///     Tensor operator()(const Tensor& x) const {
///       return with_hooks(x, [&](const Tensor& x) { return second(relu(first(x))); });
///     }
///
/// Errors  UsageError: an empty hook, or a module that does not run hooks
ModuleHookHandle register_forward_pre_hook(Module& module, ForwardPreHook hook);
ModuleHookHandle register_forward_hook(Module& module, ForwardHook hook);
/// Gets the gradient of the output, before the module's own gradients are computed. It is called when gradients are taken. An
/// output of integers has no gradient, and the hook is not called.
ModuleHookHandle register_output_gradient_hook(Module& module, ModuleGradientHook hook);
/// Gets the gradient that the module passes to its input.
ModuleHookHandle register_input_gradient_hook(Module& module, ModuleGradientHook hook);

}  // namespace weft::nn
