// Descriptions of layers and of whole networks.
#pragma once

#include <cstdint>
#include <vector>

#include "weft/grid/description.hpp"

namespace weft::grid {

// ---- Layers, with the members that their types need ---------------------------------------------------------------------

Layer dense_layer(Extent inputs, Extent outputs, Activation activation = Activation::relu);
Layer attention_layer(Extent width, Extent heads, Extent key_heads = 0, double rope_base = 0);
Layer swiglu_layer(Extent width, Extent hidden);
Layer rms_norm_layer(Extent width);
Layer layer_norm_layer(Extent width);
struct ConvolutionLayer {
  Extent channels = 1, filters = 1, kernel = 3, stride = 1, padding = 0;
  Activation activation = Activation::relu;
};
/// `axes` of space, 1 to 3. Errors: UsageError for another number.
Layer cnn_layer(int axes, const ConvolutionLayer& options);
Layer conv_transposed_layer(int axes, const ConvolutionLayer& options);
Layer rnn_layer(Extent inputs, Extent outputs);
Layer lstm_layer(Extent inputs, Extent outputs);
Layer embedding_layer(Extent vocabulary, Extent width);
Layer kmeans_layer(Extent inputs, Extent clusters, bool features = false, double temperature = 1);
Layer softmax_layer(SoftmaxKind kind = SoftmaxKind::standard, double temperature = 1);
Layer parallel_layer(std::vector<Layer> children, Combine combine = Combine::concat);
/// A mixture of experts: every child runs, and the softmax of the gate's scores weights them.
Layer mixture_layer(std::vector<Layer> children, Layer gate);
Layer sequential_layer(std::vector<Layer> children);
Layer residual_layer();
/// A child that runs a layer of the grid in its place.
Layer link_layer(const Coordinate& target);

/// A layer of this type from `inputs` to `outputs` elements: heads of attention and channels of convolutions divide the width (4
/// heads, kernel 3, width / 4 filters where 4 divides it), swiglu has 2 width inner units.
/// Errors  UsageError: the type has no such layer (`can_map` tells)
Layer layer_of_width(LayerType type, Extent inputs, Extent outputs);
/// Whether there is one: containers and embedding never; of unequal widths only dense, rnn, lstm and kmeans.
bool can_map(LayerType type, Extent inputs, Extent outputs);

// ---- Networks -----------------------------------------------------------------------------------------------------------

/// Dense layers widths[0] -> widths[1] -> ..., the last one without activation. x [batch, widths[0]].
/// Errors  UsageError: fewer than two widths
Description mlp(const std::vector<Extent>& widths, Activation activation = Activation::relu);

struct CnnOptions {
  Extent channels = 1, height = 28, width = 28;
  std::vector<Extent> filters = {8, 16};  ///< of convolutions with kernel 3, padding 1 and stride 2
  Extent classes = 10;
};
/// Convolutions with two axes of space, each halving height and width, then a dense layer. x [batch, channels, height, width].
Description cnn(const CnnOptions& options);

struct TransformerOptions {
  Extent vocabulary = 256;  ///< 0: x is [batch, steps, width], and there are neither embedding nor head
  Extent width = 64, hidden = 128, heads = 4, key_heads = 0, blocks = 2;
  double rope_base = 10000;
};
/// A cell for each block, of four layers: attention(rms_norm(x)), residual, swiglu(rms_norm(x)), residual. With a vocabulary the
/// first cell holds the embedding, and the last one norm and head: ids [batch, steps] -> logits [batch, steps, vocabulary].
Description transformer(const TransformerOptions& options);

struct RandomOptions {
  Extent depth = 1, rows = 1, columns = 1, layers_per_cell = 3;
  Extent width = 8;  ///< of inputs and outputs of every layer
  std::uint64_t seed = 1;
};
/// A grid of layers of random types and activations that keep the width. x [batch, width]. The same seed gives the same grid.
Description random(const RandomOptions& options);

/// The description that the builder "mlp", "cnn", "transformer" or "random" makes of options as data, whose members have the names
/// above: build("mlp", {"widths": [2, 16, 1], "activation": "tanh"}).
/// Errors  UsageError: another builder; a member that is unknown, of the wrong kind or out of range
Description build(std::string_view kind, const Value& options);

}  // namespace weft::grid
