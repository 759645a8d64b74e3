// Qwen2 and 2.5, with biases on queries, keys and values; Qwen3, with norms of heads instead.
#include "llm/builder.hpp"

namespace weft::llm {

ModelGraph build_qwen(const BuildInput& input) {
  GraphBuilder b(input);
  const ModelConfig& c = b.config();
  const bool third = c.architecture == "qwen3";
  const Bias bias = third ? Bias::if_present : Bias::required;
  std::string x = b.embedding();
  for (Extent i = 0; i < c.layers; ++i) {
    b.set_layer(i);
    const std::string h = b.rms_norm("norm1", x);
    const std::string q = b.linear("q", h, c.heads * c.head_dim, bias),
                      k = b.linear("k", h, c.kv_heads * c.head_dim, bias),
                      v = b.linear("v", h, c.kv_heads * c.head_dim, bias);
    const std::string a =
        b.attention(q, k, v,
                    {.local = c.window > 0 && !c.local_layers.empty() && c.local_layers[static_cast<std::size_t>(i)],
                     .head_norms = third ? std::optional(0.0) : std::nullopt,
                     .output_bias = Bias::if_present});
    x = b.binary("resid1", OpType::add, x, a);
    x = b.binary("resid2", OpType::add, x, b.gated_mlp(b.rms_norm("norm2", x), activation_of(c, "silu")));
  }
  b.set_layer(-1);
  return b.finish(b.rms_norm("final_norm", x));
}

}  // namespace weft::llm
