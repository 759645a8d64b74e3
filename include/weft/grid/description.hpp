// A volumetric network as data: layers in the cells of a grid of depth x rows x columns.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "weft/dtype.hpp"
#include "weft/shape.hpp"
#include "weft/value.hpp"

namespace weft::grid {

/// What a layer computes. Letters: I inputs, H outputs, B batch, S steps, C channels, F filters, K kernel, L places of each axis
/// of space. Matrices are [out, in]. The parameters of each type are listed in the order in which they are stored.
///
/// Axes behind the batch are joined for a layer whose inputs are their product, as behind a convolution. Sequences may be
/// [B, I], one step each, and images [B, C n], n places along the first axis of space; the result then has two axes as well.
enum class LayerType : std::uint8_t {
  dense,       ///< act(W x). weight [H, I]. x [..., I] -> [..., H]
  attention,   ///< causal attention of `heads` heads; see Layer::heads. x [B, S, I] -> the same
  swiglu,      ///< down(silu(gate(x)) * up(x)) of `hidden` inner units, with biases. x [..., I] -> the same
  rms_norm,    ///< x / sqrt(mean x^2 + eps) * gamma. x [..., I] -> the same
  cnn1,        ///< act(convolution). weight [F, C, K]. x [B, C, L] -> [B, F, L']
  cnn2,        ///< the same with two axes of space
  cnn3,        ///< the same with three
  rnn,         ///< h_t = tanh(Wih x_t + Whh h_(t-1) + b). x [B, S, I] -> [B, S, H]
  lstm,        ///< c = f c + i g, h = o tanh(c); each gate has Wih, Whh, b. x [B, S, I] -> [B, S, H]
  layer_norm,  ///< (x - mean) / sqrt(variance + eps) * gamma + beta. x [..., I] -> the same
  conv_transposed1,  ///< act(adjoint of a convolution). weight [F, C, K]. x [B, C, L] -> [B, F, (L - 1) stride + K - 2 padding]
  conv_transposed2,  ///< the same with two axes of space
  conv_transposed3,  ///< the same with three
  embedding,         ///< act(rows of a table); ids outside of it give zeros. table [V, H]. x [...] -> [..., H]
  kmeans,  ///< act(soft assignment to centres [clusters, I]). x [..., I] -> [..., clusters], or with `features` [..., I]
  softmax,     ///< one of SoftmaxKind along the last axis
  parallel,    ///< all children on the same input, joined as `combine` says
  sequential,  ///< the children one after another
  residual     ///< x + skip, where skip is what the layer before got; x if their shapes differ
};
inline constexpr int kLayerTypeCount = 19;

/// Applied to the result of dense, convolutions, embedding and kmeans, and without effect for other types. In JSON the default is
/// relu, and linear for embedding and kmeans. gelu is its tanh form, forward and backward.
enum class Activation : std::int8_t { linear = -1, relu, silu, gelu, tanh, sigmoid };
inline constexpr std::array kActivations = {Activation::linear, Activation::relu, Activation::silu,
                                            Activation::gelu,   Activation::tanh, Activation::sigmoid};

/// How parallel layers are joined: along an axis; as sum or mean; or as a mixture that a gate weights (its softmax).
enum class Combine : std::uint8_t { concat, add, average, filter };

/// Softmaxes of a line x of logits, which are first divided by `temperature`.
enum class SoftmaxKind : std::uint8_t {
  standard,
  grid,          ///< of each row of `rows` x `columns`
  hierarchical,  ///< of groups as large as the last of `levels`
  temperature,   ///< standard; the name says what it is used for
  gumbel,        ///< with noise from the generator that `manual_seed` seeds
  masked,        ///< of the elements where `mask` is true; 0 elsewhere
  sparse,        ///< sparsemax
  adaptive,  ///< of b x, where b >= 1 sharpens lines whose softmax has a large entropy (Velickovic et al. 2024, arXiv:2410.01104)
  mixture,  ///< of `rows` lines of `columns` logits, added up with weights that are the softmax of the last `rows` elements:
            ///< x [..., rows columns + rows] -> [..., columns]. Standard if rows is 0
  entmax  ///< alpha-entmax: softmax for alpha <= 1, sparsemax for alpha >= 2, in between sparse but smooth
};

std::string_view name_of(LayerType type);
std::string_view name_of(Activation activation);
std::string_view name_of(Combine combine);
std::string_view name_of(SoftmaxKind kind);
/// By name. Errors: UsageError that lists the names.
LayerType layer_type(std::string_view name);
Activation activation(std::string_view name);

/// The place of a layer: its cell, and which of the cell's layers.
struct Coordinate {
  Extent z = 0, y = 0, x = 0, layer = 0;
  auto operator<=>(const Coordinate&) const = default;
};
/// "0,1,0,2".
std::string to_string(const Coordinate& at);

/// One layer. Each type uses some of the members; `check` refuses values of used ones that are out of range, and files with
/// members that their type does not use.
struct Layer {
  LayerType type = LayerType::dense;
  Activation activation = Activation::relu;
  /// The type that the forward pass sees the parameters in (weft/grid/number_types.hpp). They are kept and trained in f32.
  DType dtype = DType::f32;
  /// Passes its input on.
  bool disabled = false;

  Extent inputs = 0, outputs = 0;
  Extent hidden = 0;  ///< swiglu: inner units
  /// attention: query heads, which divide the inputs; key heads (0: as many), which divide the query heads.
  /// Parameters: query [I, I], key [kv, I], value [kv, I], output [I, I] and their biases, with kv = key heads * I / heads.
  Extent heads = 0, key_heads = 0;
  double rope_base = 0;  ///< attention: rotates queries and keys by their positions if above 0
  Extent window = 0;     ///< attention: how many positions each one sees, its own included; 0: all before it
  Extent channels = 0, filters = 0, kernel = 0, stride = 1,
         padding = 0;      ///< convolutions: the same for all axes of space
  Extent vocabulary = 0;   ///< embedding: rows of the table
  Extent clusters = 0;     ///< kmeans: centres
  bool features = false;   ///< kmeans: gives the weighted centres, not the probabilities
  double temperature = 1;  ///< kmeans, softmax
  double epsilon = 0;      ///< norms; 0: 1e-6 for rms_norm, 1e-5 for layer_norm
  SoftmaxKind softmax = SoftmaxKind::standard;
  Extent rows = 0, columns = 0;  ///< softmax: grid, mixture
  std::vector<Extent> levels;    ///< softmax: hierarchical
  std::vector<bool> mask;        ///< softmax: masked
  double alpha = 1.5;            ///< softmax: entmax
  Combine combine = Combine::concat;
  Extent axis = -1;             ///< parallel: of concat
  std::vector<Layer> children;  ///< parallel, sequential
  std::vector<Layer> gate;      ///< parallel with filter: one layer, which gives a score for each child
  /// A remote link. Of a child: the layer of the grid that runs in its place, with its parameters. Of a layer of the grid: the one
  /// whose output it reads, in place of the layer before it. A pass can only read earlier layers, a tick (weft/grid/systolic.hpp)
  /// any.
  std::optional<Coordinate> link;

  bool operator==(const Layer&) const = default;
};

/// Whether a layer was not described yet: dense, without extents, disabled.
bool is_fresh(const Layer& layer);

/// The layers of all cells, in the order of their index ((z rows + y) columns + x) layers_per_cell + layer. A pass visits them in
/// this order.
struct Description {
  /// A grid of fresh layers.
  /// Errors  UsageError: an extent below 1, or more than 16,384 layers.
  explicit Description(Extent depth = 1, Extent rows = 1, Extent columns = 1, Extent layers_per_cell = 1);
  /// A grid of one cell with these layers.
  static Description chain(std::vector<Layer> layers);

  Extent depth = 1, rows = 1, columns = 1, layers_per_cell = 1;
  std::vector<Layer> layers;

  bool contains(const Coordinate& at) const;
  /// Errors: UsageError for a place outside of the grid.
  std::size_t index(const Coordinate& at) const;
  Coordinate coordinate(std::size_t index) const;
  Layer& at(const Coordinate& at) { return layers[index(at)]; }
  const Layer& at(const Coordinate& at) const { return layers[index(at)]; }

  bool operator==(const Description&) const = default;
};

/// A mistake in a description, with its place as a JSON pointer: "/layers/3/children/0/heads".
struct Problem {
  std::string path, message;
};
/// Every mistake: extents and numbers out of range, members that do not fit each other, links to nowhere or in circles,
/// neighbours whose widths cannot fit, parameters that 64 bits cannot count.
std::vector<Problem> problems_of(const Description& description);
/// Errors  UsageError that lists them, if there are any.
void check(const Description& description);

/// The number of parameters of a layer, with those of layers inside.
Extent parameter_count(const Layer& layer);

/// The description as JSON, and back. Fresh layers are left out. Without "layers_per_cell", a single cell has all the layers that
/// are given. Errors of `from_value`: UsageError that lists every mistake with
/// its path, members that are unknown or of the wrong kind included.
Value to_value(const Description& description);
Description from_value(const Value& value);
/// From a text or a file of JSON. Errors: also FileError.
Description from_json(std::string_view text, std::string_view source = "JSON");
Description load_description(const std::filesystem::path& path);

}  // namespace weft::grid
