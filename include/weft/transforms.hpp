// Transforms of functions: products with Jacobians, Jacobians, Hessians, batches, gradients of the user's own. They compose with
// each other, with `grad` and with `compile`.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "weft/grad.hpp"
#include "weft/tensor.hpp"

namespace weft {

/// A function of several tensors with several results. The forms for one tensor below take any callable.
using TensorFunction = std::function<std::vector<Tensor>(std::span<const Tensor>)>;

// ---- Products with Jacobians -----------------------------------------------------------------------------------------

/// f's results, and the function that takes a seed for each result (undefined: none) to the gradients of the inputs.
struct Pullback {
  std::vector<Tensor> results;
  std::function<std::vector<Tensor>(const std::vector<Tensor>& seeds)> gradients;
};
/// Reverse mode: J^T u. An input that is not a float, and one that no result depends on, gets zeros.
/// Errors  UsageError: no inputs, an input or a result without a value, another number of seeds than results. ShapeError: a
///         seed of another shape than its result.
Pullback vjp(const TensorFunction& f, std::span<const Tensor> inputs, Where where = Where::current());
inline Pullback vjp(const TensorFunction& f, const std::vector<Tensor>& inputs, Where where = Where::current()) {
  return vjp(f, std::span<const Tensor>(inputs), where);
}

/// f's results, and for each how it moves if the inputs move along their tangents.
struct Pushforward {
  std::vector<Tensor> results, tangents;
};
/// Forward mode: J v. An undefined tangent is zero. It is the gradient, with respect to a seed, of the gradient of the inputs,
/// so every op with a second derivative has it; the compiler removes what is left of the first pass.
/// Errors  UsageError: no inputs, one without a value, another number of tangents than inputs. ShapeError: a tangent of another
///         shape than its input. DTypeError: a tangent for an input that is not a float.
Pushforward jvp(const TensorFunction& f, std::span<const Tensor> inputs, std::span<const Tensor> tangents,
                Where where = Where::current());
inline Pushforward jvp(const TensorFunction& f, const std::vector<Tensor>& inputs, const std::vector<Tensor>& tangents,
                       Where where = Where::current()) {
  return jvp(f, std::span<const Tensor>(inputs), std::span<const Tensor>(tangents), where);
}

/// d f(x) / dx for every element: [f's shape..., x's shape...]. `forward` computes columns instead of rows, which takes less if
/// x has fewer elements than f(x). All rows are one batch (`vmap`).
/// Errors: DTypeError if x or f(x) is not a float.
Tensor jacobian(const std::function<Tensor(const Tensor&)>& f, const Tensor& x, bool forward = false,
                Where where = Where::current());
/// Second derivatives of a function with one element as its result: [x's shape..., x's shape...].
Tensor hessian(const std::function<Tensor(const Tensor&)>& f, const Tensor& x, Where where = Where::current());

/// y = f(x) and the function that takes a seed to the gradient: auto [y, pull] = vjp(f, x); pull(ones_like(y)).
template <class F>
requires std::is_invocable_r_v<Tensor, F&, const Tensor&> std::pair<Tensor, std::function<Tensor(const Tensor&)>> vjp(
    F f, const Tensor& x, Where where = Where::current()) {
  const Tensor inputs[] = {x};
  Pullback made = vjp(TensorFunction([&f](std::span<const Tensor> in) { return std::vector<Tensor>{f(in[0])}; }),
                      std::span<const Tensor>(inputs), where);
  return {made.results[0],
          [gradients = std::move(made.gradients)](const Tensor& seed) { return gradients({seed})[0]; }};
}
/// f(x), and its change along `tangent`.
template <class F>
requires std::is_invocable_r_v<Tensor, F&, const Tensor&> std::pair<Tensor, Tensor> jvp(
    F f, const Tensor& x, const Tensor& tangent, Where where = Where::current()) {
  const Tensor inputs[] = {x}, tangents[] = {tangent};
  Pushforward made = jvp(TensorFunction([&f](std::span<const Tensor> in) { return std::vector<Tensor>{f(in[0])}; }),
                         std::span<const Tensor>(inputs), std::span<const Tensor>(tangents), where);
  return {made.results[0], made.tangents[0]};
}

// ---- Batches -----------------------------------------------------------------------------------------------------------

struct VmapOptions {
  /// For each argument the axis that counts examples; nullopt: every example gets the whole argument. Empty: 0 for all.
  std::vector<std::optional<int>> in_axes = {};
  int out_axis = 0;  ///< the axis of the results that counts examples
};
/// f applied to every example of a batch, as one computation. f sees one example: its shapes lack the mapped axis. Each op is
/// computed for the whole batch at once; an op with a kernel of its own has a rule or is written out in other ops, and a custom
/// kernel runs once an example. Random numbers that f draws are the same for all examples.
///
/// Errors  UsageError: no argument is mapped; f asks for elements, or assigns what depends on an example to a Variable.
///         ShapeError: an axis outside of its argument, arguments with different numbers of examples, no examples.
std::vector<Tensor> vmap(const TensorFunction& f, std::span<const Tensor> arguments, const VmapOptions& options = {},
                         Where where = Where::current());

namespace detail {
template <class Result>
std::vector<Tensor> listed(const Result& result) {
  if constexpr (std::is_convertible_v<const Result&, Tensor>)
    return {Tensor(result)};
  else if constexpr (std::is_same_v<Result, std::vector<Tensor>>)
    return result;
  else
    return std::apply([](const auto&... each) { return std::vector<Tensor>{Tensor(each)...}; }, result);
}
template <class Result>
Result gathered(const std::vector<Tensor>& list) {
  if constexpr (std::is_convertible_v<const Result&, Tensor>)
    return list.at(0);
  else if constexpr (std::is_same_v<Result, std::vector<Tensor>>)
    return list;
  else
    return [&]<std::size_t... I>(std::index_sequence<I...>) { return Result{list.at(I)...}; }
  (std::make_index_sequence<std::tuple_size_v<Result>>{});
}
}  // namespace detail

/// The function that maps f over a batch: vmap([](Tensor a, Tensor b) { return sum(a * b); })(x, y). It returns what f returns:
/// a Tensor, a pair, tuple, array or vector of Tensors.
template <class F>
auto vmap(F f, VmapOptions options = {}, Where where = Where::current()) {
  return [ f, options,
           where ](const auto&... arguments) requires(std::is_convertible_v<decltype(arguments), Tensor> && ...) {
    using Given = std::remove_cvref_t<decltype(f(Tensor(arguments)...))>;
    using Result = std::conditional_t<std::is_convertible_v<Given, Tensor>, Tensor, Given>;
    const std::vector<Tensor> list{Tensor(arguments)...};
    const TensorFunction each = [&](std::span<const Tensor> in) {
      return [&]<std::size_t... I>(std::index_sequence<I...>) { return detail::listed(Result(f(in[I]...))); }
      (std::index_sequence_for<decltype(arguments)...>{});
    };
    return detail::gathered<Result>(vmap(each, std::span<const Tensor>(list), options, where));
  };
}

// ---- Gradients of the user's own ---------------------------------------------------------------------------------------

/// One use of a function with a gradient of its own: its inputs and results, and the gradient of each result (undefined if none
/// flows).
struct CustomGradient {
  std::vector<Tensor> inputs, results, gradients;
};
/// forward, with `backward` in place of its gradient. `backward` returns a gradient for each input, undefined for none. What it
/// computes is differentiated for second derivatives. No gradient flows to other values that `forward` reads.
///
///     auto clipped = custom_gradient([](std::span<const Tensor> in) { return std::vector<Tensor>{in[0]}; },
///                                    [](const CustomGradient& g) { return std::vector<Tensor>{clamp(g.gradients[0], -1, 1)}; });
///
/// Errors, when the function is called  UsageError: no inputs, one without a value; a result without one. When gradients are
///         taken  UsageError: `backward` gives another number of gradients than inputs. ShapeError: one of another shape.
TensorFunction custom_gradient(TensorFunction forward,
                               std::function<std::vector<Tensor>(const CustomGradient&)> backward);

}  // namespace weft
