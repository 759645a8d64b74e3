// nn.Module: classes of the script, sequences, and the methods of all modules. Modules can be called.
#include <fmt/format.h>

#include "base/quote.hpp"
#include "script/engine.hpp"
#include "script/files.hpp"
#include "script/modules.hpp"
#include "weft/memory_limit.hpp"
#include "weft/nn.hpp"
#include "weft/nn/table.hpp"

namespace weft::script {
namespace {

ModuleHandle& self_module(Engine& engine, JSValueConst self) {
  ModuleHandle* const handle = module_handle(engine, self);
  if (!handle) Engine::refuse("nn", "this is not a module");
  return *handle;
}

// ---- Sequences of modules and functions -----------------------------------------------------------------------------------------

void adopt(Engine& engine, ModuleHandle& parent, const std::string& name, ModuleHandle& child) {
  auto* const open = dynamic_cast<OpenModule*>(parent.module.get());
  if (!open) Engine::refuse("nn", "a layer of Weft takes no further modules");
  (void)engine;
  open->add(name, *child.module);
  parent.children.push_back(child.module);
}

Local sequential(Engine& engine, JSValueConst, Arguments arguments) {
  auto open = std::make_shared<OpenModule>();
  open->title = fmt::format("Sequential of {}", arguments.size());
  Local made = wrap(engine, open, {});
  ModuleHandle* const handle = module_handle(engine, made.get());
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (!JS_IsFunction(engine.context, arguments[i]))
      Engine::refuse("nn.sequential", inspect(engine, arguments[i]) + " is neither a module nor a function");
    if (ModuleHandle* child = module_handle(engine, arguments[i])) adopt(engine, *handle, std::to_string(i), *child);
    handle->steps.push_back(JS_DupValue(engine.context, arguments[i]));
  }
  handle->forward = [handle](Engine& e, Arguments given) {
    Local value(e.context, JS_DupValue(e.context, at(given, 0)));
    for (const JSValue& step : handle->steps) value = e.call(step, JS_UNDEFINED, {value.get()});
    return value;
  };
  return made;
}

// ---- Classes of the script ------------------------------------------------------------------------------------------------------

JSValue construct(JSContext* context, JSValueConst target, int, JSValueConst*) {
  Engine& engine = Engine::of(context);
  try {
    const Local prototype = engine.property(target, "prototype"), name = engine.property(target, "name");
    auto open = std::make_shared<OpenModule>();
    if (JS_IsString(name.get())) open->title = engine.text(name.get()).substr(0, 60);
    return wrap(engine, std::move(open), {}, prototype.get()).release();
  } catch (...) {
    return engine.throw_current();
  }
}

JSValue call_module(JSContext* context, JSValueConst function, JSValueConst, int count, JSValueConst* arguments, int) {
  Engine& engine = Engine::of(context);
  const Local held(context, JS_DupValue(context, function));
  try {
    ModuleHandle& handle = self_module(engine, function);
    const Arguments whole(arguments, static_cast<std::size_t>(count));
    const auto compute = [&](Arguments given) {
      if (handle.forward) return handle.forward(engine, given);
      const Local forward = engine.property(function, "forward");
      if (!JS_IsFunction(context, forward.get()))
        Engine::refuse(handle.module->describe(), "the class has no method forward(x)");
      return engine.call(forward.get(), function, given);
    };
    return (handle.hooks.empty() ? compute(whole) : with_module_hooks(engine, function, handle, whole, compute))
        .release();
  } catch (...) {
    return engine.throw_current();
  }
}

Local forward(Engine& engine, JSValueConst self, Arguments arguments) {
  ModuleHandle& handle = self_module(engine, self);
  if (!handle.forward) Engine::refuse(handle.module->describe(), "the class has no method forward(x)");
  return handle.forward(engine, arguments);
}

// A module that becomes a property of another is its child; so are those of an array.
int define_property(JSContext* context, JSValueConst object, JSAtom name, JSValueConst value, JSValueConst getter,
                    JSValueConst setter, int flags) {
  constexpr int kPlain = 1 << 17;  // JS_PROP_NO_EXOTIC
  Engine& engine = Engine::of(context);
  try {
    ModuleHandle* const parent = module_handle(engine, object);
    // A field that is declared only is not defined yet, so that the assignment in the constructor comes here too.
    if (parent && (flags & JS_PROP_HAS_VALUE) && JS_IsUndefined(value)) return 1;
    if (parent && (flags & JS_PROP_HAS_VALUE) && dynamic_cast<OpenModule*>(parent->module.get())) {
      const char* const text = JS_AtomToCString(context, name);
      const std::string key = text ? text : "";
      JS_FreeCString(context, text);
      if (ModuleHandle* child = module_handle(engine, value)) {
        adopt(engine, *parent, key, *child);
      } else if (JS_IsArray(value)) {
        const std::uint32_t count = engine.length(value, "nn.Module: a list");
        std::shared_ptr<OpenModule> list;
        for (std::uint32_t i = 0; i < count; ++i) {
          const Local element = engine.element(value, i);
          ModuleHandle* const child = module_handle(engine, element.get());
          if (!child) continue;
          if (!list) {
            list = std::make_shared<OpenModule>();
            list->title = fmt::format("List of {}", count);
            static_cast<OpenModule*>(parent->module.get())->add(key, *list);
            parent->children.push_back(list);
          }
          list->add(std::to_string(i), *child->module);
          parent->children.push_back(child->module);
        }
      }
    }
  } catch (...) {
    engine.throw_current();
    return -1;
  }
  return JS_DefineProperty(context, object, name, value, getter, setter, flags | kPlain);
}

// this.add(name, module)
Local add(Engine& engine, JSValueConst self, Arguments arguments) {
  engine.checked(JS_SetPropertyStr(engine.context, self, engine.text(at(arguments, 0)).c_str(),
                                   JS_DupValue(engine.context, at(arguments, 1))));
  return {engine.context, JS_DupValue(engine.context, at(arguments, 1))};
}

// this.parameter(name, shape, {init: "normal", deviation, low, high, value, decay}): a variable.
Local parameter(Engine& engine, JSValueConst self, Arguments arguments) {
  auto* const open = dynamic_cast<OpenModule*>(self_module(engine, self).module.get());
  if (!open) Engine::refuse("parameter", "a layer of Weft takes no further parameters");
  const std::string name = engine.text(at(arguments, 0));
  const Shape shape(engine.extents(at(arguments, 1), "parameter: the shape"));
  Options options(engine, at(arguments, 2), "parameter");
  const std::string kind = options.text("init", "zeros");
  const double deviation = options.number("deviation", 1), low = options.number("low", -1),
               high = options.number("high", 1), value = options.number("value", 0);
  const std::string decay = options.text("decay", "");
  options.finish();
  nn::Init init;
  if (kind == "normal")
    init = nn::Init::normal(deviation);
  else if (kind == "uniform")
    init = nn::Init::uniform(low, high);
  else if (kind == "ones")
    init = nn::Init::ones();
  else if (kind == "constant")
    init = nn::Init::constant(value);
  else if (kind == "zeros")
    init = nn::Init::zeros();
  else if (kind == "xavier" && shape.rank() == 2)
    init = nn::Init::xavier_uniform(shape[1], shape[0]);
  else
    Engine::refuse("parameter",
                   "init " + quote(kind) + "; known are zeros, ones, constant, normal, uniform, xavier (rank 2)");
  return engine.make(open->parameter(name, shape, init).variable());
}

Local list_parameters(Engine& engine, JSValueConst self, Arguments) {
  Local list = engine.array();
  std::uint32_t i = 0;
  for (const nn::NamedParameter& each : self_module(engine, self).module->named_parameters())
    engine.set(list.get(), i++, engine.make(each.variable));
  return list;
}
Local named_parameters(Engine& engine, JSValueConst self, Arguments) {
  Local object = engine.object();
  for (const nn::NamedParameter& each : self_module(engine, self).module->named_parameters())
    engine.set(object.get(), each.name.c_str(), engine.make(each.variable));
  return object;
}
Local parameter_count(Engine& engine, JSValueConst self, Arguments) {
  return {engine.context, JS_NewInt64(engine.context, self_module(engine, self).module->parameter_count())};
}
Local train(Engine& engine, JSValueConst self, Arguments arguments) {
  self_module(engine, self).module->train(arguments.empty() || JS_ToBool(engine.context, arguments[0]) > 0);
  return {engine.context, JS_DupValue(engine.context, self)};
}
Local eval_mode(Engine& engine, JSValueConst self, Arguments) {
  self_module(engine, self).module->eval();
  return {engine.context, JS_DupValue(engine.context, self)};
}
Local is_training(Engine& engine, JSValueConst self, Arguments) {
  return {engine.context, JS_NewBool(engine.context, self_module(engine, self).module->is_training())};
}
Local zero_grad(Engine& engine, JSValueConst self, Arguments) {
  self_module(engine, self).module->zero_grad();
  return {};
}
Local initialize(Engine& engine, JSValueConst self, Arguments arguments) {
  self_module(engine, self)
      .module->initialize(static_cast<std::uint64_t>(engine.integer(at(arguments, 0), "initialize: the seed")));
  return {};
}
Local summary(Engine& engine, JSValueConst self, Arguments) {
  return engine.string(nn::to_text(nn::table_of(*self_module(engine, self).module)));
}
Local save(Engine& engine, JSValueConst self, Arguments arguments) {
  engine.files->save(engine.text(at(arguments, 0)),
                     [&](const std::filesystem::path& file) { self_module(engine, self).module->save(file); });
  return {};
}
Local load(Engine& engine, JSValueConst self, Arguments arguments) {
  const Descriptor file = engine.files->open(engine.files->place(engine.text(at(arguments, 0)), false));
  self_module(engine, self).module->load(file.path());
  return {};
}

}  // namespace

Local wrap(Engine& engine, std::shared_ptr<nn::Module> module, ModuleHandle::Forward forward, JSValueConst prototype) {
  // Initial values are drawn on the host, so they are counted before.
  const Extent parameters = module->parameter_count();
  const std::uint64_t most = engine.options.device_memory_limit;
  if (parameters < 0 || parameters > kModuleWidthMax || (most && static_cast<std::uint64_t>(parameters) * 4 > most))
    throw DeviceMemoryError(
        fmt::format("{} has {} parameters, and the script may use {} bytes", module->describe(), parameters, most));
  JSValue object = JS_NewObjectProtoClass(engine.context, prototype, engine.module_class);
  Local made = engine.checked(object);
  auto handle = std::make_unique<ModuleHandle>(engine, std::move(module));
  handle->forward = std::move(forward);
  JS_SetOpaque(object, static_cast<Handle*>(handle.release()));
  return made;
}
Local wrap(Engine& engine, std::shared_ptr<nn::Module> module, ModuleHandle::Forward forward) {
  const Local prototype(engine.context, JS_GetClassProto(engine.context, engine.module_class));
  return wrap(engine, std::move(module), std::move(forward), prototype.get());
}

std::optional<std::vector<Variable>> parameters_of(Engine& engine, JSValueConst value) {
  if (const ModuleHandle* handle = module_handle(engine, value)) return handle->module->parameters();
  if (const std::vector<Variable>* list = optimizer_parameters(engine, value)) return *list;
  if (!JS_IsArray(value)) return std::nullopt;
  std::vector<Variable> list;
  const std::uint32_t count = engine.length(value, "the parameters", 1u << 20);
  for (std::uint32_t i = 0; i < count; ++i) {
    const Local each = engine.element(value, i);
    const VariableHandle* const variable = engine.variable_handle(each.get());
    if (!variable || !variable->value.defined())
      throw UsageError(fmt::format("a parameter is {}, not a variable", inspect(engine, each.get())));
    list.push_back(variable->value);
  }
  return list;
}

void define_modules(Engine& engine) {
  static JSClassExoticMethods exotic = [] {
    JSClassExoticMethods methods{};
    methods.define_own_property = define_property;
    return methods;
  }();
  const Local prototype = engine.make_class(engine.module_class, "Module", call_module, &exotic);
  const JSValueConst p = prototype.get();
  const Local functions(engine.context, JS_GetFunctionProto(engine.context));
  engine.checked(JS_SetPrototype(engine.context, p, functions.get()));
  engine.method(p, "forward", native<forward>, 1);
  engine.method(p, "add", native<add>, 2);
  engine.method(p, "parameter", native<parameter>, 2);
  engine.method(p, "parameters", native<list_parameters>, 0);
  engine.method(p, "namedParameters", native<named_parameters>, 0);
  engine.getter(p, "parameterCount", native<parameter_count>);
  engine.getter(p, "isTraining", native<is_training>);
  engine.method(p, "train", native<train>, 0);
  engine.method(p, "eval", native<eval_mode>, 0);
  engine.method(p, "zeroGrad", native<zero_grad>, 0);
  engine.method(p, "initialize", native<initialize>, 1);
  engine.method(p, "summary", native<summary>, 0);
  engine.method(p, "save", native<save>, 1);
  engine.method(p, "load", native<load>, 1);
  define_module_hooks(engine, p);

  Local space = engine.object();
  const JSValueConst n = space.get();
  const Local constructor =
      engine.checked(JS_NewCFunction2(engine.context, construct, "Module", 0, JS_CFUNC_constructor, 0));
  engine.checked(JS_SetConstructor(engine.context, constructor.get(), p));
  engine.set(n, "Module", Local(engine.context, JS_DupValue(engine.context, constructor.get())));
  engine.method(n, "sequential", native<sequential>, 1);
  define_layers(engine, n);
  define_losses(engine, n);
  engine.checked(JS_FreezeObject(engine.context, n));
  add_export(engine, "nn", std::move(space));
}

}  // namespace weft::script
