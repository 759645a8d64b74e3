// DeepSeek V2 and V3: attention whose cache keeps a small row for all heads, and experts beside some that every token uses.
//
// A row is [c, k]: c of `rank` channels, from which a head's key is K c and its value V c, and k of channels that turn. A head's score
// is q . K c + p . k = [K^T q, p] . [c, k], and its result V (sum of c), so attention runs over the rows themselves, as keys and
// values of one head that all queries share, and K and V multiply queries and results only.
#include <cmath>

#include "llm/builder.hpp"

namespace weft::llm {
namespace {

constexpr double kInnerEps = 1e-6;  // of norms inside of attention, whatever the configuration says

class LatentLayer {
 public:
  explicit LatentLayer(GraphBuilder& b)
      : b_(b), c_(b.config()), heads_(c_.heads), still_(c_.head_dim - c_.rope_dims), rank_(c_.latent.rank) {}

  std::string attention(const std::string& x) {
    const RopePairs pairs = c_.latent.turns_halves ? RopePairs::halves : RopePairs::neighbours;
    const std::string q = queries(x);
    const std::string turned =
        b_.turned("q_rope", b_.group_columns("q_turning", q, heads_, still_, c_.rope_dims), heads_, pairs);
    const std::string still = b_.group_columns("q_still", q, heads_, 0, still_);
    const std::string latent =
        b_.node("q_latent", OpType::group_matmul, {still, keys()}, {Symbol::tokens, heads_ * rank_});
    const std::string all = b_.group_concat("q_all", latent, turned, heads_);

    const std::string kv = b_.linear("kv_a", x, rank_ + c_.rope_dims, Bias::if_present);
    const std::string c = b_.rms_norm("kv_a_norm", b_.columns("kv_still", kv, 0, rank_), 0, 0, kInnerEps);
    const std::string k = b_.turned("k_rope", b_.columns("kv_turning", kv, rank_, c_.rope_dims), 1, pairs);
    const std::string row = b_.group_concat("kv_row", c, k, 1);

    const double scale = c_.attention_scale > 0 ? c_.attention_scale : 1 / std::sqrt(static_cast<double>(c_.head_dim));
    const std::string mixed =
        b_.group_columns("attn_latent", b_.attend(all, row, row, heads_, 1, scale, {}), heads_, 0, rank_);
    const std::string values = b_.node("attn_values", OpType::group_matmul, {mixed, this->values()},
                                       {Symbol::tokens, heads_ * c_.latent.value_dim});
    return b_.linear("o", values, c_.hidden, Bias::if_present);
  }

  std::string mlp(const std::string& x) {
    if (!b_.has_experts()) return b_.gated_mlp(x, OpType::silu, Bias::if_present);
    return b_.mixture(x);
  }

 private:
  std::string queries(const std::string& x) {
    const Extent rows = heads_ * c_.head_dim;
    if (c_.latent.query_rank == 0) return b_.linear("q", x, rows);
    const std::string a = b_.linear("q_a", x, c_.latent.query_rank, Bias::if_present);
    return b_.linear("q_b", b_.rms_norm("q_a_norm", a, 0, 0, kInnerEps), rows);
  }
  /// [heads, rank, still] and [heads, value_dim, rank]. They stay dense: a matrix of each head is small.
  std::string keys() {
    const std::vector<Dim> shape = {heads_, rank_, still_};
    if (!c_.latent.joins_products) return b_.constant("k_b.weight", shape, Element::f32);
    Cut cut = joined(0, still_);
    cut.transposed = true;
    return b_.part("k_b.weight", shape, cut, Element::f32);
  }
  std::string values() {
    const std::vector<Dim> shape = {heads_, c_.latent.value_dim, rank_};
    if (!c_.latent.joins_products) return b_.constant("v_b.weight", shape, Element::f32);
    return b_.part("v_b.weight", shape, joined(still_, c_.latent.value_dim), Element::f32);
  }
  Cut joined(Extent begin, Extent count) const {
    const Extent rows = still_ + c_.latent.value_dim;
    return {.file = {heads_ * rows, rank_},
            .groups = heads_,
            .rows = rows,
            .columns = rank_,
            .begin = begin,
            .count = count};
  }

  GraphBuilder& b_;
  const ModelConfig& c_;
  Extent heads_, still_, rank_;
};

}  // namespace

ModelGraph build_deepseek(const BuildInput& input) {
  GraphBuilder b(input);
  const ModelConfig& c = b.config();
  LatentLayer layer(b);
  std::string x = b.embedding();
  for (Extent i = 0; i < c.layers; ++i) {
    b.set_layer(i);
    x = b.binary("resid1", OpType::add, x, layer.attention(b.rms_norm("norm1", x)));
    x = b.binary("resid2", OpType::add, x, layer.mlp(b.rms_norm("norm2", x)));
  }
  b.set_layer(-1);
  return b.finish(b.rms_norm("final_norm", x));
}

}  // namespace weft::llm
