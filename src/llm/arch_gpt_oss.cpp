// gpt-oss: layers with a window in turn with those without, a sink for each head, and experts with biases and a clamped SwiGLU in
// every layer. Files of transformers keep gates and ups in one tensor, in turn; their blocks are read apart
// (io/mxfp4_experts.hpp).
#include "llm/builder.hpp"

namespace weft::llm {
namespace {

/// Gates begin at 0 and ups at 1 of an axis where both take turns.
std::string bias_in_turn(GraphBuilder& b, std::string_view name, Extent begin) {
  const ModelConfig& c = b.config();
  const Extent width = c.expert_intermediate;
  return b.part(name, {c.experts, width},
                {.file = {c.experts, 2 * width},
                 .groups = c.experts,
                 .rows = 2 * width,
                 .begin = begin,
                 .step = 2,
                 .count = width},
                Element::f32);
}

std::string mixture_with_biases(GraphBuilder& b, const std::string& x) {
  const ModelConfig& c = b.config();
  const Extent width = c.expert_intermediate;
  std::vector<std::string> constants;
  if (c.from_gguf || !b.has("gates.weight")) {  // matrices of their own
    for (const char* name : {"gates.weight", "ups.weight"})
      constants.push_back(b.constant(name, {c.experts, width, c.hidden}));
    constants.push_back(b.constant("downs.weight", {c.experts, c.hidden, width}));
  } else {
    constants = {b.expert_columns("gates.weight", 0, 2), b.expert_columns("ups.weight", 1, 2),
                 b.expert_rows_back("downs.weight")};
  }
  if (c.from_gguf) {
    for (const char* name : {"gates.bias", "ups.bias"})
      constants.push_back(b.constant(name, {c.experts, width}, Element::f32));
  } else {
    constants.push_back(bias_in_turn(b, "gates.bias", 0));
    constants.push_back(bias_in_turn(b, "ups.bias", 1));
  }
  constants.push_back(b.constant("downs.bias", {c.experts, c.hidden}, Element::f32));
  return b.experts_of(x, std::move(constants));
}

}  // namespace

ModelGraph build_gpt_oss(const BuildInput& input) {
  GraphBuilder b(input);
  const ModelConfig& c = b.config();
  std::string x = b.embedding();
  for (Extent i = 0; i < c.layers; ++i) {
    b.set_layer(i);
    const std::string h = b.rms_norm("norm1", x);
    const auto [q, k, v] = b.queries_keys_values(h, Bias::if_present);
    const bool is_local =
        c.window > 0 && (c.local_layers.empty() ? i % 2 == 0 : c.local_layers[static_cast<std::size_t>(i)]);
    x = b.binary("resid1", OpType::add, x,
                 b.attention(q, k, v, {.local = is_local, .output_bias = Bias::if_present, .sinks = true}));
    x = b.binary("resid2", OpType::add, x, mixture_with_biases(b, b.rms_norm("norm2", x)));
  }
  b.set_layer(-1);
  return b.finish(b.rms_norm("final_norm", x));
}

}  // namespace weft::llm
