#include "llm/config_write.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "weft/error.hpp"

namespace weft::llm {
namespace {

/// The names of a model in the two kinds of files. The first matching row counts.
struct Architecture {
  std::string_view hf, gguf, hf_class;
};
constexpr Architecture kArchitectures[] = {
    {"llama", "llama", "LlamaForCausalLM"},
    {"mistral", "llama", "MistralForCausalLM"},
    {"mixtral", "llama", "MixtralForCausalLM"},
    {"smollm3", "smollm3", "SmolLM3ForCausalLM"},
    {"qwen2", "qwen2", "Qwen2ForCausalLM"},
    {"qwen2", "qwen2vl", "Qwen2ForCausalLM"},  // without its tower it is one
    {"qwen2_vl_text", "qwen2vl", ""},
    {"qwen2_vl", "qwen2vl", ""},
    {"qwen2_5_vl_text", "qwen2vl", ""},
    {"qwen2_5_vl", "qwen2vl", ""},
    {"qwen3", "qwen3", "Qwen3ForCausalLM"},
    {"qwen3", "qwen3vl", "Qwen3ForCausalLM"},  // likewise
    {"qwen3_vl_text", "qwen3vl", ""},
    {"qwen3_vl", "qwen3vl", ""},
    {"gemma", "gemma", "GemmaForCausalLM"},
    {"gemma2", "gemma2", "Gemma2ForCausalLM"},
    {"gemma3_text", "gemma3", "Gemma3ForCausalLM"},
    {"gemma3n_text", "gemma3n", "Gemma3nForCausalLM"},
    {"gemma4_text", "gemma4", "Gemma4ForCausalLM"},
    {"phi3", "phi3", "Phi3ForCausalLM"},
    {"gpt2", "gpt2", "GPT2LMHeadModel"},
    {"qwen2_moe", "qwen2moe", "Qwen2MoeForCausalLM"},
    {"qwen3_moe", "qwen3moe", "Qwen3MoeForCausalLM"},
    {"stablelm", "stablelm", "StableLmForCausalLM"},
    {"phi", "phi2", "PhiForCausalLM"},
    {"olmo2", "olmo2", "Olmo2ForCausalLM"},
    {"cohere", "command-r", "CohereForCausalLM"},
    {"cohere2", "cohere2", "Cohere2ForCausalLM"},
    {"granite", "granite", "GraniteForCausalLM"},
    {"glm4", "glm4", "Glm4ForCausalLM"},
    {"exaone4", "exaone4", "Exaone4ForCausalLM"},
    {"starcoder2", "starcoder2", "Starcoder2ForCausalLM"},
    {"ernie4_5", "ernie4_5", "Ernie4_5ForCausalLM"},
    {"seed_oss", "seed_oss", "SeedOssForCausalLM"},
    {"arcee", "arcee", "ArceeForCausalLM"},
    {"olmoe", "olmoe", "OlmoeForCausalLM"},
    {"dots1", "dots1", "Dots1ForCausalLM"},
    {"bailing_moe", "bailingmoe2", "BailingMoeV2ForCausalLM"},
    {"bailing_moe", "bailingmoe", "BailingMoeForCausalLM"},
    {"ministral3", "mistral3", "Ministral3ForCausalLM"},
    {"llama4_text", "llama4", "Llama4ForCausalLM"},
    {"mamba", "mamba", "MambaForCausalLM"},
    {"falcon_mamba", "mamba", "FalconMambaForCausalLM"},
    {"mamba2", "mamba2", "Mamba2ForCausalLM"},
    {"jamba", "jamba", "JambaForCausalLM"},
    {"granitemoehybrid", "granitehybrid", "GraniteMoeHybridForCausalLM"},
    {"bamba", "granitehybrid", ""},  // GGUF files of it are Granite's
    {"falcon_h1", "falcon-h1", "FalconH1ForCausalLM"},
    {"qwen3_next", "qwen3next", "Qwen3NextForCausalLM"},
    {"apertus", "apertus", "ApertusForCausalLM"},
    {"nemotron_h", "nemotron_h", "NemotronHForCausalLM"},
    {"nemotron_h", "nemotron_h_moe", "NemotronHForCausalLM"},
    {"lfm2", "lfm2", "Lfm2ForCausalLM"},
    {"lfm2_moe", "lfm2moe", "Lfm2MoeForCausalLM"},
    {"bloom", "bloom", "BloomForCausalLM"},
    {"mpt", "mpt", "MptForCausalLM"},
    {"gpt_oss", "gpt-oss", "GptOssForCausalLM"},
    {"glm4_moe", "glm4moe", "Glm4MoeForCausalLM"},
    {"ernie4_5_moe", "ernie4_5-moe", "Ernie4_5_MoeForCausalLM"},
    {"hunyuan_v1_dense", "hunyuan-dense", "HunYuanDenseV1ForCausalLM"},
    {"hunyuan_v1_moe", "hunyuan-moe", "HunYuanMoEV1ForCausalLM"},
    {"minimax_m2", "minimax-m2", "MiniMaxM2ForCausalLM"},
    {"deepseek_v2", "deepseek2", "DeepseekV2ForCausalLM"},
    {"deepseek_v3", "deepseek2", "DeepseekV3ForCausalLM"},
};

std::vector<double> all_tidy(std::vector<double> values) {
  for (double& value : values) value = tidy(value);
  return values;
}

const OpNode* node_of(const ModelGraph& graph, Extent layer, std::string_view id) {
  const std::string name = fmt::format("layer{}_{}", layer, id);
  const auto found =
      std::find_if(graph.nodes.begin(), graph.nodes.end(), [&](const OpNode& n) { return n.id == name; });
  return found == graph.nodes.end() ? nullptr : &*found;
}

/// The settings of Llama 3 behind the factors of a GGUF file, if they are one of the two sets that models use.
std::optional<RopeScaling> as_llama3(const ModelConfig& config) {
  for (const double factor : {8.0, 32.0}) {
    ModelConfig guess = config;
    guess.rope_scaling = {.kind = RopeScaling::Kind::llama3, .factor = factor, .original_context = 8192};
    const std::vector<double> guessed = slowing_of(guess);
    if (std::equal(guessed.begin(), guessed.end(), config.rope_scaling.long_factors.begin(),
                   config.rope_scaling.long_factors.end(),
                   [](double a, double b) { return std::abs(a - b) < 1e-5 * b; }))
      return guess.rope_scaling;
  }
  return {};
}

Json scaling_to_json(const ModelConfig& c) {
  using Kind = RopeScaling::Kind;
  RopeScaling s = c.rope_scaling;
  const bool same = s.kind == Kind::longrope && s.short_factors == s.long_factors;
  if (same && s.attention_factor == 1)
    if (const auto llama3 = as_llama3(c)) s = *llama3;
  Json json;
  const auto original = s.original_context > 0 ? s.original_context : c.context;
  switch (s.kind) {
    case Kind::none: return nullptr;
    case Kind::linear: return {{"rope_type", "linear"}, {"factor", tidy(s.factor)}};
    case Kind::llama3:
      return {{"rope_type", "llama3"},
              {"factor", tidy(s.factor)},
              {"low_freq_factor", s.low_frequency_factor},
              {"high_freq_factor", s.high_frequency_factor},
              {"original_max_position_embeddings", original}};
    case Kind::yarn:
      json = {{"rope_type", "yarn"},
              {"factor", tidy(s.factor)},
              {"original_max_position_embeddings", original},
              {"beta_fast", tidy(s.beta_fast)},
              {"beta_slow", tidy(s.beta_slow)}};
      if (!s.truncate) json["truncate"] = false;
      if (c.latent.rank > 0) {
        // The scale of scores is twice 1 + 0.1 mscale ln(factor), and the same factors cancel in cosine and sine.
        const double by = std::sqrt(c.attention_scale * std::sqrt(static_cast<double>(c.head_dim)));
        const double mscale = tidy(std::round((by - 1) / (0.1 * std::log(s.factor)) * 1e5) / 1e5);
        json.update({{"mscale", mscale}, {"mscale_all_dim", mscale}});
      } else if (s.mscale > 0 && s.mscale_all_dim > 0) {
        json.update({{"mscale", tidy(s.mscale)}, {"mscale_all_dim", tidy(s.mscale_all_dim)}});
      }
      if (c.query_growth.factor > 0) json["llama_4_scaling_beta"] = tidy(c.query_growth.factor);
      break;
    case Kind::longrope:
      json = {{c.architecture == "phi3" ? "type" : "rope_type", "longrope"},
              {"short_factor", all_tidy(s.short_factors)},
              {"long_factor", all_tidy(s.long_factors)}};
      // Phi-3 says it beside.
      if (c.architecture != "phi3") json["original_max_position_embeddings"] = original;
      break;
  }
  // Leaves out values that readers compute themselves.
  ModelConfig usual = c;
  usual.rope_scaling.attention_factor = 0;
  const double magnitude = rope_table(c, c.context, false).magnitude;
  if (std::abs(rope_table(usual, c.context, false).magnitude - magnitude) > 1e-6) json["attention_factor"] = magnitude;
  return json;
}

void add_deepseek(Json& json, const ModelGraph& graph, const ModelConfig& c) {
  json["head_dim"] = c.rope_dims;
  json.update({{"qk_rope_head_dim", c.rope_dims},
               {"qk_nope_head_dim", c.head_dim - c.rope_dims},
               {"v_head_dim", c.latent.value_dim},
               {"kv_lora_rank", c.latent.rank},
               {"q_lora_rank", c.latent.query_rank > 0 ? Json(c.latent.query_rank) : Json()},
               {"attention_bias", graph.find("layer0.kv_a.bias") != nullptr},
               {"first_k_dense_replace", leading_dense(c)}});
  json.erase("mlp_bias");
  if (c.architecture == "deepseek_v3") json["rope_interleave"] = !c.latent.turns_halves;
  if (c.experts == 0) return;
  json.update({{"n_routed_experts", c.experts},
               {"num_experts_per_tok", c.experts_per_token},
               {"moe_intermediate_size", c.expert_intermediate},
               {"n_shared_experts", c.shared_intermediate / c.expert_intermediate},
               {"norm_topk_prob", c.expert_weights_are_shares},
               {"routed_scaling_factor", tidy(c.routing.factor)},
               {"n_group", c.routing.groups},
               {"topk_group", c.routing.groups_used},
               {"topk_method", c.routing.is_sigmoid   ? "noaux_tc"
                               : c.routing.groups > 1 ? "group_limited_greedy"
                                                      : "greedy"},
               {"scoring_func", c.routing.is_sigmoid ? "sigmoid" : "softmax"}});
}

}  // namespace

double tidy(double value) {
  const auto narrow = static_cast<float>(value);
  return static_cast<double>(narrow) == value ? std::strtod(fmt::format("{}", narrow).c_str(), nullptr) : value;
}

std::string architecture_elsewhere(const ModelConfig& c) {
  if (!c.from_gguf) {
    if (c.architecture == "nemotron_h" && c.experts > 0) return "nemotron_h_moe";
    if (c.architecture == "bailing_moe" && !c.routing.is_sigmoid) return "bailingmoe";
    for (const Architecture& each : kArchitectures)
      if (each.hf == c.architecture || (each.hf == "gemma3_text" && c.architecture == "gemma3"))
        return std::string(each.gguf);
  } else {
    if (c.architecture == "llama" && c.experts > 0) return "mixtral";
    if (c.architecture == "llama" && c.window > 0) return "mistral";
    if (c.architecture == "mamba" && c.state_space.part_eps > 0) return "falcon_mamba";
    if (c.architecture == "deepseek2") return c.routing.is_sigmoid ? "deepseek_v3" : "deepseek_v2";
    for (const Architecture& each : kArchitectures)
      if (each.gguf == c.architecture) return std::string(each.hf);
  }
  throw FileError(
      fmt::format("{}: Weft reads models of the architecture {}, and does not convert them between GGUF files and "
                  "folders; the output's "
                  "ending .safetensors converts the tensors alone",
                  c.source, c.architecture));
}

Json config_to_json(const ModelGraph& graph) {
  ModelConfig c = graph.config;
  if (c.from_gguf) c.architecture = architecture_elsewhere(c);
  const auto row = std::find_if(std::begin(kArchitectures), std::end(kArchitectures), [&](const Architecture& each) {
    return each.hf == c.architecture && (!c.from_gguf || each.gguf == graph.config.architecture);
  });
  const bool gemma = c.architecture.starts_with("gemma"), later_gemma = gemma && c.architecture != "gemma",
             has_scalar = c.architecture == "gemma2" || c.architecture.starts_with("gemma3_");
  const bool tied = !graph.find("lm_head.weight");
  const OpNode* act = node_of(graph, 0, "act");
  const std::string activation = !act                           ? "silu"
                                 : act->op == OpType::gelu_tanh ? "gelu_pytorch_tanh"
                                                                : std::string(name_of(act->op));
  Json json = {{"architectures", {row->hf_class}}, {"model_type", c.architecture}, {"vocab_size", c.vocabulary},
               {"tie_word_embeddings", tied},      {"bos_token_id", nullptr},      {"eos_token_id", nullptr},
               {"pad_token_id", nullptr}};
  if (!c.name.empty()) json["_name_or_path"] = c.name;
  if (c.architecture == "gpt2") {
    json.update({{"n_embd", c.hidden},
                 {"n_layer", c.layers},
                 {"n_head", c.heads},
                 {"n_inner", c.intermediate},
                 {"n_positions", c.context},
                 {"layer_norm_epsilon", tidy(c.norm_eps)},
                 {"activation_function", c.activation == "gelu" ? "gelu" : "gelu_new"}});
    return json;
  }
  if (c.architecture == "bloom") {
    json.update({{"hidden_size", c.hidden},
                 {"n_layer", c.layers},
                 {"n_head", c.heads},
                 {"seq_length", c.context},
                 {"layer_norm_epsilon", tidy(c.norm_eps)}});
    return json;
  }
  if (c.architecture == "mpt") {
    Json attention = {{"alibi", true}, {"alibi_bias_max", std::llround(c.alibi)}};
    if (c.qkv_limit > 0) attention["clip_qkv"] = tidy(c.qkv_limit);
    if (c.attention_scale > 0) attention["softmax_scale"] = tidy(c.attention_scale);
    json.update({{"d_model", c.hidden},
                 {"n_layers", c.layers},
                 {"n_heads", c.heads},
                 {"max_seq_len", c.context},
                 {"expansion_ratio", c.intermediate / c.hidden},
                 {"layer_norm_epsilon", tidy(c.norm_eps)},
                 {"attn_config", attention}});
    return json;
  }
  if (c.state_space.inner > 0 && c.state_space.layers.empty()) {
    add_states(json, graph, c);
    return json;
  }
  json.update({{"hidden_size", c.hidden},
               {"num_hidden_layers", c.layers},
               {"num_attention_heads", c.heads},
               {"num_key_value_heads", c.kv_heads},
               {"head_dim", c.head_dim},
               {"intermediate_size", c.intermediate},
               {"max_position_embeddings", c.context},
               {"rms_norm_eps", tidy(c.norm_eps)},
               {"rope_theta", tidy(c.rope_base)},
               {"rope_scaling", scaling_to_json(c)},
               {later_gemma ? "hidden_activation" : "hidden_act", activation},
               {"attention_bias", graph.find("layer0.q.bias") != nullptr},
               {"mlp_bias", graph.find("layer0.gate.bias") != nullptr},
               {"sliding_window", c.window > 0 ? Json(c.window) : Json()}});
  if (c.rope_dims != c.head_dim && c.latent.rank == 0)
    json["partial_rotary_factor"] = static_cast<double>(c.rope_dims) / static_cast<double>(c.head_dim);
  if (c.architecture == "phi3" && c.rope_scaling.original_context > 0)
    json["original_max_position_embeddings"] = c.rope_scaling.original_context;
  const bool has_layer_norms =
      std::any_of(graph.nodes.begin(), graph.nodes.end(), [](const OpNode& n) { return n.op == OpType::layer_norm; });
  if (has_layer_norms) {
    json.erase("rms_norm_eps");
    json[c.architecture == "starcoder2" ? "norm_epsilon" : "layer_norm_eps"] = tidy(c.norm_eps);
  }
  if (c.architecture == "stablelm")
    json.update({{"use_parallel_residual", c.is_parallel}, {"use_qkv_bias", graph.find("layer0.q.bias") != nullptr}});
  if (c.architecture == "starcoder2" || c.architecture.starts_with("ernie4_5"))
    json["use_bias"] = graph.find("layer0.q.bias") != nullptr;
  if (c.architecture.starts_with("cohere")) json["logit_scale"] = tidy(c.logit_scale);
  if (c.architecture.starts_with("granite"))
    json.update({{"embedding_multiplier", tidy(c.embedding_scale)},
                 {"residual_multiplier", tidy(c.residual_scale)},
                 {"attention_multiplier", tidy(c.attention_scale)},
                 {"logits_scaling", tidy(1 / c.logit_scale)}});
  if (c.architecture == "qwen2_moe" || c.architecture == "qwen3_moe")
    json.update({{"num_experts", c.experts},
                 {"num_experts_per_tok", c.experts_per_token},
                 {"moe_intermediate_size", c.expert_intermediate},
                 {"norm_topk_prob", c.expert_weights_are_shares}});
  if (c.architecture == "qwen2_moe") json["shared_expert_intermediate_size"] = c.shared_intermediate;
  if (c.architecture == "gpt_oss")
    json.update({{"num_local_experts", c.experts},
                 {"num_experts_per_tok", c.experts_per_token},
                 {"intermediate_size", c.expert_intermediate},
                 {"swiglu_alpha", c.swiglu_alpha},
                 {"swiglu_limit", c.swiglu_limit}});
  if (c.latent.rank > 0) add_deepseek(json, graph, c);
  add_mixture(json, graph, c);
  if (c.architecture == "mixtral")
    json.update({{"num_local_experts", c.experts}, {"num_experts_per_tok", c.experts_per_token}});

  // Settings that differ between layers come from the graph, where the rules of the family have been applied.
  Json kinds = Json::array(), turns = Json::array();
  bool some_local = false;
  for (Extent i = 0; i < c.layers; ++i) {
    const OpNode* found = node_of(graph, i, "attn");
    if (!found) continue;  // the layer keeps a state
    const OpNode& attention = *found;
    const bool local = attention.integer("window") > 0;
    some_local = some_local || local;
    kinds.push_back(attention.integer("chunk") > 0 ? "chunked_attention"
                    : local                        ? "sliding_attention"
                                                   : "full_attention");
    turns.push_back(node_of(graph, i, "q_rope") ? 1 : 0);
  }
  if (c.architecture == "gpt_oss") json["layer_types"] = kinds;
  if (c.architecture.starts_with("qwen") || c.architecture == "smollm3") {
    json.update({{"use_sliding_window", some_local}, {"layer_types", kinds}});
    if (!some_local) json["sliding_window"] = nullptr;
  }
  if (c.architecture == "llama4_text")
    json.update({{"layer_types", kinds}, {"attention_chunk_size", c.attention_chunk}});
  if (c.architecture == "smollm3" || c.architecture == "llama4_text") json["no_rope_layers"] = turns;
  if (c.architecture == "cohere2" || c.architecture == "exaone4") json["layer_types"] = kinds;
  const bool is_gemma4 = c.architecture == "gemma4_text";
  if (c.layer_input > 0 || is_gemma4) add_gemma(json, graph, c);
  if (later_gemma) json["layer_types"] = kinds;
  if (has_scalar) {
    const double scale = node_of(graph, 0, "attn")->real("scale");
    // transformers wants a whole number where there is one.
    const double scalar = std::round(1 / (scale * scale) * 1e6) / 1e6;
    json["query_pre_attn_scalar"] = scalar == std::floor(scalar) ? Json(std::llround(scalar)) : Json(scalar);
    json["attn_logit_softcapping"] = c.attention_soft_cap > 0 ? Json(tidy(c.attention_soft_cap)) : Json();
    json["final_logit_softcapping"] = c.logit_soft_cap > 0 ? Json(tidy(c.logit_soft_cap)) : Json();
  }
  if (c.state_space.inner > 0) add_states(json, graph, c);
  if (c.rope_local_base > 0 && !is_gemma4) json["rope_local_base_freq"] = tidy(c.rope_local_base);
  return json;
}

}  // namespace weft::llm
