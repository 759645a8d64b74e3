// The explicit graph of a model: typed tensors, nodes in the order they run. Built by one file for each family, lowered
// onto Weft's own graph, which knows nothing of layers.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "llm/config.hpp"
#include "llm/cut.hpp"
#include "weft/shape.hpp"

namespace weft::llm {

/// An extent: a number, or a symbol whose value is known when the graph runs.
enum class Symbol : std::uint8_t {
  none,
  tokens,     // T: tokens in this pass
  rows,       // R: rows of logits asked for
  length,     // L: cached positions
  recent,     // W: cached positions of a layer that sees a window of them
  sequences,  // S: sequences side by side
};
struct Dim {
  Extent value = 0;
  Symbol symbol = Symbol::none;

  Dim(Extent value) : value(value) {}
  Dim(Symbol symbol) : symbol(symbol) {}
  bool operator==(const Dim&) const = default;
  std::string to_string() const;
};

enum class TensorStorage : std::uint8_t {
  constant,    // from the file
  adapter,     // from an adapter's file, or trained
  activation,  // of one pass
  kv_cache,    // kept between passes, written by attention
  state,       // kept between passes, a row a sequence: what a layer remembers of all its steps
};
enum class Element : std::uint8_t {
  f32,
  i32,
  weight,
  cache
};  // weight: of the file's type; cache: of the cache's type

struct TensorDesc {
  std::string name;
  std::vector<Dim> shape;
  Element element = Element::f32;
  TensorStorage storage = TensorStorage::activation;
  std::vector<std::string> keys;  ///< constants: tensors of the file, one below another
  bool transposed = false;        ///< constants: the file has [in, out]
  /// Constants that are parts of a tensor, which all keys then name: with several keys, each means the next group.
  std::optional<Cut> cut = {};
};

enum class OpType : std::uint8_t {
  embedding,  // (table, tokens or positions) -> [T, width]; known: tokens from there on have the first row; 0: all have their own
  insert,  // (x, rows of images) -> x, with the first columns of those rows where the pass has some instead of tokens
  add_image,  // (x, rows of images): begin -> x with their columns from there on added
  pick,       // (x) -> the rows whose logits are asked for
  rms_norm,  // (x, weight); eps, weight_offset, width: of what is normalised, the last axis cut into such parts. The weight
             // is one for all parts, or has all channels
  unit_norm,      // (x); eps, width: as rms_norm, without weights
  layer_norm,     // (x, weight?, bias?); eps, weight_offset
  matmul,         // (x, weight [N, K], bias?) -> x W^T + b
  columns,        // (x); begin, count
  group_columns,  // (x): groups, begin, count: those columns of each of equal groups
  group_concat,   // (x, y); groups: the columns of each group of x, and behind them those of the same group of y
  group_matmul,   // (x, weight [G, N, K]): the columns of each of G groups times the matrix of that group, transposed
  rope,           // (x); heads, dims, pairs, local
  /// (q, k, v, key cache, value cache, sinks [heads]?); heads, kv_heads, scale, window, soft_cap, alibi: the largest slope's
  /// exponent; slope_factor. v may be k, with one cache for both. chunk: a position sees those of its chunk; 0: there are none.
  /// shared: k and v are those of an earlier layer, which has written them to its caches.
  attention,
  silu,
  gelu,
  gelu_tanh,
  relu2,  // max(x, 0)^2
  xielu,  // (x, a, b, beta, eps, one number each, or as attributes): softplus(a) x^2 + beta x, and below 0 (beta + softplus(b)) (e^min(x, eps) - 1 - x)
          // + beta x
  sigmoid,
  tanh,
  cut_below,  // (x); deviations: max(x - m - deviations s, 0), where m and s are the mean and the standard deviation of a row
  /// (x [T, A n], c [T, B A]); streams, A; offset: B streams, of which each is a sum of those of x, times numbers of its own: stream b
  /// is the sum of (c[b A + a] + offset) x_a over a.
  mix_streams,
  add_to_streams,   // (x [T, A n], y [T, n]); first: y is added to the streams from that one on
  match_magnitude,  // (x [T, A n], y [T, n]): each stream of x scaled, so that its root mean square is that of y
  mul_each,         // (x, y [T, 1]): each row times a number
  mul,              // (x, y): y of x's shape, or a number for each column, or one for all
  add,
  scale,     // (x); factor
  soft_cap,  // (x); cap
  clamp,     // (x); limit: to [-limit, limit]
  grow,      // (x); each, offset, factor: rows at position p times 1 + factor ln(1 + floor((p + offset) / each))
  /// (x, router, gates [E, F, H], ups, downs [E, H, F]), behind which come, with `biases`, those of the router, of gates, ups and
  /// downs, and with `corrected` a number for each expert that only counts where experts are chosen. used: experts of a token.
  /// shares: their weights add up to 1. sigmoid: scores are sigmoids of logits, else a softmax. groups, groups_used: only experts of
  /// the best groups are chosen, by the best of a group or, with sigmoid, by its best two. factor: of weights. on_input: the weights multiply x
  /// instead of the results of experts. routed: the place among the inputs of what the router reads instead of x,
  /// behind which is a factor of each expert's weight [E]. gelu: the activation, in its form by tanh. alpha, limit: of a clamped SwiGLU; 0: the usual one. plain: there are no gates, in whose place ups are named
  /// once more, and ups above 0 are squared.
  /// gate_up_change, down_change: the place among the inputs of A [E, R, H], behind which is B [E, 2 F, R], of an adapter; of downs
  /// A [E, R, F] and B [E, H, R]. Without them there is none.
  experts,
  short_conv,        // (x, weight [W, K], state, bias?): each channel with its last inputs
  selective_scan,    // (x, dt, rates [W, N], b, c, skip [W], state); log: rates are -exp of the tensor
  state_space_scan,  // (x, dt, rates [H], b, c, skip [H], state, dt bias [H]); heads, groups, log, dt_least, dt_most
  /// (q, k [T, G K], v [T, H V], dt [T, H], rates [H], beta [T, H], state, dt bias [H]); heads, groups, log: the gated delta rule, by q
  /// and k of length 1, and q divided by K^1/2. turns: head h has the keys of group h mod G, else neighbours share a group.
  delta_scan,
};
std::string_view name_of(OpType op);

using Attribute = std::variant<Extent, double, std::string>;

struct OpNode {
  std::string id;
  OpType op;
  std::vector<std::string> inputs;
  std::string output;
  std::map<std::string, Attribute> attributes = {};
  Extent layer = -1;  // that it is part of; -1: it runs before the first layer, or behind the last

  Extent integer(const std::string& name, Extent fallback = 0) const;
  double real(const std::string& name, double fallback = 0) const;
};

struct ModelGraph {
  std::string family;
  ModelConfig config;
  std::vector<TensorDesc> tensors;                                           // in the order of first use
  std::vector<OpNode> nodes;                                                 // in the order they run
  std::string input = "tokens", positions = "positions", output = "logits";  // of a part: states [T, hidden]
  std::string image_rows = "image_rows";  // of graphs that read images: [T, hidden or more]

  const TensorDesc* find(std::string_view name) const;
  const TensorDesc& at(std::string_view name) const;
  /// One line a tensor and a node.
  std::string to_string() const;
  /// Every rule of the ops: tensors that exist, are made before they are read, made once, of shapes that fit.
  /// InternalError that lists every broken rule, because graphs come from builders and not from users.
  void validate() const;
};

}  // namespace weft::llm
