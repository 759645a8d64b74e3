// Qwen2 and 2.5, with biases on queries, keys and values; Qwen3, with norms of heads instead. And the text models of those that
// see.
#include "llm/builder.hpp"

namespace weft::llm {
ModelGraph build_qwen(const BuildInput& input) {
  GraphBuilder b(input);
  const ModelConfig& c = b.config();
  const bool third = c.architecture.starts_with("qwen3");
  const Bias bias = third ? Bias::if_present : Bias::required;
  std::string x = b.embedding();
  for (Extent i = 0; i < c.layers; ++i) {
    b.set_layer(i);
    const std::string h = b.rms_norm("norm1", x);
    const auto [q, k, v] = b.queries_keys_values(h, bias);
    const std::string a =
        b.attention(q, k, v,
                    {.local = c.window > 0 && !c.local_layers.empty() && c.local_layers[static_cast<std::size_t>(i)],
                     .head_norms = third ? std::optional(0.0) : std::nullopt,
                     .output_bias = Bias::if_present});
    x = b.binary("resid1", OpType::add, x, a);
    const std::string n = b.rms_norm("norm2", x);
    x = b.binary("resid2", OpType::add, x, b.has_experts() ? b.mixture(n) : b.gated_mlp(n, activation_of(c, "silu")));
    if (i < c.image_layers) x = b.add_image_rows(x, i + 1);
  }
  b.set_layer(-1);
  return b.finish(b.rms_norm("final_norm", x));
}

}  // namespace weft::llm
