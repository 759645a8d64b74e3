// Mixtral: Llama's attention, and for each token a few of many MLPs, chosen by a router.
#include "llm/builder.hpp"

namespace weft::llm {

ModelGraph build_mixtral(const BuildInput& input) {
  GraphBuilder b(input);
  const ModelConfig& c = b.config();
  std::string x = b.embedding();
  for (Extent i = 0; i < c.layers; ++i) {
    b.set_layer(i);
    const std::string h = b.rms_norm("norm1", x);
    const auto [q, k, v] = b.queries_keys_values(h);
    const std::string a =
        b.attention(q, k, v, {.pairs = c.from_gguf ? RopePairs::neighbours : RopePairs::halves, .local = c.window > 0});
    x = b.binary("resid1", OpType::add, x, a);
    x = b.binary("resid2", OpType::add, x, b.experts(b.rms_norm("norm2", x), c.intermediate));
  }
  b.set_layer(-1);
  return b.finish(b.rms_norm("final_norm", x));
}

}  // namespace weft::llm
