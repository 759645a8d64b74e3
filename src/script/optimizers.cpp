// optim: updates of parameters, and learning rates over time.
#include <fmt/format.h>

#include "base/quote.hpp"
#include "script/engine.hpp"
#include "script/modules.hpp"
#include "weft/optim.hpp"
#include "weft/optim/schedule.hpp"

namespace weft::script {
namespace {

struct OptimizerHandle final : Handle {
  OptimizerHandle(Engine& engine, std::unique_ptr<optim::Optimizer> optimizer, std::shared_ptr<nn::Module> module)
      : Handle(engine), module(std::move(module)), optimizer(std::move(optimizer)) {}
  std::string_view kind() const override { return "optimizer"; }
  std::shared_ptr<nn::Module> module;
  std::unique_ptr<optim::Optimizer> optimizer;
};

OptimizerHandle* optimizer_handle(const Engine& engine, JSValueConst value) {
  return static_cast<OptimizerHandle*>(static_cast<Handle*>(JS_GetOpaque(value, engine.optimizer_class)));
}
optim::Optimizer& self_optimizer(Engine& engine, JSValueConst self) {
  OptimizerHandle* const handle = optimizer_handle(engine, self);
  if (!handle) Engine::refuse("optim", "this is not an optimizer");
  return *handle->optimizer;
}

template <class Optimizer, class OptimizerOptions>
Local wrap_optimizer(Engine& engine, JSValueConst target, const OptimizerOptions& options) {
  std::unique_ptr<optim::Optimizer> made;
  std::shared_ptr<nn::Module> module;
  if (const ModuleHandle* handle = module_handle(engine, target)) {
    module = handle->module;
    made = std::make_unique<Optimizer>(*module, options);
  } else if (const auto list = parameters_of(engine, target)) {
    made = std::make_unique<Optimizer>(*list, options);
  } else {
    Engine::refuse("optim", inspect(engine, target) + " is neither a module nor an array of variables");
  }
  JSValue object = JS_NewObjectClass(engine.context, static_cast<int>(engine.optimizer_class));
  Local wrapped = engine.checked(object);
  JS_SetOpaque(object, static_cast<Handle*>(new OptimizerHandle(engine, std::move(made), std::move(module))));
  return wrapped;
}

Local sgd(Engine& engine, JSValueConst, Arguments a) {
  Options options(engine, at(a, 1), "optim.sgd");
  optim::SgdOptions o;
  options.read("learningRate", o.learning_rate)
      .read("momentum", o.momentum)
      .read("dampening", o.dampening)
      .read("nesterov", o.nesterov)
      .read("weightDecay", o.weight_decay)
      .read("maximize", o.maximize)
      .read("clipNorm", o.clip_norm);
  options.finish();
  return wrap_optimizer<optim::SGD>(engine, at(a, 0), o);
}
template <class Optimizer, class OptimizerOptions>
Local adam(Engine& engine, JSValueConst, Arguments a) {
  Options options(engine, at(a, 1), "optim.adam");
  OptimizerOptions o;
  options.read("learningRate", o.learning_rate)
      .read("beta1", o.beta_1)
      .read("beta2", o.beta_2)
      .read("epsilon", o.epsilon)
      .read("weightDecay", o.weight_decay)
      .read("clipNorm", o.clip_norm);
  options.finish();
  return wrap_optimizer<Optimizer>(engine, at(a, 0), o);
}

// step(gradients, learningRate): the norm of the gradients.
Local step(Engine& engine, JSValueConst self, Arguments arguments) {
  engine.count_work();
  optim::Optimizer& optimizer = self_optimizer(engine, self);
  const std::vector<Tensor> gradients = engine.tensors(at(arguments, 0), "step: the gradients");
  const JSValueConst rate = at(arguments, 1);
  if (JS_IsUndefined(rate)) return engine.make(optimizer.step(gradients));
  return engine.make(optimizer.step(gradients, engine.operand(rate, {}, "step: the learning rate")));
}
Local optimizer_list(Engine& engine, JSValueConst self, Arguments) {
  Local list = engine.array();
  std::uint32_t i = 0;
  for (const Variable& variable : self_optimizer(engine, self).parameters())
    engine.set(list.get(), i++, engine.make(variable));
  return list;
}
Local learning_rate(Engine& engine, JSValueConst self, Arguments) {
  return {engine.context, JS_NewFloat64(engine.context, self_optimizer(engine, self).learning_rate())};
}
Local set_learning_rate(Engine& engine, JSValueConst self, Arguments arguments) {
  self_optimizer(engine, self).set_learning_rate(engine.number(at(arguments, 0), "learningRate"));
  return {};
}
Local step_count(Engine& engine, JSValueConst self, Arguments) {
  return {engine.context, JS_NewInt64(engine.context, self_optimizer(engine, self).step_count())};
}
// reset(): forgets the moments; the parameters stay.
Local reset(Engine& engine, JSValueConst self, Arguments) {
  self_optimizer(engine, self).reset();
  return {};
}

// schedule({kind, rate, finalRate, steps, warmUp, factor, every}): a function of the step.
JSValue rate_at(JSContext* context, JSValueConst, int count, JSValueConst* arguments, int, JSValueConst* data) {
  Engine& engine = Engine::of(context);
  try {
    optim::Schedule schedule;
    double* const fields[] = {&schedule.rate,    &schedule.final_rate, &schedule.steps,
                              &schedule.warm_up, &schedule.factor,     &schedule.every};
    for (int i = 0; i < 6; ++i) JS_ToFloat64(context, fields[i], data[i + 1]);
    schedule.kind = static_cast<optim::Schedule::Kind>(JS_VALUE_GET_INT(data[0]));
    return JS_NewFloat64(context, schedule.at(count > 0 ? engine.number(arguments[0], "the step") : 0));
  } catch (...) {
    return engine.throw_current();
  }
}
Local schedule(Engine& engine, JSValueConst, Arguments a) {
  Options options(engine, at(a, 0), "optim.schedule");
  optim::Schedule s;
  const std::string kind = options.text("kind", "constant");
  constexpr std::string_view kKinds[] = {"constant", "linear", "cosine", "staircase"};
  int number = -1;
  for (int i = 0; i < 4; ++i)
    if (kind == kKinds[i]) number = i;
  if (number < 0)
    Engine::refuse("optim.schedule", "kind " + quote(kind) + "; known are constant, linear, cosine, staircase");
  s.kind = static_cast<optim::Schedule::Kind>(number);
  options.read("rate", s.rate)
      .read("finalRate", s.final_rate)
      .read("steps", s.steps)
      .read("warmUp", s.warm_up)
      .read("factor", s.factor)
      .read("every", s.every);
  options.finish();
  s.check();
  JSContext* const c = engine.context;
  JSValueConst data[] = {JS_NewInt32(c, number),    JS_NewFloat64(c, s.rate),    JS_NewFloat64(c, s.final_rate),
                         JS_NewFloat64(c, s.steps), JS_NewFloat64(c, s.warm_up), JS_NewFloat64(c, s.factor),
                         JS_NewFloat64(c, s.every)};
  return engine.checked(JS_NewCFunctionData(c, rate_at, 1, 0, 7, data));
}

}  // namespace

const std::vector<Variable>* optimizer_parameters(Engine& engine, JSValueConst value) {
  const OptimizerHandle* const handle = optimizer_handle(engine, value);
  return handle ? &handle->optimizer->parameters() : nullptr;
}

void define_optimizers(Engine& engine) {
  const Local prototype = engine.make_class(engine.optimizer_class, "Optimizer");
  const JSValueConst p = prototype.get();
  engine.method(p, "step", native<step>, 1);
  engine.method(p, "parameters", native<optimizer_list>, 0);
  engine.method(p, "reset", native<reset>, 0);
  engine.getter(p, "learningRate", native<learning_rate>, native<set_learning_rate>);
  engine.getter(p, "stepCount", native<step_count>);
  Local space = engine.object();
  engine.method(space.get(), "sgd", native<sgd>, 1);
  engine.method(space.get(), "adam", native<adam<optim::Adam, optim::AdamOptions>>, 1);
  engine.method(space.get(), "adamW", native<adam<optim::AdamW, optim::AdamWOptions>>, 1);
  engine.method(space.get(), "schedule", native<schedule>, 1);
  engine.checked(JS_FreezeObject(engine.context, space.get()));
  add_export(engine, "optim", std::move(space));
}

}  // namespace weft::script
