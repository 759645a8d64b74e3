#include "llm/families.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

#include "llm/family_names.hpp"
#include "weft/error.hpp"

namespace weft::llm {
namespace {

std::vector<NameRow> olmo_names() {
  return {{"layer{}.norm1_after.weight", "blk.{}.post_attention_norm.weight",
           "model.layers.{}.post_attention_layernorm.weight"},
          {"layer{}.norm2_after.weight", "blk.{}.post_ffw_norm.weight",
           "model.layers.{}.post_feedforward_layernorm.weight"}};
}

std::vector<NameRow> glm_names() {
  return {{"layer{}.gate_up.weight", "blk.{}.ffn_up.weight", "model.layers.{}.mlp.gate_up_proj.weight"},
          {"layer{}.norm1_after.weight", "blk.{}.post_attention_norm.weight",
           "model.layers.{}.post_self_attn_layernorm.weight"},
          {"layer{}.norm2_after.weight", "blk.{}.post_ffw_norm.weight", "model.layers.{}.post_mlp_layernorm.weight"}};
}

std::vector<NameRow> phi_names() {
  return renamed({{"final_norm", "output_norm", "model.final_layernorm"},
                  {"layer{}.o", "blk.{}.attn_output", "model.layers.{}.self_attn.dense"},
                  {"layer{}.up", "blk.{}.ffn_up", "model.layers.{}.mlp.fc1"},
                  {"layer{}.down", "blk.{}.ffn_down", "model.layers.{}.mlp.fc2"}});
}
std::vector<NameRow> starcoder_names() {
  return renamed({{"layer{}.up", "blk.{}.ffn_up", "model.layers.{}.mlp.c_fc"},
                  {"layer{}.down", "blk.{}.ffn_down", "model.layers.{}.mlp.c_proj"}});
}
std::vector<NameRow> neox_names() {
  return renamed({{"embed", "", "gpt_neox.embed_in"},
                  {"final_norm", "", "gpt_neox.final_layer_norm"},
                  {"lm_head", "", "embed_out"},
                  {"layer{}.norm1", "", "gpt_neox.layers.{}.input_layernorm"},
                  {"layer{}.norm2", "", "gpt_neox.layers.{}.post_attention_layernorm"},
                  {"layer{}.qkv", "", "gpt_neox.layers.{}.attention.query_key_value"},
                  {"layer{}.o", "", "gpt_neox.layers.{}.attention.dense"},
                  {"layer{}.up", "", "gpt_neox.layers.{}.mlp.dense_h_to_4h"},
                  {"layer{}.down", "", "gpt_neox.layers.{}.mlp.dense_4h_to_h"}});
}
std::vector<NameRow> falcon_names() {
  return renamed({{"embed", "", "transformer.word_embeddings"},
                  {"final_norm", "", "transformer.ln_f"},
                  {"layer{}.norm1", "", "transformer.h.{}.input_layernorm"},
                  {"layer{}.norm1", "", "transformer.h.{}.ln_attn"},  // where there is one for each part
                  {"layer{}.norm2", "", "transformer.h.{}.ln_mlp"},
                  {"layer{}.norm2", "", "transformer.h.{}.post_attention_layernorm"},  // of parts one behind the other
                  {"layer{}.qkv", "", "transformer.h.{}.self_attention.query_key_value"},
                  {"layer{}.o", "", "transformer.h.{}.self_attention.dense"},
                  {"layer{}.up", "", "transformer.h.{}.mlp.dense_h_to_4h"},
                  {"layer{}.down", "", "transformer.h.{}.mlp.dense_4h_to_h"}});
}

std::vector<NameRow> lfm2_names() {
  std::vector<NameRow> parts =
      renamed({{"final_norm", "token_embd_norm", "model.embedding_norm"},
               {"layer{}.norm1", "blk.{}.attn_norm", "model.layers.{}.operator_norm"},
               {"layer{}.norm2", "blk.{}.ffn_norm", "model.layers.{}.ffn_norm"},
               {"layer{}.q_norm", "blk.{}.attn_q_norm", "model.layers.{}.self_attn.q_layernorm"},
               {"layer{}.k_norm", "blk.{}.attn_k_norm", "model.layers.{}.self_attn.k_layernorm"},
               {"layer{}.o", "blk.{}.attn_output", "model.layers.{}.self_attn.out_proj"},
               {"layer{}.conv_in", "blk.{}.shortconv.in_proj", "model.layers.{}.conv.in_proj"},
               {"layer{}.conv", "blk.{}.shortconv.conv", "model.layers.{}.conv.conv"},
               {"layer{}.conv_out", "blk.{}.shortconv.out_proj", "model.layers.{}.conv.out_proj"},
               {"layer{}.gate", "blk.{}.ffn_gate", "model.layers.{}.feed_forward.w1"},
               {"layer{}.up", "blk.{}.ffn_up", "model.layers.{}.feed_forward.w3"},
               {"layer{}.down", "blk.{}.ffn_down", "model.layers.{}.feed_forward.w2"}});
  for (NameRow& row : parts)  // GGUF has no place for biases
    if (row.name.ends_with(".bias")) row.gguf = "";
  return joined(
      parts, mixture_names("feed_forward.", "", {.correction = "expert_bias", .gate = "w1", .up = "w3", .down = "w2"}));
}

std::vector<NameRow> qwen_names() {
  constexpr std::string_view kExpert = "model.layers.{}.mlp.experts.{e}.", kMlp = "model.layers.{}.mlp.";
  const auto row = [](std::string_view name, std::string_view gguf, std::string_view prefix, std::string_view hf) {
    return NameRow{kept(fmt::format("layer{{}}.{}", name)), kept(fmt::format("blk.{{}}.{}", gguf)),
                   kept(std::string(prefix) + std::string(hf))};
  };
  return {row("router.weight", "ffn_gate_inp.weight", kMlp, "gate.weight"),
          row("gates.weight", "ffn_gate_exps.weight", kExpert, "gate_proj.weight"),
          row("ups.weight", "ffn_up_exps.weight", kExpert, "up_proj.weight"),
          row("downs.weight", "ffn_down_exps.weight", kExpert, "down_proj.weight"),
          row("shared_gate.weight", "ffn_gate_shexp.weight", kMlp, "shared_expert.gate_proj.weight"),
          row("shared_up.weight", "ffn_up_shexp.weight", kMlp, "shared_expert.up_proj.weight"),
          row("shared_down.weight", "ffn_down_shexp.weight", kMlp, "shared_expert.down_proj.weight"),
          row("shared_router.weight", "ffn_gate_inp_shexp.weight", kMlp, "shared_expert_gate.weight")};
}

std::vector<NameRow> bloom_names() {
  constexpr std::string_view kJoined = "blk.{}.attn_qkv", kOfHeads = "transformer.h.{}.self_attention.query_key_value";
  return renamed({{"embed", "token_embd", "transformer.word_embeddings"},
                  {"embed_norm", "token_embd_norm", "transformer.word_embeddings_layernorm"},
                  {"final_norm", "output_norm", "transformer.ln_f"},
                  {"layer{}.norm1", "blk.{}.attn_norm", "transformer.h.{}.input_layernorm"},
                  {"layer{}.norm2", "blk.{}.ffn_norm", "transformer.h.{}.post_attention_layernorm"},
                  {"layer{}.q", kJoined, kOfHeads},
                  {"layer{}.k", kJoined, kOfHeads},
                  {"layer{}.v", kJoined, kOfHeads},
                  {"layer{}.o", "blk.{}.attn_output", "transformer.h.{}.self_attention.dense"},
                  {"layer{}.up", "blk.{}.ffn_up", "transformer.h.{}.mlp.dense_h_to_4h"},
                  {"layer{}.down", "blk.{}.ffn_down", "transformer.h.{}.mlp.dense_4h_to_h"}});
}
std::vector<NameRow> mpt_names() {
  constexpr std::string_view kJoined = "blk.{}.attn_qkv", kInTurn = "transformer.blocks.{}.attn.Wqkv";
  return renamed({{"embed", "token_embd", "transformer.wte"},
                  {"final_norm", "output_norm", "transformer.norm_f"},
                  {"layer{}.norm1", "blk.{}.attn_norm", "transformer.blocks.{}.norm_1"},
                  {"layer{}.norm2", "blk.{}.ffn_norm", "transformer.blocks.{}.norm_2"},
                  {"layer{}.q", kJoined, kInTurn},
                  {"layer{}.k", kJoined, kInTurn},
                  {"layer{}.v", kJoined, kInTurn},
                  {"layer{}.o", "blk.{}.attn_output", "transformer.blocks.{}.attn.out_proj"},
                  {"layer{}.up", "blk.{}.ffn_up", "transformer.blocks.{}.ffn.up_proj"},
                  {"layer{}.down", "blk.{}.ffn_down", "transformer.blocks.{}.ffn.down_proj"}});
}

std::vector<NameRow> gpt_oss_names() {
  constexpr std::string_view kMlp = "model.layers.{}.mlp.", kExperts = "model.layers.{}.mlp.experts.";
  const auto row = [](std::string_view name, std::string_view gguf, std::string_view prefix, std::string_view hf) {
    return NameRow{kept(fmt::format("layer{{}}.{}", name)), kept(fmt::format("blk.{{}}.{}", gguf)),
                   kept(std::string(prefix) + std::string(hf))};
  };
  return {row("sinks", "attn_sinks.weight", "model.layers.{}.", "self_attn.sinks"),
          row("norm2.weight", "post_attention_norm.weight", "model.layers.{}.", "post_attention_layernorm.weight"),
          row("router.weight", "ffn_gate_inp.weight", kMlp, "router.weight"),
          row("router.bias", "ffn_gate_inp.bias", kMlp, "router.bias"),
          // In blocks, which io makes matrices of, and else.
          row("gates.weight", "ffn_gate_exps.weight", kExperts, "{e}.gate_proj.weight"),
          row("ups.weight", "ffn_up_exps.weight", kExperts, "{e}.up_proj.weight"),
          row("downs.weight", "ffn_down_exps.weight", kExperts, "{e}.down_proj.weight"),
          row("gates.weight", "ffn_gate_exps.weight", kExperts, "gate_up_proj"),
          row("ups.weight", "ffn_up_exps.weight", kExperts, "gate_up_proj"),
          row("downs.weight", "ffn_down_exps.weight", kExperts, "down_proj"),
          row("gates.bias", "ffn_gate_exps.bias", kExperts, "gate_up_proj_bias"),
          row("ups.bias", "ffn_up_exps.bias", kExperts, "gate_up_proj_bias"),
          row("downs.bias", "ffn_down_exps.bias", kExperts, "down_proj_bias")};
}

std::vector<NameRow> deepseek_names() {
  constexpr std::string_view kExpert = "model.layers.{}.mlp.experts.{e}.", kMlp = "model.layers.{}.mlp.",
                             kAttention = "model.layers.{}.self_attn.";
  const auto row = [](std::string_view name, std::string_view gguf, std::string_view prefix, std::string_view hf) {
    return NameRow{kept(fmt::format("layer{{}}.{}", name)), kept(fmt::format("blk.{{}}.{}", gguf)),
                   kept(std::string(prefix) + std::string(hf))};
  };
  return {row("router.weight", "ffn_gate_inp.weight", kMlp, "gate.weight"),
          row("router.correction", "exp_probs_b.bias", kMlp, "gate.e_score_correction_bias"),
          row("gates.weight", "ffn_gate_exps.weight", kExpert, "gate_proj.weight"),
          row("ups.weight", "ffn_up_exps.weight", kExpert, "up_proj.weight"),
          row("downs.weight", "ffn_down_exps.weight", kExpert, "down_proj.weight"),
          row("shared_gate.weight", "ffn_gate_shexp.weight", kMlp, "shared_experts.gate_proj.weight"),
          row("shared_up.weight", "ffn_up_shexp.weight", kMlp, "shared_experts.up_proj.weight"),
          row("shared_down.weight", "ffn_down_shexp.weight", kMlp, "shared_experts.down_proj.weight"),
          row("q_a.weight", "attn_q_a.weight", kAttention, "q_a_proj.weight"),
          row("q_a.bias", "attn_q_a.bias", kAttention, "q_a_proj.bias"),
          row("q_a_norm.weight", "attn_q_a_norm.weight", kAttention, "q_a_layernorm.weight"),
          row("q_b.weight", "attn_q_b.weight", kAttention, "q_b_proj.weight"),
          row("kv_a.weight", "attn_kv_a_mqa.weight", kAttention, "kv_a_proj_with_mqa.weight"),
          row("kv_a.bias", "attn_kv_a_mqa.bias", kAttention, "kv_a_proj_with_mqa.bias"),
          row("kv_a_norm.weight", "attn_kv_a_norm.weight", kAttention, "kv_a_layernorm.weight"),
          // Older GGUF files have both in one tensor.
          row("k_b.weight", "attn_kv_b.weight", kAttention, "kv_b_proj.weight"),
          row("v_b.weight", "attn_kv_b.weight", kAttention, "kv_b_proj.weight"),
          row("k_b.weight", "attn_k_b.weight", kAttention, "kv_b_proj.weight"),
          row("v_b.weight", "attn_v_b.weight", kAttention, "kv_b_proj.weight")};
}

std::vector<NameRow> gpt2_names() {
  return {{"embed.weight", "token_embd.weight", "wte.weight"},
          {"positions.weight", "position_embd.weight", "wpe.weight"},
          {"final_norm.weight", "output_norm.weight", "ln_f.weight"},
          {"final_norm.bias", "output_norm.bias", "ln_f.bias"},
          {"layer{}.norm1.weight", "blk.{}.attn_norm.weight", "h.{}.ln_1.weight"},
          {"layer{}.norm1.bias", "blk.{}.attn_norm.bias", "h.{}.ln_1.bias"},
          {"layer{}.norm2.weight", "blk.{}.ffn_norm.weight", "h.{}.ln_2.weight"},
          {"layer{}.norm2.bias", "blk.{}.ffn_norm.bias", "h.{}.ln_2.bias"},
          {"layer{}.qkv.weight", "blk.{}.attn_qkv.weight", "h.{}.attn.c_attn.weight"},
          {"layer{}.qkv.bias", "blk.{}.attn_qkv.bias", "h.{}.attn.c_attn.bias"},
          {"layer{}.o.weight", "blk.{}.attn_output.weight", "h.{}.attn.c_proj.weight"},
          {"layer{}.o.bias", "blk.{}.attn_output.bias", "h.{}.attn.c_proj.bias"},
          {"layer{}.up.weight", "blk.{}.ffn_up.weight", "h.{}.mlp.c_fc.weight"},
          {"layer{}.up.bias", "blk.{}.ffn_up.bias", "h.{}.mlp.c_fc.bias"},
          {"layer{}.down.weight", "blk.{}.ffn_down.weight", "h.{}.mlp.c_proj.weight"},
          {"layer{}.down.bias", "blk.{}.ffn_down.bias", "h.{}.mlp.c_proj.bias"}};
}

/// The parts of a layer with a state of Mamba's kind, or of Mamba-2's; files of transformers put `prefix` before them.
std::vector<NameRow> state_space_names(std::string_view prefix, bool second) {
  std::vector<NameRow> rows;
  const auto add = [&](std::string_view name, std::string_view gguf, std::string_view hf) {
    rows.push_back({kept(fmt::format("layer{{}}.{}", name)),
                    gguf.empty() ? gguf : kept(fmt::format("blk.{{}}.{}", gguf)),
                    kept(fmt::format("{}{}", prefix, hf))});
  };
  add("ssm_in.weight", "ssm_in.weight", "in_proj.weight");
  add("ssm_in.bias", "", "in_proj.bias");
  add("ssm_conv.weight", "ssm_conv1d.weight", "conv1d.weight");
  add("ssm_conv.bias", "ssm_conv1d.bias", "conv1d.bias");
  add("ssm_a", "ssm_a", "A_log");
  add("ssm_d", "ssm_d", "D");
  add("ssm_out.weight", "ssm_out.weight", "out_proj.weight");
  add("ssm_out.bias", "", "out_proj.bias");
  add("ssm_dt.bias", "ssm_dt.bias", second ? "dt_bias" : "dt_proj.bias");
  if (second) {
    add("ssm_norm.weight", "ssm_norm.weight", "norm.weight");
  } else {
    add("ssm_dt.weight", "ssm_dt.weight", "dt_proj.weight");
    add("ssm_xp.weight", "ssm_x.weight", "x_proj.weight");
    add("ssm_dt_norm.weight", "ssm_dt_norm.weight", "dt_layernorm.weight");
    add("ssm_b_norm.weight", "ssm_b_norm.weight", "b_layernorm.weight");
    add("ssm_c_norm.weight", "ssm_c_norm.weight", "c_layernorm.weight");
  }
  return rows;
}

std::vector<NameRow> with_state_space(std::vector<NameRow> rows, std::string_view prefix, bool second) {
  const std::vector<NameRow> more = state_space_names(prefix, second);
  rows.insert(rows.end(), more.begin(), more.end());
  return rows;
}

std::vector<NameRow> mamba_names(bool second) {
  return with_state_space({{"embed.weight", "token_embd.weight", "backbone.embeddings.weight"},
                           {"final_norm.weight", "output_norm.weight", "backbone.norm_f.weight"},
                           {"layer{}.norm1.weight", "blk.{}.attn_norm.weight", "backbone.layers.{}.norm.weight"}},
                          "backbone.layers.{}.mixer.", second);
}

std::vector<NameRow> bamba_mlp_names() {
  return renamed({{"final_norm", "output_norm", "model.final_layernorm"},
                  {"layer{}.norm2", "blk.{}.ffn_norm", "model.layers.{}.pre_ff_layernorm"},
                  {"layer{}.gate", "blk.{}.ffn_gate", "model.layers.{}.feed_forward.gate_proj"},
                  {"layer{}.up", "blk.{}.ffn_up", "model.layers.{}.feed_forward.up_proj"},
                  {"layer{}.down", "blk.{}.ffn_down", "model.layers.{}.feed_forward.down_proj"}});
}
/// GGUF files are Falcon-H1's, whose second norm has no ending.
std::vector<NameRow> bamba_names() {
  return with_state_space(
      joined(bamba_mlp_names(), of_layers("", {{"norm2.weight", "ffn_norm", "pre_ff_layernorm.weight"}})),
      "model.layers.{}.mamba.", true);
}

std::vector<NameRow> granite_hybrid_names() {
  return with_state_space(
      joined(of_layers("block_sparse_moe.", {{"router.weight", "ffn_gate_inp.weight", "router.layer.weight"},
                                             {"gates.weight", "ffn_gate_exps.weight", "input_linear.weight"},
                                             {"ups.weight", "ffn_up_exps.weight", "input_linear.weight"},
                                             {"downs.weight", "ffn_down_exps.weight", "output_linear.weight"}}),
             // GGUF files have other names for the MLP that every token uses if there are experts beside it.
             of_layers("shared_mlp.", {{"shared_gate.weight", "ffn_gate_shexp.weight", "input_linear.weight"},
                                       {"shared_up.weight", "ffn_up_shexp.weight", "input_linear.weight"},
                                       {"shared_down.weight", "ffn_down_shexp.weight", "output_linear.weight"},
                                       {"gate.weight", "ffn_gate.weight", "input_linear.weight"},
                                       {"up.weight", "ffn_up.weight", "input_linear.weight"},
                                       {"down.weight", "ffn_down.weight", "output_linear.weight"}})),
      "model.layers.{}.mamba.", true);
}

std::vector<NameRow> jamba_names() {
  return with_state_space(joined(bamba_mlp_names(), mixture_names("feed_forward.", "", {.router = "router.weight"})),
                          "model.layers.{}.mamba.", false);
}

/// A layer has a norm and a part, which all kinds of layers call by one name.
std::vector<NameRow> nemotron_hybrid_names() {
  std::vector<NameRow> experts;
  for (const auto& [name, gguf, hf] :
       {NameRow{"router.weight", "ffn_gate_inp.weight", "gate.weight"},
        NameRow{"router.correction", "exp_probs_b.bias", "gate.e_score_correction_bias"},
        NameRow{"ups.weight", "ffn_up_exps.weight", "experts.{e}.up_proj.weight"},
        NameRow{"downs.weight", "ffn_down_exps.weight", "experts.{e}.down_proj.weight"},
        NameRow{"shared_up.weight", "ffn_up_shexp.weight", "shared_experts.up_proj.weight"},
        NameRow{"shared_down.weight", "ffn_down_shexp.weight", "shared_experts.down_proj.weight"}})
    experts.push_back({kept(fmt::format("layer{{}}.{}", name)), kept(fmt::format("blk.{{}}.{}", gguf)),
                       kept("backbone.layers.{}.mixer." + std::string(hf))});
  return with_state_space(
      joined(experts, renamed({{"embed", "token_embd", "backbone.embeddings"},
                               {"final_norm", "output_norm", "backbone.norm_f"},
                               {"layer{}.norm1", "blk.{}.attn_norm", "backbone.layers.{}.norm"},
                               {"layer{}.q", "blk.{}.attn_q", "backbone.layers.{}.mixer.q_proj"},
                               {"layer{}.k", "blk.{}.attn_k", "backbone.layers.{}.mixer.k_proj"},
                               {"layer{}.v", "blk.{}.attn_v", "backbone.layers.{}.mixer.v_proj"},
                               {"layer{}.o", "blk.{}.attn_output", "backbone.layers.{}.mixer.o_proj"},
                               {"layer{}.up", "blk.{}.ffn_up", "backbone.layers.{}.mixer.up_proj"},
                               {"layer{}.down", "blk.{}.ffn_down", "backbone.layers.{}.mixer.down_proj"}})),
      "backbone.layers.{}.mixer.", true);
}

const std::vector<Family>& table() {
  static const std::vector<Family> families = {
      {"mixtral",
       {"mixtral"},
       {},  // general.architecture is llama: `family_of` sees the experts
       build_mixtral,
       {{"layer{}.router.weight", "blk.{}.ffn_gate_inp.weight", "model.layers.{}.block_sparse_moe.gate.weight"},
        {"layer{}.gates.weight", "blk.{}.ffn_gate_exps.weight",
         "model.layers.{}.block_sparse_moe.experts.{e}.w1.weight"},
        {"layer{}.ups.weight", "blk.{}.ffn_up_exps.weight", "model.layers.{}.block_sparse_moe.experts.{e}.w3.weight"},
        {"layer{}.downs.weight", "blk.{}.ffn_down_exps.weight",
         "model.layers.{}.block_sparse_moe.experts.{e}.w2.weight"}}},
      {"llama", {"llama", "mistral", "smollm3"}, {"llama", "smollm3"}, build_llama, {}},
      {"llama4", {"llama4_text"}, {"llama4"}, build_llama4, llama4_names()},
      {"qwen",
       {"qwen2", "qwen3", "qwen2_moe", "qwen3_moe", "qwen2_vl_text", "qwen2_vl", "qwen2_5_vl_text", "qwen2_5_vl",
        "qwen3_vl_text", "qwen3_vl"},
       {"qwen2", "qwen3", "qwen2moe", "qwen3moe", "qwen2vl", "qwen3vl"},
       build_qwen,
       qwen_names()},
      {"qwen-next", {"qwen3_next"}, {"qwen3next"}, build_qwen_next, joined(qwen_next_names(), qwen_names())},
      {"qwen3.5",
       {"qwen3_5_text", "qwen3_5_moe_text"},
       {"qwen35", "qwen35moe"},
       build_qwen_next,
       joined(joined(qwen35_names(), qwen_names()), joined_expert_names())},
      {"decoder",
       {"stablelm", "olmo", "cohere", "cohere2", "granite", "ernie4_5", "nemotron", "arcee", "ministral", "ministral3"},
       {"stablelm", "command-r", "cohere2", "granite", "ernie4_5", "baichuan", "mistral3", "arcee"},
       build_decoder,
       {}},
      {"seed-oss",
       {"seed_oss"},
       {"seed_oss"},
       build_decoder,
       of_layers("", {{"norm2.weight", "ffn_norm.weight", "post_attention_layernorm.weight"},  // of Weft's first files
                      {"norm2.weight", "post_attention_norm.weight", "post_attention_layernorm.weight"}})},
      {"olmoe", {"olmoe"}, {"olmoe"}, build_decoder, mixture_names("mlp.", "")},
      {"dots", {"dots1"}, {"dots1"}, build_decoder, mixture_names("mlp.", "shared_experts")},
      {"bailing", {"bailing_moe"}, {"bailingmoe2"}, build_decoder, bailing_names()},
      {"bailing1", {}, {"bailingmoe"}, build_decoder, mixture_names("mlp.", "shared_experts")},
      {"glm-moe", {"glm4_moe"}, {"glm4moe"}, build_decoder, glm_moe_names()},
      {"ernie-moe", {"ernie4_5_moe"}, {"ernie4_5-moe"}, build_decoder, ernie_moe_names()},
      {"hunyuan",
       {"hunyuan_v1_dense", "hunyuan_v1_moe"},
       {"hunyuan-dense", "hunyuan-moe"},
       build_decoder,
       hunyuan_names()},
      {"minimax", {"minimax_m2"}, {"minimax-m2"}, build_decoder, minimax_names()},
      {"apertus", {"apertus"}, {"apertus"}, build_decoder, apertus_names()},
      {"phi", {"phi"}, {"phi2"}, build_decoder, phi_names()},
      {"gpt-neox", {"gpt_neox"}, {}, build_decoder, neox_names()},
      {"falcon", {"falcon"}, {}, build_decoder, falcon_names()},
      {"olmo2", {"olmo2", "olmo3", "exaone4"}, {"olmo2", "exaone4"}, build_decoder, olmo_names()},
      {"glm", {"glm", "glm4"}, {"glm4"}, build_decoder, glm_names()},
      {"starcoder2", {"starcoder2"}, {"starcoder2"}, build_decoder, starcoder_names()},
      {"gemma", {"gemma"}, {"gemma"}, build_gemma, {}},
      {"gemma2", {"gemma2", "gemma3_text", "gemma3"}, {"gemma2", "gemma3"}, build_gemma, gemma_names()},
      {"gemma4", {"gemma4_text"}, {"gemma4"}, build_gemma4, gemma4_names()},
      {"gemma3n", {"gemma3n_text"}, {"gemma3n"}, build_gemma3n, gemma3n_names()},
      {"phi3",
       {"phi3"},
       {"phi3"},
       build_phi3,
       {{"layer{}.gate_up.weight", "blk.{}.ffn_up.weight", "model.layers.{}.mlp.gate_up_proj.weight"}}},
      {"gpt2", {"gpt2"}, {"gpt2"}, build_gpt2, gpt2_names()},
      {"bloom", {"bloom"}, {"bloom"}, build_decoder, bloom_names()},
      {"mpt", {"mpt"}, {"mpt"}, build_decoder, mpt_names()},
      {"gpt-oss", {"gpt_oss"}, {"gpt-oss"}, build_gpt_oss, gpt_oss_names()},
      {"deepseek", {"deepseek_v2", "deepseek_v3"}, {"deepseek2"}, build_deepseek, deepseek_names()},
      {"mamba", {"mamba", "falcon_mamba"}, {"mamba"}, build_mamba, mamba_names(false)},
      {"mamba2", {"mamba2"}, {"mamba2"}, build_mamba, mamba_names(true)},
      {"bamba", {"bamba", "falcon_h1"}, {"falcon-h1"}, build_state_hybrid, bamba_names()},
      {"jamba", {"jamba"}, {"jamba"}, build_state_hybrid, jamba_names()},
      {"nemotron-hybrid",
       {"nemotron_h"},
       {"nemotron_h", "nemotron_h_moe"},
       build_state_hybrid,
       nemotron_hybrid_names()},
      {"lfm2", {"lfm2", "lfm2_moe"}, {"lfm2", "lfm2moe"}, build_lfm2, lfm2_names()},
      {"granite-hybrid", {"granitemoehybrid"}, {"granitehybrid"}, build_state_hybrid, granite_hybrid_names()},
  };
  return families;
}

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i + 1;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t above = row[j + 1];
      row[j + 1] = std::min({above + 1, row[j] + 1, diagonal + (a[i] != b[j])});
      diagonal = above;
    }
  }
  return row.back();
}

}  // namespace

std::span<const Family> families() { return table(); }

const Family& family_of(const ModelConfig& config) {
  if (config.from_gguf && config.architecture == "llama" && config.experts > 0) return table()[0];
  std::vector<std::string_view> known;
  for (const Family& family : table())
    for (const std::string_view type : config.from_gguf ? family.gguf_types : family.hf_types) {
      if (type == config.architecture) return family;
      known.push_back(type);
    }
  const auto nearest = *std::min_element(known.begin(), known.end(), [&](std::string_view a, std::string_view b) {
    return edit_distance(config.architecture, a) < edit_distance(config.architecture, b);
  });
  throw FileError(fmt::format("{}: Weft does not know the architecture \"{}\"; it knows {} (nearest: {})",
                              config.source, config.architecture.substr(0, 64), fmt::join(known, ", "), nearest));
}

}  // namespace weft::llm
