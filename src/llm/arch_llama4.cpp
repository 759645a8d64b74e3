// Llama 4: most layers see the positions of their chunk and turn, and divide heads by their length behind that; the others see all
// positions, know none, and have queries that grow with the position.
#include "llm/builder.hpp"

namespace weft::llm {
namespace {

std::string attention_of(GraphBuilder& b, const std::string& x, std::size_t layer) {
  const ModelConfig& c = b.config();
  const bool turns = c.rope_layers.empty() || c.rope_layers[layer],
             is_local = !c.local_layers.empty() && c.local_layers[layer];
  const auto [q, k, v] = b.queries_keys_values(x, Bias::if_present);
  return b.attention(q, k, v,
                     {.pairs = RopePairs::neighbours,
                      .rope = turns,
                      .output_bias = Bias::if_present,
                      .unit_norms = turns && c.has_unit_heads ? c.norm_eps : 0,
                      .grows = !turns,
                      .chunk = is_local ? c.attention_chunk : 0});
}

/// Files of transformers have the experts in two tensors.
std::string mixture_of(GraphBuilder& b, const std::string& x) {
  const ModelConfig& c = b.config();
  if (c.from_gguf) return b.mixture(x);
  const std::string chosen =
      b.experts_of(x, {b.expert_columns("gates.weight", 0, 1), b.expert_columns("ups.weight", c.expert_intermediate, 1),
                       b.expert_rows_back("downs.weight")});
  return b.binary("mixture", OpType::add, chosen, b.named_mlp("shared", x, c.shared_intermediate, OpType::silu));
}

}  // namespace

ModelGraph build_llama4(const BuildInput& input) {
  GraphBuilder b(input);
  const ModelConfig& c = b.config();
  std::string x = b.embedding();
  for (Extent i = 0; i < c.layers; ++i) {
    b.set_layer(i);
    x = b.binary("resid1", OpType::add, x, attention_of(b, b.rms_norm("norm1", x), static_cast<std::size_t>(i)));
    const std::string n = b.rms_norm("norm2", x);
    x = b.binary("resid2", OpType::add, x,
                 b.has_experts() ? mixture_of(b, n) : b.gated_mlp(n, activation_of(c, "silu")));
  }
  b.set_layer(-1);
  return b.finish(b.rms_norm("final_norm", x));
}

}  // namespace weft::llm
