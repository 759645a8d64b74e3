#include "llm/families.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

#include "weft/error.hpp"

namespace weft::llm {
namespace {

std::vector<NameRow> gemma_names() {
  return {{"layer{}.norm1_after.weight", "blk.{}.post_attention_norm.weight",
           "model.layers.{}.post_attention_layernorm.weight"},
          {"layer{}.norm2.weight", "blk.{}.ffn_norm.weight", "model.layers.{}.pre_feedforward_layernorm.weight"},
          {"layer{}.norm2_after.weight", "blk.{}.post_ffw_norm.weight",
           "model.layers.{}.post_feedforward_layernorm.weight"}};
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
      {"qwen", {"qwen2", "qwen3"}, {"qwen2", "qwen3"}, build_qwen, {}},
      {"gemma", {"gemma"}, {"gemma"}, build_gemma, {}},
      {"gemma2", {"gemma2", "gemma3_text", "gemma3"}, {"gemma2", "gemma3"}, build_gemma, gemma_names()},
      {"phi3",
       {"phi3"},
       {"phi3"},
       build_phi3,
       {{"layer{}.gate_up.weight", "blk.{}.ffn_up.weight", "model.layers.{}.mlp.gate_up_proj.weight"}}},
      {"gpt2", {"gpt2"}, {"gpt2"}, build_gpt2, gpt2_names()},
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
