// What the builders of model graphs share: names of tensors, and the usual pieces of a decoder layer.
#pragma once

#include <optional>
#include <string>

#include "llm/families.hpp"

namespace weft::llm {

/// All rows of a family, its own before the common ones.
std::vector<NameRow> names_of(const Family& family);
/// The name in a kind of file.
std::string key_of(const NameRow& row, bool gguf, Extent layer, Extent expert = -1);

enum class Bias { none, if_present, required };

class GraphBuilder {
 public:
  explicit GraphBuilder(const BuildInput& input);

  const ModelConfig& config() const { return input_.config; }
  /// Nodes and names from here on are the layer's; -1: of no layer.
  void set_layer(Extent layer) { layer_ = layer; }
  Extent layer() const { return layer_; }
  /// Whether the file has the tensor; `name` as "q.weight", of the current layer.
  bool has(std::string_view name) const;

  /// A node of the current layer; gives its output, a tensor of that shape.
  std::string node(std::string_view id, OpType op, std::vector<std::string> inputs, std::vector<Dim> shape,
                   std::map<std::string, Attribute> attributes = {});
  std::string constant(std::string_view name, std::vector<Dim> shape, Element element = Element::weight,
                       bool transposed = false);
  /// A constant that is a part of the tensor of that name in files.
  std::string part(std::string_view name, std::vector<Dim> shape, const Cut& cut, Element element = Element::weight);

  /// The rows of tokens times `factor`, and those of images where the model reads them.
  std::string embedding(double factor = 1);
  /// Rows of a further table of tokens, `name`.weight [rows, width]; tokens behind its rows have the first.
  std::string rows_of_tokens(std::string_view name, Extent rows, Extent width);
  /// x with a further part of the rows of images added, where the pass has some.
  std::string add_image_rows(const std::string& x, Extent part);
  /// Norms of x [T, n]; parts of `width` each if given, as for the heads of queries. `offset` is added to the weight.
  std::string rms_norm(std::string_view id, const std::string& x, double offset = 0, Extent width = 0, double eps = 0);
  /// An RMS norm without weights.
  std::string unit_norm(std::string_view id, const std::string& x, double eps, Extent width = 0);
  /// RMS norms of equal parts of x [T, n], each of its own mean, with a weight for every channel.
  std::string group_norm(std::string_view id, const std::string& x, Extent groups);
  std::string layer_norm(std::string_view id, const std::string& x, double offset = 0, Bias bias = Bias::required);
  /// A layer norm without weights.
  std::string centred_norm(std::string_view id, const std::string& x);
  /// `name`.weight [rows, columns of x].
  std::string linear(std::string_view id, const std::string& x, Extent rows, Bias bias = Bias::none,
                     bool transposed = false);
  struct QueriesKeysValues {
    std::string q, k, v;
  };
  /// Products of x with the weights "q", "k" and "v" of all heads.
  QueriesKeysValues queries_keys_values(const std::string& x, Bias bias = Bias::none);
  /// `linear` with a part of the tensor of files, [rows, columns of x], and of its bias if it has one.
  std::string linear_part(std::string_view id, const std::string& x, Extent rows, const Cut& cut);
  std::string columns(std::string_view id, const std::string& x, Extent begin, Extent count);
  /// Of x [T, groups n] those columns of every group, side by side.
  std::string group_columns(std::string_view id, const std::string& x, Extent groups, Extent begin, Extent count);
  /// Of x [T, groups m] and y [T, groups n] the columns of each group, side by side.
  std::string group_concat(std::string_view id, const std::string& x, const std::string& y, Extent groups);
  std::string unary(std::string_view id, OpType op, const std::string& x,
                    std::map<std::string, Attribute> attributes = {});
  std::string xielu(std::string_view id, const std::string& x);
  std::string binary(std::string_view id, OpType op, const std::string& x, const std::string& y);

  struct AttentionOptions {
    RopePairs pairs = RopePairs::halves;
    bool rope = true, local = false;
    double scale = 0;  // 0: head_dim^-1/2
    double soft_cap = 0;
    std::optional<double> head_norms;  // offset of the norms of q and k; nothing: none
    bool norms_all_heads = false;      // one norm over all heads
    Bias output_bias = Bias::none;
    bool output_transposed = false;
    bool sinks = false;                  // a logit of each head takes weight
    double alibi = 0, slope_factor = 1;  // as the configuration's
    bool norms_turned = false;           // norms of heads come behind the rotation
    double unit_norms = 0;  // behind the rotation heads are divided by their root mean square, with this epsilon
    bool grows = false;     // queries grow with their position, as the configuration says
    Extent chunk = 0;       // a position sees those of its chunk; 0: there are none
    std::string gate = {};  // heads times it go into the output projection; "": none
    Extent keys_of = -1;    // k and v are those of that layer, and are in its caches; -1: they are this layer's
  };
  /// Positions, cache, attention and output projection, from q, k and v.
  std::string attention(std::string q, std::string k, const std::string& v, const AttentionOptions& options);
  /// Cache and attention alone, of heads whose queries and keys are as wide as values. If v is k, both have one cache.
  std::string attend(const std::string& q, const std::string& k, const std::string& v, Extent heads, Extent kv_heads,
                     double scale, const AttentionOptions& options);
  /// The first `rope_dims` columns of each head turned with the position.
  std::string turned(std::string_view id, const std::string& x, Extent heads, RopePairs pairs, bool local = false);
  /// x after its convolution with the inputs before it, which a state keeps.
  std::string short_convolution(std::string_view id, const std::string& x);
  /// The scans of the layer, with D x added; the states go from pass to pass.
  std::string selective_scan(const std::string& x, const std::string& dt, const std::string& b, const std::string& c);
  std::string state_space_scan(const std::string& x, const std::string& dt, const std::string& b, const std::string& c);
  std::string delta_scan(const std::string& q, const std::string& k, const std::string& v, const std::string& dt,
                         const std::string& beta);
  /// The sum of a token's experts of `width`, weighted by its router.
  std::string experts(const std::string& x, Extent width, const std::string& routed = {});
  /// The same of constants: gates, ups and downs, and behind them the biases of gates, ups and downs if there are some. With `routed`
  /// the router reads that instead of x, and each expert's weight has a factor.
  std::string experts_of(const std::string& x, std::vector<std::string> constants, const std::string& routed = {});
  /// Gates or ups of all experts, from a tensor [E, H, 2F] of both: its columns begin, begin + step, ... And downs of [E, F, H].
  std::string expert_columns(std::string_view name, Extent begin, Extent step);
  std::string expert_rows_back(std::string_view name);
  /// Whether the layer has experts.
  bool has_experts() const;
  /// Experts, beside one that every token uses where there is one, as much as a gate says where there is one.
  std::string mixture(const std::string& x);
  /// An MLP of names as "shared_gate", with its own width.
  std::string named_mlp(std::string_view prefix, const std::string& x, Extent width, OpType activation);
  /// down(activation(gate(x)) * up(x)).
  std::string gated_mlp(const std::string& x, OpType activation, Bias bias = Bias::none);
  std::string gate_and_up(std::string gate, const std::string& up, OpType activation, Bias bias = Bias::none);

  /// The rows asked for, the head, and the whole graph, validated. x is normalised already.
  ModelGraph finish(const std::string& x);

 private:
  /// The number of each token by which the expert of all tokens counts, as a column.
  std::string shared_router(const std::string& x);
  std::string full(std::string_view name) const;
  const NameRow* row_of(std::string_view name) const;
  /// A state of the layer, a row of `width` for each sequence.
  std::string state(std::string_view name, Extent width);
  const std::vector<Dim>& shape_of(const std::string& tensor) const { return graph_.at(tensor).shape; }

  const BuildInput& input_;
  ModelGraph graph_;
  Extent layer_ = -1;
};

OpType activation_of(const ModelConfig& config, std::string_view fallback);

}  // namespace weft::llm
