// Sizes and parts of a text encoder, from config.json or from the metadata of a GGUF file.
#pragma once

#include <string>
#include <vector>

#include "base/json.hpp"
#include "io/gguf_metadata.hpp"
#include "layers/weights.hpp"
#include "weft/shape.hpp"

namespace weft::encoder {

/// How a layer knows where its tokens are.
enum class Positions : std::uint8_t {
  table,         ///< rows of a table, added to the embeddings of tokens
  rotary,        ///< queries and keys, turned
  buckets,       ///< a logit for each distance between query and key, the same in all layers (T5)
  disentangled,  ///< products of queries and keys with embeddings of distances (DeBERTa)
};

/// What makes one row of a text's states, in files of sentence-transformers and in heads of classes.
enum class Pooling : std::uint8_t { first, last, mean, max, weighted_mean, scaled_sum };

/// Probabilities of dropout while a model trains.
struct Dropouts {
  double embeddings = 0;       ///< of the first states
  double shares = 0;           ///< of attention
  double attention = 0;        ///< of the output of attention
  double inside = 0, mlp = 0;  ///< of the input and the output of the MLP's last product
  double states = 0;           ///< of the last states
  double classes = 0;          ///< of the input of the product for classes of a text,
  double token_classes = 0;    ///< and of that for classes of tokens
  bool has_dense = false;      ///< `classes` also applies to the product before that one
};

/// A transformer that sees texts in both directions. Layers are x + attention, x + MLP, with norms behind the sums, or before
/// the parts.
struct EncoderConfig {
  std::string family;  ///< model_type, or the architecture of a GGUF file: "bert"
  std::string source;  ///< the file that says all this

  Extent vocabulary = 0, hidden = 0, intermediate = 0, layers = 0, heads = 0;
  Extent key_heads = 0, head_width = 0;  ///< queries of neighbouring heads share a head of keys
  Extent embedding = 0;                  ///< width of the tables; a product makes `hidden` of it
  Extent types = 0;                      ///< rows of the table of token types; 0: there is none
  Extent length = 0;                     ///< most tokens of a text

  Positions positions = Positions::table;
  Extent position_rows = 0, first_position = 0;  ///< of the table; the row of the first token
  bool has_position_table = true;                ///< DeBERTa has both kinds, or one
  double theta = 10000, local_theta = 10000;     ///< of rotary positions; of those in local layers
  std::vector<bool> is_local;                    ///< a flag for each layer; empty: all see the whole text
  Extent window = 0;                             ///< local layers see keys nearer than this
  Extent buckets = 0, distance = 0;              ///< of distances, and from where on all are the last bucket
  bool has_position_keys = true, has_position_queries = true;  ///< which products DeBERTa has,
  bool shares_position_weights = true;                         ///< and whether they are those of the content

  layers::NormKind norm = layers::NormKind::layer;
  double norm_eps = 1e-12;
  bool norms_first = false;       ///< before attention and MLP
  bool norms_parts = false;       ///< what attention and MLP give, too (Gemma)
  bool norms_heads = false;       ///< each head of queries and keys (Gemma)
  bool norms_embeddings = true;   ///< of the first states
  bool norms_distances = false;   ///< DeBERTa's embeddings
  bool norms_add_one = false;     ///< weights of norms lack 1 (Gemma)
  bool lacks_first_norm = false;  ///< the first layer's, before attention (ModernBERT)
  bool has_last_norm = false;

  std::string activation = "gelu";  ///< an op
  bool is_gated = false;            ///< activation(gate x) (up x)
  bool gate_is_first = false;       ///< in the matrix that holds both
  bool has_qkv_bias = true, has_output_bias = true, has_up_bias = true, has_down_bias = true;
  double score_scale = 0;                  ///< of attention; 0: 1 / sqrt(head_width)
  double embedding_scale = 1;              ///< of the embeddings of tokens
  Extent groups = 0, layers_in_group = 1;  ///< ALBERT: layers that share weights; 0: each has its own

  Pooling class_pooling = Pooling::first;  ///< of a head of classes: of its states,
  bool pools_class_scores = false;         ///< or of the scores of all tokens (EuroBERT)
  std::string class_activation = "tanh";   ///< of its first product
  std::vector<std::string> class_names;    ///< by id; empty: the files name none
  bool is_multi_label = false;             ///< each class has a probability of its own

  Dropouts dropouts;
};

/// Of config.json, which has some kilobytes.
inline constexpr JsonLimits kConfigLimits{.max_bytes = std::uint64_t{8} << 20, .max_values = 200'000};

/// FileError for a family that Weft does not have, and for sizes that do not fit each other.
EncoderConfig read_config(const Json& json, const std::string& source);
EncoderConfig read_config(const io::GgufMetadata& metadata, const std::string& source);

/// Widths and heads that follow from others, and the checks of all sizes; the end of reading.
void complete(EncoderConfig& config);

/// Whether a config.json is that of a text encoder.
bool describes_encoder(const Json& json);
/// Whether an architecture of GGUF is one.
bool is_encoder_architecture(std::string_view architecture);

}  // namespace weft::encoder
