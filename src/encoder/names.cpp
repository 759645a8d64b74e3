#include "encoder/names.hpp"

#include <fmt/format.h>

#include <initializer_list>

#include "weft/error.hpp"

namespace weft::encoder {
namespace {

constexpr std::string_view kBertLayer = "encoder.layer.{}.";

EncoderNames bert() {
  return {.words = "embeddings.word_embeddings",
          .positions = "embeddings.position_embeddings",
          .types = "embeddings.token_type_embeddings",
          .embedding_norm = "embeddings.LayerNorm",
          .layer = kBertLayer,
          .q = "attention.self.query",
          .k = "attention.self.key",
          .v = "attention.self.value",
          .o = "attention.output.dense",
          .norm1 = "attention.output.LayerNorm",
          .up = "intermediate.dense",
          .down = "output.dense",
          .norm2 = "output.LayerNorm"};
}

EncoderNames electra() {
  EncoderNames n = bert();
  n.embedding_product = "embeddings_project";
  return n;
}

EncoderNames mpnet() {
  EncoderNames n = bert();
  n.distances = "encoder.relative_attention_bias";
  n.q = "attention.attn.q";
  n.k = "attention.attn.k";
  n.v = "attention.attn.v";
  n.o = "attention.attn.o";
  n.norm1 = "attention.LayerNorm";
  return n;
}

EncoderNames deberta() {
  EncoderNames n = bert();
  n.embedding_product = "embeddings.embed_proj";
  n.distances = "encoder.rel_embeddings";
  n.distance_norm = "encoder.LayerNorm";
  n.q = "attention.self.query_proj";
  n.k = "attention.self.key_proj";
  n.v = "attention.self.value_proj";
  n.position_key = "attention.self.pos_key_proj";
  n.position_query = "attention.self.pos_query_proj";
  return n;
}

EncoderNames albert() {
  EncoderNames n = bert();
  n.embedding_product = "encoder.embedding_hidden_mapping_in";
  n.layer = "encoder.albert_layer_groups.{}.albert_layers.{}.";
  n.q = "attention.query";
  n.k = "attention.key";
  n.v = "attention.value";
  n.o = "attention.dense";
  n.norm1 = "attention.LayerNorm";
  n.up = "ffn";
  n.down = "ffn_output";
  n.norm2 = "full_layer_layer_norm";
  return n;
}

EncoderNames distilbert() {
  EncoderNames n = bert();
  n.layer = "transformer.layer.{}.";
  n.q = "attention.q_lin";
  n.k = "attention.k_lin";
  n.v = "attention.v_lin";
  n.o = "attention.out_lin";
  n.norm1 = "sa_layer_norm";
  n.up = "ffn.lin1";
  n.down = "ffn.lin2";
  n.norm2 = "output_layer_norm";
  return n;
}

EncoderNames t5() {
  return {.words = "shared",
          .last_norm = "encoder.final_layer_norm",
          .distances = "encoder.block.0.layer.0.SelfAttention.relative_attention_bias",
          .layer = "encoder.block.{}.",
          .q = "layer.0.SelfAttention.q",
          .k = "layer.0.SelfAttention.k",
          .v = "layer.0.SelfAttention.v",
          .o = "layer.0.SelfAttention.o",
          .norm1 = "layer.0.layer_norm",
          .gate = "layer.1.DenseReluDense.wi_0",
          .up = "layer.1.DenseReluDense.wi_1",
          .down = "layer.1.DenseReluDense.wo",
          .norm2 = "layer.1.layer_norm"};
}
EncoderNames t5_plain() {
  EncoderNames n = t5();
  n.gate = {};
  n.up = "layer.1.DenseReluDense.wi";
  return n;
}

// As the model's makers write it, and as transformers does.
EncoderNames nomic() {
  EncoderNames n = bert();
  n.embedding_norm = "emb_ln";
  n.layer = "encoder.layers.{}.";
  n.q = n.k = n.v = {};
  n.qkv = "attn.Wqkv";
  n.o = "attn.out_proj";
  n.norm1 = "norm1";
  n.gate = "mlp.fc12";
  n.up = "mlp.fc11";
  n.down = "mlp.fc2";
  n.norm2 = "norm2";
  return n;
}
EncoderNames rotary_bert() {
  EncoderNames n = bert();
  n.layer = "layers.{}.";
  n.q = "self_attn.q_proj";
  n.k = "self_attn.k_proj";
  n.v = "self_attn.v_proj";
  n.o = "self_attn.o_proj";
  n.norm1 = "post_attention_layernorm";
  n.gate = "mlp.gate_proj";
  n.up = "mlp.up_proj";
  n.down = "mlp.down_proj";
  n.norm2 = "post_mlp_layernorm";
  return n;
}
EncoderNames gte() {
  EncoderNames n = bert();
  n.q = n.k = n.v = {};
  n.qkv = "attention.qkv_proj";
  n.o = "attention.o_proj";
  n.norm1 = "attn_ln";
  n.gate_up = "mlp.up_gate_proj";
  n.up = {};
  n.down = "mlp.down_proj";
  n.norm2 = "mlp_ln";
  return n;
}

EncoderNames modernbert() {
  return {.words = "embeddings.tok_embeddings",
          .embedding_norm = "embeddings.norm",
          .last_norm = "final_norm",
          .layer = "layers.{}.",
          .qkv = "attn.Wqkv",
          .o = "attn.Wo",
          .norm1 = "attn_norm",
          .gate_up = "mlp.Wi",
          .down = "mlp.Wo",
          .norm2 = "mlp_norm"};
}

EncoderNames llama() {
  EncoderNames n = rotary_bert();
  n.words = "embed_tokens";
  n.last_norm = "norm";
  n.norm1 = "input_layernorm";
  n.norm2 = "post_attention_layernorm";
  return n;
}
EncoderNames gemma() {
  EncoderNames n = llama();
  n.norm1_after = "post_attention_layernorm";
  n.norm2 = "pre_feedforward_layernorm";
  n.norm2_after = "post_feedforward_layernorm";
  n.q_norm = "self_attn.q_norm";
  n.k_norm = "self_attn.k_norm";
  return n;
}

// GGUF files; some join q, k and v.
EncoderNames gguf() {
  return {.words = "token_embd",
          .positions = "position_embd",
          .types = "token_types",
          .embedding_norm = "token_embd_norm",
          .layer = "blk.{}.",
          .qkv = "attn_qkv",
          .q = "attn_q",
          .k = "attn_k",
          .v = "attn_v",
          .o = "attn_output",
          .norm1 = "attn_output_norm",
          .up = "ffn_up",
          .down = "ffn_down",
          .norm2 = "layer_output_norm"};
}
EncoderNames gguf_gated() {
  EncoderNames n = gguf();
  n.gate = "ffn_gate";
  return n;
}

struct FamilyNames {
  const char* family;
  EncoderNames (*names)();
  std::initializer_list<const char*> prefixes;
};
// A family may have several rows. The first row whose tensors the file has gives the names.
const FamilyNames kNames[] = {{"bert", bert, {"bert.", ""}},
                              {"bert", gguf, {""}},
                              {"nomic_bert", gguf_gated, {""}},
                              {"roberta", bert, {"roberta.", ""}},
                              {"xlm-roberta", bert, {"roberta.", ""}},
                              {"camembert", bert, {"roberta.", "camembert.", ""}},
                              {"electra", electra, {"electra.", ""}},
                              {"albert", albert, {"albert.", ""}},
                              {"distilbert", distilbert, {"distilbert.", ""}},
                              {"mpnet", mpnet, {"mpnet.", ""}},
                              {"t5", t5, {""}},
                              {"t5", t5_plain, {""}},
                              {"mt5", t5, {""}},
                              {"mt5", t5_plain, {""}},
                              {"deberta-v2", deberta, {"deberta.", ""}},
                              {"nomic_bert", nomic, {"", "bert.", "nomic_bert."}},
                              {"nomic_bert", rotary_bert, {"", "nomic_bert."}},
                              {"gte", gte, {"", "new.", "gte."}},
                              {"gte", rotary_bert, {"", "gte."}},
                              {"new", gte, {"new.", ""}},
                              {"modernbert", modernbert, {"model.", ""}},
                              {"eurobert", llama, {"model.", ""}},
                              {"gemma3_text", gemma, {"model.", ""}}};

/// The name of a tensor of the first layer.
std::string example(const EncoderNames& names) {
  const std::string layer = fmt::format(fmt::runtime(names.layer), 0, 0);
  return names(layer + std::string(!names.gate.empty() ? names.gate : names.down) + ".weight");
}

}  // namespace

EncoderNames names_of(const EncoderConfig& config, const io::TensorSource& source) {
  std::string tried;
  for (const FamilyNames& row : kNames) {
    if (config.family != row.family) continue;
    EncoderNames names = row.names();
    for (const char* prefix : row.prefixes) {
      names.prefix = prefix;
      if (source.find(example(names))) {
        const bool joins =
            !names.qkv.empty() &&
            source.find(names(fmt::format(fmt::runtime(names.layer), 0, 0) + std::string(names.qkv) + ".weight"));
        if (joins)
          names.q = names.k = names.v = {};
        else
          names.qkv = names.q.empty() ? names.qkv : std::string_view();
        return names;
      }
      tried += (tried.empty() ? "" : ", ") + example(names);
    }
  }
  throw FileError(fmt::format("{}: has no tensor of a {}'s first layer ({}); are these the weights of this model?",
                              source.path().string(), config.family, tried));
}

}  // namespace weft::encoder
