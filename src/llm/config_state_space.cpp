#include "llm/config_state_space.hpp"

#include <fmt/format.h>

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

}  // namespace

void read_state_space(const Keys& keys, ModelConfig& c) {
  StateSpace& s = c.state_space;
  const std::string& type = c.architecture;
  if (type == "mamba" || type == "mamba2") {
    s.states = keys.size({"state_size"}, type == "mamba" ? 16 : 128);
    s.kernel = keys.size({"conv_kernel"}, 4);
    const double expand = keys.number({"expand"}, 2.0);
    if (!(expand > 0 && expand <= 64)) keys.fail("expand", fmt::format("is {}; it must be between 0 and 64", expand));
    s.inner = static_cast<Extent>(expand * static_cast<double>(c.hidden));
    if (const Json* given = keys.find({"intermediate_size"}); given && type == "mamba")
      s.inner = keys.size({"intermediate_size"});
    if (type == "mamba") {
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
  } else if (type == "bamba" || type == "granitemoehybrid") {
    s.states = keys.size({"mamba_d_state"}, 256);
    s.kernel = keys.size({"mamba_d_conv"}, 4);
    s.inner = keys.size({"mamba_expand"}, 2) * c.hidden;
    s.heads = keys.size({"mamba_n_heads"}, 128);
    s.groups = keys.size({"mamba_n_groups"}, 1);
    s.layers = layers_with_state(keys, c);
    read_limits(keys, "time_step_limit", s);
  }
  if (type == "lfm2") {  // short convolutions, which keep their last inputs alone
    s.kernel = keys.size({"conv_L_cache"}, 3);
    s.inner = c.hidden;
    s.layers = layers_with_state(keys, c);
  }
  if (type == "granitemoehybrid") {
    if (keys.size({"num_local_experts"}, 0) > 0)
      keys.fail("num_local_experts", "is above 0; Weft runs Granite's hybrids without experts");
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
  if (s.states == 0 && c.architecture == "lfm2") return;
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
