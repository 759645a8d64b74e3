// Families whose layers are attention and an MLP, as Llama's are, and differ in what data says: where norms are and of which kind,
// which pairs turn, how matrices are joined. A row of the table is a family.
#include <fmt/format.h>

#include "llm/builder.hpp"
#include "weft/error.hpp"

namespace weft::llm {
namespace {

enum class Norms { rms, layer, centred };           // centred: layer norms without weights
enum class At { before, after, both };              // of the norms of a part, seen from the part
enum class HeadNorms { none, each, all, by_file };  // of queries and keys: of each head, or of all heads together
/// Queries, keys and values from one matrix of the file, of which each is a part: head by head, or one behind the other.
enum class Cuts { none, by_head, in_turn };
enum class Mlp { gated, joined, plain };  // joined: gate and up from one matrix

struct DecoderRow {
  std::string_view architecture;  // of files of transformers
  std::string_view gguf = "";     // of GGUF files
  Norms norms = Norms::rms;
  double norm_offset = 0;  // Nemotron: weights around 0
  At at = At::before;
  HeadNorms head_norms = HeadNorms::none;
  bool norms_turned = false;  // norms of heads come behind the rotation
  RopePairs pairs = RopePairs::halves;
  RopePairs gguf_pairs = RopePairs::halves;
  bool joins_qkv = false;  // one matrix: for each head of keys its queries, the key, the value
  Cuts cuts = Cuts::none;  // in files of transformers; in GGUF files that have one matrix it is in turn
  Mlp mlp = Mlp::gated;
  std::string_view activation = "silu";
  bool shares_norm = false;  // of parts side by side
  bool norms_embedding = false;
};

constexpr RopePairs kNeighbours = RopePairs::neighbours;
constexpr DecoderRow kRows[] = {
    {.architecture = "stablelm", .gguf = "stablelm", .norms = Norms::layer, .shares_norm = true},
    {.architecture = "phi",
     .gguf = "phi2",
     .norms = Norms::layer,
     .mlp = Mlp::plain,
     .activation = "gelu_tanh",
     .shares_norm = true},
    {.architecture = "gpt_neox", .norms = Norms::layer, .joins_qkv = true, .mlp = Mlp::plain, .activation = "gelu"},
    {.architecture = "falcon",
     .norms = Norms::layer,
     .joins_qkv = true,
     .mlp = Mlp::plain,
     .activation = "gelu",
     .shares_norm = true},
    {.architecture = "olmo", .norms = Norms::centred},
    {.architecture = "olmo2", .gguf = "olmo2", .at = At::after, .head_norms = HeadNorms::all},
    {.architecture = "olmo3", .at = At::after, .head_norms = HeadNorms::all},
    {.architecture = "cohere",
     .gguf = "command-r",
     .norms = Norms::layer,
     .pairs = kNeighbours,
     .gguf_pairs = kNeighbours,
     .shares_norm = true},
    {.architecture = "cohere2",
     .gguf = "cohere2",
     .norms = Norms::layer,
     .pairs = kNeighbours,
     .gguf_pairs = kNeighbours,
     .shares_norm = true},
    {.architecture = "granite", .gguf = "granite", .gguf_pairs = kNeighbours},
    {.architecture = "glm", .pairs = kNeighbours, .mlp = Mlp::joined},
    {.architecture = "glm4",
     .gguf = "glm4",
     .at = At::both,
     .pairs = kNeighbours,
     .gguf_pairs = kNeighbours,
     .mlp = Mlp::joined},
    {.architecture = "exaone4", .gguf = "exaone4", .at = At::after, .head_norms = HeadNorms::each},
    {.architecture = "starcoder2",
     .gguf = "starcoder2",
     .norms = Norms::layer,
     .mlp = Mlp::plain,
     .activation = "gelu_tanh"},
    {.architecture = "ernie4_5", .gguf = "ernie4_5", .pairs = kNeighbours, .gguf_pairs = kNeighbours},
    {.architecture = "nemotron", .norms = Norms::layer, .norm_offset = 1, .mlp = Mlp::plain, .activation = "relu2"},
    {.architecture = "arcee", .gguf = "arcee", .gguf_pairs = kNeighbours, .mlp = Mlp::plain, .activation = "relu2"},
    {.architecture = "olmoe", .gguf = "olmoe", .head_norms = HeadNorms::all},
    {.architecture = "dots1", .gguf = "dots1", .head_norms = HeadNorms::each},
    {.architecture = "bailing_moe", .gguf = "bailingmoe2", .head_norms = HeadNorms::by_file, .cuts = Cuts::in_turn},
    {.architecture = "", .gguf = "bailingmoe", .gguf_pairs = kNeighbours},
    {.architecture = "seed_oss", .gguf = "seed_oss"},
    {.architecture = "ministral", .gguf_pairs = kNeighbours},
    {.architecture = "glm4_moe", .gguf = "glm4moe", .head_norms = HeadNorms::by_file},
    {.architecture = "ernie4_5_moe", .gguf = "ernie4_5-moe", .pairs = kNeighbours, .gguf_pairs = kNeighbours},
    {.architecture = "hunyuan_v1_dense", .gguf = "hunyuan-dense", .head_norms = HeadNorms::each, .norms_turned = true},
    {.architecture = "hunyuan_v1_moe", .gguf = "hunyuan-moe", .head_norms = HeadNorms::each, .norms_turned = true},
    {.architecture = "minimax_m2", .gguf = "minimax-m2", .head_norms = HeadNorms::all},
    {.architecture = "apertus",
     .gguf = "apertus",
     .head_norms = HeadNorms::each,
     .mlp = Mlp::plain,
     .activation = "xielu"},
    {.architecture = "ministral3", .gguf = "mistral3", .gguf_pairs = kNeighbours},
    {.architecture = "", .gguf = "baichuan", .gguf_pairs = kNeighbours},
    {.architecture = "bloom",
     .gguf = "bloom",
     .norms = Norms::layer,
     .cuts = Cuts::by_head,
     .mlp = Mlp::plain,
     .activation = "gelu_tanh",
     .norms_embedding = true},
    {.architecture = "mpt",
     .gguf = "mpt",
     .norms = Norms::layer,
     .cuts = Cuts::in_turn,
     .mlp = Mlp::plain,
     .activation = "gelu"},
};

const DecoderRow& row_of(const ModelConfig& c) {
  for (const DecoderRow& row : kRows)
    if ((c.from_gguf ? row.gguf : row.architecture) == c.architecture) return row;
  throw InternalError(fmt::format("llm: no row of layers for {}", c.architecture));
}

class Decoder {
 public:
  explicit Decoder(const BuildInput& input) : b_(input), c_(b_.config()), row_(row_of(c_)) {}

  ModelGraph build() {
    std::string x = b_.embedding(c_.embedding_scale);
    if (row_.norms_embedding) x = norm("embed_norm", x);
    for (Extent i = 0; i < c_.layers; ++i) {
      b_.set_layer(i);
      const std::string seen = before("norm1", x);
      const std::string a = scaled("mixed_scaled", after("norm1_after", attention(seen, static_cast<std::size_t>(i))));
      if (c_.is_parallel) {
        const std::string m = mlp(shares_norm() ? seen : before("norm2", x));
        x = b_.binary("resid2", OpType::add, b_.binary("resid1", OpType::add, x, a), scaled("mlp_scaled", m));
        continue;
      }
      x = b_.binary("resid1", OpType::add, x, a);
      x = b_.binary("resid2", OpType::add, x, scaled("mlp_scaled", after("norm2_after", mlp(before("norm2", x)))));
    }
    b_.set_layer(-1);
    return b_.finish(norm("final_norm", x));
  }

 private:
  /// Falcon's later models have a norm for each of two parts side by side; the file tells.
  bool shares_norm() const { return row_.shares_norm && !b_.has("norm2.weight"); }
  std::string norm(std::string_view id, const std::string& x) {
    if (row_.norms == Norms::rms) return b_.rms_norm(id, x);
    return row_.norms == Norms::centred ? b_.centred_norm(id, x)
                                        : b_.layer_norm(id, x, row_.norm_offset, Bias::if_present);
  }
  std::string before(std::string_view id, const std::string& x) { return row_.at == At::after ? x : norm(id, x); }
  std::string after(std::string_view id, const std::string& x) { return row_.at == At::before ? x : norm(id, x); }
  std::string scaled(std::string_view id, const std::string& x) {
    return c_.residual_scale == 1 ? x : b_.unary(id, OpType::scale, x, {{"factor", c_.residual_scale}});
  }

  std::string attention(const std::string& x, std::size_t layer) {
    const Extent queries = c_.heads * c_.head_dim, keys = c_.kv_heads * c_.head_dim;
    std::string q, k, v;
    if (row_.cuts != Cuts::none) {
      q = part_of_qkv("q", x, 0);
      k = part_of_qkv("k", x, 1);
      v = part_of_qkv("v", x, 2);
    } else if (!row_.joins_qkv) {
      q = b_.linear("q", x, queries, Bias::if_present);
      k = b_.linear("k", x, keys, Bias::if_present);
      v = b_.linear("v", x, keys, Bias::if_present);
    } else {
      const std::string all = b_.linear("qkv", x, queries + 2 * keys, Bias::if_present);
      const Extent groups = c_.kv_heads, each = c_.heads / groups;
      const auto part = [&](std::string_view id, Extent begin, Extent count) {
        return b_.group_columns(id, all, groups, begin * c_.head_dim, count * c_.head_dim);
      };
      q = part("q", 0, each);
      k = part("k", each, 1);
      v = part("v", each + 1, 1);
    }
    if (c_.qkv_limit > 0)
      for (auto& [id, x_of] : {std::pair("q_clamped", &q), std::pair("k_clamped", &k), std::pair("v_clamped", &v)})
        *x_of = b_.unary(id, OpType::clamp, *x_of, {{"limit", c_.qkv_limit}});
    const bool turns = c_.rope_layers.empty() || c_.rope_layers[layer];
    const bool is_local = c_.window > 0 && (c_.local_layers.empty() || c_.local_layers[layer]);
    return b_.attention(q, k, v,
                        {.pairs = c_.from_gguf ? row_.gguf_pairs : row_.pairs,
                         .rope = turns,
                         .local = is_local,
                         .scale = c_.attention_scale,
                         .head_norms = has_head_norms() ? std::optional(0.0) : std::nullopt,
                         .norms_all_heads = row_.head_norms == HeadNorms::all,
                         .output_bias = Bias::if_present,
                         .alibi = c_.alibi,
                         .slope_factor = c_.slope_factor,
                         .norms_turned = row_.norms_turned,
                         .grows = true});
  }
  /// The product of x with the `index`-th of the three. Files that have them head by head have keys for each head.
  std::string part_of_qkv(std::string_view id, const std::string& x, Extent index) {
    const Extent groups = is_by_head() ? c_.heads : 1, queries = c_.heads * c_.head_dim / groups,
                 keys = c_.kv_heads * c_.head_dim / groups, count = index == 0 ? queries : keys;
    return b_.linear_part(id, x, groups * count,
                          {.file = {groups * (queries + 2 * keys), c_.hidden},
                           .groups = groups,
                           .rows = queries + 2 * keys,
                           .columns = c_.hidden,
                           .begin = index == 0 ? 0 : queries + (index - 1) * keys,
                           .count = count});
  }
  bool has_head_norms() const {
    return row_.head_norms == HeadNorms::by_file ? b_.has("q_norm.weight") : row_.head_norms != HeadNorms::none;
  }
  bool is_by_head() const { return row_.cuts == Cuts::by_head && !c_.from_gguf; }

  std::string mlp(const std::string& x) {
    if (b_.has_experts()) return b_.mixture(x);
    const OpType activation = activation_of(c_, row_.activation);
    if (row_.mlp == Mlp::gated) return b_.gated_mlp(x, activation, Bias::if_present);
    if (row_.mlp == Mlp::plain) {
      const std::string up = b_.linear("up", x, c_.intermediate, Bias::if_present);
      return b_.linear("down", row_.activation == "xielu" ? b_.xielu("act", up) : b_.unary("act", activation, up),
                       c_.hidden, Bias::if_present);
    }
    const std::string both = b_.linear("gate_up", x, 2 * c_.intermediate);
    return b_.gate_and_up(b_.columns("gate", both, 0, c_.intermediate),
                          b_.columns("up", both, c_.intermediate, c_.intermediate), activation);
  }

  GraphBuilder b_;
  const ModelConfig& c_;
  const DecoderRow& row_;
};

}  // namespace

ModelGraph build_decoder(const BuildInput& input) { return Decoder(input).build(); }

}  // namespace weft::llm
