// Variables, gradients, and the state of a session: devices and random numbers.
#include <fmt/format.h>

#include "script/engine.hpp"
#include "script/hooks.hpp"
#include "script/modules.hpp"
#include "weft/autocast.hpp"
#include "weft/grad.hpp"
#include "weft/ops.hpp"
#include "weft/ops/random.hpp"

namespace weft::script {
namespace {

VariableHandle& self_variable(Engine& engine, JSValueConst self) {
  VariableHandle* const handle = engine.variable_handle(self);
  if (!handle) Engine::refuse("Variable", "this is not a variable");
  if (!handle->value.defined()) Engine::refuse("Variable", "the variable was disposed; make another");
  return *handle;
}

// variable(value, {name, requiresGrad})
Local make_variable(Engine& engine, JSValueConst, Arguments arguments) {
  Options options(engine, at(arguments, 1), "variable");
  const std::string name = options.text("name", "");
  const bool requires_grad = options.boolean("requiresGrad", true);
  options.finish();
  const Tensor initial = tensor_from(engine, at(arguments, 0), std::nullopt, std::nullopt, std::nullopt);
  return engine.make(Variable(initial, name, requires_grad));
}

Local value(Engine& engine, JSValueConst self, Arguments) {
  return engine.make(self_variable(engine, self).value.value());
}
Local assign(Engine& engine, JSValueConst self, Arguments arguments) {
  VariableHandle& handle = self_variable(engine, self);
  engine.count_work();
  handle.value.assign(engine.operand(at(arguments, 0), handle.value.value(), "assign: the value"));
  return {};
}
Local gradient(Engine& engine, JSValueConst self, Arguments) {
  const Tensor& gradient = self_variable(engine, self).value.grad();
  return gradient.defined() ? engine.make(gradient) : Local(engine.context, JS_NULL);
}
Local clear_gradient(Engine& engine, JSValueConst self, Arguments) {
  self_variable(engine, self).value.clear_grad();
  return {};
}
Local variable_name(Engine& engine, JSValueConst self, Arguments) {
  return engine.string(self_variable(engine, self).value.name());
}
Local requires_gradient(Engine& engine, JSValueConst self, Arguments) {
  return {engine.context, JS_NewBool(engine.context, self_variable(engine, self).value.requires_grad())};
}
Local set_requires_gradient(Engine& engine, JSValueConst self, Arguments arguments) {
  self_variable(engine, self).value.set_requires_grad(JS_ToBool(engine.context, at(arguments, 0)) > 0);
  return {};
}
Local dispose_variable(Engine& engine, JSValueConst self, Arguments) {
  VariableHandle* const handle = engine.variable_handle(self);
  if (!handle) Engine::refuse("dispose", "this is not a variable");
  handle->value = {};
  return {};
}

// The reading properties and methods of tensors, on the current value.
template <int which>
Local of_value(Engine& engine, JSValueConst self, Arguments arguments) {
  constexpr const char* kNames[] = {"shape", "dtype",    "device", "rank",      "size", "item", "toArray",
                                    "read",  "readSync", "eval",   "evalAsync", "to",   "get",  "backward"};
  const Local tensor = value(engine, self, {});
  const Local member = engine.property(tensor.get(), kNames[which]);
  return which < 5 ? Local(engine.context, JS_DupValue(engine.context, member.get()))
                   : engine.call(member.get(), tensor.get(), arguments);
}

// ---- Gradients ------------------------------------------------------------------------------------------------------------------

Local gradients_at(Engine& engine, JSValueConst output, JSValueConst inputs, const Tensor& seed) {
  engine.count_work();
  const Tensor y = engine.tensor(output, "grad: the output");
  if (const Tensor input = engine.tensor_or_none(inputs); input.defined()) {
    const Tensor list[] = {input};
    return engine.make(weft::grad(y, std::span<const Tensor>(list), seed).at(0));
  }
  std::vector<Tensor> list;
  if (JS_IsArray(inputs)) {
    list = engine.tensors(inputs, "grad: an input");
  } else {
    const auto parameters = parameters_of(engine, inputs);
    if (!parameters)
      Engine::refuse("grad", "the inputs are " + inspect(engine, inputs) + ", not tensors, a module or an optimizer");
    for (const Variable& variable : *parameters) list.push_back(variable.value());
  }
  return engine.make_array(weft::grad(y, list, seed));
}

// grad(f)(x): the gradient of f at x. With `both`, [f(x), gradient].
template <bool both>
JSValue gradient_function(JSContext* context, JSValueConst self, int count, JSValueConst* arguments, int,
                          JSValueConst* data) {
  Engine& engine = Engine::of(context);
  try {
    const KeepHistory until_asked;
    const Local output = engine.call(data[0], self, Arguments(arguments, static_cast<std::size_t>(count)));
    if (count < 1) Engine::refuse("grad", "call the function with the value to differentiate at");
    Local gradient = gradients_at(engine, output.get(), arguments[0], {});
    if (!both) return gradient.release();
    Local pair = engine.array();
    engine.set(pair.get(), 0u, Local(context, JS_DupValue(context, output.get())));
    engine.set(pair.get(), 1u, std::move(gradient));
    return pair.release();
  } catch (...) {
    return engine.throw_current();
  }
}

template <bool both>
Local function_with_gradient(Engine& engine, JSValueConst function) {
  if (!JS_IsFunction(engine.context, function)) Engine::refuse("grad", "the argument is not a function");
  JSValueConst data[] = {function};
  return engine.checked(JS_NewCFunctionData(engine.context, gradient_function<both>, 1, 0, 1, data));
}

Local grad_of(Engine& engine, JSValueConst, Arguments arguments) {
  if (arguments.size() == 1) return function_with_gradient<false>(engine, arguments[0]);
  const JSValueConst seed = at(arguments, 2);
  return gradients_at(engine, at(arguments, 0), at(arguments, 1),
                      engine.is_nullish(seed) ? Tensor() : engine.tensor(seed, "grad: the seed"));
}
Local value_and_grad_of(Engine& engine, JSValueConst, Arguments arguments) {
  return function_with_gradient<true>(engine, at(arguments, 0));
}

Local no_grad(Engine& engine, JSValueConst, Arguments arguments) {
  const NoGrad scope;
  return engine.call(at(arguments, 0), JS_UNDEFINED, {});
}
Local autocast(Engine& engine, JSValueConst, Arguments arguments) {
  const Autocast scope(engine.dtype(at(arguments, 0)));
  return engine.call(at(arguments, 1), JS_UNDEFINED, {});
}

Local seed(Engine& engine, JSValueConst, Arguments arguments) {
  manual_seed(static_cast<std::uint64_t>(engine.integer(at(arguments, 0), "manualSeed: the seed")));
  return {};
}
Local device(Engine& engine, JSValueConst, Arguments arguments) {
  if (!arguments.empty()) set_default_device(parse_device(engine.text(arguments[0])));
  return engine.string(default_device().to_string());
}
Local count_handles(Engine& engine, JSValueConst, Arguments) {
  return {engine.context, JS_NewInt64(engine.context, static_cast<std::int64_t>(engine.handles))};
}
Local collect(Engine& engine, JSValueConst, Arguments) {
  engine.kept->collect();  // functions of removed hooks
  JS_RunGC(engine.runtime);
  return {};
}

}  // namespace

void define_variable(Engine& engine) {
  const Local prototype = engine.make_class(engine.variable_class, "Variable");
  const JSValueConst p = prototype.get();
  engine.getter(p, "shape", native<of_value<0>>);
  engine.getter(p, "dtype", native<of_value<1>>);
  engine.getter(p, "device", native<of_value<2>>);
  engine.getter(p, "rank", native<of_value<3>>);
  engine.getter(p, "size", native<of_value<4>>);
  engine.method(p, "item", native<of_value<5>>, 0);
  engine.method(p, "toArray", native<of_value<6>>, 0);
  engine.method(p, "read", native<of_value<7>>, 0);
  engine.method(p, "readSync", native<of_value<8>>, 0);
  engine.method(p, "eval", native<of_value<9>>, 0);
  engine.method(p, "evalAsync", native<of_value<10>>, 0);
  engine.method(p, "to", native<of_value<11>>, 1);
  engine.method(p, "get", native<of_value<12>>, 1);
  engine.method(p, "backward", native<of_value<13>>, 0);
  engine.getter(p, "value", native<value>, native<assign>);
  engine.method(p, "assign", native<assign>, 1);
  engine.getter(p, "gradient", native<gradient>);
  engine.method(p, "clearGradient", native<clear_gradient>, 0);
  engine.getter(p, "name", native<variable_name>);
  engine.getter(p, "requiresGrad", native<requires_gradient>, native<set_requires_gradient>);
  engine.method(p, "dispose", native<dispose_variable>, 0);
  define_symbol(engine, p, "dispose", native<dispose_variable>);
  add_function<make_variable>(engine, "variable", 1);
  add_function<grad_of>(engine, "grad", 1);
  add_function<value_and_grad_of>(engine, "valueAndGrad", 1);
  add_function<no_grad>(engine, "noGrad", 1);
  add_function<autocast>(engine, "autocast", 2);
  add_function<seed>(engine, "manualSeed", 1);
  add_function<device>(engine, "defaultDevice", 0);
  add_function<count_handles>(engine, "handleCount", 0);
  add_function<collect>(engine, "collectGarbage", 0);
}

}  // namespace weft::script
