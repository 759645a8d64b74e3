#include "weft/grid/builders.hpp"

#include <fmt/format.h>

#include "grid/layer_rows.hpp"
#include "grid/random_draws.hpp"
#include "weft/error.hpp"

namespace weft::grid {
namespace {

Layer of_type(LayerType type) {
  Layer layer;
  layer.type = type;
  layer.activation = Activation::linear;
  return layer;
}

Layer of_extents(LayerType type, Extent inputs, Extent outputs) {
  Layer layer = of_type(type);
  layer.inputs = inputs;
  layer.outputs = outputs;
  return layer;
}

Layer image_layer(LayerType first, int axes, const ConvolutionLayer& options) {
  if (axes < 1 || axes > 3) throw UsageError(fmt::format("a convolution has 1 to 3 axes of space, not {}", axes));
  Layer layer = of_type(static_cast<LayerType>(static_cast<int>(first) + axes - 1));
  layer.channels = options.channels;
  layer.filters = options.filters;
  layer.kernel = options.kernel;
  layer.stride = options.stride;
  layer.padding = options.padding;
  layer.activation = options.activation;
  return layer;
}

/// The largest of 4, 2 and 1 that divides the width.
Extent parts_of(Extent width) { return width % 4 == 0 ? 4 : width % 2 == 0 ? 2 : 1; }

}  // namespace

Layer dense_layer(Extent inputs, Extent outputs, Activation activation) {
  Layer layer = of_extents(LayerType::dense, inputs, outputs);
  layer.activation = activation;
  return layer;
}
Layer attention_layer(Extent width, Extent heads, Extent key_heads, double rope_base) {
  Layer layer = of_extents(LayerType::attention, width, 0);
  layer.heads = heads;
  layer.key_heads = key_heads;
  layer.rope_base = rope_base;
  return layer;
}
Layer swiglu_layer(Extent width, Extent hidden) {
  Layer layer = of_extents(LayerType::swiglu, width, 0);
  layer.hidden = hidden;
  return layer;
}
Layer rms_norm_layer(Extent width) { return of_extents(LayerType::rms_norm, width, 0); }
Layer layer_norm_layer(Extent width) { return of_extents(LayerType::layer_norm, width, 0); }
Layer cnn_layer(int axes, const ConvolutionLayer& options) { return image_layer(LayerType::cnn1, axes, options); }
Layer conv_transposed_layer(int axes, const ConvolutionLayer& options) {
  return image_layer(LayerType::conv_transposed1, axes, options);
}
Layer rnn_layer(Extent inputs, Extent outputs) { return of_extents(LayerType::rnn, inputs, outputs); }
Layer lstm_layer(Extent inputs, Extent outputs) { return of_extents(LayerType::lstm, inputs, outputs); }
Layer embedding_layer(Extent vocabulary, Extent width) {
  Layer layer = of_extents(LayerType::embedding, 0, width);
  layer.vocabulary = vocabulary;
  return layer;
}
Layer kmeans_layer(Extent inputs, Extent clusters, bool features, double temperature) {
  Layer layer = of_extents(LayerType::kmeans, inputs, 0);
  layer.clusters = clusters;
  layer.features = features;
  layer.temperature = temperature;
  return layer;
}
Layer softmax_layer(SoftmaxKind kind, double temperature) {
  Layer layer = of_type(LayerType::softmax);
  layer.softmax = kind;
  layer.temperature = temperature;
  return layer;
}
Layer parallel_layer(std::vector<Layer> children, Combine combine) {
  Layer layer = of_type(LayerType::parallel);
  layer.children = std::move(children);
  layer.combine = combine;
  return layer;
}
Layer mixture_layer(std::vector<Layer> children, Layer gate) {
  Layer layer = parallel_layer(std::move(children), Combine::filter);
  layer.gate.push_back(std::move(gate));
  return layer;
}
Layer sequential_layer(std::vector<Layer> children) {
  Layer layer = of_type(LayerType::sequential);
  layer.children = std::move(children);
  return layer;
}
Layer residual_layer() { return of_type(LayerType::residual); }
Layer link_layer(const Coordinate& target) {
  Layer layer;
  layer.link = target;
  return layer;
}

bool can_map(LayerType type, Extent inputs, Extent outputs) {
  switch (type) {
    case LayerType::parallel:
    case LayerType::sequential:
    case LayerType::embedding: return false;
    case LayerType::dense:
    case LayerType::rnn:
    case LayerType::lstm:
    case LayerType::kmeans: return true;
    default: return inputs == outputs;
  }
}

Layer layer_of_width(LayerType type, Extent inputs, Extent outputs) {
  if (!can_map(type, inputs, outputs) || inputs < 1 || outputs < 1)
    throw UsageError(fmt::format("there is no {} layer from {} to {} elements", name_of(type), inputs, outputs));
  const Extent channels = inputs / parts_of(inputs);
  const ConvolutionLayer same{.channels = channels, .filters = channels, .kernel = 3, .padding = 1};
  switch (type) {
    case LayerType::attention: return attention_layer(inputs, parts_of(inputs));
    case LayerType::swiglu: return swiglu_layer(inputs, 2 * inputs);
    case LayerType::cnn1: return cnn_layer(1, same);
    case LayerType::cnn2: return cnn_layer(2, same);
    case LayerType::cnn3: return cnn_layer(3, same);
    case LayerType::conv_transposed1: return conv_transposed_layer(1, same);
    case LayerType::conv_transposed2: return conv_transposed_layer(2, same);
    case LayerType::conv_transposed3: return conv_transposed_layer(3, same);
    case LayerType::kmeans: return kmeans_layer(inputs, inputs == outputs ? 8 : outputs, inputs == outputs);
    case LayerType::softmax: return softmax_layer();
    case LayerType::residual: return residual_layer();
    case LayerType::rms_norm: return rms_norm_layer(inputs);
    case LayerType::layer_norm: return layer_norm_layer(inputs);
    default: break;
  }
  Layer layer = of_extents(type, inputs, outputs);  // dense, rnn, lstm
  if (type == LayerType::dense) layer.activation = Activation::relu;
  return layer;
}

Description mlp(const std::vector<Extent>& widths, Activation activation) {
  if (widths.size() < 2)
    throw UsageError(
        fmt::format("mlp: given {} of its widths; give those of input and output at least", widths.size()));
  std::vector<Layer> layers;
  for (std::size_t i = 0; i + 1 < widths.size(); ++i)
    layers.push_back(dense_layer(widths[i], widths[i + 1], i + 2 < widths.size() ? activation : Activation::linear));
  return Description::chain(std::move(layers));
}

Description cnn(const CnnOptions& options) {
  std::vector<Layer> layers;
  Extent channels = options.channels, height = options.height, width = options.width;
  for (const Extent filters : options.filters) {
    layers.push_back(cnn_layer(2, {.channels = channels, .filters = filters, .kernel = 3, .stride = 2, .padding = 1}));
    channels = filters;
    height = (height + 1) / 2;
    width = (width + 1) / 2;
  }
  layers.push_back(dense_layer(channels * height * width, options.classes, Activation::linear));
  return Description::chain(std::move(layers));
}

Description transformer(const TransformerOptions& options) {
  const bool has_vocabulary = options.vocabulary > 0;
  Description d(has_vocabulary ? options.blocks + 2 : options.blocks, 1, 1, 4);
  const Extent width = options.width, first = has_vocabulary ? 1 : 0;
  if (has_vocabulary) {
    d.at({0, 0, 0, 0}) = embedding_layer(options.vocabulary, width);
    d.at({options.blocks + 1, 0, 0, 0}) = rms_norm_layer(width);
    d.at({options.blocks + 1, 0, 0, 1}) = dense_layer(width, options.vocabulary, Activation::linear);
  }
  for (Extent block = 0; block < options.blocks; ++block) {
    const Extent z = first + block;
    d.at({z, 0, 0, 0}) = sequential_layer(
        {rms_norm_layer(width), attention_layer(width, options.heads, options.key_heads, options.rope_base)});
    d.at({z, 0, 0, 1}) = residual_layer();
    d.at({z, 0, 0, 2}) = sequential_layer({rms_norm_layer(width), swiglu_layer(width, options.hidden)});
    d.at({z, 0, 0, 3}) = residual_layer();
  }
  return d;
}

Description random(const RandomOptions& options) {
  Description d(options.depth, options.rows, options.columns, options.layers_per_cell);
  RandomDraws draws(options.seed, "grid.random");
  std::vector<LayerType> types;
  for (int i = 0; i < kLayerTypeCount; ++i)
    if (can_map(static_cast<LayerType>(i), options.width, options.width)) types.push_back(static_cast<LayerType>(i));
  for (Layer& layer : d.layers) {
    layer = layer_of_width(types[draws.below(types.size())], options.width, options.width);
    const Activation activation = kActivations[draws.below(kActivations.size())];
    if (row_of(layer.type).activates) layer.activation = activation;
  }
  return d;
}

}  // namespace weft::grid
