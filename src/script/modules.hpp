// Modules of the script: layers of Weft, and classes of the script that extend nn.Module.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "script/engine.hpp"
#include "weft/nn/module.hpp"

namespace weft::script {

/// A module whose children and parameters are named from outside.
struct OpenModule : nn::Module {
  using nn::Module::add;
  using nn::Module::parameter;
  std::string title = "Module";
  std::string describe() const override { return title; }
};

/// Where a hook on a module sees values.
enum class HookPlace : std::uint8_t { input, output, output_gradient, input_gradient };
struct ModuleHook {
  std::int64_t number;
  HookPlace place;
  JSValue function;
};

struct ModuleHandle final : Handle {
  using Forward = std::function<Local(Engine&, Arguments)>;
  ModuleHandle(Engine& engine, std::shared_ptr<nn::Module> module) : Handle(engine), module(std::move(module)) {}
  std::string_view kind() const override { return "Module"; }
  std::shared_ptr<nn::Module> module;
  Forward forward;                                    // empty: the method of the script's class
  std::vector<std::shared_ptr<nn::Module>> children;  // outlive the handles of the script
  std::vector<JSValue> steps;                         // of nn.sequential: modules and functions
  std::vector<ModuleHook> hooks;                      // in the order of registration
  std::int64_t last_hook = 0;
  void mark(JSRuntime* runtime, JS_MarkFunc* mark) override {
    for (const JSValue step : steps) JS_MarkValue(runtime, step, mark);
    for (const ModuleHook& hook : hooks) JS_MarkValue(runtime, hook.function, mark);
  }
  ~ModuleHandle() override {
    for (const JSValue step : steps) JS_FreeValueRT(engine.runtime, step);
    for (const ModuleHook& hook : hooks) JS_FreeValueRT(engine.runtime, hook.function);
  }
};

inline ModuleHandle* module_handle(Engine& engine, JSValueConst value) {
  return static_cast<ModuleHandle*>(static_cast<Handle*>(JS_GetOpaque(value, engine.module_class)));
}
constexpr Extent kModuleWidthMax = Extent{1} << 30;  // so that sizes of parameters fit 64 bits

/// A module of the script, whose calls do `forward`. Errors: DeviceMemoryError if its parameters need more than the script may use.
Local wrap(Engine& engine, std::shared_ptr<nn::Module> module, ModuleHandle::Forward forward, JSValueConst prototype);
Local wrap(Engine& engine, std::shared_ptr<nn::Module> module, ModuleHandle::Forward forward);
/// Calls `compute` with the arguments of a call of the module, and the module's hooks around it.
Local with_module_hooks(Engine& engine, JSValueConst module, const ModuleHandle& handle, Arguments given,
                        const std::function<Local(Arguments)>& compute);
/// Methods of modules that register hooks.
void define_module_hooks(Engine& engine, JSValueConst prototype);
/// Members of the object `nn`.
void define_layers(Engine& engine, JSValueConst space);
void define_losses(Engine& engine, JSValueConst space);

/// Parameters of a module, an optimizer, or an array of variables.
std::optional<std::vector<Variable>> parameters_of(Engine& engine, JSValueConst value);
/// The parameters of an optimizer, or null.
const std::vector<Variable>* optimizer_parameters(Engine& engine, JSValueConst value);

}  // namespace weft::script
