// Qwen3-Next and Qwen3.5: most layers keep a state by the gated delta rule, the others have attention whose heads a gate scales.
#include "llm/builder.hpp"

namespace weft::llm {
namespace {

class NextLayer {
 public:
  explicit NextLayer(GraphBuilder& b) : b_(b), c_(b.config()), s_(c_.state_space), offset_(c_.from_gguf ? 0 : 1) {}

  /// Norms of files of transformers have weights around 0.
  std::string norm(std::string_view id, const std::string& x) { return b_.rms_norm(id, x, offset_); }

  /// For each head its queries and its gate are neighbours in one matrix.
  std::string attention(const std::string& x) {
    const Extent width = c_.head_dim, queries = c_.heads * width, keys = c_.kv_heads * width;
    const auto half = [&](std::string_view id, Extent begin) {
      return b_.linear_part(id, x, queries, rows_of({2 * queries, c_.heads, begin, width}));
    };
    const std::string gate = b_.unary("q_share", OpType::sigmoid, half("q_gate", width));
    return b_.attention(half("q", 0), b_.linear("k", x, keys, Bias::if_present),
                        b_.linear("v", x, keys, Bias::if_present),
                        {.head_norms = offset_, .output_bias = Bias::if_present, .gate = gate});
  }

  std::string delta(const std::string& x) {
    const Extent keys = s_.groups * s_.states, width = s_.inner / s_.heads;
    const std::string qk = b_.group_concat("delta_qk", projected("delta_q", x), projected("delta_k", x), 1);
    const std::string seen =
        b_.unary("ssm_act", OpType::silu,
                 b_.short_convolution("ssm_conv", b_.group_concat("delta_qkv", qk, projected("delta_v", x), 1)));
    const std::string beta = b_.unary("delta_beta", OpType::sigmoid, projected("delta_b", x));
    const std::string y =
        b_.delta_scan(b_.columns("delta_q_seen", seen, 0, keys), b_.columns("delta_k_seen", seen, keys, keys),
                      b_.columns("delta_v_seen", seen, 2 * keys, s_.inner), projected("delta_a", x), beta);
    const std::string gate = b_.unary("ssm_gate", OpType::silu, projected("delta_z", x));
    return b_.linear("ssm_out", b_.binary("ssm_gated", OpType::mul, b_.rms_norm("ssm_norm", y, 0, width), gate),
                     c_.hidden);
  }

 private:
  struct Rows {
    Extent all, groups, begin, count;  // of the tensor; of each group
  };
  Cut rows_of(const Rows& r) const {
    return {.file = {r.all, c_.hidden},
            .groups = r.groups,
            .rows = r.all / r.groups,
            .columns = c_.hidden,
            .begin = r.begin,
            .count = r.count};
  }

  /// The part of the products of x that has this name. Files of Qwen3-Next join them by heads of keys, later files one behind the
  /// other, and most not at all.
  std::string projected(std::string_view id, const std::string& x) {
    const Extent keys = s_.groups * s_.states, each = s_.heads / s_.groups, of_values = s_.inner / s_.groups;
    const bool by_head = !c_.from_gguf && c_.architecture == "qwen3_next";
    if (id == "delta_a" || id == "delta_b") {
      if (c_.architecture != "qwen3_next" && c_.architecture != "qwen3next") return b_.linear(id, x, s_.heads);
      return b_.linear_part(id, x, s_.heads, rows_of({2 * s_.heads, s_.groups, id == "delta_b" ? 0 : each, each}));
    }
    if (by_head) {
      const Extent begin = id == "delta_q"   ? 0
                           : id == "delta_k" ? s_.states
                           : id == "delta_v" ? 2 * s_.states
                                             : 2 * s_.states + of_values;
      const Extent count = id == "delta_q" || id == "delta_k" ? s_.states : of_values;
      return b_.linear_part(id, x, s_.groups * count, rows_of({2 * keys + 2 * s_.inner, s_.groups, begin, count}));
    }
    if (id == "delta_z") return b_.linear(id, x, s_.inner);
    const Extent begin = id == "delta_q" ? 0 : id == "delta_k" ? keys : 2 * keys;
    const Extent count = id == "delta_v" ? s_.inner : keys;
    return b_.linear_part(id, x, count, rows_of({2 * keys + s_.inner, 1, begin, count}));
  }

  GraphBuilder& b_;
  const ModelConfig& c_;
  const StateSpace& s_;
  double offset_;
};

}  // namespace

ModelGraph build_qwen_next(const BuildInput& input) {
  GraphBuilder b(input);
  const ModelConfig& c = b.config();
  NextLayer layer(b);
  std::string x = b.embedding();
  for (Extent i = 0; i < c.layers; ++i) {
    b.set_layer(i);
    const std::string h = layer.norm("norm1", x);
    x = b.binary("resid1", OpType::add, x,
                 c.state_space.layers[static_cast<std::size_t>(i)] ? layer.delta(h) : layer.attention(h));
    const std::string n = layer.norm("norm2", x);
    x = b.binary("resid2", OpType::add, x, b.has_experts() ? b.mixture(n) : b.gated_mlp(n, activation_of(c, "silu")));
  }
  b.set_layer(-1);
  return b.finish(layer.norm("final_norm", x));
}

}  // namespace weft::llm
