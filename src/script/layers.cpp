// nn: a factory for each layer, losses, and nn.Module for classes of the script. Modules can be called.
#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "base/quote.hpp"
#include "script/engine.hpp"
#include "script/files.hpp"
#include "script/modules.hpp"
#include "weft/memory_limit.hpp"
#include "weft/nn.hpp"
#include "weft/nn/images.hpp"
#include "weft/nn/losses.hpp"
#include "weft/nn/recurrent.hpp"
#include "weft/nn/table.hpp"

namespace weft::script {
namespace {

using nn::Module;

constexpr Extent kWidthMax = Extent{1} << 30;  // so that sizes of parameters fit 64 bits

ModuleHandle& self_module(Engine& engine, JSValueConst self) {
  ModuleHandle* const handle = module_handle(engine, self);
  if (!handle) Engine::refuse("nn", "this is not a module");
  return *handle;
}

Local wrap(Engine& engine, std::shared_ptr<Module> module, ModuleHandle::Forward forward, JSValueConst prototype) {
  // Initial values are drawn on the host, so they are counted before.
  const Extent parameters = module->parameter_count();
  const std::uint64_t most = engine.options.device_memory_limit;
  if (parameters < 0 || parameters > kWidthMax || (most && static_cast<std::uint64_t>(parameters) * 4 > most))
    throw DeviceMemoryError(
        fmt::format("{} has {} parameters, and the script may use {} bytes", module->describe(), parameters, most));
  JSValue object = JS_NewObjectProtoClass(engine.context, prototype, engine.module_class);
  Local made = engine.checked(object);
  auto handle = std::make_unique<ModuleHandle>(engine, std::move(module));
  handle->forward = std::move(forward);
  JS_SetOpaque(object, static_cast<Handle*>(handle.release()));
  return made;
}
Local wrap(Engine& engine, std::shared_ptr<Module> module, ModuleHandle::Forward forward) {
  const Local prototype(engine.context, JS_GetClassProto(engine.context, engine.module_class));
  return wrap(engine, std::move(module), std::move(forward), prototype.get());
}

// A layer of one tensor.
template <class Layer, class... Given>
Local layer(Engine& engine, Given&&... given) {
  auto made = std::make_shared<Layer>(std::forward<Given>(given)...);
  Layer* const raw = made.get();
  return wrap(engine, std::move(made), [raw](Engine& e, Arguments arguments) {
    e.count_work();
    return e.make((*raw)(e.tensor(at(arguments, 0), raw->describe() + ": the input")));
  });
}

Extent width(Engine& engine, Arguments arguments, std::size_t i, const char* what) {
  const Extent value = engine.integer(at(arguments, i), what);
  if (value < 0 || value > kWidthMax) throw UsageError(fmt::format("{} is {}; 0 to 2^30 are possible", what, value));
  return value;
}

PerAxis per_axis(const std::vector<Extent>& list) { return PerAxis(list); }
PerAxis per_axis(Options& options, const char* name, Extent otherwise) {
  return per_axis(options.list(name).value_or(std::vector<Extent>{otherwise}));
}

// ---- Layers ---------------------------------------------------------------------------------------------------------------------

Local linear(Engine& engine, JSValueConst, Arguments a) {
  Options options(engine, at(a, 2), "nn.linear");
  const bool bias = options.boolean("bias", true);
  options.finish();
  return layer<nn::Linear>(engine, width(engine, a, 0, "nn.linear: in"), width(engine, a, 1, "nn.linear: out"),
                           nn::LinearOptions{.bias = bias});
}
Local embedding(Engine& engine, JSValueConst, Arguments a) {
  return layer<nn::Embedding>(engine, width(engine, a, 0, "nn.embedding: rows"),
                              width(engine, a, 1, "nn.embedding: width"));
}
Local layer_norm(Engine& engine, JSValueConst, Arguments a) {
  Options options(engine, at(a, 1), "nn.layerNorm");
  const bool bias = options.boolean("bias", true);
  const double eps = options.number("eps", 1e-5);
  options.finish();
  return layer<nn::LayerNorm>(engine, width(engine, a, 0, "nn.layerNorm: width"), bias, eps);
}
Local rms_norm(Engine& engine, JSValueConst, Arguments a) {
  Options options(engine, at(a, 1), "nn.rmsNorm");
  const double eps = options.number("eps", 1e-6);
  options.finish();
  return layer<nn::RMSNorm>(engine, width(engine, a, 0, "nn.rmsNorm: width"), eps);
}
template <class Layer>
Local dropout(Engine& engine, JSValueConst, Arguments a) {
  return layer<Layer>(engine, engine.number(at(a, 0), "nn.dropout: p"));
}
// What all convolutions take.
template <class ConvolutionOptions>
ConvolutionOptions convolution_options(Options& options) {
  ConvolutionOptions o;
  o.stride = per_axis(options, "stride", 1);
  o.padding = per_axis(options, "padding", 0);
  o.dilation = per_axis(options, "dilation", 1);
  o.groups = options.integer("groups", 1);
  o.bias = options.boolean("bias", true);
  return o;
}
template <class Layer>
Local convolution(Engine& engine, JSValueConst, Arguments a) {
  Options options(engine, at(a, 3), "nn.conv");
  const auto o = convolution_options<nn::ConvOptions>(options);
  options.finish();
  return layer<Layer>(engine, width(engine, a, 0, "nn.conv: in"), width(engine, a, 1, "nn.conv: out"),
                      per_axis(engine.extents(at(a, 2), "nn.conv: kernel")), o);
}
template <class Layer>
Local transposed(Engine& engine, JSValueConst, Arguments a) {
  Options options(engine, at(a, 3), "nn.convTranspose");
  auto o = convolution_options<nn::ConvTransposeOptions>(options);
  o.output_padding = per_axis(options, "outputPadding", 0);
  options.finish();
  return layer<Layer>(engine, width(engine, a, 0, "nn.convTranspose: in"), width(engine, a, 1, "nn.convTranspose: out"),
                      per_axis(engine.extents(at(a, 2), "nn.convTranspose: kernel")), o);
}
template <class Layer, class LayerOptions>
Local pool(Engine& engine, JSValueConst, Arguments a) {
  Options options(engine, at(a, 1), "nn.pool");
  LayerOptions o;
  if (const auto stride = options.list("stride")) o.stride = per_axis(*stride);
  o.padding = per_axis(options, "padding", 0);
  options.finish();
  return layer<Layer>(engine, per_axis(engine.extents(at(a, 0), "nn.pool: kernel")), o);
}
template <class Layer>
Local adaptive(Engine& engine, JSValueConst, Arguments a) {
  return layer<Layer>(engine, per_axis(engine.extents(at(a, 0), "nn.adaptivePool: size")));
}
Local batch_norm(Engine& engine, JSValueConst, Arguments a) {
  Options options(engine, at(a, 1), "nn.batchNorm");
  nn::BatchNormOptions o;
  o.eps = options.number("eps", 1e-5);
  o.momentum = options.number("momentum", 0.1);
  o.affine = options.boolean("affine", true);
  options.finish();
  return layer<nn::BatchNorm>(engine, width(engine, a, 0, "nn.batchNorm: channels"), o);
}
Local group_norm(Engine& engine, JSValueConst, Arguments a) {
  Options options(engine, at(a, 2), "nn.groupNorm");
  const bool affine = options.boolean("affine", true);
  const double eps = options.number("eps", 1e-5);
  options.finish();
  return layer<nn::GroupNorm>(engine, width(engine, a, 0, "nn.groupNorm: groups"),
                              width(engine, a, 1, "nn.groupNorm: channels"), affine, eps);
}
Local flatten(Engine& engine, JSValueConst, Arguments) { return layer<nn::Flatten>(engine); }
Local prelu(Engine& engine, JSValueConst, Arguments a) {
  return layer<nn::PReLU>(engine, a.empty() ? Extent{1} : width(engine, a, 0, "nn.prelu: channels"));
}

Local states(Engine& engine, const nn::RecurrentResult& result) {
  Local object = engine.object();
  engine.set(object.get(), "output", engine.make(result.output));
  engine.set(object.get(), "h", engine.make(result.h));
  if (result.c.defined()) engine.set(object.get(), "c", engine.make(result.c));
  return object;
}
template <class Layer>
Local recurrent(Engine& engine, JSValueConst, Arguments a) {
  Options options(engine, at(a, 2), "nn.recurrent");
  nn::RecurrentOptions o;
  o.layers = options.integer("layers", 1);
  o.bias = options.boolean("bias", true);
  o.batch_first = options.boolean("batchFirst", false);
  o.bidirectional = options.boolean("bidirectional", false);
  o.dropout = options.number("dropout", 0);
  options.finish();
  if (o.layers < 1 || o.layers > 1000) Engine::refuse("nn.recurrent", "1 to 1000 layers are possible");
  auto made = std::make_shared<Layer>(width(engine, a, 0, "in"), width(engine, a, 1, "width"), o);
  Layer* const raw = made.get();
  return wrap(engine, std::move(made), [raw](Engine& e, Arguments arguments) {
    e.count_work();
    return states(e, (*raw)(e.tensor(at(arguments, 0), raw->describe() + ": the input")));
  });
}
Local gpt(Engine& engine, JSValueConst, Arguments a) {
  Options options(engine, at(a, 0), "nn.gpt");
  nn::GptConfig config;
  config.vocabulary = options.integer("vocabulary", config.vocabulary);
  config.context = options.integer("context", config.context);
  config.layers = options.integer("layers", config.layers);
  config.heads = options.integer("heads", config.heads);
  config.width = options.integer("width", config.width);
  config.dropout = options.number("dropout", config.dropout);
  config.tied = options.boolean("tied", config.tied);
  options.finish();
  if (config.layers > 1000) Engine::refuse("nn.gpt", "at most 1000 layers are possible");
  config.check();
  return layer<nn::GPT>(engine, config);
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
    const Arguments given(arguments, static_cast<std::size_t>(count));
    if (handle.forward) return handle.forward(engine, given).release();
    const Local forward = engine.property(function, "forward");
    if (!JS_IsFunction(context, forward.get()))
      Engine::refuse(handle.module->describe(), "the class has no method forward(x)");
    return engine.call(forward.get(), function, given).release();
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
  const Files::Pending pending = engine.files->begin(engine.text(at(arguments, 0)));
  try {
    self_module(engine, self).module->save(pending.path);
  } catch (...) {
    Files::abandon(pending);
    throw;
  }
  engine.files->finish(pending);
  return {};
}
Local load(Engine& engine, JSValueConst self, Arguments arguments) {
  const Descriptor file = engine.files->open(engine.files->place(engine.text(at(arguments, 0)), false));
  self_module(engine, self).module->load(file.path());
  return {};
}

// ---- Losses with their names in C++ ---------------------------------------------------------------------------------------------

nn::Reduction reduction_of(Options& options) {
  const std::string word = options.text("reduction", "mean");
  if (word == "mean") return nn::Reduction::mean;
  if (word == "sum") return nn::Reduction::sum;
  if (word == "none") return nn::Reduction::none;
  throw UsageError(fmt::format("reduction is {}; it may be mean, sum or none", quote(word)));
}
Local cross_entropy(Engine& engine, JSValueConst, Arguments a) {
  engine.count_work();
  const Tensor logits = engine.tensor(at(a, 0), "crossEntropy: logits"),
               targets = engine.tensor(at(a, 1), "crossEntropy: targets");
  if (a.size() < 3) return engine.make(nn::cross_entropy(logits, targets));
  Options options(engine, at(a, 2), "nn.crossEntropy");
  nn::CrossEntropyOptions o;
  if (const Local weight = options.value("weight"); !JS_IsUndefined(weight.get()))
    o.weight = engine.tensor(weight.get(), "weight");
  o.label_smoothing = options.number("labelSmoothing", 0);
  o.ignore_index = static_cast<int>(std::clamp<Extent>(options.integer("ignoreIndex", -100), INT32_MIN, INT32_MAX));
  o.reduction = reduction_of(options);
  options.finish();
  return engine.make(nn::cross_entropy(logits, targets, o));
}
using Loss = Tensor (*)(const Tensor&, const Tensor&, nn::Reduction, Where);
template <Loss loss>
Local simple_loss(Engine& engine, JSValueConst, Arguments a) {
  engine.count_work();
  const Tensor prediction = engine.tensor(at(a, 0), "the prediction");
  Options options(engine, at(a, 2), "a loss");
  const nn::Reduction reduction = reduction_of(options);
  options.finish();
  return engine.make(loss(prediction, engine.operand(at(a, 1), prediction, "the target"), reduction, Where::current()));
}
Local huber(Engine& engine, JSValueConst, Arguments a) {
  engine.count_work();
  const Tensor prediction = engine.tensor(at(a, 0), "the prediction");
  Options options(engine, at(a, 2), "nn.huber");
  const double delta = options.number("delta", 1);
  const nn::Reduction reduction = reduction_of(options);
  options.finish();
  return engine.make(nn::huber(prediction, engine.operand(at(a, 1), prediction, "the target"), delta, reduction));
}

}  // namespace

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

  Local space = engine.object();
  const JSValueConst n = space.get();
  const Local constructor =
      engine.checked(JS_NewCFunction2(engine.context, construct, "Module", 0, JS_CFUNC_constructor, 0));
  engine.checked(JS_SetConstructor(engine.context, constructor.get(), p));
  engine.set(n, "Module", Local(engine.context, JS_DupValue(engine.context, constructor.get())));
  engine.method(n, "linear", native<linear>, 2);
  engine.method(n, "embedding", native<embedding>, 2);
  engine.method(n, "layerNorm", native<layer_norm>, 1);
  engine.method(n, "rmsNorm", native<rms_norm>, 1);
  engine.method(n, "dropout", native<dropout<nn::Dropout>>, 1);
  engine.method(n, "channelDropout", native<dropout<nn::ChannelDropout>>, 1);
  engine.method(n, "conv1d", native<convolution<nn::Conv1d>>, 3);
  engine.method(n, "conv2d", native<convolution<nn::Conv2d>>, 3);
  engine.method(n, "conv3d", native<convolution<nn::Conv3d>>, 3);
  engine.method(n, "convTranspose1d", native<transposed<nn::ConvTranspose1d>>, 3);
  engine.method(n, "convTranspose2d", native<transposed<nn::ConvTranspose2d>>, 3);
  engine.method(n, "convTranspose3d", native<transposed<nn::ConvTranspose3d>>, 3);
  engine.method(n, "maxPool", native<pool<nn::MaxPool, PoolOptions>>, 1);
  engine.method(n, "avgPool", native<pool<nn::AvgPool, AveragePoolOptions>>, 1);
  engine.method(n, "adaptiveAvgPool", native<adaptive<nn::AdaptiveAvgPool>>, 1);
  engine.method(n, "adaptiveMaxPool", native<adaptive<nn::AdaptiveMaxPool>>, 1);
  engine.method(n, "batchNorm", native<batch_norm>, 1);
  engine.method(n, "groupNorm", native<group_norm>, 2);
  engine.method(n, "flatten", native<flatten>, 0);
  engine.method(n, "prelu", native<prelu>, 0);
  engine.method(n, "rnn", native<recurrent<nn::RNN>>, 2);
  engine.method(n, "gru", native<recurrent<nn::GRU>>, 2);
  engine.method(n, "lstm", native<recurrent<nn::LSTM>>, 2);
  engine.method(n, "gpt", native<gpt>, 1);
  engine.method(n, "sequential", native<sequential>, 1);
  engine.method(n, "crossEntropy", native<cross_entropy>, 2);
  engine.method(n, "mse", native<simple_loss<nn::mse>>, 2);
  engine.method(n, "l1", native<simple_loss<nn::l1>>, 2);
  engine.method(n, "binaryCrossEntropy", native<simple_loss<nn::binary_cross_entropy>>, 2);
  engine.method(n, "nll", native<simple_loss<nn::nll>>, 2);
  engine.method(n, "huber", native<huber>, 2);
  engine.checked(JS_FreezeObject(engine.context, n));
  add_export(engine, "nn", std::move(space));
}

}  // namespace weft::script
