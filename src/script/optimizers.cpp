// optim: updates of parameters, and learning rates over time.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <iterator>
#include <utility>

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

constexpr std::size_t kRules = 15;

std::string function_name(const optim::RuleInfo& rule) { return rule.name == "adamw" ? "adamW" : rule.name; }

// "beta_1" as scripts write it: "beta1".
std::string script_name(std::string_view name) {
  std::string result;
  bool after = false;
  for (const char c : name) {
    if (c != '_') result += after ? static_cast<char>(std::toupper(static_cast<unsigned char>(c))) : c;
    after = c == '_';
  }
  return result;
}

// rmsprop(module or variables, {learningRate, ...}), and so for each rule of the table.
template <std::size_t kIndex>
Local make_by_rule(Engine& engine, JSValueConst, Arguments a) {
  const optim::RuleInfo& rule = optim::rules()[kIndex];
  Options options(engine, at(a, 1), "optim." + function_name(rule));
  optim::OptionValues values;
  for (const optim::OptionInfo& option : rule.options)
    std::visit(
        [&](auto value) {
          options.read(script_name(option.name).c_str(), value);
          values[option.name] = value;
        },
        option.standard);
  options.finish();

  std::unique_ptr<optim::Optimizer> made;
  std::shared_ptr<nn::Module> module;
  if (const ModuleHandle* handle = module_handle(engine, at(a, 0))) {
    module = handle->module;
    made = optim::make_optimizer(rule.name, *module, std::move(values));
  } else if (const auto list = parameters_of(engine, at(a, 0))) {
    made = optim::make_optimizer(rule.name, *list, std::move(values));
  } else {
    Engine::refuse("optim", inspect(engine, at(a, 0)) + " is neither a module nor an array of variables");
  }
  JSValue object = JS_NewObjectClass(engine.context, static_cast<int>(engine.optimizer_class));
  Local wrapped = engine.checked(object);
  JS_SetOpaque(object, static_cast<Handle*>(new OptimizerHandle(engine, std::move(made), std::move(module))));
  return wrapped;
}

template <std::size_t... kIndices>
void define_rules(Engine& engine, JSValueConst space, std::index_sequence<kIndices...>) {
  (engine.method(space, function_name(optim::rules()[kIndices]).c_str(), native<make_by_rule<kIndices>>, 1), ...);
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

// The numbers of a schedule, as scripts name them.
struct ScheduleField {
  const char* name;
  double optim::Schedule::*member;
};
constexpr ScheduleField kScheduleFields[] = {
    {"rate", &optim::Schedule::rate},     {"finalRate", &optim::Schedule::final_rate},
    {"steps", &optim::Schedule::steps},   {"warmUp", &optim::Schedule::warm_up},
    {"factor", &optim::Schedule::factor}, {"every", &optim::Schedule::every},
    {"power", &optim::Schedule::power},   {"firstRate", &optim::Schedule::first_rate},
    {"rise", &optim::Schedule::rise}};
constexpr int kScheduleNumbers = static_cast<int>(std::size(kScheduleFields));

struct ScheduleKind {
  std::string_view name;
  optim::Schedule::Kind kind;
};
constexpr ScheduleKind kScheduleKinds[] = {{"constant", optim::Schedule::Kind::constant},
                                           {"linear", optim::Schedule::Kind::linear},
                                           {"cosine", optim::Schedule::Kind::cosine},
                                           {"staircase", optim::Schedule::Kind::staircase},
                                           {"exponential", optim::Schedule::Kind::exponential},
                                           {"polynomial", optim::Schedule::Kind::polynomial},
                                           {"restarts", optim::Schedule::Kind::restarts},
                                           {"oneCycle", optim::Schedule::Kind::one_cycle},
                                           {"cyclic", optim::Schedule::Kind::cyclic}};

// schedule({kind, rate, finalRate, ...}): a function of the step.
JSValue rate_at(JSContext* context, JSValueConst, int count, JSValueConst* arguments, int, JSValueConst* data) {
  Engine& engine = Engine::of(context);
  try {
    optim::Schedule schedule;
    for (int i = 0; i < kScheduleNumbers; ++i)
      JS_ToFloat64(context, &(schedule.*kScheduleFields[i].member), data[i + 2]);
    schedule.kind = static_cast<optim::Schedule::Kind>(JS_VALUE_GET_INT(data[0]));
    schedule.straight = JS_VALUE_GET_INT(data[1]) != 0;
    return JS_NewFloat64(context, schedule.at(count > 0 ? engine.number(arguments[0], "the step") : 0));
  } catch (...) {
    return engine.throw_current();
  }
}
Local schedule(Engine& engine, JSValueConst, Arguments a) {
  Options options(engine, at(a, 0), "optim.schedule");
  optim::Schedule s;
  const std::string kind = options.text("kind", "constant");
  const auto* const found = std::find_if(std::begin(kScheduleKinds), std::end(kScheduleKinds),
                                         [&](const ScheduleKind& each) { return each.name == kind; });
  if (found == std::end(kScheduleKinds)) {
    std::string known;
    for (const ScheduleKind& each : kScheduleKinds) known += (known.empty() ? "" : ", ") + std::string(each.name);
    Engine::refuse("optim.schedule", "kind " + quote(kind) + "; known are " + known);
  }
  s.kind = found->kind;
  for (const ScheduleField& field : kScheduleFields) options.read(field.name, s.*field.member);
  options.read("straight", s.straight);
  options.finish();
  s.check();
  JSContext* const c = engine.context;
  JSValueConst data[kScheduleNumbers + 2] = {JS_NewInt32(c, static_cast<int>(s.kind)),
                                             JS_NewInt32(c, s.straight ? 1 : 0)};
  for (int i = 0; i < kScheduleNumbers; ++i) data[i + 2] = JS_NewFloat64(c, s.*kScheduleFields[i].member);
  return engine.checked(JS_NewCFunctionData(c, rate_at, 1, 0, kScheduleNumbers + 2, data));
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
  if (optim::rules().size() != kRules) throw InternalError("optim: a rule without a function; change kRules");
  define_rules(engine, space.get(), std::make_index_sequence<kRules>{});
  engine.method(space.get(), "schedule", native<schedule>, 1);
  engine.checked(JS_FreezeObject(engine.context, space.get()));
  add_export(engine, "optim", std::move(space));
}

}  // namespace weft::script
