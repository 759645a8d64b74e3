#include <fmt/format.h>

#include <algorithm>

#include "llm/config_families.hpp"
#include "llm/config_gemma.hpp"
#include "llm/config_gguf.hpp"
#include "llm/config_keys.hpp"
#include "weft/error.hpp"

namespace weft::llm {
namespace {

class Family2025 {
 public:
  Family2025(const io::GgufMetadata& m, ModelConfig& c) : m_(m), c_(c), keys_(m, c) {}

  void read() {
    const std::string& name = c_.architecture;
    if (name == "glm4moe") {
      read_gguf_mixture(m_, c_);
      c_.routing.is_sigmoid = true;  // older files leave it out
    } else if (name == "ernie4_5-moe") {
      read_gguf_mixture(m_, c_);
      c_.expert_weights_are_shares = true;
      if (const Extent count = size("expert_shared_count", 0); count == 0) c_.shared_intermediate = 0;
    } else if (name == "olmoe") {
      c_.expert_weights_are_shares = false;
    } else if (name == "dots1" || name.starts_with("bailingmoe")) {
      read_gguf_mixture(m_, c_);
    } else if (name == "hunyuan-moe") {
      c_.shared_intermediate =
          size("expert_shared_feed_forward_length", c_.intermediate) * size("expert_shared_count", 1);
    } else if (name == "minimax-m2") {
      c_.routing.is_sigmoid = true;
    } else if (name == "jamba" || name == "granitehybrid" || name.starts_with("nemotron_h")) {
      hybrid();
    } else if (name == "mistral3") {
      ministral3();
    } else if (name == "apertus") {
      apertus();
    } else if (name == "llama4") {
      llama4();
    } else if (name == "lfm2moe") {
      lfm2_experts();
    } else if (name == "gemma3n") {
      read_gguf_gemma3n(m_, c_);
    } else if (name == "gemma4") {
      read_gguf_gemma4(m_, c_);
    } else if (name == "qwen3next" || name == "qwen35" || name == "qwen35moe") {
      delta();
    }
  }

 private:
  std::string key(std::string_view name) const { return keys_(name); }
  Extent size(std::string_view name, std::optional<Extent> fallback = {}) const { return keys_.size(name, fallback); }

  /// What GGUF has no keys for is as Meta's models have it.
  void llama4() {
    constexpr Extent kChunk = 8192, kInterval = 4, kLayersWithoutUnits = 48;
    constexpr double kGrowth = 0.1;
    read_gguf_mixture(m_, c_);
    c_.expert_weights_are_shares = false;
    c_.routing.is_sigmoid = c_.routing.is_on_input = true;
    c_.shared_intermediate = c_.expert_intermediate;
    c_.attention_chunk = kChunk;
    for (Extent i = 0; i < c_.layers; ++i) c_.rope_layers.push_back((i + 1) % kInterval != 0);
    c_.local_layers = c_.rope_layers;
    c_.query_growth = {kGrowth, kChunk, 1};
    c_.has_unit_heads = !(c_.layers == kLayersWithoutUnits && c_.experts == 128);  // Maverick's are not divided
  }

  void ministral3() {
    RopeScaling& s = c_.rope_scaling;
    if (const double all = m_.get_or<double>(key("rope.scaling.yarn_log_multiplier"), 0); all != 0)
      s.mscale = 1, s.mscale_all_dim = all;
    c_.query_growth.factor = m_.get_or<double>(key("attention.temperature_scale"), 0);
    if (c_.query_growth.factor == 0) return;
    c_.query_growth.each = s.original_context;
    if (s.original_context == 0)
      throw FileError(fmt::format("{}: {} needs {}, by which queries grow", c_.source,
                                  key("attention.temperature_scale"), key("rope.scaling.original_context_length")));
  }

  /// Files have the numbers of the activation in lists, not in tensors.
  void apertus() {
    c_.activation = "xielu";
    const auto numbers = [&](const char* name) {
      const std::string k = fmt::format("xielu.{}", name);
      std::vector<double> list = m_.numbers(k);
      if (list.size() == 1) list.resize(static_cast<std::size_t>(c_.layers), list[0]);
      if (static_cast<Extent>(list.size()) != c_.layers)
        throw FileError(fmt::format("{}: {} has {} numbers for {} layers", c_.source, k, list.size(), c_.layers));
      return list;
    };
    const auto a = numbers("alpha_p"), b = numbers("alpha_n"), beta = numbers("beta"), eps = numbers("eps");
    for (std::size_t i = 0; i < a.size(); ++i) c_.xielu.push_back({a[i], b[i], beta[i], eps[i]});
  }

  void hybrid() {
    const bool turns = c_.architecture == "granitehybrid" && m_.get_or<bool>(key("rope.scaling.finetuned"), true);
    if (!turns) c_.rope_dims = 0;
    if (c_.architecture == "granitehybrid" && c_.experts > 0)
      c_.shared_intermediate = size("expert_shared_feed_forward_length", 0);
    if (c_.architecture == "jamba") c_.expert_weights_are_shares = false;
    if (c_.architecture == "nemotron_h_moe") nemotron_experts();
  }

  void nemotron_experts() {
    if (const Extent latent = size("moe_latent_size", 0); latent > 0)
      throw FileError(
          fmt::format("{}: {} is {}; Weft runs Nemotron-H whose experts read the states of tokens themselves",
                      c_.source, key("moe_latent_size"), latent));
    read_gguf_mixture(m_, c_);
    c_.routing.is_sigmoid = c_.experts_are_plain = true;
    c_.shared_intermediate = size("expert_shared_feed_forward_length", 0);
    set_expert_layers(c_, c_.mlp_layers);
  }

  void lfm2_experts() {
    read_gguf_mixture(m_, c_);
    c_.routing.is_sigmoid = c_.expert_weights_are_shares = true;
  }

  void delta() {
    StateSpace& s = c_.state_space;
    s = {.inner = size("ssm.inner_size"), .states = size("ssm.state_size"), .kernel = size("ssm.conv_kernel")};
    s.heads = size("ssm.time_step_rank");
    s.groups = size("ssm.group_count");
    s.is_delta = true;
    // Files of Qwen3.5 have the heads of values of all heads of keys in turn.
    s.takes_turns = c_.architecture != "qwen3next";
    const Extent interval = std::max<Extent>(size("full_attention_interval", 4), 1);
    for (Extent i = 0; i < c_.layers; ++i) s.layers.push_back((i + 1) % interval != 0);
    if (c_.experts > 0) c_.shared_intermediate = size("expert_shared_feed_forward_length", 0);
  }

  const io::GgufMetadata& m_;
  ModelConfig& c_;
  const GgufKeys keys_;
};

}  // namespace

void read_gguf_families(const io::GgufMetadata& metadata, ModelConfig& config) { Family2025(metadata, config).read(); }

}  // namespace weft::llm
