// Transforms of functions of the script: products with Jacobians, Jacobians, Hessians, batches, checkpoints, own gradients.
#include "weft/transforms.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "script/engine.hpp"
#include "weft/checkpoint.hpp"

namespace weft::script {
namespace {

constexpr int kCustomGradientsMax = 256;  // of an isolate: their functions live as long as it does

JSValueConst function_at(Engine& engine, Arguments arguments, std::size_t i, const char* transform) {
  const JSValueConst function = at(arguments, i);
  if (!JS_IsFunction(engine.context, function))
    Engine::refuse(transform, fmt::format("argument {} is {}, not a function", i, inspect(engine, function)));
  return function;
}

// A tensor, or an array of them; null stands for a tensor without a value where `optional`.
std::vector<Tensor> tensors_at(Engine& engine, Arguments arguments, std::size_t i, const std::string& what,
                               bool optional = false) {
  const JSValueConst given = at(arguments, i);
  if (!JS_IsArray(given)) return {engine.tensor(given, what)};
  std::vector<Tensor> list;
  const std::uint32_t count = engine.length(given, what, 1u << 16);
  for (std::uint32_t k = 0; k < count; ++k) {
    const Local each = engine.element(given, k);
    list.push_back(optional && engine.is_nullish(each.get()) ? Tensor() : engine.tensor(each.get(), what));
  }
  return list;
}

Local tensor_or_null(Engine& engine, const Tensor& tensor) {
  return tensor.defined() ? engine.make(tensor) : Local(engine.context, JS_NULL);
}
Local array_or_nulls(Engine& engine, const std::vector<Tensor>& tensors) {
  Local list = engine.array();
  for (std::size_t i = 0; i < tensors.size(); ++i)
    engine.set(list.get(), static_cast<std::uint32_t>(i), tensor_or_null(engine, tensors[i]));
  return list;
}

// A function of the script as C++ calls it while a transform lasts. It gives a tensor, or an array of tensors.
class ScriptFunction {
 public:
  ScriptFunction(Engine& engine, JSValueConst function, const char* transform)
      : engine_(engine), function_(function), transform_(transform) {}

  std::vector<Tensor> operator()(std::span<const Tensor> given) {
    const Untouched untouched(engine_);
    std::vector<Local> held;
    std::vector<JSValueConst> arguments;
    for (const Tensor& each : given) {
      held.push_back(engine_.make(each));
      arguments.push_back(held.back().get());
    }
    const Local result = engine_.call(function_, JS_UNDEFINED, Arguments(arguments));
    if (Tensor one = engine_.tensor_or_none(result.get()); one.defined()) return {one};
    if (!JS_IsArray(result.get()))
      Engine::refuse(transform_,
                     "the function gives " + inspect(engine_, result.get()) + ", not a tensor or an array of tensors");
    gives_array_ = true;
    return engine_.tensors(result.get(), fmt::format("{}: a result", transform_));
  }
  Tensor one(const Tensor& x) {
    const std::vector<Tensor> results = (*this)({&x, 1});
    if (gives_array_) Engine::refuse(transform_, "the function gives several tensors; it may give one");
    return results[0];
  }
  /// Results in the form that the function gave them.
  Local formed(const std::vector<Tensor>& results) const {
    return gives_array_ ? array_or_nulls(engine_, results) : tensor_or_null(engine_, results.at(0));
  }

 private:
  Engine& engine_;
  JSValueConst function_;
  const char* transform_;
  bool gives_array_ = false;
};

Local pair_of(Engine& engine, Local first, Local second) {
  Local pair = engine.array();
  engine.set(pair.get(), 0u, std::move(first));
  engine.set(pair.get(), 1u, std::move(second));
  return pair;
}

// vjp(f, inputs, seeds): [f(...inputs), gradients], for a tensor or an array each.
Local vjp_of(Engine& engine, JSValueConst, Arguments a) {
  ScriptFunction f(engine, function_at(engine, a, 0, "vjp"), "vjp");
  const Pullback made =
      vjp([&f](std::span<const Tensor> given) { return f(given); }, tensors_at(engine, a, 1, "vjp: the inputs"));
  const std::vector<Tensor> gradients = made.gradients(tensors_at(engine, a, 2, "vjp: the seeds", true));
  return pair_of(engine, f.formed(made.results),
                 JS_IsArray(at(a, 1)) ? array_or_nulls(engine, gradients) : engine.make(gradients.at(0)));
}
// jvp(f, inputs, tangents): [f(...inputs), how the results move].
Local jvp_of(Engine& engine, JSValueConst, Arguments a) {
  ScriptFunction f(engine, function_at(engine, a, 0, "jvp"), "jvp");
  const Pushforward made =
      jvp([&f](std::span<const Tensor> given) { return f(given); }, tensors_at(engine, a, 1, "jvp: the inputs"),
          tensors_at(engine, a, 2, "jvp: the tangents", true));
  return pair_of(engine, f.formed(made.results), f.formed(made.tangents));
}
// jacobian(f, x, {forward})
Local jacobian_of(Engine& engine, JSValueConst, Arguments a) {
  ScriptFunction f(engine, function_at(engine, a, 0, "jacobian"), "jacobian");
  Options options(engine, at(a, 2), "jacobian");
  const bool forward = options.boolean("forward", false);
  options.finish();
  return engine.make(
      jacobian([&f](const Tensor& x) { return f.one(x); }, engine.tensor(at(a, 1), "jacobian: x"), forward));
}
Local hessian_of(Engine& engine, JSValueConst, Arguments a) {
  ScriptFunction f(engine, function_at(engine, a, 0, "hessian"), "hessian");
  return engine.make(hessian([&f](const Tensor& x) { return f.one(x); }, engine.tensor(at(a, 1), "hessian: x")));
}

// checkpoint(f, inputs)
Local checkpoint_of(Engine& engine, JSValueConst, Arguments a) {
  ScriptFunction f(engine, function_at(engine, a, 0, "checkpoint"), "checkpoint");
  const std::vector<Tensor> inputs = tensors_at(engine, a, 1, "checkpoint: the inputs");
  const auto one = [&f](std::span<const Tensor> given) {
    const std::vector<Tensor> results = f(given);
    if (results.size() != 1) Engine::refuse("checkpoint", "the function gives several tensors; it may give one");
    return results[0];
  };
  return engine.make(checkpoint(one, std::span<const Tensor>(inputs)));
}

// vmap(f, {inAxes, outAxis})(...arguments)
JSValue call_mapped(JSContext* context, JSValueConst, int count, JSValueConst* arguments, int, JSValueConst* data) {
  Engine& engine = Engine::of(context);
  try {
    Options options(engine, data[1], "vmap");
    VmapOptions mapping;
    const Local axes = options.value("inAxes");
    mapping.out_axis = static_cast<int>(std::clamp<Extent>(options.integer("outAxis", 0), -100, 100));
    options.finish();
    const auto axis_of = [&](JSValueConst value) -> std::optional<int> {
      if (JS_IsNull(value)) return std::nullopt;
      return static_cast<int>(std::clamp<Extent>(engine.integer(value, "vmap: an axis"), -100, 100));
    };
    if (JS_IsArray(axes.get())) {
      for (std::uint32_t i = 0; i < engine.length(axes.get(), "vmap: inAxes", 1u << 16); ++i)
        mapping.in_axes.push_back(axis_of(engine.element(axes.get(), i).get()));
    } else if (!JS_IsUndefined(axes.get())) {
      mapping.in_axes.assign(static_cast<std::size_t>(count), axis_of(axes.get()));
    }
    std::vector<Tensor> given;
    for (int i = 0; i < count; ++i) given.push_back(engine.tensor(arguments[i], "vmap: an argument"));
    ScriptFunction f(engine, data[0], "vmap");
    return f
        .formed(vmap([&f](std::span<const Tensor> each) { return f(each); }, std::span<const Tensor>(given), mapping))
        .release();
  } catch (...) {
    return engine.throw_current();
  }
}
Local vmap_of(Engine& engine, JSValueConst, Arguments a) {
  JSValueConst data[] = {function_at(engine, a, 0, "vmap"), at(a, 1)};
  return engine.checked(JS_NewCFunctionData(engine.context, call_mapped, 1, 0, 2, data));
}

// ---- Gradients of the script's own --------------------------------------------------------------------------------------

// Functions that gradients may call later, as long as the isolate lives.
struct OwnGradient {
  Engine* engine;
  JSValue backward;
};

std::vector<Tensor> own_gradients(const OwnGradient& own, const CustomGradient& g) {
  if (!own.engine) throw UsageError("customGradient: the script that made the function has ended");
  Engine& engine = *own.engine;
  const Untouched untouched(engine);
  Local call = engine.object();
  engine.set(call.get(), "inputs", array_or_nulls(engine, g.inputs));
  engine.set(call.get(), "results", array_or_nulls(engine, g.results));
  engine.set(call.get(), "gradients", array_or_nulls(engine, g.gradients));
  const Local found = engine.call(own.backward, JS_UNDEFINED, {call.get()});
  JSValueConst list[] = {found.get()};
  if (engine.is_nullish(found.get())) return {Tensor()};
  return tensors_at(engine, Arguments(list), 0, "customGradient: a gradient", true);
}

// customGradient(forward, backward): forward, with backward({inputs, results, gradients}) in place of its gradient.
JSValue call_with_own_gradient(JSContext* context, JSValueConst, int count, JSValueConst* arguments, int,
                               JSValueConst* data) {
  Engine& engine = Engine::of(context);
  try {
    std::int64_t number = 0;
    engine.checked(JS_ToInt64(context, &number, data[1]));
    const auto own = std::static_pointer_cast<OwnGradient>(engine.own_gradients.at(static_cast<std::size_t>(number)));
    ScriptFunction forward(engine, data[0], "customGradient");
    std::vector<Tensor> given;
    for (int i = 0; i < count; ++i) given.push_back(engine.tensor(arguments[i], "customGradient: an input"));
    const TensorFunction function = custom_gradient([&forward](std::span<const Tensor> in) { return forward(in); },
                                                    [own](const CustomGradient& g) { return own_gradients(*own, g); });
    return forward.formed(function(given)).release();
  } catch (...) {
    return engine.throw_current();
  }
}
Local custom_gradient_of(Engine& engine, JSValueConst, Arguments a) {
  const JSValueConst forward = function_at(engine, a, 0, "customGradient"),
                     backward = function_at(engine, a, 1, "customGradient");
  if (engine.own_gradients.size() >= kCustomGradientsMax)
    Engine::refuse("customGradient",
                   fmt::format("a script may make {} of them; make them once, outside of loops", kCustomGradientsMax));
  const auto own = std::make_shared<OwnGradient>(OwnGradient{&engine, JS_DupValue(engine.context, backward)});
  engine.at_end.push_back([own, context = engine.context] {
    own->engine = nullptr;
    JS_FreeValue(context, own->backward);
  });
  const Local number(engine.context,
                     JS_NewInt64(engine.context, static_cast<std::int64_t>(engine.own_gradients.size())));
  engine.own_gradients.push_back(own);
  JSValueConst data[] = {forward, number.get()};
  return engine.checked(JS_NewCFunctionData(engine.context, call_with_own_gradient, 1, 0, 2, data));
}

}  // namespace

void define_transforms(Engine& engine) {
  add_function<vjp_of>(engine, "vjp", 3);
  add_function<jvp_of>(engine, "jvp", 3);
  add_function<jacobian_of>(engine, "jacobian", 2);
  add_function<hessian_of>(engine, "hessian", 2);
  add_function<vmap_of>(engine, "vmap", 1);
  add_function<checkpoint_of>(engine, "checkpoint", 2);
  add_function<custom_gradient_of>(engine, "customGradient", 2);
}

}  // namespace weft::script
