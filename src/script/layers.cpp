// nn: a factory for each layer.
#include <fmt/format.h>

#include "script/engine.hpp"
#include "script/modules.hpp"
#include "weft/nn.hpp"
#include "weft/nn/clustering.hpp"
#include "weft/nn/images.hpp"
#include "weft/nn/mixture.hpp"
#include "weft/nn/recurrent.hpp"
#include "weft/nn/transformer.hpp"

namespace weft::script {
namespace {

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
  if (value < 0 || value > kModuleWidthMax)
    throw UsageError(fmt::format("{} is {}; 0 to 2^30 are possible", what, value));
  return value;
}

PerAxis per_axis(const std::vector<Extent>& list) { return PerAxis(list); }
PerAxis per_axis(Options& options, const char* name, Extent otherwise) {
  return per_axis(options.list(name).value_or(std::vector<Extent>{otherwise}));
}

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
  options.read("groups", o.groups).read("bias", o.bias);
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
  options.read("eps", o.eps).read("momentum", o.momentum).read("affine", o.affine);
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
  options.read("layers", o.layers)
      .read("bias", o.bias)
      .read("batchFirst", o.batch_first)
      .read("bidirectional", o.bidirectional)
      .read("dropout", o.dropout);
  options.finish();
  if (o.layers < 1 || o.layers > 1000) Engine::refuse("nn.recurrent", "1 to 1000 layers are possible");
  auto made = std::make_shared<Layer>(width(engine, a, 0, "in"), width(engine, a, 1, "width"), o);
  Layer* const raw = made.get();
  return wrap(engine, std::move(made), [raw](Engine& e, Arguments arguments) {
    e.count_work();
    return states(e, (*raw)(e.tensor(at(arguments, 0), raw->describe() + ": the input")));
  });
}
// A tensor, or nothing.
Tensor mask_of(Engine& engine, Arguments arguments, std::size_t index) {
  return JS_IsUndefined(at(arguments, index)) ? Tensor() : engine.tensor(at(arguments, index), "attention: the mask");
}
// multiheadAttention(width, heads, options)(query, key = query, value = key, mask)
Local multihead_attention(Engine& engine, JSValueConst, Arguments a) {
  Options options(engine, at(a, 2), "nn.multiheadAttention");
  nn::MultiheadAttentionOptions o;
  options.read("dropout", o.dropout).read("bias", o.bias);
  options.finish();
  auto made = std::make_shared<nn::MultiheadAttention>(width(engine, a, 0, "nn.multiheadAttention: width"),
                                                       width(engine, a, 1, "nn.multiheadAttention: heads"), o);
  nn::MultiheadAttention* const raw = made.get();
  return wrap(engine, std::move(made), [raw](Engine& e, Arguments arguments) {
    e.count_work();
    const auto input = [&](std::size_t index, const Tensor& otherwise) {
      return JS_IsUndefined(at(arguments, index)) ? otherwise : e.tensor(at(arguments, index), "attention: an input");
    };
    const Tensor query = e.tensor(at(arguments, 0), "attention: the query"), key = input(1, query);
    return e.make((*raw)(query, key, input(2, key), mask_of(e, arguments, 3)));
  });
}
// transformerEncoderLayer(width, heads, options)(x, mask)
Local transformer_encoder_layer(Engine& engine, JSValueConst, Arguments a) {
  Options options(engine, at(a, 2), "nn.transformerEncoderLayer");
  nn::TransformerLayerOptions o;
  options.read("feedForward", o.feed_forward)
      .read("dropout", o.dropout)
      .read("normFirst", o.norm_first)
      .read("eps", o.eps)
      .read("bias", o.bias);
  if (options.boolean("gelu", false)) o.activation = nn::TransformerActivation::gelu;
  options.finish();
  auto made =
      std::make_shared<nn::TransformerEncoderLayer>(width(engine, a, 0, "nn.transformerEncoderLayer: width"),
                                                    width(engine, a, 1, "nn.transformerEncoderLayer: heads"), o);
  nn::TransformerEncoderLayer* const raw = made.get();
  return wrap(engine, std::move(made), [raw](Engine& e, Arguments arguments) {
    e.count_work();
    const Tensor x = e.tensor(at(arguments, 0), "nn.transformerEncoderLayer: the input");
    return e.make((*raw)(x, mask_of(e, arguments, 1)));
  });
}
Local gpt(Engine& engine, JSValueConst, Arguments a) {
  Options options(engine, at(a, 0), "nn.gpt");
  nn::GptConfig config;
  options.read("vocabulary", config.vocabulary)
      .read("context", config.context)
      .read("layers", config.layers)
      .read("heads", config.heads)
      .read("width", config.width)
      .read("dropout", config.dropout)
      .read("tied", config.tied);
  options.finish();
  if (config.layers > 1000) Engine::refuse("nn.gpt", "at most 1000 layers are possible");
  config.check();
  return layer<nn::GPT>(engine, config);
}

Local instance_norm(Engine& engine, JSValueConst, Arguments a) {
  Options options(engine, at(a, 1), "nn.instanceNorm");
  const bool affine = options.boolean("affine", false);
  const double eps = options.number("eps", 1e-5);
  options.finish();
  return layer<nn::InstanceNorm>(engine, width(engine, a, 0, "nn.instanceNorm: channels"), affine, eps);
}
Local upsample(Engine& engine, JSValueConst, Arguments a) {
  Options options(engine, at(a, 1), "nn.upsample");
  const std::string mode = options.text("mode", "nearest");
  const bool align_corners = options.boolean("alignCorners", false);
  options.finish();
  const Extent scale = engine.integer(at(a, 0), "nn.upsample: scale");
  if (scale > 1024) Engine::refuse("nn.upsample", "a scale of 1 to 1024 is possible");
  if (mode != "nearest" && mode != "linear" && mode != "cubic")
    Engine::refuse("nn.upsample", "the mode is nearest, linear or cubic");
  return layer<nn::Upsample>(engine, scale,
                             mode == "nearest"  ? Interpolation::nearest
                             : mode == "linear" ? Interpolation::linear
                                                : Interpolation::cubic,
                             align_corners);
}
Local k_means(Engine& engine, JSValueConst, Arguments a) {
  Options options(engine, at(a, 2), "nn.kMeans");
  const double temperature = options.number("temperature", 1);
  const bool features = options.boolean("features", false);
  options.finish();
  return layer<nn::KMeans>(engine, width(engine, a, 0, "nn.kMeans: inputs"), width(engine, a, 1, "nn.kMeans: centres"),
                           temperature, features);
}
// Gives {output, balanceLoss}.
Local mixture(Engine& engine, JSValueConst, Arguments a) {
  Options options(engine, at(a, 3), "nn.mixture");
  nn::MixtureOptions o;
  options.read("topK", o.top_k);
  options.finish();
  auto made =
      std::make_shared<nn::Mixture>(width(engine, a, 0, "nn.mixture: width"), width(engine, a, 1, "nn.mixture: hidden"),
                                    width(engine, a, 2, "nn.mixture: experts"), o);
  nn::Mixture* const raw = made.get();
  return wrap(engine, std::move(made), [raw](Engine& e, Arguments arguments) {
    e.count_work();
    const nn::MixtureResult result = raw->forward(e.tensor(at(arguments, 0), "nn.mixture: the input"));
    Local object = e.object();
    e.set(object.get(), "output", e.make(result.output));
    e.set(object.get(), "balanceLoss", e.make(result.balance_loss));
    return object;
  });
}

}  // namespace

void define_layers(Engine& engine, JSValueConst n) {
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
  engine.method(n, "instanceNorm", native<instance_norm>, 1);
  engine.method(n, "upsample", native<upsample>, 1);
  engine.method(n, "kMeans", native<k_means>, 2);
  engine.method(n, "mixture", native<mixture>, 3);
  engine.method(n, "flatten", native<flatten>, 0);
  engine.method(n, "prelu", native<prelu>, 0);
  engine.method(n, "rnn", native<recurrent<nn::RNN>>, 2);
  engine.method(n, "gru", native<recurrent<nn::GRU>>, 2);
  engine.method(n, "multiheadAttention", native<multihead_attention>, 2);
  engine.method(n, "transformerEncoderLayer", native<transformer_encoder_layer>, 2);
  engine.method(n, "lstm", native<recurrent<nn::LSTM>>, 2);
  engine.method(n, "gpt", native<gpt>, 1);
}

}  // namespace weft::script
