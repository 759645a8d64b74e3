// Hybrids of layers with states and layers with attention: Bamba, Granite 4, Jamba; Nemotron-H, whose MLPs are layers of their own; and
// Falcon-H1, whose layers have both side by side.
#include "llm/state_layers.hpp"

namespace weft::llm {
namespace {

class HybridLayer {
 public:
  explicit HybridLayer(GraphBuilder& b) : b_(b), c_(b.config()) {}

  std::string scaled(std::string_view id, const std::string& x, double factor) {
    return factor == 1 ? x : b_.unary(id, OpType::scale, x, {{"factor", factor}});
  }
  std::string state(const std::string& x) {
    return c_.state_space.heads > 0 ? mamba2_mixer(b_, x) : mamba_mixer(b_, x);
  }
  std::string attention(const std::string& x) {
    const auto [q, k, v] = b_.queries_keys_values(x, Bias::if_present);
    // GGUF files of Granite store rows as Llama's do.
    const bool takes_turns = c_.from_gguf && c_.architecture == "granitehybrid";
    return b_.attention(q, k, v,
                        {.pairs = takes_turns ? RopePairs::neighbours : RopePairs::halves,
                         .scale = c_.attention_scale,
                         .output_bias = Bias::if_present});
  }
  /// What a layer adds before its MLP.
  std::string mixed(const std::string& x, bool has_state) {
    const HybridFactors& f = c_.hybrid_factors;
    if (!f.are_side_by_side) return has_state ? state(x) : attention(x);
    const std::string s = scaled("ssm_added", state(scaled("ssm_seen", x, f.state_in)), f.state_out);
    const std::string a = scaled("attn_added", attention(scaled("attn_seen", x, f.attention_in)), f.attention_out);
    return b_.binary("mixed", OpType::add, s, a);
  }
  std::string mlp(const std::string& x) {
    const OpType activation = activation_of(c_, c_.mlp_layers.empty() ? "silu" : "relu2");
    if (joins_halves()) {
      const bool has_experts = b_.has_experts();
      const Extent width = has_experts ? c_.shared_intermediate : c_.intermediate;
      if (!has_experts) return b_.gate_and_up(half("gate", x, width, 0), half("up", x, width, 1), activation);
      const std::string gate = b_.unary("shared_act", activation, half("shared_gate", x, width, 0));
      const std::string shared = b_.linear(
          "shared_down", b_.binary("shared_glu", OpType::mul, gate, half("shared_up", x, width, 1)), c_.hidden);
      return b_.binary("mixture", OpType::add, b_.experts(x, c_.expert_intermediate), shared);
    }
    if (b_.has_experts() && b_.has("router.weight")) return b_.mixture(x);
    if (!b_.has("gate.weight")) {
      const std::string up = b_.linear("up", x, c_.intermediate, Bias::if_present);
      return b_.linear("down", b_.unary("act", activation, up), c_.hidden, Bias::if_present);
    }
    const HybridFactors& f = c_.hybrid_factors;
    const std::string gate = scaled("gate_scaled", b_.linear("gate", x, c_.intermediate, Bias::if_present), f.mlp_gate),
                      up = b_.linear("up", x, c_.intermediate, Bias::if_present);
    return scaled("mlp_down_scaled", b_.gate_and_up(gate, up, activation, Bias::if_present), f.mlp_down);
  }

 private:
  /// Folders of Granite 4 have gates and ups of the MLP that every token uses in one tensor, as halves.
  bool joins_halves() const { return c_.architecture == "granitemoehybrid"; }
  std::string half(std::string_view id, const std::string& x, Extent width, Extent index) {
    return b_.linear_part(id, x, width,
                          {.file = {2 * width, c_.hidden},
                           .rows = 2 * width,
                           .columns = c_.hidden,
                           .begin = index * width,
                           .count = width});
  }

  GraphBuilder& b_;
  const ModelConfig& c_;
};

}  // namespace

ModelGraph build_state_hybrid(const BuildInput& input) {
  GraphBuilder b(input);
  const ModelConfig& c = b.config();
  HybridLayer layer(b);
  std::string x = layer.scaled("embed_scaled", b.embedding(), c.embedding_scale);
  for (Extent i = 0; i < c.layers; ++i) {
    b.set_layer(i);
    const auto at = static_cast<std::size_t>(i);
    const bool has_one_part = !c.mlp_layers.empty();
    const std::string h = b.rms_norm("norm1", x);
    if (has_one_part && c.mlp_layers[at]) {
      x = b.binary("resid2", OpType::add, x, layer.mlp(h));
      continue;
    }
    x = b.binary("resid1", OpType::add, x,
                 layer.scaled("mixed_scaled", layer.mixed(h, c.state_space.layers[at]), c.residual_scale));
    if (has_one_part) continue;
    x = b.binary("resid2", OpType::add, x,
                 layer.scaled("mlp_scaled", layer.mlp(b.rms_norm("norm2", x)), c.residual_scale));
  }
  b.set_layer(-1);
  return b.finish(b.rms_norm("final_norm", x));
}

}  // namespace weft::llm
