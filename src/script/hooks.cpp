#include "script/hooks.hpp"

#include <fmt/format.h>

namespace weft::script {

std::shared_ptr<const std::uint64_t> KeptValues::keep(Engine& engine, JSValueConst value) {
  const std::shared_ptr<KeptValues> kept = engine.kept;
  kept->collect();
  const std::lock_guard lock(kept->mutex_);
  const std::uint64_t number = ++kept->last_;
  kept->alive_.emplace(number, JS_DupValue(engine.context, value));
  return {new std::uint64_t(number), [kept](const std::uint64_t* held) {
            const std::unique_ptr<const std::uint64_t> owned(held);
            const std::lock_guard again(kept->mutex_);
            const auto found = kept->alive_.find(*owned);
            if (found == kept->alive_.end()) return;
            kept->dead_.push_back(found->second);
            kept->alive_.erase(found);
          }};
}

Engine& KeptValues::engine() const {
  if (!engine_) throw UsageError("a hook: the script that made it has ended");
  return *engine_;
}

JSValueConst KeptValues::operator[](std::uint64_t number) {
  const std::lock_guard lock(mutex_);
  return alive_.at(number);
}

void KeptValues::collect() {
  std::vector<JSValue> dead;
  {
    const std::lock_guard lock(mutex_);
    dead.swap(dead_);
  }
  for (const JSValue value : dead) JS_FreeValue(engine_->context, value);
}

void KeptValues::end() {
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [number, value] : alive_) dead_.push_back(value);
    alive_.clear();
  }
  collect();
  engine_ = nullptr;
}

GradientHook gradient_hook(Engine& engine, JSValueConst hook, JSValueConst module, const char* what) {
  if (!JS_IsFunction(engine.context, hook))
    Engine::refuse(what, "the hook is " + inspect(engine, hook) + ", not a function");
  const bool has_module = !JS_IsUndefined(module);
  return [kept = engine.kept, function = KeptValues::keep(engine, hook), what,
          owner = has_module ? KeptValues::keep(engine, module) : nullptr](const Tensor& gradient) {
    Engine& e = kept->engine();
    const Untouched untouched(e);
    const Local given = e.make(gradient);
    const Local result = owner ? e.call((*kept)[*function], JS_UNDEFINED, {(*kept)[*owner], given.get()})
                               : e.call((*kept)[*function], JS_UNDEFINED, {given.get()});
    return e.is_nullish(result.get()) ? Tensor() : e.tensor(result.get(), fmt::format("{}: what the hook gives", what));
  };
}

namespace {

JSValue call_remove(JSContext* context, JSValueConst, int, JSValueConst*, int, void* opaque) {
  try {
    static_cast<HookHandle*>(opaque)->remove();
    return JS_UNDEFINED;
  } catch (...) {
    return Engine::of(context).throw_current();
  }
}

// withGradientHook(x, hook)
Local with_hook(Engine& engine, JSValueConst, Arguments a) {
  return engine.make(with_gradient_hook(engine.tensor(at(a, 0), "withGradientHook: x"),
                                        gradient_hook(engine, at(a, 1), JS_UNDEFINED, "withGradientHook")));
}

// registerHook(variable, hook)
Local register_variable_hook(Engine& engine, JSValueConst, Arguments a) {
  const VariableHandle* const variable = engine.variable_handle(at(a, 0));
  if (!variable || !variable->value.defined())
    Engine::refuse("registerHook", "takes a variable; of a tensor, x = withGradientHook(x, hook) gives a hooked one");
  const HookHandle handle =
      register_hook(variable->value, gradient_hook(engine, at(a, 1), JS_UNDEFINED, "registerHook"));
  return hook_handle(
      engine, engine.checked(JS_NewCClosure(
                  engine.context, call_remove, "remove", [](void* opaque) { delete static_cast<HookHandle*>(opaque); },
                  0, 0, new HookHandle(handle))));
}

}  // namespace

Local hook_handle(Engine& engine, Local remove) {
  Local made = engine.object();
  engine.set(made.get(), "remove", std::move(remove));
  return made;
}

void define_hooks(Engine& engine) {
  engine.kept = std::make_shared<KeptValues>(engine);
  engine.at_end.push_back([kept = engine.kept] { kept->end(); });
  add_function<with_hook>(engine, "withGradientHook", 2);
  add_function<register_variable_hook>(engine, "registerHook", 2);
}

}  // namespace weft::script
