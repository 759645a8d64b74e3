#include "llm/gemma_parts.hpp"

#include <fmt/format.h>

#include <cmath>

#include "weft/error.hpp"

namespace weft::llm {
namespace {

/// Whether each layer sees a window.
std::vector<bool> windowed_layers(const ModelConfig& c) {
  if (c.window == 0) return std::vector<bool>(static_cast<std::size_t>(c.layers), false);
  return c.local_layers;
}

/// The layer whose keys and values layer `i` reads: itself, or the last of its kind among those that have some.
Extent layer_of_keys(const ModelConfig& c, const std::vector<bool>& windowed, Extent i) {
  const Extent with_keys = c.layers - c.layers_without_keys;
  if (i < with_keys) return i;
  for (Extent from = with_keys; from-- > 0;)
    if (windowed[static_cast<std::size_t>(from)] == windowed[static_cast<std::size_t>(i)]) return from;
  throw FileError(fmt::format("{}: layer {} has no keys, and no layer of its kind before it has some", c.source, i));
}

}  // namespace

std::string layer_inputs(GraphBuilder& b, const std::string& x) {
  const ModelConfig& c = b.config();
  const Extent width = c.layer_input, all = c.layers * width;
  const std::string rows =
      b.unary("layer_rows", OpType::scale, b.rows_of_tokens("layer_embed", c.layer_vocabulary, all),
              {{"factor", std::sqrt(static_cast<double>(width))}});
  const std::string product = b.unary("layer_model_scaled", OpType::scale, b.linear("layer_model", x, all),
                                      {{"factor", 1 / std::sqrt(static_cast<double>(c.hidden))}});
  const std::string sum = b.binary("layer_sum", OpType::add, b.rms_norm("layer_model_norm", product, 0, width), rows);
  return b.unary("layer_inputs", OpType::scale, sum, {{"factor", std::sqrt(0.5)}});
}

std::string layer_input_added(GraphBuilder& b, const std::string& x, const std::string& inputs) {
  const ModelConfig& c = b.config();
  const std::string gate =
      b.unary("layer_act", activation_of(c, "gelu_tanh"), b.linear("layer_gate", x, c.layer_input));
  const std::string own = b.columns("layer_own", inputs, b.layer() * c.layer_input, c.layer_input);
  return b.rms_norm("layer_norm",
                    b.linear("layer_projection", b.binary("layer_gated", OpType::mul, gate, own), c.hidden));
}

AttentionOfTwoKinds::AttentionOfTwoKinds(GraphBuilder& b) : b_(b), c_(b.config()), windowed_(windowed_layers(c_)) {}

std::string AttentionOfTwoKinds::of(const std::string& x) {
  const Extent from = layer_of_keys(c_, windowed_, b_.layer());
  const bool is_local = windowed_[static_cast<std::size_t>(b_.layer())], has_keys = from == b_.layer();
  const bool has_usual_heads = is_local || c_.global_head_dim == 0;
  const Extent width = has_usual_heads ? c_.head_dim : c_.global_head_dim,
               kv_heads = has_usual_heads ? c_.kv_heads : c_.global_kv_heads;
  const auto turned = [&](std::string_view id, const std::string& of, Extent heads) {
    return b_.turned(id, of, heads, RopePairs::halves, is_local);
  };
  const std::string q = turned(
      "q_rope", b_.rms_norm("q_norm", b_.linear("q", x, c_.heads * width, Bias::if_present), 0, width), c_.heads);
  KeysValues& of_kind = is_local ? local_ : global_;
  if (has_keys) {
    const std::string k = b_.linear("k", x, kv_heads * width, Bias::if_present);
    // GGUF files have no key for it.
    const bool is_key =
        !is_local && (c_.global_keys_are_values || (c_.from_gguf && c_.global_head_dim > 0 && !b_.has("v.weight")));
    const std::string v = is_key ? k : b_.linear("v", x, kv_heads * width, Bias::if_present);
    of_kind.k = turned("k_rope", b_.rms_norm("k_norm", k, 0, width), kv_heads);
    of_kind.v = b_.unit_norm("v_unit", v, c_.norm_eps, width);
  }
  const std::string y =
      b_.attend(q, of_kind.k, of_kind.v, c_.heads, kv_heads, 1, {.local = is_local, .keys_of = has_keys ? -1 : from});
  return b_.linear("o", y, c_.hidden, Bias::if_present);
}

}  // namespace weft::llm
