// Memory, functions of JavaScript that are traced, and optimisers.
#include <fmt/format.h>

#include <cstdlib>

#include "base/json.hpp"
#include "base/quote.hpp"
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

namespace {

optim::OptionValues options_of(const Json& json) {
  optim::OptionValues options;
  for (const auto& [name, value] : json.items()) {
    if (value.is_boolean())
      options[name] = value.get<bool>();
    else if (value.is_number())
      options[name] = value.get<double>();
    else
      throw UsageError(fmt::format("an optimiser's option {} is a number, true or false", quote(name, 60)));
  }
  return options;
}

optim::Optimizer& optimizer_of(std::uint64_t id) {
  return object_of<optim::Optimizer, Kind::optimizer>(id, "optimiser");
}

}  // namespace

/// The table of optimisers as JSON: [{"title", "doc", "options": [{"name", "standard", "doc"}]}]. The text is valid until the
/// next function that gives a text.
WEFT_EXPORT(weft_browser_optimizers) weft_status weft_browser_optimizers(const char** text) {
  return capi::guarded([&] {
    Json rows = Json::array();
    for (const optim::RuleInfo& rule : optim::rules()) {
      Json options = Json::array();
      for (const optim::OptionInfo& option : rule.options) {
        const Json standard = std::visit([](const auto value) { return Json(value); }, option.standard);
        options.push_back({{"name", option.name}, {"standard", standard}, {"doc", option.doc}});
      }
      rows.push_back({{"title", rule.title}, {"doc", rule.doc}, {"options", options}});
    }
    *capi::required(text, "text") = capi::keep_text(rows.dump());
  });
}
/// An optimiser of the table over variables. `options`: a JSON object of its options by name; what is left out keeps the
/// optimiser's own value. Errors: WEFT_USAGE_ERROR for an option that it does not have or a value out of its range.
WEFT_EXPORT(weft_browser_optimizer_create)
weft_status weft_browser_optimizer_create(const char* kind, const char* options, const weft_variable* parameters,
                                          std::size_t count, std::uint64_t* result) {
  return capi::guarded([&] {
    std::vector<Variable> variables;
    for (const weft_variable each : capi::list_of(parameters, count, "parameters"))
      variables.push_back(*capi::variable_of(each));
    const Json given = parse_json(capi::required(options, "options"), "options of an optimiser");
    std::shared_ptr<optim::Optimizer> made =
        optim::make_optimizer(capi::required(kind, "kind"), variables, options_of(given));
    *capi::required(result, "result") = objects<optim::Optimizer, Kind::optimizer>().add(std::move(made));
  });
}
WEFT_EXPORT(weft_browser_optimizer_set_learning_rate)
weft_status weft_browser_optimizer_set_learning_rate(std::uint64_t optimizer, double rate) {
  return capi::guarded([&] { optimizer_of(optimizer).set_learning_rate(rate); });
}
/// One update; `norm` is that of the gradients before clipping.
WEFT_EXPORT(weft_browser_optimizer_step)
weft_status weft_browser_optimizer_step(std::uint64_t optimizer, const weft_tensor* gradients, std::size_t count,
                                        weft_tensor* norm) {
  return capi::guarded([&] {
    std::vector<Tensor> given;
    for (const weft_tensor each : capi::list_of(gradients, count, "gradients")) given.push_back(capi::tensor_of(each));
    *capi::required(norm, "norm") = capi::handle_of(optimizer_of(optimizer).step(given));
  });
}
WEFT_EXPORT(weft_browser_optimizer_release) weft_status weft_browser_optimizer_release(std::uint64_t optimizer) {
  return release<optim::Optimizer, Kind::optimizer>(optimizer, "optimiser");
}
