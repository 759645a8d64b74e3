#include "llm/gemma_parts.hpp"

#include <fmt/format.h>

#include <cmath>

#include "weft/error.hpp"

namespace weft::llm {

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

std::vector<bool> windowed_layers(const ModelConfig& c) {
  if (c.window == 0) return std::vector<bool>(static_cast<std::size_t>(c.layers), false);
  return c.local_layers;
}

Extent layer_of_keys(const ModelConfig& c, const std::vector<bool>& windowed, Extent i) {
  const Extent with_keys = c.layers - c.layers_without_keys;
  if (i < with_keys) return i;
  for (Extent from = with_keys; from-- > 0;)
    if (windowed[static_cast<std::size_t>(from)] == windowed[static_cast<std::size_t>(i)]) return from;
  throw FileError(fmt::format("{}: layer {} has no keys, and no layer of its kind before it has some", c.source, i));
}

}  // namespace weft::llm
