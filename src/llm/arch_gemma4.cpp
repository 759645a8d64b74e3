// Gemma 4: layers that see everything have wider heads than those with a window, and may have one product for keys and values; its
// smaller models have inputs of each layer's own, and last layers that read the keys of earlier ones.
#include <cmath>

#include "llm/gemma_parts.hpp"

namespace weft::llm {
namespace {

class LayerOfTwoKinds {
 public:
  explicit LayerOfTwoKinds(GraphBuilder& b) : b_(b), c_(b.config()), windowed_(windowed_layers(c_)) {}

  std::string run(std::string x, const std::string& inputs) {
    x = b_.binary("resid1", OpType::add, x, b_.rms_norm("norm1_after", attention(b_.rms_norm("norm1", x))));
    x = b_.binary("resid2", OpType::add, x, b_.rms_norm("norm2_after", mlp(b_.rms_norm("norm2", x))));
    if (!inputs.empty()) x = b_.binary("resid3", OpType::add, x, layer_input_added(b_, x, inputs));
    return b_.binary("scaled", OpType::mul, x, b_.constant("layer_scale", {1}, Element::f32));
  }

 private:
  struct KeysValues {
    std::string k, v;
  };

  std::string attention(const std::string& x) {
    const Extent from = layer_of_keys(c_, windowed_, b_.layer());
    const bool is_local = windowed_[static_cast<std::size_t>(b_.layer())], has_keys = from == b_.layer();
    const Extent width = is_local ? c_.head_dim : c_.global_head_dim,
                 kv_heads = is_local ? c_.kv_heads : c_.global_kv_heads;
    const auto turned = [&](std::string_view id, const std::string& of, Extent heads) {
      return b_.turned(id, of, heads, RopePairs::halves, is_local);
    };
    const std::string q = turned(
        "q_rope", b_.rms_norm("q_norm", b_.linear("q", x, c_.heads * width, Bias::if_present), 0, width), c_.heads);
    KeysValues& of_kind = is_local ? local_ : global_;
    if (has_keys) {
      const std::string k = b_.linear("k", x, kv_heads * width, Bias::if_present);
      const std::string v =
          !is_local && c_.global_keys_are_values ? k : b_.linear("v", x, kv_heads * width, Bias::if_present);
      of_kind.k = turned("k_rope", b_.rms_norm("k_norm", k, 0, width), kv_heads);
      of_kind.v = b_.unit_norm("v_unit", v, c_.norm_eps, width);
    }
    const std::string y =
        b_.attend(q, of_kind.k, of_kind.v, c_.heads, kv_heads, 1, {.local = is_local, .keys_of = has_keys ? -1 : from});
    return b_.linear("o", y, c_.hidden, Bias::if_present);
  }

  std::string mlp(const std::string& x) {
    const bool is_wide = c_.wide_without_keys && b_.layer() >= c_.layers - c_.layers_without_keys;
    const Extent width = c_.intermediate * (is_wide ? 2 : 1);
    const std::string gate = b_.linear("gate", x, width);
    return b_.gate_and_up(gate, b_.linear("up", x, width), activation_of(c_, "gelu_tanh"));
  }

  GraphBuilder& b_;
  const ModelConfig& c_;
  std::vector<bool> windowed_;
  KeysValues local_, global_;  // of the last layer of each kind that has some
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
