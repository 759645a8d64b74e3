// GPT-2: learned positions, layer norms, biases everywhere. Its own files hold matrices transposed, GGUF files do not.
#include <fmt/format.h>

#include "llm/builder.hpp"
#include "weft/error.hpp"

namespace weft::llm {

ModelGraph build_gpt2(const BuildInput& input) {
  GraphBuilder b(input);
  const ModelConfig& c = b.config();
  if (c.kv_heads != c.heads || c.heads * c.head_dim != c.hidden)
    throw FileError(
        fmt::format("{}: {} heads ({} for keys) of {} do not make up the hidden size {}, as GPT-2's must; "
                    "take another copy of the file",
                    c.source, c.heads, c.kv_heads, c.head_dim, c.hidden));
  const bool transposed = !c.from_gguf;
  const std::string table = b.constant("positions.weight", {c.context, c.hidden});
  std::string x =
      b.binary("embed_sum", OpType::add, b.embedding(),
               b.node("embed_positions", OpType::embedding, {table, "positions"}, {Symbol::tokens, c.hidden}));
  for (Extent i = 0; i < c.layers; ++i) {
    b.set_layer(i);
    const std::string qkv = b.linear("qkv", b.layer_norm("norm1", x), 3 * c.hidden, Bias::required, transposed);
    const std::string a = b.attention(b.columns("q", qkv, 0, c.hidden), b.columns("k", qkv, c.hidden, c.hidden),
                                      b.columns("v", qkv, 2 * c.hidden, c.hidden),
                                      {.rope = false, .output_bias = Bias::required, .output_transposed = transposed});
    x = b.binary("resid1", OpType::add, x, a);
    std::string m = b.linear("up", b.layer_norm("norm2", x), c.intermediate, Bias::required, transposed);
    m = b.linear("down", b.unary("act", activation_of(c, "gelu_tanh"), m), c.hidden, Bias::required, transposed);
    x = b.binary("resid2", OpType::add, x, m);
  }
  b.set_layer(-1);
  return b.finish(b.layer_norm("final_norm", x));
}

}  // namespace weft::llm
