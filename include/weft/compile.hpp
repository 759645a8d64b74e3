// Explicit compilation: trace a function once, then replay its plan.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "weft/product_precision.hpp"
#include "weft/tensor.hpp"

namespace weft {

namespace runtime {
class CompiledFunction;
}
struct Profile;

/// A traced function. A call binds its arguments, runs the plan and returns the results. Updates of Variables
/// inside the function are part of the plan and write in place. The function is traced again for other shapes or
/// dtypes of arguments, and when a module that it uses changes between training and evaluation; the last 256
/// traces are kept. Pass numbers that change from call to call as arguments of rank 0. Tracing itself assigns
/// nothing and leaves no gradients on Variables. Thread safety: calls from several threads run one after
/// another.
class Compiled {
 public:
  using Function = std::function<std::vector<Tensor>(std::span<const Tensor>)>;
  explicit Compiled(Function function);
  std::vector<Tensor> operator()(std::span<const Tensor> arguments);
  /// Traces and compiles for these arguments without running.
  void prepare(std::span<const Tensor> arguments);
  /// Kernels, shapes, bytes, FLOPs, buffers of the last plan; with `source`, the program text too.
  std::string explain(bool source = false) const;
  /// Number of kernels of the last plan, and its bytes of scratch memory.
  std::size_t kernel_count() const;
  std::size_t scratch_bytes() const;
  /// Number of traces made so far.
  std::size_t trace_count() const;
  /// Runs twice with these arguments, the second time timing each kernel (updates of Variables take effect). As a table, and
  /// as data (weft/profile.hpp), which holds no rates of the device.
  std::string profile(std::span<const Tensor> arguments);
  Profile measure(std::span<const Tensor> arguments);

 private:
  std::shared_ptr<runtime::CompiledFunction> impl_;
};

/// A function of tensors, compiled at its first call. It returns what the function returns: a Tensor, a pair, tuple, array or
/// vector of Tensors, or nothing. Copies share the compiled function, so it may be a member or a std::function:
///
///     std::function<std::pair<Tensor, Tensor>(const Tensor&)> act = compile([&](const Tensor& x) { ... });
template <class F>
class CompiledCall {
 public:
  explicit CompiledCall(F function) : state_(std::make_shared<State>(std::move(function))) {}

  template <class... Arguments>
  auto operator()(const Arguments&... arguments) const {
    using Given = std::remove_cvref_t<decltype(std::declval<F&>()(Tensor(arguments)...))>;
    using Result = std::conditional_t<std::is_convertible_v<Given, Tensor>, Tensor, Given>;
    State& state = *state_;
    std::call_once(state.once, [&] {
      state.compiled.emplace([function = &state.function](std::span<const Tensor> given) {
        return [&]<std::size_t... I>(std::index_sequence<I...>) {
          if constexpr (std::is_void_v<Result>) {
            (*function)(given[I]...);
            return std::vector<Tensor>{};
          } else {
            return listed(Result((*function)(given[I]...)));
          }
        }
        (std::index_sequence_for<Arguments...>{});
      });
    });
    const std::vector<Tensor> list{Tensor(arguments)...};
    std::vector<Tensor> results = (*state.compiled)(list);
    if constexpr (!std::is_void_v<Result>) return gathered<Result>(std::move(results));
  }
  /// The compiled function, to explain or to profile. Errors: UsageError before the first call.
  Compiled& compiled() const {
    if (!state_->compiled) throw UsageError("compile: call the function once before asking for its plan");
    return *state_->compiled;
  }

 private:
  struct State {
    explicit State(F function) : function(std::move(function)) {}
    F function;
    std::once_flag once;
    std::optional<Compiled> compiled;  // refers to `function`
  };

  static std::vector<Tensor> listed(Tensor result) { return {std::move(result)}; }
  static std::vector<Tensor> listed(std::vector<Tensor> results) { return results; }
  template <class Tuple>
  static std::vector<Tensor> listed(const Tuple& results) {
    return std::apply([](const auto&... each) { return std::vector<Tensor>{Tensor(each)...}; }, results);
  }
  template <class Result>
  static Result gathered(std::vector<Tensor> results) {
    if constexpr (std::is_same_v<Result, Tensor>) {
      return std::move(results.at(0));
    } else if constexpr (std::is_same_v<Result, std::vector<Tensor>>) {
      return results;
    } else {
      return [&]<std::size_t... I>(std::index_sequence<I...>) { return Result{std::move(results.at(I))...}; }
      (std::make_index_sequence<std::tuple_size_v<Result>>{});
    }
  }

  std::shared_ptr<State> state_;
};

/// auto step = compile([&](Tensor x, Tensor y) { ... return loss; }); Tensor loss = step(x, y);
template <class F>
CompiledCall<F> compile(F function) {
  return CompiledCall<F>(std::move(function));
}

/// The plan that would compute `tensor`: kernels, shapes, bytes, FLOPs, buffers.
std::string explain(const Tensor& tensor, bool source = false);

/// The switches of a session's compiler, for tests and for debugging, and the precision of its products. Environment:
/// WEFT_DISABLE=fusion,rewrites,... and WEFT_PRODUCTS=exact, high or medium. Plans made after a change follow it.
struct CompileSettings {
  bool fusion = true;            // off: one kernel for each op
  bool fused_composites = true;  // off: attention as matmul and softmax
  std::vector<std::string> disabled_rewrites;
  ProductPrecision products = ProductPrecision::exact;
};
CompileSettings& compile_settings();

}  // namespace weft
