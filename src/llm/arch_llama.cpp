// Llama and what is built like it: Mistral, SmolLM2, and SmolLM3, where some layers know no positions.
#include "llm/builder.hpp"

namespace weft::llm {

ModelGraph build_llama(const BuildInput& input) {
  GraphBuilder b(input);
  const ModelConfig& c = b.config();
  std::string x = b.embedding();
  for (Extent i = 0; i < c.layers; ++i) {
    b.set_layer(i);
    const std::string h = b.rms_norm("norm1", x);
    const auto [q, k, v] = b.queries_keys_values(h, Bias::if_present);
    // GGUF files of this family store the rows of q and k so that rotary pairs are neighbours.
    const auto at = static_cast<std::size_t>(i);
    const std::string a = b.attention(q, k, v,
                                      {.pairs = c.from_gguf ? RopePairs::neighbours : RopePairs::halves,
                                       .rope = c.rope_layers.empty() || c.rope_layers[at],
                                       .local = c.window > 0 && (c.local_layers.empty() || c.local_layers[at]),
                                       .output_bias = Bias::if_present});
    x = b.binary("resid1", OpType::add, x, a);
    x = b.binary("resid2", OpType::add, x,
                 b.gated_mlp(b.rms_norm("norm2", x), activation_of(c, "silu"), Bias::if_present));
  }
  b.set_layer(-1);
  return b.finish(b.rms_norm("final_norm", x));
}

}  // namespace weft::llm
