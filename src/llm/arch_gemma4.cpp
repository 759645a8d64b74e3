// Gemma 4: layers that see everything have wider heads than those with a window, and may have one product for keys and values; its
// smaller models have inputs of each layer's own, and last layers that read the keys of earlier ones. In its model with experts these
// stand beside the MLP, and read the same x by norms of their own.
#include <cmath>

#include "llm/gemma_parts.hpp"

namespace weft::llm {
namespace {

class LayerOfTwoKinds {
 public:
  explicit LayerOfTwoKinds(GraphBuilder& b) : b_(b), c_(b.config()), attention_(b) {}

  std::string run(std::string x, const std::string& inputs) {
    x = b_.binary("resid1", OpType::add, x, b_.rms_norm("norm1_after", attention_.of(b_.rms_norm("norm1", x))));
    std::string y = mlp(b_.rms_norm("norm2", x));
    if (b_.has_experts())
      y = b_.binary("mixture", OpType::add, b_.rms_norm("mlp_norm_after", y),
                    b_.rms_norm("experts_norm_after",
                                b_.experts(b_.rms_norm("experts_norm", x), c_.expert_intermediate, routed(x))));
    x = b_.binary("resid2", OpType::add, x, b_.rms_norm("norm2_after", y));
    if (!inputs.empty()) x = b_.binary("resid3", OpType::add, x, layer_input_added(b_, x, inputs));
    return b_.binary("scaled", OpType::mul, x, b_.constant("layer_scale", {1}, Element::f32));
  }

 private:
  /// What the router reads: x of length 1, times a number for each column.
  std::string routed(const std::string& x) {
    const std::string scaled = b_.unary("router_scaled", OpType::scale, b_.unit_norm("router_unit", x, c_.norm_eps),
                                        {{"factor", 1 / std::sqrt(static_cast<double>(c_.hidden))}});
    return b_.binary("routed", OpType::mul, scaled, b_.constant("router_scale", {c_.hidden}, Element::f32));
  }
  std::string mlp(const std::string& x) {
    const bool is_wide = c_.wide_without_keys && b_.layer() >= c_.layers - c_.layers_without_keys;
    const Extent width = c_.intermediate * (is_wide ? 2 : 1);
    const std::string gate = b_.linear("gate", x, width);
    return b_.gate_and_up(gate, b_.linear("up", x, width), activation_of(c_, "gelu_tanh"));
  }

  GraphBuilder& b_;
  const ModelConfig& c_;
  AttentionOfTwoKinds attention_;
};

}  // namespace

ModelGraph build_gemma4(const BuildInput& input) {
  GraphBuilder b(input);
  LayerOfTwoKinds layer(b);
  std::string x = b.embedding(std::sqrt(static_cast<double>(b.config().hidden)));
  const std::string inputs = b.config().layer_input > 0 ? layer_inputs(b, x) : "";
  for (Extent i = 0; i < b.config().layers; ++i) {
    b.set_layer(i);
    x = layer.run(x, inputs);
  }
  b.set_layer(-1);
  return b.finish(b.rms_norm("final_norm", x));
}

}  // namespace weft::llm
