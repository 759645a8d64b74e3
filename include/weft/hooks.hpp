// Hooks: functions that see, and may replace, the gradient of a value.
#pragma once

#include <concepts>
#include <functional>
#include <memory>

#include "weft/tensor.hpp"

namespace weft {

/// Gets a gradient; returns what goes on in its place, or an undefined Tensor to leave it as it is. It is called when gradients
/// are taken, so inside `compile` once, while the function is traced.
using GradientHook = std::function<Tensor(const Tensor& gradient)>;
/// The same, and gets the value too, so that it need not capture it.
using ValueHook = std::function<Tensor(const Tensor& x, const Tensor& gradient)>;
using VariableHook = std::function<Tensor(const Variable& variable, const Tensor& gradient)>;

namespace detail {
Tensor with_value_hook(const Tensor& x, ValueHook hook);
}  // namespace detail

/// The same value; gradients on their way to x pass the hook. Errors: UsageError for an empty hook; DTypeError unless x is a
/// float.
[[nodiscard]] Tensor with_gradient_hook(const Tensor& x, GradientHook hook);
/// A hook of x and its gradient. In `vmap` and in gradients of gradients it gets the x that belongs to the gradient, which a
/// captured tensor would not be.
template <std::invocable<const Tensor&, const Tensor&> Hook>
[[nodiscard]] Tensor with_gradient_hook(const Tensor& x, Hook hook) {
  return detail::with_value_hook(x, std::move(hook));
}
/// The same, and x becomes that value: uses of x from here on are hooked.
inline void register_hook(Tensor& x, GradientHook hook) { x = with_gradient_hook(x, std::move(hook)); }
template <std::invocable<const Tensor&, const Tensor&> Hook>
void register_hook(Tensor& x, Hook hook) {
  x = detail::with_value_hook(x, std::move(hook));
}

/// A registered hook. It stays until `remove`, or as long as its Variable.
class HookHandle {
 public:
  void remove();

 private:
  friend HookHandle register_hook(const Variable& variable, GradientHook hook);
  std::weak_ptr<graph::Cell> cell_;
  std::uint64_t number_ = 0;
};
/// Calls the hook with each gradient that `backward` adds to variable.grad(), before it is added. Hooks of one Variable run in
/// the order of registration. `grad` returns gradients without running them.
///
/// A hook that captures its own Variable, or an object that holds it, keeps the Variable alive until `remove`. A hook that takes
/// the Variable as an argument need not capture it, and a WeakVariable may be captured:
///
///     register_hook(w, [](const Variable& w, const Tensor& g) { return g + 0.01 * w; });
HookHandle register_hook(const Variable& variable, GradientHook hook);
template <std::invocable<const Variable&, const Tensor&> Hook>
HookHandle register_hook(const Variable& variable, Hook hook) {
  VariableHook called(std::move(hook));
  if (!called) return register_hook(variable, GradientHook());
  return register_hook(variable, GradientHook([weak = WeakVariable(variable), called = std::move(called)](
                                                  const Tensor& gradient) { return called(weak.lock(), gradient); }));
}

}  // namespace weft
