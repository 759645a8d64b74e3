// The configuration of a model: sizes, norms, positions, attention, experts. One struct for all families.
#pragma once

#include <array>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/json.hpp"
#include "io/gguf_metadata.hpp"
#include "weft/shape.hpp"

namespace weft::llm {

/// The layout of rotary pairs of channels: (d, d + D/2), or (2d, 2d + 1).
enum class RopePairs { halves, neighbours };

/// How frequencies change for contexts longer than those of training.
struct RopeScaling {
  enum class Kind { none, linear, llama3, yarn, longrope };
  Kind kind = Kind::none;
  double factor = 1;
  double low_frequency_factor = 1, high_frequency_factor = 4;  // llama3
  double beta_fast = 32, beta_slow = 1;                        // yarn
  double mscale = 0, mscale_all_dim = 0;                       // yarn: parts of the default of attention_factor
  bool truncate = true;                                        // yarn: the ramp begins and ends at whole pairs
  Extent original_context = 0;
  double attention_factor = 0;                      // of cosine and sine; 0: what the kind computes
  std::vector<double> short_factors, long_factors;  // longrope: one a pair
};

/// Layers that keep a state of a fixed size instead of keys and values: Mamba's, or Mamba-2's if there are heads, or those of the
/// gated delta rule, where heads are those of values, groups those of keys, and states the channels of a key.
struct StateSpace {
  Extent inner = 0;  // channels inside a layer; 0: no such layers. LFM2: of its convolutions, which are all
  Extent states = 0, kernel = 0;     // states of a channel; inputs that the convolution sees
  Extent rank = 0;                   // Mamba: width of the vector that steps are projected from
  Extent heads = 0, groups = 0;      // Mamba-2: heads of channels, groups of heads that share b and c
  double dt_least = 0, dt_most = 0;  // bounds of the steps of Mamba-2; dt_most = 0: none
  std::vector<bool> layers;          // which layers; the others have attention
  bool is_delta = false;             // the gated delta rule
  bool takes_turns = false;          // ... head h of values has the keys of head h mod G, else neighbours share them
  double part_eps = 0;               // epsilon of norms (without weights) of the inputs of steps, b and c; 0: no norms
  bool norms_before_gate = false;    // Mamba-2: the norm comes before the gate
  std::vector<double> part_factors;  // Mamba-2: of gate, x, b, c and steps; empty: none
};

/// How a router's logits become weights of experts.
struct Routing {
  bool is_sigmoid = false;             // of each logit; else a softmax of all
  Extent groups = 1, groups_used = 1;  // only experts of the best groups take part
  double factor = 1;                   // of the weights
  bool is_on_input = false;            // experts see the token times its weight
};

/// Attention over rows that are smaller than the keys and values that they stand for (DeepSeek). `head_dim` is the width of a
/// query then, of which the last `rope_dims` turn.
struct LatentAttention {
  Extent rank = 0;        // channels of a row, beside those that turn; 0: the usual attention
  Extent query_rank = 0;  // 0: queries are one product
  Extent value_dim = 0;   // of a head
  bool turns_halves = false;
  bool joins_products = true;  // the file has those for keys and values of all heads in one tensor
};

/// Falcon-H1: factors of the inputs and results of a layer's parts.
struct HybridFactors {
  bool are_side_by_side = false;  // each layer has a state and attention, which read the same x
  double state_in = 1, state_out = 1, attention_in = 1, attention_out = 1, mlp_gate = 1, mlp_down = 1;
};

/// Gemma 3n: some states of a token side by side, of which one goes through the layers and corrects the others (AltUp, Baykal et al.
/// 2023); a product of low rank beside attention (LAuReL, Menghani et al. 2024); and gates of which a layer keeps the largest.
struct Streams {
  Extent count = 0;   // 0: one state, as in other models
  Extent active = 0;  // the one that layers read
  Extent rank = 64;   // of LAuReL, for which GGUF has no key
  bool are_scaled = true;
  /// For each layer: gates below their mean plus this many standard deviations are zero; not finite: all stay.
  std::vector<double> deviations;
};

/// Queries at position p are multiplied with 1 + factor ln(1 + floor((p + offset) / each)).
struct QueryGrowth {
  double factor = 0;  // 0: they are not
  Extent each = 1;
  double offset = 0;
};

struct ModelConfig {
  std::string architecture;  ///< as the file names it
  std::string name;          ///< of the model, or ""
  std::string source;        ///< opens messages
  bool from_gguf = false;

  Extent vocabulary = 0, hidden = 0, layers = 0, heads = 0, kv_heads = 0, head_dim = 0, intermediate = 0, context = 0;
  double norm_eps = 1e-5;
  std::string activation;             ///< silu, gelu, gelu_tanh; "": the family's
  bool tied = false;                  ///< the head is the table of embeddings
  bool reads_images = false;          ///< rows of images may take the place of tokens
  bool lacks_image_settings = false;  ///< it would read images, but its folder does not say how they are prepared
  bool sees_images_whole = false;     ///< a row of an image sees the later rows of the image, too
  Extent image_layers = 0;            ///< layers from the first on to which rows of images are added once more

  double rope_base = 10000;
  double rope_local_base = 0;  ///< of local layers, which then know no scaling; 0: they are like the others
  Extent rope_dims = 0;
  Extent rope_local_dims = 0;  ///< of local layers; 0: as of the others
  Extent rope_pairs = 0;       ///< of layers that are not local, only the first pairs turn; 0: all do
  RopeScaling rope_scaling;
  std::vector<bool> rope_layers;  ///< layers that turn; empty: all
  /// Rows of images have places in time, height and width: pairs that turn by each. Empty: one place for all pairs.
  std::vector<Extent> rope_sections;
  bool rope_interleaved =
      false;  ///< the pairs of height and width are every third one; else sections lie behind each other

  Extent global_head_dim = 0, global_kv_heads = 0;  ///< of layers that are not local; 0: as of the others
  bool global_keys_are_values = false;              ///< these layers have one product for both
  Extent window = 0;                                ///< of local layers; 0: none
  std::vector<bool> local_layers;                   ///< empty: the family's rule
  double query_scale = 0;                           ///< attention's scale is query_scale^-1/2; 0: of head_dim
  double attention_soft_cap = 0, logit_soft_cap = 0;

  Extent experts = 0, experts_per_token = 0;
  Extent expert_intermediate = 0, shared_intermediate = 0;  ///< of each expert, and of one that all tokens use
  bool experts_are_plain = false;                           ///< they have no gates, and square what is above 0
  bool expert_weights_are_shares = true;                    ///< of a token's experts, and not of all
  Routing routing;
  std::vector<bool> expert_layers;            ///< layers with experts; empty: all
  Extent further_layers = 0;                  ///< layers of the files behind the last, which guess further tokens
  double swiglu_alpha = 0, swiglu_limit = 0;  ///< of experts whose SwiGLU is clamped; 0: it is not
  LatentAttention latent;
  QueryGrowth query_growth;
  Streams streams;
  Extent layer_input = 0;       ///< width of the inputs that each layer has of its own, from a table of tokens; 0: none
  Extent layer_vocabulary = 0;  ///< rows of that table; tokens behind them have the first row
  Extent table_rows = 0;        ///< of the table of embeddings in the file, where it has more than the vocabulary
  bool wide_without_keys = false;  ///< layers without keys have MLPs of twice the width
  Extent layers_without_keys =
      0;  ///< the last ones, which read keys and values of the last layer of their kind before them
  /// a, b, beta and eps of OpType::xielu, for each layer; empty: files have tensors of them.
  std::vector<std::array<double, 4>> xielu;
  bool has_unit_heads = false;  ///< heads that turn are divided by their root mean square
  Extent attention_chunk = 0;   ///< of local layers: positions see those of their chunk; 0: there are none
  double qkv_limit = 0;         ///< queries, keys and values are held within [-limit, limit]; 0: they are not
  double alibi = 0;             ///< scores fall with distance, by slopes down to 2^-alibi; 0: they do not
  double slope_factor = 1;      ///< of all slopes
  bool is_parallel = false;     ///< attention and MLP read the same x, and both are added
  StateSpace state_space;
  std::vector<bool> mlp_layers;  ///< layers that are an MLP alone, where each layer has one part; empty: none
  HybridFactors hybrid_factors;
  double embedding_scale = 1, residual_scale = 1,
         logit_scale = 1;      // factors of embeddings, of what layers add, of logits
  double attention_scale = 0;  // of scores; 0: head_dim^-1/2
  std::vector<std::int64_t> end_tokens;
};

/// From a config.json. FileError "SOURCE: key: fact; cure" for keys that are missing, of a wrong type or out of range.
ModelConfig config_from_json(const Json& json, std::string source);
/// From a GGUF file's metadata; `vocabulary` is the number of rows of its table of embeddings. FileError.
ModelConfig config_from_gguf(const io::GgufMetadata& metadata, Extent vocabulary);
/// FileError unless sizes are within bounds and fit each other.
void check(const ModelConfig& config);

/// Longrope has short factors and long ones: the most positions of a sequence that turns by the short ones. Nothing where
/// there is no choice.
std::optional<Extent> short_positions(const ModelConfig& config);
/// Frequencies of the pairs, scaled, and what cosine and sine are multiplied with. `length`, of the whole sequence, decides
/// between short and long factors; `local` takes the base of local layers, if they have one, without scaling.
struct RopeTable {
  std::vector<double> frequencies;
  double magnitude = 1;
};
RopeTable rope_table(const ModelConfig& config, Extent length, bool local);
/// With rope_sections: the axis of each pair, 0 time, 1 height, 2 width.
std::vector<int> rope_axes(const ModelConfig& config);

}  // namespace weft::llm
