// Phi-3, 3.5 and 4-mini: queries, keys and values from one matrix, gate and up from another.
#include "llm/builder.hpp"

namespace weft::llm {

ModelGraph build_phi3(const BuildInput& input) {
  GraphBuilder b(input);
  const ModelConfig& c = b.config();
  const Extent queries = c.heads * c.head_dim, keys = c.kv_heads * c.head_dim;
  std::string x = b.embedding();
  for (Extent i = 0; i < c.layers; ++i) {
    b.set_layer(i);
    const std::string qkv = b.linear("qkv", b.rms_norm("norm1", x), queries + 2 * keys);
    const std::string a = b.attention(b.columns("q", qkv, 0, queries), b.columns("k", qkv, queries, keys),
                                      b.columns("v", qkv, queries + keys, keys), {.local = c.window > 0});
    x = b.binary("resid1", OpType::add, x, a);
    const std::string both = b.linear("gate_up", b.rms_norm("norm2", x), 2 * c.intermediate);
    const std::string m =
        b.gate_and_up(b.columns("gate", both, 0, c.intermediate), b.columns("up", both, c.intermediate, c.intermediate),
                      activation_of(c, "silu"));
    x = b.binary("resid2", OpType::add, x, m);
  }
  b.set_layer(-1);
  return b.finish(b.rms_norm("final_norm", x));
}

}  // namespace weft::llm
