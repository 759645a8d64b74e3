// Explicit compilation: trace a function once, replay its plan ever after.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "weft/tensor.hpp"

namespace weft {

namespace runtime {
class CompiledFunction;
}

/// A traced function. A call binds its arguments, runs the plan and gives the results; updates of Variables made inside
/// the function are part of the plan and write in place. It is traced again when shapes or dtypes of arguments change
/// (the last eight are kept). Numbers that change from call to call travel as arguments (rank 0), never baked in.
class Compiled {
 public:
  using Function = std::function<std::vector<Tensor>(std::span<const Tensor>)>;
  explicit Compiled(Function function);
  std::vector<Tensor> operator()(std::span<const Tensor> arguments);
  /// Traces and compiles for these arguments without running.
  void prepare(std::span<const Tensor> arguments);
  /// Kernels, shapes, bytes, FLOPs, buffers of the last plan; with `source`, the program text too.
  std::string explain(bool source = false) const;
  /// Kernels of the last plan: count, and bytes of scratch memory.
  std::size_t kernel_count() const;
  std::size_t scratch_bytes() const;
  /// Number of traces made so far.
  std::size_t trace_count() const;
  /// Runs twice with these arguments, the second time timing each kernel (updates of Variables take effect).
  std::string profile(std::span<const Tensor> arguments);

 private:
  std::shared_ptr<runtime::CompiledFunction> impl_;
};

/// A function of tensors that gives one tensor, compiled at its first call.
template <class F>
class CompiledCall {
 public:
  explicit CompiledCall(F function) : function_(std::move(function)) {}
  template <class... Arguments>
  Tensor operator()(const Arguments&... arguments) {
    if (!compiled_)
      compiled_.emplace([this](std::span<const Tensor> given) {
        return [&]<std::size_t... I>(std::index_sequence<I...>) { return std::vector<Tensor>{function_(given[I]...)}; }
        (std::index_sequence_for<Arguments...>{});
      });
    const std::vector<Tensor> list{Tensor(arguments)...};
    return (*compiled_)(list)[0];
  }
  /// The compiled function, to explain or to profile. Errors: UsageError before the first call.
  Compiled& compiled() {
    if (!compiled_) throw UsageError("compile: call the function once before asking for its plan");
    return *compiled_;
  }
  CompiledCall(CompiledCall&&) = delete;  // the traced function refers to this object

 private:
  F function_;
  std::optional<Compiled> compiled_;
};

/// auto step = compile([&](Tensor x, Tensor y) { ... return loss; }); Tensor loss = step(x, y);
template <class F>
CompiledCall<F> compile(F function) {
  return CompiledCall<F>(std::move(function));
}

/// What would run to compute `tensor`: kernels, shapes, bytes, FLOPs, buffers.
std::string explain(const Tensor& tensor, bool source = false);

/// Switches of the compiler, for tests and for finding faults. Environment twin: WEFT_DISABLE=fusion,rewrites,...
struct CompileSettings {
  bool fusion = true;            // off: one kernel an op
  bool fused_composites = true;  // off: attention as matmul and softmax
  std::vector<std::string> disabled_rewrites;
};
CompileSettings& compile_settings();

}  // namespace weft
