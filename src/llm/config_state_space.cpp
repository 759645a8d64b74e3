#include "llm/config_state_space.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace weft::llm {
namespace {

/// Which layers of a hybrid have a state.
std::vector<bool> layers_with_state(const Keys& keys, const ModelConfig& c) {
  std::vector<bool> layers(static_cast<std::size_t>(c.layers), true);
  if (const Json* types = keys.find({"layer_types", "layers_block_type"})) {
    if (!types->is_array() || static_cast<Extent>(types->size()) != c.layers)
      keys.fail("layer_types", fmt::format("is not a list of {} types", c.layers));
    for (std::size_t i = 0; i < types->size(); ++i) {
      const Json& type = (*types)[i];
      layers[i] = type == "mamba" || type == "linear_attention" || type == "conv";
      if (!layers[i] && type != "attention" && type != "full_attention")
        keys.fail("layer_types",
                  fmt::format("has {}; known are \"mamba\", \"linear_attention\", \"conv\", \"attention\" and "
                              "\"full_attention\"",
                              type.dump()));
    }
  } else if (const Json* attention = keys.find({"attn_layer_indices"})) {
    if (!attention->is_array()) keys.fail("attn_layer_indices", "is not a list of layers");
    for (const Json& each : *attention) {
      if (!each.is_number_integer() || each < 0 || each >= c.layers)
        keys.fail("attn_layer_indices", fmt::format("has {}, and the layers are 0 to {}", each.dump(), c.layers - 1));
      layers[each.get<std::size_t>()] = false;
    }
  } else if (c.state_space.is_delta) {
    const Extent interval = keys.size({"full_attention_interval"}, 4);
    if (interval < 1) keys.fail("full_attention_interval", "is 0; it must be above 0");
    for (std::size_t i = 0; i < layers.size(); ++i) layers[i] = (static_cast<Extent>(i) + 1) % interval != 0;
  }
  return layers;
}

/// A pair of numbers, of which the second may be infinite.
void read_limits(const Keys& keys, const char* key, StateSpace& s) {
  const Json* limits = keys.find({key});
  if (!limits) return;
  if (!limits->is_array() || limits->size() != 2 || !(*limits)[0].is_number())
    keys.fail(key, "is not a list of two numbers");
  s.dt_least = (*limits)[0].get<double>();
  // JSON has no infinity: Python writes a word that becomes null, and transformers an object.
  const Json& most = (*limits)[1];
  if (most.is_number())
    s.dt_most = most.get<double>();
  else if (!most.is_null() && !most.is_object())
    keys.fail(key, fmt::format("ends with {}, not a number", most.dump()));
}

/// Layers with a state and attention side by side, and factors of all parts.
void read_falcon_h1(const Keys& keys, ModelConfig& c) {
  StateSpace& s = c.state_space;
  s.inner = keys.size({"mamba_d_ssm"}, keys.is_null("mamba_d_ssm") ? s.inner : 1024);
  s.norms_before_gate = keys.flag("mamba_norm_before_gate", true);
  const auto factors = [&](const char* key, std::size_t count) {
    std::vector<double> list = keys.find({key}) ? keys.numbers(key) : std::vector<double>(count, 1.0);
    if (list.size() != count) keys.fail(key, fmt::format("is not a list of {} numbers", count));
    return list;
  };
  s.part_factors = factors("ssm_multipliers", 5);
  if (std::all_of(s.part_factors.begin(), s.part_factors.end(), [](double f) { return f == 1; }))
    s.part_factors.clear();
  const std::vector<double> of_mlp = factors("mlp_multipliers", 2);
  c.hybrid_factors = {.are_side_by_side = true,
                      .state_in = keys.number({"ssm_in_multiplier"}, 1.0),
                      .state_out = keys.number({"ssm_out_multiplier"}, 1.0),
                      .attention_in = keys.number({"attention_in_multiplier"}, 1.0),
                      .attention_out = keys.number({"attention_out_multiplier"}, 1.0),
                      .mlp_gate = of_mlp[0],
                      .mlp_down = of_mlp[1]};
}

/// One part a layer: a state, attention or an MLP, by a list of types or by a letter for each.
void read_nemotron_h(const Keys& keys, ModelConfig& c) {
  StateSpace& s = c.state_space;
  s.states = keys.size({"ssm_state_size"}, 128);
  s.kernel = keys.size({"conv_kernel"}, 4);
  s.heads = keys.size({"mamba_num_heads"}, 128);
  s.inner = s.heads * keys.size({"mamba_head_dim"}, 64);
  s.groups = keys.size({"n_groups"}, 8);
  read_limits(keys, "time_step_limit", s);
  const std::string letters = keys.text({"hybrid_override_pattern"}, "");
  const Json* types = keys.find({"layers_block_type"});
  const bool has_types = types && types->is_array();
  if (static_cast<Extent>(has_types ? types->size() : letters.size()) != c.layers)
    keys.fail("layers_block_type",
              fmt::format("or hybrid_override_pattern does not tell the types of {} layers", c.layers));
  for (std::size_t i = 0; i < static_cast<std::size_t>(c.layers); ++i) {
    const std::string type = !has_types                ? std::string(1, letters[i])
                             : (*types)[i].is_string() ? (*types)[i].get<std::string>()
                                                       : (*types)[i].dump();
    const bool is_state = type == "M" || type == "mamba" || type == "linear_attention",
               has_experts = type == "E" || type == "moe", is_mlp = type == "-" || type == "mlp" || has_experts;
    if (!is_state && !is_mlp && type != "*" && type != "attention" && type != "full_attention")
      keys.fail("layers_block_type", fmt::format("has \"{}\"; Weft runs Nemotron-H of layers with states (mamba, M), "
                                                 "attention (attention, *), MLPs (mlp, -) and experts (moe, E)",
                                                 type));
    s.layers.push_back(is_state);
    c.mlp_layers.push_back(is_mlp);
    c.expert_layers.push_back(has_experts);
  }
}

void read_jamba(const Keys& keys, ModelConfig& c) {
  StateSpace& s = c.state_space;
  s.states = keys.size({"mamba_d_state"}, 16);
  s.kernel = keys.size({"mamba_d_conv"}, 4);
  s.inner = keys.size({"mamba_expand"}, 2) * c.hidden;
  const Json* rank = keys.find({"mamba_dt_rank"});
  s.rank = rank && rank->is_number() ? keys.size({"mamba_dt_rank"}) : (c.hidden + 15) / 16;
  const Extent period = keys.size({"attn_layer_period"}, 8), offset = keys.size({"attn_layer_offset"}, 4);
  if (period < 1) keys.fail("attn_layer_period", "is 0; it must be above 0");
  for (Extent i = 0; i < c.layers; ++i) s.layers.push_back(i % period != offset);
}

}  // namespace

void read_state_space(const Keys& keys, ModelConfig& c) {
  StateSpace& s = c.state_space;
  const std::string& type = c.architecture;
  if (type == "mamba" || type == "mamba2" || type == "falcon_mamba") {
    const bool is_first = type != "mamba2";
    if (type == "falcon_mamba") s.part_eps = keys.number({"mixer_rms_eps"}, 1e-6);
    s.states = keys.size({"state_size"}, is_first ? 16 : 128);
    s.kernel = keys.size({"conv_kernel"}, 4);
    const double expand = keys.number({"expand"}, 2.0);
    if (!(expand > 0 && expand <= 64)) keys.fail("expand", fmt::format("is {}; it must be between 0 and 64", expand));
    s.inner = static_cast<Extent>(expand * static_cast<double>(c.hidden));
    if (const Json* given = keys.find({"intermediate_size"}); given && is_first)
      s.inner = keys.size({"intermediate_size"});
    if (is_first) {
      const Json* rank = keys.find({"time_step_rank"});
      s.rank = rank && rank->is_number() ? keys.size({"time_step_rank"}) : (c.hidden + 15) / 16;
    } else {
      s.heads = keys.size({"num_heads"}, 128);
      s.groups = keys.size({"n_groups"}, 8);
      read_limits(keys, "time_step_limit", s);
      if (!keys.flag("rms_norm", true)) keys.fail("rms_norm", "is false, which Weft does not support");
      if (const Extent width = keys.size({"head_dim"}, 64); s.heads * width != s.inner)
        keys.fail("num_heads",
                  fmt::format("is {}; with heads of {} that is not the inner size {}", s.heads, width, s.inner));
    }
  } else if (type == "bamba" || type == "granitemoehybrid" || type == "falcon_h1") {
    s.states = keys.size({"mamba_d_state"}, 256);
    s.kernel = keys.size({"mamba_d_conv"}, 4);
    s.inner = keys.size({"mamba_expand"}, 2) * c.hidden;
    s.heads = keys.size({"mamba_n_heads"}, 128);
    s.groups = keys.size({"mamba_n_groups"}, 1);
    s.layers = layers_with_state(keys, c);
    read_limits(keys, "time_step_limit", s);
    if (type == "falcon_h1") read_falcon_h1(keys, c);
  } else if (type == "nemotron_h") {
    read_nemotron_h(keys, c);
  } else if (type == "jamba") {
    read_jamba(keys, c);
  }
  if (type == "qwen3_next" || type == "qwen3_5_text" || type == "qwen3_5_moe_text") {
    s.is_delta = true;
    s.states = keys.size({"linear_key_head_dim"}, 128);
    s.kernel = keys.size({"linear_conv_kernel_dim"}, 4);
    s.groups = keys.size({"linear_num_key_heads"}, 16);
    s.heads = keys.size({"linear_num_value_heads"}, 32);
    s.inner = s.heads * keys.size({"linear_value_head_dim"}, 128);
    s.layers = layers_with_state(keys, c);
  }
  if (type == "lfm2" || type == "lfm2_moe") {  // short convolutions, which keep their last inputs alone
    s.kernel = keys.size({"conv_L_cache"}, 3);
    s.inner = c.hidden;
    s.layers = layers_with_state(keys, c);
  }
}

void check_state_space(const ModelConfig& c) {
  const StateSpace& s = c.state_space;
  if (s.inner == 0 && s.heads == 0 && s.states == 0) return;
  const auto require = [&](bool good, const std::string& fact) {
    if (!good) throw FileError(fmt::format("{}: {}", c.source, fact));
  };
  const bool second = s.heads > 0;
  require(s.inner >= 1 && s.inner <= Extent{1} << 20, fmt::format("the inner size of states is {}", s.inner));
  require(s.kernel >= 2 && s.kernel <= 64, fmt::format("the convolution sees {} inputs, not 2 to 64", s.kernel));
  if (s.states == 0 && c.architecture.starts_with("lfm2")) return;
  require(s.states >= 1 && s.states <= 4096, fmt::format("the number of states is {}, not from 1 to 4096", s.states));
  if (second) {
    require(s.inner % s.heads == 0, fmt::format("{} heads do not divide the inner size {}", s.heads, s.inner));
    require(s.groups >= 1 && s.heads % s.groups == 0,
            fmt::format("{} groups do not divide {} heads", s.groups, s.heads));
    require(s.dt_least >= 0 && (s.dt_most == 0 || s.dt_most >= s.dt_least),
            fmt::format("the steps are limited to {} and {}", s.dt_least, s.dt_most));
  } else {
    require(s.rank >= 1 && s.rank <= c.hidden,
            fmt::format("the rank of steps is {}, not from 1 to {}", s.rank, c.hidden));
  }
}

}  // namespace weft::llm
