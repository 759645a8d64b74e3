#include "llm/config.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "llm/config_families.hpp"
#include "llm/config_keys.hpp"
#include "llm/config_state_space.hpp"
#include "weft/error.hpp"

namespace weft::llm {
namespace {

// A model without attention counts positions, but nothing depends on how many there are.
constexpr Extent kContextWithoutAttention = 1 << 20, kHeadWithoutAttention = 2;

// ---- config.json -------------------------------------------------------------------------------------------------------

/// The number of rotary channels of a head, if a key gives it.
void read_turning_part(const Keys& keys, ModelConfig& config) {
  const double part = keys.number({"partial_rotary_factor", "rotary_pct"}, -1.0);
  if (part == -1) return;
  if (!(part >= 0 && part <= 1))
    keys.fail("partial_rotary_factor", fmt::format("is {}; it must be between 0 and 1", part));
  config.rope_dims = static_cast<Extent>(part * static_cast<double>(config.head_dim));
}

RopeScaling scaling_from_json(const Json& json, const std::string& source, ModelConfig& config) {
  const Keys keys(json, source, "rope_scaling");
  config.rope_base = keys.number({"rope_theta"}, config.rope_base);
  read_turning_part(keys, config);
  RopeScaling s;
  // Qwen's models that see call the usual frequencies "mrope", because pairs turn by several axes.
  for (const double each : keys.numbers("mrope_section")) config.rope_sections.push_back(static_cast<Extent>(each));
  config.rope_interleaved = keys.flag("mrope_interleaved", config.rope_interleaved);
  std::string kind = keys.text({"rope_type", "type"}, "default");
  if (kind == "mrope") kind = "default";
  s.factor = keys.number({"factor"}, 1.0);
  s.original_context = keys.size({"original_max_position_embeddings"}, 0);
  s.attention_factor = keys.number({"attention_factor"}, 0.0);
  if (kind == "default") return s;
  if (kind == "linear") {
    s.kind = RopeScaling::Kind::linear;
  } else if (kind == "llama3") {
    s.kind = RopeScaling::Kind::llama3;
    s.low_frequency_factor = keys.number({"low_freq_factor"});
    s.high_frequency_factor = keys.number({"high_freq_factor"});
    s.original_context = keys.size({"original_max_position_embeddings"});
  } else if (kind == "yarn") {
    s.kind = RopeScaling::Kind::yarn;
    s.beta_fast = keys.number({"beta_fast"}, 32.0);
    s.beta_slow = keys.number({"beta_slow"}, 1.0);
    s.mscale = keys.number({"mscale"}, 0.0);
    s.mscale_all_dim = keys.number({"mscale_all_dim"}, 0.0);
    s.truncate = keys.flag("truncate", true);
  } else if (kind == "longrope" || kind == "su") {
    s.kind = RopeScaling::Kind::longrope;
    s.short_factors = keys.numbers("short_factor");
    s.long_factors = keys.numbers("long_factor");
  } else {
    keys.fail("rope_type", fmt::format("is \"{}\"; known are default, linear, llama3, yarn and longrope", kind));
  }
  if (!(s.factor > 0)) keys.fail("factor", fmt::format("is {}; it must be above 0", s.factor));
  return s;
}

/// Whether it is the configuration of a model that Weft can show images (image_reader.hpp).
bool is_of_images(const Json& config) {
  const Json type = config.value("model_type", Json());
  const auto vision = config.find("vision_config");
  constexpr std::string_view kTypes[] = {"llava",    "idefics3",   "smolvlm",  "gemma3",
                                         "qwen2_vl", "qwen2_5_vl", "qwen3_vl", "mistral3"};
  return vision != config.end() && vision->is_object() && type.is_string() &&
         std::find(std::begin(kTypes), std::end(kTypes), type.get<std::string>()) != std::end(kTypes);
}
bool is_qwen_that_sees(std::string_view type) { return type.starts_with("qwen") && type.find("_vl") != type.npos; }

/// Keys of a text model within another's file, which leaves out what its class has by default.
Json with_defaults(const Json& inner, bool is_llama_by_default) {
  if (!inner.is_object()) return inner;
  if (inner.value("model_type", is_llama_by_default ? Json("llama") : Json()) == "llama") {
    Json all = {{"model_type", "llama"},   {"vocab_size", 32000},
                {"hidden_size", 4096},     {"intermediate_size", 11008},
                {"num_hidden_layers", 32}, {"num_attention_heads", 32},
                {"rms_norm_eps", 1e-6},    {"max_position_embeddings", 2048}};
    all.update(inner);
    return all;
  }
  const Json type = inner.value("model_type", Json());
  if (type == "mistral") {
    Json all = {{"vocab_size", 32000},        {"hidden_size", 4096},
                {"intermediate_size", 14336}, {"num_hidden_layers", 32},
                {"num_attention_heads", 32},  {"num_key_value_heads", 8},
                {"rms_norm_eps", 1e-6},       {"max_position_embeddings", 131072}};
    all.update(inner);
    return all;
  }
  if (type.is_string() && is_qwen_that_sees(type.get<std::string>())) {
    Json all = {{"rms_norm_eps", type == "qwen3_vl_text" ? 1e-6 : 1e-5},
                {"rope_theta", type == "qwen3_vl_text" ? 5e5 : 1e6},
                {"max_position_embeddings", type == "qwen3_vl_text" ? 128000 : 32768}};
    all.update(inner);
    return all;
  }
  if (type != "gemma3_text") return inner;
  Json all = {{"vocab_size", 262208},      {"hidden_size", 2304},
              {"intermediate_size", 9216}, {"num_hidden_layers", 26},
              {"num_attention_heads", 8},  {"num_key_value_heads", 4},
              {"head_dim", 256},           {"max_position_embeddings", 131072},
              {"rms_norm_eps", 1e-6},      {"query_pre_attn_scalar", 256},
              {"sliding_window", 4096},    {"eos_token_id", 1}};
  all.update(inner);
  return all;
}

/// Refuses settings that change results and that Weft does not implement.
void refuse_what_is_unknown(const Keys& keys, const ModelConfig& config) {
  struct Flag {
    const char* key;
    bool known;
  };
  for (const auto& [key, known] :
       {Flag{"scale_attn_weights", true}, Flag{"scale_attn_by_inverse_layer_idx", false},
        Flag{"use_bidirectional_attention", false}, Flag{"use_qk_norm", false}, Flag{"qk_layernorm", false}})
    if (keys.flag(key, known) != known) keys.fail(key, fmt::format("is {}, which Weft does not support", !known));
  if (config.architecture == "olmo" && keys.find({"clip_qkv"}))
    keys.fail("clip_qkv", "is given; Weft runs the OLMo models that do not clip queries, keys and values");
  if (config.experts > 0 && config.architecture.starts_with("qwen")) {
    if (const Extent step = keys.size({"decoder_sparse_step"}, 1); step != 1)
      keys.fail("decoder_sparse_step", fmt::format("is {}; Weft runs the models with experts in all layers", step));
    if (const Json* plain = keys.find({"mlp_only_layers"}); plain && !plain->empty())
      keys.fail("mlp_only_layers", "is not empty; Weft runs the models with experts in all layers");
  }
  if (config.experts > 0 && !config.activation.empty() && config.activation != "silu")
    keys.fail("hidden_act", "is not \"silu\", the only one that Weft's experts have");
}

/// The layers with a sliding window, and its size.
void read_windows(const Keys& keys, ModelConfig& c) {
  // Only these model types have a window; two of them also have a flag that switches it on.
  const bool by_flag = c.architecture.starts_with("qwen") || c.architecture == "smollm3";
  const bool known = by_flag || c.architecture == "mistral" || c.architecture == "mixtral" ||
                     c.architecture == "phi3" || c.architecture == "gemma2" || c.architecture == "gemma3_text" ||
                     c.architecture == "ministral" || c.architecture == "starcoder2" || c.architecture == "olmo3" ||
                     c.architecture == "cohere2" || c.architecture == "exaone4";
  if (known && keys.flag("use_sliding_window", !by_flag)) c.window = keys.size({"sliding_window"}, 0);
  if (const Json* types = keys.find({"layer_types"})) {
    if (!types->is_array()) keys.fail("layer_types", "is not a list");
    for (const Json& type : *types) c.local_layers.push_back(type == "sliding_attention");
  } else if (const Extent pattern = keys.size({"sliding_window_pattern", "_sliding_window_pattern"}, 0); pattern > 0) {
    for (Extent i = 0; i < c.layers; ++i) c.local_layers.push_back((i + 1) % pattern != 0);
  } else if (c.window > 0 && c.architecture.starts_with("qwen")) {
    const Extent first = keys.size({"max_window_layers"}, 28);
    for (Extent i = 0; i < c.layers; ++i) c.local_layers.push_back(i >= first);
  }
}

}  // namespace

ModelConfig config_from_json(const Json& json, std::string source) {
  ModelConfig c;
  c.source = std::move(source);
  const Keys whole(json, c.source);
  c.architecture = whole.text({"model_type"});
  // Vision models keep the keys of their text model in an object of their own.
  const Json* inner = whole.find({"text_config"});
  const bool sees = is_of_images(json);
  const Json text = with_defaults(inner ? *inner : json, sees && inner);
  const Keys keys(text, c.source, inner ? "text_config" : "");
  if (inner) c.architecture = keys.text({"model_type"}, c.architecture);
  c.reads_images = sees && (inner || is_qwen_that_sees(c.architecture));
  c.sees_images_whole = c.reads_images && c.architecture == "gemma3_text";
  c.name = whole.text({"_name_or_path"}, "");
  c.vocabulary = keys.size({"vocab_size"});
  c.hidden = keys.size({"hidden_size", "n_embd"});
  c.layers = keys.size({"num_hidden_layers", "n_layer"});
  read_state_space(keys, c);
  const bool has_attention = c.state_space.inner == 0 || !c.state_space.layers.empty();
  c.heads = has_attention ? keys.size({"num_attention_heads", "n_head"}) : 1;
  c.kv_heads = keys.size({"num_key_value_heads"}, c.heads);
  const UsualKeys usual = usual_of(c.architecture);
  const Extent usual_width = usual.head_dim > 0 ? usual.head_dim : c.heads > 0 ? c.hidden / c.heads : 0;
  c.head_dim = has_attention ? keys.size({"head_dim"}, usual_width) : kHeadWithoutAttention;
  c.intermediate = keys.size({"shared_intermediate_size", "intermediate_size", "n_inner"}, 4 * c.hidden);
  c.context = keys.size({"max_position_embeddings", "n_positions"}, has_attention ? 2048 : kContextWithoutAttention);
  if (c.architecture == "falcon") read_falcon(keys, c);
  if (c.architecture == "lfm2") read_lfm2(keys, c);
  c.norm_eps =
      keys.number({"rms_norm_eps", "layer_norm_epsilon", "layer_norm_eps", "norm_epsilon", "norm_eps"}, usual.norm_eps);
  if (c.architecture == "mamba" || c.architecture == "mamba2") c.norm_eps = keys.number({"layer_norm_epsilon"}, 1e-5);
  const std::string activation =
      keys.text({"hidden_activation", "hidden_act", "activation_function", "activation"}, "");
  c.activation = activation == "gelu_new" || activation == "gelu_pytorch_tanh" || activation == "gelu_fast"
                     ? "gelu_tanh"
                 : activation == "swish" ? "silu"
                                         : activation;
  if (!c.activation.empty() && c.activation != "silu" && c.activation != "gelu" && c.activation != "gelu_tanh" &&
      c.activation != "relu2")
    keys.fail("hidden_act", fmt::format("is \"{}\"; known are silu, gelu, gelu_pytorch_tanh and relu2", activation));
  // An absent key means the default of its class in transformers, which saves only keys that differ from the defaults.
  c.tied = keys.flag("tie_word_embeddings", keys.flag("tie_embedding", usual.tied));
  c.rope_base = keys.number({"rope_theta", "rotary_emb_base"}, usual.rope_base);
  c.rope_local_base = keys.number({"rope_local_base_freq"}, c.architecture == "gemma3_text" ? 10000.0 : 0.0);
  c.rope_dims = static_cast<Extent>(usual.turning_part * static_cast<double>(c.head_dim));
  read_factors(keys, usual, c);
  if (c.architecture == "granitemoehybrid" && keys.text({"position_embedding_type"}, "nope") != "rope") c.rope_dims = 0;
  read_turning_part(keys, c);
  const Json* scaling = keys.find({"rope_scaling", "rope_parameters"});
  if (scaling) {
    // The newest form has one entry for each kind of layer.
    if (const auto full = scaling->find("full_attention"); scaling->is_object() && full != scaling->end()) {
      if (const auto local = scaling->find("sliding_attention"); local != scaling->end()) {
        const Keys local_keys(*local, c.source, "rope_parameters.sliding_attention");
        if (local_keys.text({"rope_type"}, "default") != "default")
          local_keys.fail("rope_type", "is not \"default\"; Weft scales positions of all layers or of global ones");
        c.rope_local_base = local_keys.number({"rope_theta"}, c.rope_local_base);
      }
      c.rope_scaling = scaling_from_json(*full, c.source, c);
    } else {
      c.rope_scaling = scaling_from_json(*scaling, c.source, c);
    }
  }
  if (c.rope_scaling.kind == RopeScaling::Kind::longrope) {
    if (c.rope_scaling.original_context == 0)
      c.rope_scaling.original_context = keys.size({"original_max_position_embeddings"});
    if (c.rope_scaling.factor == 1)
      c.rope_scaling.factor = static_cast<double>(c.context) / static_cast<double>(c.rope_scaling.original_context);
  }
  read_windows(keys, c);
  if (const Json* list = keys.find({"no_rope_layers"})) {  // 1: the layer turns
    if (!list->is_array()) keys.fail("no_rope_layers", "is not a list");
    for (const Json& each : *list)
      c.rope_layers.push_back(each.is_number() ? each != 0 : each.is_boolean() && each.get<bool>());
  } else if (c.architecture == "smollm3") {
    const Extent interval = keys.size({"no_rope_layer_interval"}, 4);
    for (Extent i = 0; i < c.layers; ++i) c.rope_layers.push_back(interval == 0 || (i + 1) % interval != 0);
  }
  if (is_qwen_that_sees(c.architecture) && c.rope_sections.empty())
    c.rope_sections =
        c.architecture.starts_with("qwen3") ? std::vector<Extent>{24, 20, 20} : std::vector<Extent>{16, 24, 24};
  c.rope_interleaved = c.rope_interleaved || c.architecture.starts_with("qwen3_vl");
  if (c.reads_images && c.architecture.starts_with("qwen3_vl")) {
    const Keys vision(json.at("vision_config"), c.source, "vision_config");
    c.image_layers = vision.find({"deepstack_visual_indexes"})
                         ? static_cast<Extent>(vision.numbers("deepstack_visual_indexes").size())
                         : 3;
  }
  c.query_scale = keys.number({"query_pre_attn_scalar"}, 0.0);
  c.attention_soft_cap = keys.number({"attn_logit_softcapping"}, 0.0);
  c.logit_soft_cap = keys.number({"final_logit_softcapping"}, 0.0);
  // Command R7B and EXAONE 4 know positions only where they see a window.
  if (c.architecture == "cohere2" || (c.architecture == "exaone4" && c.window > 0)) c.rope_layers = c.local_layers;
  c.experts = keys.size({"num_local_experts", "num_experts"}, 0);
  c.experts_per_token = keys.size({"num_experts_per_tok"}, 0);
  c.expert_intermediate = keys.size({"moe_intermediate_size"}, c.intermediate);
  if (c.architecture == "qwen2_moe") c.shared_intermediate = keys.size({"shared_expert_intermediate_size"}, 5632);
  if (c.architecture.starts_with("qwen")) c.expert_weights_are_shares = keys.flag("norm_topk_prob", false);
  refuse_what_is_unknown(keys, c);
  const Json* end = whole.find({"eos_token_id"});
  if (!end) end = keys.find({"eos_token_id"});
  if (end) {
    for (const Json& id : end->is_array() ? *end : Json::array({*end})) {
      if (!id.is_number_integer()) whole.fail("eos_token_id", "is not a whole number or a list of whole numbers");
      c.end_tokens.push_back(id.get<std::int64_t>());
    }
  }
  check(c);
  return c;
}

// ---- GGUF --------------------------------------------------------------------------------------------------------------

ModelConfig config_from_gguf(const io::GgufMetadata& m, Extent vocabulary) {
  ModelConfig c;
  c.source = m.source();
  c.from_gguf = true;
  c.architecture = m.get<std::string>("general.architecture");
  c.name = m.get_or<std::string>("general.name", "");
  const auto key = [&](std::string_view name) { return fmt::format("{}.{}", c.architecture, name); };
  const auto size = [&](std::string_view name, std::optional<Extent> fallback = {}) {
    const std::string k = key(name);
    if (fallback && !m.contains(k)) return *fallback;
    // Some files give a number for each layer; Weft takes only models with equal layers.
    const std::vector<std::int64_t> list = m.integers(k);
    for (const std::int64_t each : list)
      if (each != list[0])
        throw FileError(fmt::format("{}: {} differs from layer to layer, which Weft does not support", c.source, k));
    if (list.empty() || list[0] < 0 || list[0] > kSizeMax)
      throw FileError(fmt::format("{}: {} is not a whole number from 0 to {}", c.source, k, kSizeMax));
    return Extent{list[0]};
  };
  const auto number = [&](std::string_view name, double fallback) { return m.get_or<double>(key(name), fallback); };
  c.vocabulary = vocabulary;
  c.hidden = size("embedding_length");
  c.layers = size("block_count");
  const bool is_mamba = c.architecture == "mamba" || c.architecture == "mamba2";
  if (is_mamba) {
    StateSpace& s = c.state_space;
    s = {.inner = size("ssm.inner_size"), .states = size("ssm.state_size"), .kernel = size("ssm.conv_kernel")};
    (c.architecture == "mamba" ? s.rank : s.heads) = size("ssm.time_step_rank");
    if (c.architecture == "mamba2") s.groups = size("ssm.group_count", 1);
    if (m.get_or<bool>(key("ssm.dt_b_c_rms"), false))
      throw FileError(fmt::format("{}: {} is true, which Weft does not support", c.source, key("ssm.dt_b_c_rms")));
  }
  c.heads = is_mamba ? 1 : size("attention.head_count");
  c.kv_heads = is_mamba ? 1 : size("attention.head_count_kv", c.heads);
  c.head_dim = is_mamba ? kHeadWithoutAttention : size("attention.key_length", c.heads > 0 ? c.hidden / c.heads : 0);
  if (size("attention.value_length", c.head_dim) != c.head_dim)
    throw FileError(fmt::format("{}: {} differs from attention.key_length, which Weft does not support", c.source,
                                key("attention.value_length")));
  c.intermediate = is_mamba ? c.hidden : size("feed_forward_length");
  c.context = is_mamba ? kContextWithoutAttention : size("context_length");
  c.norm_eps = number("attention.layer_norm_rms_epsilon", number("attention.layer_norm_epsilon", 1e-5));
  c.rope_base = number("rope.freq_base", c.architecture == "gemma3" ? 1e6 : 10000.0);
  c.rope_local_base = number("rope.freq_base_swa", c.architecture == "gemma3" ? 10000.0 : 0.0);
  c.rope_dims = size("rope.dimension_count", c.head_dim);
  const std::string scaling = m.get_or<std::string>(key("rope.scaling.type"), "none");
  RopeScaling& s = c.rope_scaling;
  s.factor = number("rope.scaling.factor", number("rope.scale_linear", 1));
  s.original_context = size("rope.scaling.original_context_length", 0);
  s.attention_factor = number("rope.scaling.attn_factor", 0);
  if (scaling == "linear" || (scaling == "none" && s.factor != 1))
    s.kind = RopeScaling::Kind::linear;
  else if (scaling == "yarn") {
    s.kind = RopeScaling::Kind::yarn;
    s.beta_fast = number("rope.scaling.yarn_beta_fast", s.beta_fast);
    s.beta_slow = number("rope.scaling.yarn_beta_slow", s.beta_slow);
    // Here the factor multiplies the computed value; it does not replace it.
    if (s.attention_factor > 0 && s.factor > 1) s.attention_factor *= 0.1 * std::log(s.factor) + 1;
  } else if (scaling == "longrope")
    s.kind = RopeScaling::Kind::longrope;
  else if (scaling != "none")
    throw FileError(fmt::format("{}: {} is \"{}\"; known are none, linear, yarn and longrope", c.source,
                                key("rope.scaling.type"), scaling));
  c.window = size("attention.sliding_window", 0);
  c.attention_soft_cap = number("attn_logit_softcapping", 0);
  c.logit_soft_cap = number("final_logit_softcapping", 0);
  c.experts = size("expert_count", 0);
  c.experts_per_token = size("expert_used_count", 0);
  c.expert_intermediate = size("expert_feed_forward_length", c.intermediate);
  c.embedding_scale = number("embedding_scale", 1);
  c.residual_scale = number("residual_scale", 1);
  c.attention_scale = number("attention.scale", 0);
  if (c.architecture == "granite") c.logit_scale = 1 / number("logit_scale", 1);
  const bool is_command = c.architecture == "command-r" || c.architecture == "cohere2";
  if (is_command) c.logit_scale = number("logit_scale", 0.0625);
  c.is_parallel = is_command || c.architecture == "phi2" ||
                  (c.architecture == "stablelm" && m.get_or<bool>(key("use_parallel_residual"), false));
  if (c.architecture == "smollm3")
    for (Extent i = 0; i < c.layers; ++i) c.rope_layers.push_back((i + 1) % 4 != 0);
  // Every fourth layer sees all positions, and knows none.
  if (c.architecture == "cohere2" || (c.architecture == "exaone4" && c.window > 0)) {
    for (Extent i = 0; i < c.layers; ++i) c.local_layers.push_back((i + 1) % 4 != 0);
    c.rope_layers = c.local_layers;
  }
  for (const char* name : {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"})
    if (const auto id = m.get_if<std::int64_t>(name)) c.end_tokens.push_back(*id);
  check(c);
  return c;
}

void check(const ModelConfig& c) {
  const auto require = [&](bool good, const std::string& fact) {
    if (!good) throw FileError(fmt::format("{}: {}", c.source, fact));
  };
  struct Size {
    const char* name;
    Extent value, max;
  };
  for (const auto& [name, value, max] :
       {Size{"vocabulary", c.vocabulary, kSizeMax}, Size{"hidden size", c.hidden, 1 << 18},
        Size{"number of layers", c.layers, 1 << 12}, Size{"number of heads", c.heads, 1 << 12},
        Size{"number of key heads", c.kv_heads, 1 << 12}, Size{"head size", c.head_dim, 1 << 12},
        Size{"intermediate size", c.intermediate, 1 << 20}, Size{"context", c.context, kSizeMax}})
    require(value >= 1 && value <= max, fmt::format("the {} is {}, not from 1 to {}", name, value, max));
  require(c.heads % c.kv_heads == 0, fmt::format("{} heads are not a multiple of {} key heads", c.heads, c.kv_heads));
  require(c.rope_dims >= 0 && c.rope_dims <= c.head_dim && c.rope_dims % 2 == 0,
          fmt::format("{} channels have rotary positions; the number must be even and at most the head size {}",
                      c.rope_dims, c.head_dim));
  require(c.norm_eps > 0 && c.norm_eps < 1, fmt::format("the norms' epsilon is {}, not between 0 and 1", c.norm_eps));
  require(c.rope_base > 0 && c.rope_local_base >= 0, "the base of positions is not above 0");
  require(c.attention_soft_cap >= 0 && c.logit_soft_cap >= 0 && c.query_scale >= 0, "a soft cap or scale is negative");
  require(c.local_layers.empty() || static_cast<Extent>(c.local_layers.size()) == c.layers,
          fmt::format("layer_types has {} entries for {} layers", c.local_layers.size(), c.layers));
  require(c.rope_layers.empty() || static_cast<Extent>(c.rope_layers.size()) == c.layers,
          fmt::format("no_rope_layers has {} entries for {} layers", c.rope_layers.size(), c.layers));
  require((c.experts == 0) == (c.experts_per_token == 0) && c.experts_per_token <= c.experts && c.experts <= 1024,
          fmt::format("{} of {} experts take part", c.experts_per_token, c.experts));
  check_state_space(c);
  if (!c.rope_sections.empty()) {
    const bool is_positive =
        std::all_of(c.rope_sections.begin(), c.rope_sections.end(), [](Extent n) { return n >= 0; });
    const Extent sum = std::accumulate(c.rope_sections.begin(), c.rope_sections.end(), Extent{0});
    require(c.rope_sections.size() == 3 && is_positive && (sum == c.rope_dims / 2 || c.rope_interleaved),
            fmt::format("mrope_section is [{}], not three numbers that add up to {}", fmt::join(c.rope_sections, ", "),
                        c.rope_dims / 2));
  }
  require(c.image_layers <= std::min<Extent>(c.layers, 16),
          fmt::format("rows of images are added to {} layers of {}; Weft adds them to at most 16", c.image_layers,
                      c.layers));
  const RopeScaling& s = c.rope_scaling;
  for (const auto& factors : {s.short_factors, s.long_factors})
    require(factors.empty() || static_cast<Extent>(factors.size()) == c.rope_dims / 2,
            fmt::format("{} factors of positions for {} pairs of channels", factors.size(), c.rope_dims / 2));
}

}  // namespace weft::llm
