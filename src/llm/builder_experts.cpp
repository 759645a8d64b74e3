// Mixtures of experts: those that a router chooses, and one that every token uses.
#include <fmt/format.h>

#include "llm/builder.hpp"

namespace weft::llm {

std::string GraphBuilder::experts(const std::string& x, Extent width, const std::string& routed) {
  const ModelConfig& c = config();
  const std::vector<Dim> wide = {c.experts, width, c.hidden}, back = {c.experts, c.hidden, width};
  if (c.experts_are_plain) {
    const std::string ups = constant("ups.weight", wide);
    return experts_of(x, {ups, ups, constant("downs.weight", back)});
  }
  // A tensor for the gates of all experts, which has the ups behind each.
  if ((!c.from_gguf || c.architecture == "gemma4") && has("gates.weight")) {
    const auto half = [&](std::string_view name, Extent begin) {
      return part(name, wide,
                  {.file = {c.experts, 2 * width, c.hidden},
                   .groups = c.experts,
                   .rows = 2 * width,
                   .columns = c.hidden,
                   .begin = begin,
                   .count = width});
    };
    return experts_of(x, {half("gates.weight", 0), half("ups.weight", width), constant("downs.weight", back)}, routed);
  }
  return experts_of(x, {constant("gates.weight", wide), constant("ups.weight", wide), constant("downs.weight", back)});
}

std::string GraphBuilder::expert_columns(std::string_view name, Extent begin, Extent step) {
  const ModelConfig& c = config();
  const Extent width = c.expert_intermediate;
  return part(name, {c.experts, width, c.hidden},
              {.file = {c.experts, c.hidden, 2 * width},
               .groups = c.experts,
               .rows = c.hidden,
               .columns = 2 * width,
               .of_columns = true,
               .begin = begin,
               .step = step,
               .count = width,
               .transposed = true});
}
std::string GraphBuilder::expert_rows_back(std::string_view name) {
  const ModelConfig& c = config();
  const Extent width = c.expert_intermediate;
  return part(name, {c.experts, c.hidden, width},
              {.file = {c.experts, width, c.hidden},
               .groups = c.experts,
               .rows = width,
               .columns = c.hidden,
               .count = width,
               .transposed = true});
}

std::string GraphBuilder::experts_of(const std::string& x, std::vector<std::string> constants,
                                     const std::string& routed) {
  const ModelConfig& c = config();
  const bool has_biases = constants.size() > 3, is_corrected = has("router.correction");
  std::vector<std::string> inputs = {x, constant("router.weight", {c.experts, c.hidden})};
  inputs.insert(inputs.end(), constants.begin(), constants.begin() + 3);
  if (has_biases) {
    inputs.push_back(constant("router.bias", {c.experts}, Element::f32));
    inputs.insert(inputs.end(), constants.begin() + 3, constants.end());
  }
  if (is_corrected)
    inputs.push_back(c.architecture == "ernie4_5_moe"  // whose files have a row
                         ? part("router.correction", {c.experts},
                                {.file = {1, c.experts}, .columns = c.experts, .count = 1}, Element::f32)
                         : constant("router.correction", {c.experts}, Element::f32));
  const auto routed_at = static_cast<Extent>(routed.empty() ? 0 : inputs.size());
  if (!routed.empty()) {
    inputs.push_back(routed);
    inputs.push_back(constant("expert_scales", {c.experts}, Element::f32));
  }
  return node("experts", OpType::experts, std::move(inputs), shape_of(x),
              {{"used", c.experts_per_token},
               {"shares", Extent{c.expert_weights_are_shares}},
               {"biases", Extent{has_biases}},
               {"corrected", Extent{is_corrected}},
               {"sigmoid", Extent{c.routing.is_sigmoid}},
               {"groups", c.routing.groups},
               {"groups_used", c.routing.groups_used},
               {"factor", c.routing.factor},
               {"on_input", Extent{c.routing.is_on_input}},
               {"alpha", c.swiglu_alpha},
               {"plain", Extent{c.experts_are_plain}},
               {"routed", routed_at},
               {"gelu", Extent{activation_of(c, routed.empty() ? "silu" : "gelu_tanh") == OpType::gelu_tanh}},
               {"limit", c.swiglu_limit}});
}

bool GraphBuilder::has_experts() const {
  const ModelConfig& c = config();
  return c.experts > 0 && (c.expert_layers.empty() || c.expert_layers[static_cast<std::size_t>(layer_)]);
}

std::string GraphBuilder::named_mlp(std::string_view prefix, const std::string& x, Extent width, OpType activation) {
  const auto id = [&](std::string_view part) { return fmt::format("{}_{}", prefix, part); };
  const std::string gate = unary(id("act"), activation, linear(id("gate"), x, width)), up = linear(id("up"), x, width);
  return linear(id("down"), binary(id("glu"), OpType::mul, gate, up), config().hidden);
}

std::string GraphBuilder::shared_router(const std::string& x) {
  if (!config().from_gguf) return linear("shared_router", x, 1);
  // GGUF files have the weights as a vector.
  const Extent width = config().hidden;
  return linear_part("shared_router", x, 1, {.file = {width}, .columns = width, .count = 1});
}

std::string GraphBuilder::mixture(const std::string& x) {
  const ModelConfig& c = config();
  const std::string chosen = experts(x, c.expert_intermediate);
  if (c.shared_intermediate == 0) return chosen;
  if (c.experts_are_plain) {
    const std::string up = linear("shared_up", x, c.shared_intermediate);
    return binary("mixture", OpType::add, chosen,
                  linear("shared_down", unary("shared_act", OpType::relu2, up), c.hidden));
  }
  std::string shared = named_mlp("shared", x, c.shared_intermediate, OpType::silu);
  if (has("shared_router.weight"))
    shared = binary("shared", OpType::mul_each, shared, unary("shared_share", OpType::sigmoid, shared_router(x)));
  return binary("mixture", OpType::add, chosen, shared);
}

}  // namespace weft::llm
