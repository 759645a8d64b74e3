// Tiny text encoders in GGUF files.
#pragma once

#include "encoder/tiny_encoder.hpp"
#include "io/gguf.hpp"

namespace weft::test {

/// The case's model in a GGUF file, with names and keys of llama.cpp.
inline void put_gguf(const std::string& name, const std::string& architecture, const std::filesystem::path& file) {
  const Json c = encoder_case(name), config = c["files"]["config.json"];
  const std::pair<const char*, const char*> parts[] = {{"embeddings.word_embeddings", "token_embd"},
                                                       {"embeddings.position_embeddings", "position_embd"},
                                                       {"embeddings.token_type_embeddings", "token_types"},
                                                       {"embeddings.LayerNorm", "token_embd_norm"},
                                                       {"emb_ln", "token_embd_norm"},
                                                       {"attention.self.query", "attn_q"},
                                                       {"attention.self.key", "attn_k"},
                                                       {"attention.self.value", "attn_v"},
                                                       {"attn.Wqkv", "attn_qkv"},
                                                       {"attention.output.dense", "attn_output"},
                                                       {"attn.out_proj", "attn_output"},
                                                       {"attention.output.LayerNorm", "attn_output_norm"},
                                                       {"norm1", "attn_output_norm"},
                                                       {"intermediate.dense", "ffn_up"},
                                                       {"mlp.fc11", "ffn_up"},
                                                       {"mlp.fc12", "ffn_gate"},
                                                       {"mlp.fc2", "ffn_down"},
                                                       {"output.dense", "ffn_down"},
                                                       {"output.LayerNorm", "layer_output_norm"},
                                                       {"norm2", "layer_output_norm"},
                                                       {"classifier.dense", "cls"},
                                                       {"classifier.out_proj", "cls.output"}};
  const bool is_reranker = name == "roberta-classes";
  std::vector<TinyTensor> values;
  std::vector<std::string> names;
  for (const auto& [key, extents] : c.at("tensors").items()) {
    std::string whole = key, layer;
    if (whole.starts_with("roberta.")) whole = whole.substr(8);
    std::string rest = whole;
    for (const char* prefix : {"encoder.layer.", "encoder.layers."})
      if (whole.starts_with(prefix)) {
        rest = whole.substr(std::string_view(prefix).size());
        layer = "blk." + rest.substr(0, 1) + ".";
        rest = rest.substr(2);
      }
    const std::size_t dot = rest.rfind('.');
    const auto part =
        std::find_if(std::begin(parts), std::end(parts), [&](const auto& p) { return rest.substr(0, dot) == p.first; });
    if (part == std::end(parts)) continue;  // the pooler
    names.push_back(layer + part->second + rest.substr(dot));
    values.push_back(encoder_values(key, Shape(extents.get<std::vector<Extent>>()), true));
    if (is_reranker && names.back() == "position_embd.weight") {  // without the rows that stand for padding
      values.back().values.erase(values.back().values.begin(), values.back().values.begin() + 2 * 32);
      values.back().shape = {62, 32};
    }
  }
  io::GgufMetadata metadata;
  const auto set = [&](const std::string& key, std::uint32_t value) { metadata.set(architecture + "." + key, value); };
  metadata.set("general.architecture", architecture);
  set("block_count", 3);
  set("embedding_length", 32);
  set("feed_forward_length", 40);
  set("attention.head_count", 4);
  set("context_length", is_reranker ? 62 : 64);
  set("pooling_type", is_reranker ? 4 : architecture == "bert" ? 2 : 1);
  metadata.set(architecture + ".attention.layer_norm_epsilon", config["layer_norm_eps"].get<float>());
  if (architecture != "bert") metadata.set(architecture + ".rope.freq_base", 500.0f);
  std::vector<std::string> words{"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};
  for (int i = 5; i < 48; ++i) words.push_back("\u2581w" + std::to_string(i));
  std::vector<std::int32_t> types(48, 1);
  for (int i = 0; i < 5; ++i) types[static_cast<std::size_t>(i)] = 3;
  metadata.set("tokenizer.ggml.model", std::string("bert"));
  metadata.set("tokenizer.ggml.tokens", io::GgufArray(words));
  metadata.set("tokenizer.ggml.token_type", io::GgufArray(types));
  metadata.set("tokenizer.ggml.token_type_count", is_reranker ? std::uint32_t{1} : std::uint32_t{2});
  if (is_reranker) metadata.set("tokenizer.huggingface.json", c["files"]["tokenizer.json"].dump());
  for (const auto& [key, id] :
       {std::pair("bos", 2u), std::pair("eos", 3u), std::pair("unknown", 1u), std::pair("seperator", 3u),
        std::pair("padding", 0u), std::pair("cls", 2u), std::pair("mask", 4u)})
    metadata.set(std::string("tokenizer.ggml.") + key + "_token_id", id);
  std::vector<io::GgufTensor> tensors;
  for (std::size_t i = 0; i < names.size(); ++i)
    tensors.push_back({names[i], values[i].shape, BlockType::f32, std::as_bytes(std::span(values[i].values))});
  io::write_gguf(file, metadata, tensors);
}

}  // namespace weft::test
