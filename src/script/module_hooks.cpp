// Hooks on modules of the script: functions that see, and may replace, what goes in and out, and the gradients of both.
#include <fmt/format.h>

#include <algorithm>

#include "script/hooks.hpp"
#include "script/modules.hpp"
#include "weft/dtype.hpp"

namespace weft::script {
namespace {

// The functions of one place, which stay alive while they run: a hook may remove itself.
std::vector<Local> hooks_at(Engine& engine, const ModuleHandle& handle, HookPlace place) {
  std::vector<Local> list;
  for (const ModuleHook& hook : handle.hooks)
    if (hook.place == place) list.emplace_back(engine.context, JS_DupValue(engine.context, hook.function));
  return list;
}

// The value, whose gradients pass the hooks; a gradient meets the hook that was put on last first. What is not a tensor of floats has
// no gradient.
Local watched(Engine& engine, JSValueConst module, const ModuleHandle& handle, HookPlace place, Local value) {
  const std::vector<Local> hooks = hooks_at(engine, handle, place);
  if (hooks.empty()) return value;
  Tensor x = engine.tensor_or_none(value.get());
  if (!x.defined() || !is_float(x.dtype())) return value;
  for (auto hook = hooks.rbegin(); hook != hooks.rend(); ++hook)
    x = with_gradient_hook(x, gradient_hook(engine, hook->get(), module, "a hook on a module"));
  return engine.make(x);
}

// remove() of a registration; `data` has the module and the hook's number.
JSValue remove_hook(JSContext* context, JSValueConst, int, JSValueConst*, int, JSValueConst* data) {
  Engine& engine = Engine::of(context);
  try {
    std::int64_t number = 0;
    engine.checked(JS_ToInt64(context, &number, data[1]));
    std::vector<ModuleHook>& hooks = module_handle(engine, data[0])->hooks;
    const auto found =
        std::find_if(hooks.begin(), hooks.end(), [&](const ModuleHook& h) { return h.number == number; });
    if (found == hooks.end()) return JS_UNDEFINED;
    const Local function(context, found->function);
    hooks.erase(found);
    return JS_UNDEFINED;
  } catch (...) {
    return engine.throw_current();
  }
}

template <HookPlace place>
Local register_module_hook(Engine& engine, JSValueConst self, Arguments arguments) {
  ModuleHandle* const handle = module_handle(engine, self);
  if (!handle) Engine::refuse("nn", "this is not a module");
  if (!JS_IsFunction(engine.context, at(arguments, 0)))
    Engine::refuse(handle->module->describe(), "the hook is " + inspect(engine, at(arguments, 0)) + ", not a function");
  const Local number(engine.context, JS_NewInt64(engine.context, ++handle->last_hook));
  JSValueConst data[] = {self, number.get()};
  Local made = hook_handle(engine, engine.checked(JS_NewCFunctionData(engine.context, remove_hook, 0, 0, 2, data)));
  handle->hooks.push_back({handle->last_hook, place, JS_DupValue(engine.context, arguments[0])});
  return made;
}

}  // namespace

Local with_module_hooks(Engine& engine, JSValueConst module, const ModuleHandle& handle, Arguments given,
                        const std::function<Local(Arguments)>& compute) {
  if (given.empty()) Engine::refuse(handle.module->describe(), "a module with hooks takes an input");
  const auto shared = [&](JSValueConst value) { return Local(engine.context, JS_DupValue(engine.context, value)); };
  Local x = shared(given[0]);
  for (const Local& hook : hooks_at(engine, handle, HookPlace::input))
    if (Local other = engine.call(hook.get(), JS_UNDEFINED, {module, x.get()}); !engine.is_nullish(other.get()))
      x = std::move(other);
  x = watched(engine, module, handle, HookPlace::input_gradient, std::move(x));
  std::vector<JSValueConst> arguments(given.begin(), given.end());
  arguments[0] = x.get();
  Local y = compute(Arguments(arguments));
  for (const Local& hook : hooks_at(engine, handle, HookPlace::output))
    if (Local other = engine.call(hook.get(), JS_UNDEFINED, {module, x.get(), y.get()});
        !engine.is_nullish(other.get()))
      y = std::move(other);
  return watched(engine, module, handle, HookPlace::output_gradient, std::move(y));
}

void define_module_hooks(Engine& engine, JSValueConst p) {
  engine.method(p, "registerForwardPreHook", native<register_module_hook<HookPlace::input>>, 1);
  engine.method(p, "registerForwardHook", native<register_module_hook<HookPlace::output>>, 1);
  engine.method(p, "registerOutputGradientHook", native<register_module_hook<HookPlace::output_gradient>>, 1);
  engine.method(p, "registerInputGradientHook", native<register_module_hook<HookPlace::input_gradient>>, 1);
}

}  // namespace weft::script
