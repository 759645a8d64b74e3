#include "llm/config.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "llm/config_families.hpp"
#include "llm/config_gemma.hpp"
#include "llm/config_keys.hpp"
#include "llm/config_state_space.hpp"
#include "weft/error.hpp"

namespace weft::llm {
namespace {

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
  config.query_growth.factor = keys.number({"llama_4_scaling_beta"}, config.query_growth.factor);
  if (config.query_growth.factor > 0) config.query_growth.each = keys.size({"original_max_position_embeddings"});
  if (kind == "dynamic" && keys.find({"alpha"})) {  // Hunyuan: a larger base, whatever the length is
    const double width = static_cast<double>(config.head_dim), alpha = keys.number({"alpha"});
    if (!(alpha > 0) || width <= 2) keys.fail("alpha", fmt::format("is {}; it must be above 0", alpha));
    config.rope_base *= std::pow(alpha, width / (width - 2));
    kind = "default";
  }
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
  constexpr std::string_view kTypes[] = {"llava",  "llava_next", "internvl",   "idefics3", "smolvlm",
                                         "gemma3", "qwen2_vl",   "qwen2_5_vl", "qwen3_vl", "mistral3"};
  return vision != config.end() && vision->is_object() && type.is_string() &&
         std::find(std::begin(kTypes), std::end(kTypes), type.get<std::string>()) != std::end(kTypes);
}
bool is_qwen_that_sees(std::string_view type) { return type.starts_with("qwen") && type.find("_vl") != type.npos; }

/// Keys of a text model within another's file, which leaves out what its class has by default.
Json with_defaults(const Json& inner, const Json& usual_type) {
  if (!inner.is_object()) return inner;
  const Json type = inner.value("model_type", usual_type);
  if (type == "llama") {
    Json all = {{"model_type", "llama"},   {"vocab_size", 32000},
                {"hidden_size", 4096},     {"intermediate_size", 11008},
                {"num_hidden_layers", 32}, {"num_attention_heads", 32},
                {"rms_norm_eps", 1e-6},    {"max_position_embeddings", 2048}};
    all.update(inner);
    return all;
  }
  if (type == "qwen2" || type == "qwen3") {
    Json all = {{"model_type", type},         {"vocab_size", 151936},    {"hidden_size", 4096},
                {"intermediate_size", 22016}, {"num_hidden_layers", 32}, {"num_attention_heads", 32},
                {"num_key_value_heads", 32},  {"rms_norm_eps", 1e-6},    {"max_position_embeddings", 32768}};
    all.update(inner);
    return all;
  }
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
  if (type == "gemma4_text") return with_defaults_of_gemma4(inner);
  if (type == "gemma3n_text") return with_defaults_of_gemma3n(inner);
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
  const bool has_head_norms = config.architecture.starts_with("hunyuan") || config.architecture == "minimax_m2";
  const bool has_optional_norms =
      config.architecture == "glm4_moe" || config.architecture == "llama4_text" || config.architecture == "bailing_moe";
  for (const auto& [key, known] :
       {Flag{"scale_attn_weights", true}, Flag{"scale_attn_by_inverse_layer_idx", false},
        Flag{"use_bidirectional_attention", false}, Flag{"use_qk_norm", has_head_norms}, Flag{"qk_layernorm", false}})
    if (keys.flag(key, known) != known && !(has_optional_norms && key == std::string_view("use_qk_norm")))
      keys.fail(key, fmt::format("is {}, which Weft does not support", !known));
  const bool has_relu2 = config.experts_are_plain && config.activation == "relu2";
  const bool has_gelu = config.architecture == "gemma4_text" && config.activation == "gelu_tanh";
  if (config.experts > 0 && !config.activation.empty() && config.activation != "silu" && !has_relu2 && !has_gelu)
    keys.fail("hidden_act", "is not \"silu\", the only one that Weft's experts have");
}

/// The layers with a sliding window, and its size.
void read_windows(const Keys& keys, ModelConfig& c) {
  // Only these model types have a window; two of them also have a flag that switches it on.
  const bool by_flag = c.architecture.starts_with("qwen") || c.architecture == "smollm3";
  const bool known = by_flag || c.architecture == "mistral" || c.architecture == "mixtral" ||
                     c.architecture == "phi3" || c.architecture == "gemma2" || c.architecture == "gemma3_text" ||
                     c.architecture == "gemma3n_text" || c.architecture == "gemma4_text" ||
                     c.architecture == "ministral" || c.architecture == "starcoder2" || c.architecture == "olmo3" ||
                     c.architecture == "cohere2" || c.architecture == "exaone4" || c.architecture == "gpt_oss" ||
                     c.architecture == "dots1";
  if (known && keys.flag("use_sliding_window", !by_flag)) c.window = keys.size({"sliding_window"}, 0);
  if (const Json* types = keys.find({"layer_types"})) {
    if (!types->is_array()) keys.fail("layer_types", "is not a list");
    for (const Json& type : *types) c.local_layers.push_back(type == "sliding_attention");
  } else if (const Extent pattern = keys.size({"sliding_window_pattern", "_sliding_window_pattern"}, 0); pattern > 0) {
    for (Extent i = 0; i < c.layers; ++i) c.local_layers.push_back((i + 1) % pattern != 0);
  } else if (c.architecture == "gpt_oss") {
    for (Extent i = 0; i < c.layers; ++i) c.local_layers.push_back(i % 2 == 0);
  } else if (c.window > 0 && (c.architecture.starts_with("qwen") || c.architecture == "dots1")) {
    const Extent first = keys.size({"max_window_layers"}, c.architecture == "dots1" ? 62 : 28);
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
  const Json text = with_defaults(inner ? *inner : json, !sees || !inner                ? Json()
                                                         : c.architecture == "internvl" ? Json("qwen2")
                                                                                        : Json("llama"));
  const Keys keys(text, c.source, inner ? "text_config" : "");
  if (inner) c.architecture = keys.text({"model_type"}, c.architecture);
  c.reads_images = sees && (inner || is_qwen_that_sees(c.architecture));
  c.sees_images_whole = c.reads_images && c.architecture == "gemma3_text";
  c.name = whole.text({"_name_or_path"}, "");
  c.vocabulary = keys.size({"vocab_size"});
  c.hidden = keys.size({"hidden_size", "n_embd", "n_embed", "d_model"});
  std::optional<Extent> listed;  // Nemotron-H's files list the types of layers instead of counting them
  if (const Json* types = keys.find({"layers_block_type"}); types && types->is_array())
    listed = static_cast<Extent>(types->size());
  c.layers = keys.size({"num_hidden_layers", "n_layer", "n_layers"}, listed);
  read_state_space(keys, c);
  const bool has_attention = c.state_space.inner == 0 || !c.state_space.layers.empty();
  c.heads = has_attention ? keys.size({"num_attention_heads", "n_head", "n_heads"}) : 1;
  c.kv_heads = has_attention ? keys.size({"num_key_value_heads"}, c.heads) : 1;
  const UsualKeys usual = usual_of(c.architecture);
  const Extent usual_width = usual.head_dim > 0 ? usual.head_dim : c.heads > 0 ? c.hidden / c.heads : 0;
  c.head_dim = has_attention ? keys.size({"head_dim"}, usual_width) : kHeadWithoutAttention;
  c.intermediate = keys.size({"shared_intermediate_size", "intermediate_size", "n_inner"}, 4 * c.hidden);
  c.context = keys.size({"max_position_embeddings", "n_positions", "max_seq_len", "seq_length"},
                        has_attention ? 2048 : kContextWithoutAttention);
  if (c.architecture == "falcon") read_falcon(keys, c);
  if (c.architecture == "bloom") read_bloom(keys, c);
  if (c.architecture == "mpt") read_mpt(keys, c);
  if (c.architecture == "olmo") c.qkv_limit = keys.number({"clip_qkv"}, 0.0);
  if (c.architecture == "lfm2") read_lfm2(keys, c);
  c.norm_eps =
      keys.number({"rms_norm_eps", "layer_norm_epsilon", "layer_norm_eps", "norm_epsilon", "norm_eps"}, usual.norm_eps);
  if (c.architecture == "mamba" || c.architecture == "mamba2" || c.architecture == "falcon_mamba")
    c.norm_eps = keys.number({"layer_norm_epsilon"}, 1e-5);
  const std::string activation =
      keys.text({"hidden_activation", "hidden_act", "mlp_hidden_act", "activation_function", "activation"}, "");
  c.activation = activation == "gelu_new" || activation == "gelu_pytorch_tanh" || activation == "gelu_fast"
                     ? "gelu_tanh"
                 : activation == "swish" ? "silu"
                                         : activation;
  if (!c.activation.empty() && c.activation != "silu" && c.activation != "gelu" && c.activation != "gelu_tanh" &&
      c.activation != "relu2" && !(c.activation == "xielu" && c.architecture == "apertus"))
    keys.fail("hidden_act", fmt::format("is \"{}\"; known are silu, gelu, gelu_pytorch_tanh and relu2", activation));
  if (c.architecture == "apertus" && !c.activation.empty() && c.activation != "xielu")
    keys.fail("hidden_act", fmt::format("is \"{}\", and Weft runs Apertus with xielu", activation));
  // An absent key means the default of its class in transformers, which saves only keys that differ from the defaults.
  c.tied = keys.flag("tie_word_embeddings", keys.flag("tie_embedding", usual.tied));
  c.rope_base = keys.number({"rope_theta", "rotary_emb_base"}, usual.rope_base);
  c.rope_local_base = keys.number(
      {"rope_local_base_freq"},
      c.architecture.starts_with("gemma") && c.architecture != "gemma" && c.architecture != "gemma2" ? 10000.0 : 0.0);
  c.rope_dims = c.alibi > 0 ? 0 : static_cast<Extent>(usual.turning_part * static_cast<double>(c.head_dim));
  read_factors(keys, usual, c);
  if (c.architecture == "granitemoehybrid" && keys.text({"position_embedding_type"}, "nope") != "rope") c.rope_dims = 0;
  if (c.architecture == "jamba" || c.architecture == "nemotron_h") c.rope_dims = 0;
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
  if (c.architecture.starts_with("deepseek")) read_latent(keys, c);
  c.further_layers =
      keys.size({"num_nextn_predict_layers"}, c.architecture == "deepseek_v3" || c.architecture == "glm4_moe" ? 1 : 0);
  if (c.further_layers > kFurtherLayersMax)
    keys.fail("num_nextn_predict_layers", fmt::format("is {}, more than {}", c.further_layers, kFurtherLayersMax));
  read_windows(keys, c);
  if (const Json* list = keys.find({"no_rope_layers"})) {  // 1: the layer turns
    if (!list->is_array()) keys.fail("no_rope_layers", "is not a list");
    for (const Json& each : *list)
      c.rope_layers.push_back(each.is_number() ? each != 0 : each.is_boolean() && each.get<bool>());
  } else if (c.architecture == "smollm3" || c.architecture == "llama4_text") {
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
  if (c.architecture == "gemma3n_text") read_gemma3n(keys, c);
  if (c.architecture == "gemma4_text") read_gemma4(keys, c);
  // Command R7B and EXAONE 4 know positions only where they see a window.
  if (c.architecture == "cohere2" || (c.architecture == "exaone4" && c.window > 0)) c.rope_layers = c.local_layers;
  read_experts(keys, c);
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
  require(c.rope_dims >= 0 && c.rope_dims <= std::max(c.head_dim, c.global_head_dim) && c.rope_dims % 2 == 0,
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
  const Routing& r = c.routing;
  require(r.groups >= 1 && r.groups_used >= 1 && r.groups_used <= r.groups &&
              (c.experts == 0 ||
               (c.experts % r.groups == 0 && c.experts / r.groups * r.groups_used >= c.experts_per_token)),
          fmt::format(
              "{} experts of a token are chosen in {} of {} groups of {} experts; groups are equal, and hold enough",
              c.experts_per_token, r.groups_used, r.groups, c.experts));
  require(c.expert_layers.empty() || static_cast<Extent>(c.expert_layers.size()) == c.layers,
          fmt::format("the layers with experts are said for {} layers of {}", c.expert_layers.size(), c.layers));
  const LatentAttention& l = c.latent;
  require(l.rank == 0 || (l.rank <= 1 << 14 && l.query_rank <= 1 << 16 && l.value_dim >= 1 && l.value_dim <= 1 << 12 &&
                          c.rope_dims >= 2 && c.rope_dims < c.head_dim),
          fmt::format(
              "latent attention of rank {} (queries {}), with values of {} channels and {} of {} turning, does not fit",
              l.rank, l.query_rank, l.value_dim, c.rope_dims, c.head_dim));
  require(c.qkv_limit >= 0, "the limit of queries, keys and values is negative");
  require(c.alibi == 0 || c.kv_heads == c.heads, "heads share keys, which Weft does not run with slopes");
  require(c.alibi >= 0 && c.alibi <= 64,
          fmt::format("slopes go down to 2^-{}; the number must be from 0 to 64", c.alibi));
  check_state_space(c);
  check_gemma(c);
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
