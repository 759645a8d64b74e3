// Memory, functions of JavaScript that are traced, and optimisers.
#include <cstdlib>

#include "browser/src/module.hpp"
#include "weft/optim.hpp"

using namespace weft;
using namespace weft::browser;

extern "C" {
/// Calls the function of JavaScript with this number, as weft_callback says.
__attribute__((import_module("weft"), import_name("trace"))) weft_status js_trace(
    std::uint32_t function, const weft_tensor* arguments, std::size_t count, weft_tensor* results,
    std::size_t results_max, std::size_t* results_count);
}

/// Null if memory has run out.
WEFT_EXPORT(weft_allocate) void* weft_allocate(std::size_t bytes) { return std::malloc(bytes); }
WEFT_EXPORT(weft_free) void weft_free(void* memory) { std::free(memory); }

/// A compiled function that traces the function of JavaScript with this number.
WEFT_EXPORT(weft_browser_compile) weft_status weft_browser_compile(std::uint32_t function, weft_function* result) {
  const weft_callback trace = [](void* context, const weft_tensor* arguments, std::size_t count, weft_tensor* results,
                                 std::size_t results_max, std::size_t* results_count) {
    return js_trace(static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(context)), arguments, count, results,
                    results_max, results_count);
  };
  return weft_compile(trace, reinterpret_cast<void*>(static_cast<std::uintptr_t>(function)), result);
}

/// An optimiser of the table ("AdamW", "rmsprop", ...) over variables. `numbers`: learning rate, weight decay, largest norm of the
/// gradients, momentum, beta_1, beta_2, epsilon; a NaN keeps the optimiser's own.
WEFT_EXPORT(weft_browser_optimizer_create)
weft_status weft_browser_optimizer_create(const char* kind, const double* numbers, const weft_variable* parameters,
                                          std::size_t count, std::uint64_t* result) {
  return capi::guarded([&] {
    std::vector<Variable> variables;
    for (const weft_variable each : capi::list_of(parameters, count, "parameters"))
      variables.push_back(*capi::variable_of(each));
    capi::required(numbers, "numbers");
    constexpr const char* kNames[] = {"learning_rate", "weight_decay", "clip_norm", "momentum",
                                      "beta_1",        "beta_2",       "epsilon"};
    optim::OptionValues options;
    for (std::size_t i = 0; i < std::size(kNames); ++i)
      if (is_given(numbers[i])) options[kNames[i]] = numbers[i];
    std::shared_ptr<optim::Optimizer> made =
        optim::make_optimizer(capi::required(kind, "kind"), variables, std::move(options));
    *capi::required(result, "result") = objects<optim::Optimizer, Kind::optimizer>().add(std::move(made));
  });
}
/// One update; `norm` is that of the gradients before clipping.
WEFT_EXPORT(weft_browser_optimizer_step)
weft_status weft_browser_optimizer_step(std::uint64_t optimizer, const weft_tensor* gradients, std::size_t count,
                                        weft_tensor* norm) {
  return capi::guarded([&] {
    std::vector<Tensor> given;
    for (const weft_tensor each : capi::list_of(gradients, count, "gradients")) given.push_back(capi::tensor_of(each));
    auto& object = object_of<optim::Optimizer, Kind::optimizer>(optimizer, "optimiser");
    *capi::required(norm, "norm") = capi::handle_of(object.step(given));
  });
}
WEFT_EXPORT(weft_browser_optimizer_release) weft_status weft_browser_optimizer_release(std::uint64_t optimizer) {
  return release<optim::Optimizer, Kind::optimizer>(optimizer, "optimiser");
}
