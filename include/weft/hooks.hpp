// Hooks: functions that see, and may replace, the gradient of a value.
#pragma once

#include <functional>
#include <memory>

#include "weft/tensor.hpp"

namespace weft {

/// Gets a gradient; returns what goes on in its place, or an undefined Tensor to leave it as it is. It is called when gradients
/// are taken, so inside `compile` once, while the function is traced.
using GradientHook = std::function<Tensor(const Tensor& gradient)>;

/// The same value; gradients on their way to x pass the hook. Errors: UsageError for an empty hook; DTypeError unless x is a
/// float.
[[nodiscard]] Tensor with_gradient_hook(const Tensor& x, GradientHook hook);
/// The same, and x becomes that value: uses of x from here on are hooked.
inline void register_hook(Tensor& x, GradientHook hook) { x = with_gradient_hook(x, std::move(hook)); }

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
HookHandle register_hook(const Variable& variable, GradientHook hook);

}  // namespace weft
