#include "llm/family_names.hpp"

#include <fmt/format.h>

#include <deque>

namespace weft::llm {

std::string_view kept(std::string text) {
  static std::deque<std::string> texts;
  return texts.emplace_back(std::move(text));
}

std::vector<NameRow> renamed(std::initializer_list<NameRow> parts) {
  std::vector<NameRow> rows;
  for (const NameRow& part : parts)
    for (const char* kind : {".weight", ".bias"})
      rows.push_back({kept(std::string(part.name) + kind), kept(std::string(part.gguf) + kind),
                      kept(std::string(part.hf) + kind)});
  return rows;
}

std::vector<NameRow> of_layers(std::string_view prefix, std::initializer_list<NameRow> rows) {
  std::vector<NameRow> names;
  for (const NameRow& row : rows)
    names.push_back({kept(fmt::format("layer{{}}.{}", row.name)),
                     row.gguf.empty() ? row.gguf : kept(fmt::format("blk.{{}}.{}", row.gguf)),
                     row.hf.empty() ? row.hf : kept(fmt::format("model.layers.{{}}.{}{}", prefix, row.hf))});
  return names;
}

std::vector<NameRow> joined(std::vector<NameRow> rows, const std::vector<NameRow>& more) {
  rows.insert(rows.end(), more.begin(), more.end());
  return rows;
}

std::vector<NameRow> gemma_names() {
  return of_layers("", {{"norm1_after.weight", "post_attention_norm.weight", "post_attention_layernorm.weight"},
                        {"norm2.weight", "ffn_norm.weight", "pre_feedforward_layernorm.weight"},
                        {"norm2_after.weight", "post_ffw_norm.weight", "post_feedforward_layernorm.weight"}});
}

std::vector<NameRow> layer_input_names() {
  return joined(of_layers("", {{"layer_gate.weight", "inp_gate.weight", "per_layer_input_gate.weight"},
                               {"layer_projection.weight", "proj.weight", "per_layer_projection.weight"},
                               {"layer_norm.weight", "post_norm.weight", "post_per_layer_input_norm.weight"}}),
                {{"layer_embed.weight", "per_layer_token_embd.weight", "model.embed_tokens_per_layer.weight"},
                 {"layer_model.weight", "per_layer_model_proj.weight", "model.per_layer_model_projection.weight"},
                 {"layer_model_norm.weight", "per_layer_proj_norm.weight", "model.per_layer_projection_norm.weight"}});
}

std::vector<NameRow> gemma3n_names() {
  constexpr Extent kStreamsMax = 8;
  std::vector<NameRow> rows = joined(
      joined(gemma_names(), layer_input_names()),
      joined(of_layers("altup.", {{"altup_scale", "altup_correct_scale.weight", "correct_output_scale"},
                                  {"altup_correct.weight", "altup_correct_coef.weight", "correction_coefs.weight"},
                                  {"altup_predict.weight", "altup_predict_coef.weight", "prediction_coefs.weight"},
                                  {"altup_router.weight", "altup_router.weight", "modality_router.weight"},
                                  {"altup_router_norm.weight", "altup_router_norm.weight", "router_norm.weight"}}),
             of_layers("laurel.", {{"laurel_left.weight", "laurel_l.weight", "linear_left.weight"},
                                   {"laurel_right.weight", "laurel_r.weight", "linear_right.weight"},
                                   {"laurel_norm.weight", "laurel_post_norm.weight", "post_laurel_norm.weight"}})));
  for (Extent i = 1; i < kStreamsMax; ++i)
    for (const auto& [name, gguf, hf] : {NameRow{"altup_in", "altup_proj.weight", "altup_projections"},
                                         NameRow{"altup_out", "altup_unembd_proj.weight", "altup_unembed_projections"}})
      rows.push_back(
          {kept(fmt::format("{}{}.weight", name, i)), gguf, kept(fmt::format("model.{}.{}.weight", hf, i - 1))});
  return rows;
}

std::vector<NameRow> gemma4_names() {
  return joined(
      joined(gemma_names(), layer_input_names()),
      of_layers("", {{"layer_scale", "layer_output_scale.weight", "layer_scalar"},
                     {"mlp_norm_after.weight", "post_ffw_norm_1.weight", "post_feedforward_layernorm_1.weight"},
                     {"experts_norm.weight", "pre_ffw_norm_2.weight", "pre_feedforward_layernorm_2.weight"},
                     {"experts_norm_after.weight", "post_ffw_norm_2.weight", "post_feedforward_layernorm_2.weight"},
                     {"router.weight", "ffn_gate_inp.weight", "router.proj.weight"},
                     {"router_scale", "ffn_gate_inp.scale", "router.scale"},
                     {"expert_scales", "ffn_down_exps.scale", "router.per_expert_scale"},
                     {"gates.weight", "ffn_gate_up_exps.weight", "experts.gate_up_proj"},
                     {"ups.weight", "ffn_gate_up_exps.weight", "experts.gate_up_proj"},
                     {"downs.weight", "ffn_down_exps.weight", "experts.down_proj"}}));
}

namespace {

/// What both of Qwen's families by the gated delta rule have, beside the products that `delta` names.
std::vector<NameRow> with_delta(const std::vector<NameRow>& delta) {
  return joined(
      joined(of_layers("", {{"q_gate.weight", "attn_q.weight", "self_attn.q_proj.weight"},
                            {"q_gate.bias", "attn_q.bias", "self_attn.q_proj.bias"},
                            {"norm2.weight", "post_attention_norm.weight", "post_attention_layernorm.weight"}}),
             delta),
      of_layers("linear_attn.", {{"ssm_conv.weight", "ssm_conv1d.weight", "conv1d.weight"},
                                 {"ssm_a", "ssm_a", "A_log"},
                                 {"ssm_dt.bias", "ssm_dt.bias", "dt_bias"},
                                 {"ssm_norm.weight", "ssm_norm.weight", "norm.weight"},
                                 {"ssm_out.weight", "ssm_out.weight", "out_proj.weight"}}));
}

}  // namespace

std::vector<NameRow> qwen_next_names() {  // whose products are joined
  return with_delta(of_layers("linear_attn.", {{"delta_q.weight", "attn_qkv.weight", "in_proj_qkvz.weight"},
                                               {"delta_k.weight", "attn_qkv.weight", "in_proj_qkvz.weight"},
                                               {"delta_v.weight", "attn_qkv.weight", "in_proj_qkvz.weight"},
                                               {"delta_z.weight", "attn_gate.weight", "in_proj_qkvz.weight"},
                                               {"delta_b.weight", "ssm_ba.weight", "in_proj_ba.weight"},
                                               {"delta_a.weight", "ssm_ba.weight", "in_proj_ba.weight"}}));
}

std::vector<NameRow> qwen35_names() {
  return with_delta(of_layers("linear_attn.", {{"delta_q.weight", "attn_qkv.weight", "in_proj_qkv.weight"},
                                               {"delta_k.weight", "attn_qkv.weight", "in_proj_qkv.weight"},
                                               {"delta_v.weight", "attn_qkv.weight", "in_proj_qkv.weight"},
                                               {"delta_z.weight", "attn_gate.weight", "in_proj_z.weight"},
                                               {"delta_b.weight", "ssm_beta.weight", "in_proj_b.weight"},
                                               {"delta_a.weight", "ssm_alpha.weight", "in_proj_a.weight"}}));
}

std::vector<NameRow> joined_expert_names() {
  return of_layers("mlp.experts.", {{"gates.weight", "ffn_gate_exps.weight", "gate_up_proj"},
                                    {"ups.weight", "ffn_up_exps.weight", "gate_up_proj"},
                                    {"downs.weight", "ffn_down_exps.weight", "down_proj"}});
}

std::vector<NameRow> mixture_names(std::string_view prefix, std::string_view shared, const ExpertNames& names) {
  const auto under = [&](std::string_view part) { return kept(fmt::format("{}{}", prefix, part)); };
  const auto of_expert = [&](std::string_view part) { return under(fmt::format("experts.{{e}}.{}.weight", part)); };
  const auto of_shared = [&](std::string_view part) { return under(fmt::format("{}.{}.weight", shared, part)); };
  return of_layers("", {{"router.weight", "ffn_gate_inp.weight", under(names.router)},
                        {"router.correction", "exp_probs_b.bias", under(names.correction)},
                        {"gates.weight", "ffn_gate_exps.weight", of_expert(names.gate)},
                        {"ups.weight", "ffn_up_exps.weight", of_expert(names.up)},
                        {"downs.weight", "ffn_down_exps.weight", of_expert(names.down)},
                        {"shared_gate.weight", "ffn_gate_shexp.weight", of_shared("gate_proj")},
                        {"shared_up.weight", "ffn_up_shexp.weight", of_shared("up_proj")},
                        {"shared_down.weight", "ffn_down_shexp.weight", of_shared("down_proj")}});
}

std::vector<NameRow> llama4_names() {
  return of_layers("feed_forward.",
                   {{"gate.weight", "ffn_gate.weight", "gate_proj.weight"},
                    {"up.weight", "ffn_up.weight", "up_proj.weight"},
                    {"down.weight", "ffn_down.weight", "down_proj.weight"},
                    {"router.weight", "ffn_gate_inp.weight", "router.weight"},
                    {"gates.weight", "ffn_gate_exps.weight", "experts.gate_up_proj"},
                    {"ups.weight", "ffn_up_exps.weight", "experts.gate_up_proj"},
                    {"downs.weight", "ffn_down_exps.weight", "experts.down_proj"},
                    {"shared_gate.weight", "ffn_gate_shexp.weight", "shared_expert.gate_proj.weight"},
                    {"shared_up.weight", "ffn_up_shexp.weight", "shared_expert.up_proj.weight"},
                    {"shared_down.weight", "ffn_down_shexp.weight", "shared_expert.down_proj.weight"}});
}

std::vector<NameRow> glm_moe_names() {
  return joined(mixture_names("mlp.", "shared_experts"),
                of_layers("", {{"norm2.weight", "post_attention_norm.weight", "post_attention_layernorm.weight"}}));
}
std::vector<NameRow> bailing_names() {
  constexpr std::string_view kJoined = "attn_qkv", kInTurn = "attention.query_key_value";
  const auto attention = [](std::string_view name, std::string_view gguf, std::string_view hf) {
    return NameRow{name, kept(fmt::format("blk.{{}}.{}", gguf)), kept(fmt::format("model.layers.{{}}.{}", hf))};
  };
  return joined(renamed({{"embed", "token_embd", "model.word_embeddings"},
                         attention("layer{}.q", kJoined, kInTurn),
                         attention("layer{}.k", kJoined, kInTurn),
                         attention("layer{}.v", kJoined, kInTurn),
                         attention("layer{}.q_norm", "attn_q_norm", "attention.query_layernorm"),
                         attention("layer{}.k_norm", "attn_k_norm", "attention.key_layernorm"),
                         attention("layer{}.o", "attn_output", "attention.dense")}),
                mixture_names("mlp.", "shared_experts", {.correction = "gate.expert_bias"}));
}
std::vector<NameRow> ernie_moe_names() {
  return mixture_names("mlp.", "shared_experts", {.correction = "moe_statics.e_score_correction_bias"});
}
std::vector<NameRow> hunyuan_names() {
  return joined(mixture_names("mlp.", "shared_mlp", {.router = "gate.wg.weight"}),
                of_layers("self_attn.", {{"q_norm.weight", "attn_q_norm.weight", "query_layernorm.weight"},
                                         {"k_norm.weight", "attn_k_norm.weight", "key_layernorm.weight"}}));
}
std::vector<NameRow> minimax_names() {
  return mixture_names("block_sparse_moe.", "",
                       {.correction = "e_score_correction_bias", .gate = "w1", .up = "w3", .down = "w2"});
}
std::vector<NameRow> apertus_names() {
  return of_layers("", {{"norm1.weight", "attn_norm.weight", "attention_layernorm.weight"},
                        {"norm2.weight", "ffn_norm.weight", "feedforward_layernorm.weight"},
                        {"act.a", "", "mlp.act_fn.alpha_p"},
                        {"act.b", "", "mlp.act_fn.alpha_n"},
                        {"act.beta", "", "mlp.act_fn.beta"},
                        {"act.eps", "", "mlp.act_fn.eps"}});
}

}  // namespace weft::llm
