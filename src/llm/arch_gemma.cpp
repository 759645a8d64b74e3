// Gemma: scaled embeddings and norms around 1 + w. Gemma 2 adds norms after each part, soft caps, and local layers in
// turn with global ones; Gemma 3 norms of heads, and a base of positions of its own for local layers.
#include <cmath>

#include "llm/builder.hpp"

namespace weft::llm {

ModelGraph build_gemma(const BuildInput& input) {
  GraphBuilder b(input);
  const ModelConfig& c = b.config();
  const bool second = c.architecture == "gemma2", third = c.architecture.starts_with("gemma3");
  const double one = c.from_gguf ? 0 : 1;  // GGUF files hold 1 + w
  // Of GGUF only the largest models scale queries by another width than that of a head.
  const bool by_hidden = c.from_gguf && ((second && c.layers == 46) || (third && c.layers == 62));
  const double query = c.query_scale > 0 ? c.query_scale
                       : by_hidden       ? static_cast<double>(c.hidden) / static_cast<double>(c.heads)
                                         : static_cast<double>(c.head_dim);
  const auto is_local = [&](Extent i) {
    if (c.window == 0) return false;
    if (!c.local_layers.empty()) return bool{c.local_layers[static_cast<std::size_t>(i)]};
    return second ? i % 2 == 0 : third && (i + 1) % 6 != 0;
  };
  std::string x = b.embedding(std::sqrt(static_cast<double>(c.hidden)));
  for (Extent i = 0; i < c.layers; ++i) {
    b.set_layer(i);
    const std::string h = b.rms_norm("norm1", x, one);
    const auto [q, k, v] = b.queries_keys_values(h);
    std::string a = b.attention(q, k, v,
                                {.local = is_local(i),
                                 .scale = 1 / std::sqrt(query),
                                 .soft_cap = c.attention_soft_cap,
                                 .head_norms = third ? std::optional(one) : std::nullopt});
    if (second || third) a = b.rms_norm("norm1_after", a, one);
    x = b.binary("resid1", OpType::add, x, a);
    std::string m =
        b.gated_mlp(b.rms_norm("norm2", x, one), second || third ? activation_of(c, "gelu_tanh") : OpType::gelu_tanh);
    if (second || third) m = b.rms_norm("norm2_after", m, one);
    x = b.binary("resid2", OpType::add, x, m);
  }
  b.set_layer(-1);
  return b.finish(b.rms_norm("final_norm", x, one));
}

}  // namespace weft::llm
