// Tiny random models as folders of Hugging Face's layout, one for each family, made when a test asks.
#pragma once

#include <cmath>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "base/half.hpp"
#include "base/json.hpp"
#include "base/philox.hpp"
#include "base/temporary_folder.hpp"
#include "io/safetensors.hpp"

namespace weft::test {

struct TinyTensor {
  Shape shape;
  std::vector<float> values;
};
using TinyTensors = std::map<std::string, TinyTensor>;

struct TinyModel {
  std::string name;
  Json config;
  TinyTensors tensors;
};

/// Of the values in [-1, 1), times `scale`, plus `offset`.
inline TinyTensor random_values(const std::string& name, const Shape& shape, double scale, double offset = 0) {
  TinyTensor t{shape, {}};
  const std::uint64_t stream = philox::stream_of(name);
  for (Extent i = 0; i < shape.numel(); ++i) {
    const auto words = philox::block({static_cast<std::uint32_t>(stream), static_cast<std::uint32_t>(stream >> 32)},
                                     {static_cast<std::uint32_t>(i), 0, 0, 0});
    t.values.push_back(static_cast<float>(offset + scale * (2.0 * philox::to_unit_float(words[0]) - 1)));
  }
  return t;
}

inline Json base_config(const std::string& type) {
  return {{"model_type", type},
          {"vocab_size", 48},
          {"hidden_size", 32},
          {"num_hidden_layers", 3},
          {"num_attention_heads", 4},
          {"num_key_value_heads", 2},
          {"intermediate_size", 64},
          {"max_position_embeddings", 64},
          {"rms_norm_eps", 1e-5},
          {"rope_theta", 10000.0},
          {"tie_word_embeddings", false},
          {"hidden_act", "silu"}};
}

/// The tensors of a decoder with separate or fused projections, as the config asks.
inline TinyModel finish(std::string name, Json c) {
  TinyModel m{std::move(name), std::move(c), {}};
  const Json& config = m.config;
  const std::string type = config["model_type"];
  const Extent hidden = config["hidden_size"], layers = config["num_hidden_layers"],
               heads = config["num_attention_heads"], kv = config.value("num_key_value_heads", heads),
               dim = config.value("head_dim", hidden / heads), wide = config["intermediate_size"],
               vocabulary = config["vocab_size"];
  const bool gemma = type.starts_with("gemma"), after = type == "gemma2" || type == "gemma3_text";
  const auto add = [&](const std::string& key, const Shape& shape, double scale, double offset = 0) {
    m.tensors[key] = random_values(m.name + key, shape, scale, offset);
  };
  const auto matrix = [&](const std::string& key, Extent rows, Extent columns) {
    add(key + ".weight", {rows, columns}, 1.7 / std::sqrt(static_cast<double>(columns)));
  };
  const auto norm = [&](const std::string& key, Extent n) { add(key + ".weight", {n}, 0.3, gemma ? 0 : 1); };
  add("model.embed_tokens.weight", {vocabulary, hidden}, 1);
  norm("model.norm", hidden);
  if (!config["tie_word_embeddings"]) matrix("lm_head", vocabulary, hidden);
  for (Extent i = 0; i < layers; ++i) {
    const std::string l = "model.layers." + std::to_string(i) + ".";
    norm(l + "input_layernorm", hidden);
    norm(l + "post_attention_layernorm", hidden);
    if (after) norm(l + "pre_feedforward_layernorm", hidden), norm(l + "post_feedforward_layernorm", hidden);
    if (type == "phi3") {
      matrix(l + "self_attn.qkv_proj", (heads + 2 * kv) * dim, hidden);
      matrix(l + "mlp.gate_up_proj", 2 * wide, hidden);
      matrix(l + "mlp.down_proj", hidden, wide);
    } else {
      matrix(l + "self_attn.q_proj", heads * dim, hidden);
      matrix(l + "self_attn.k_proj", kv * dim, hidden);
      matrix(l + "self_attn.v_proj", kv * dim, hidden);
    }
    matrix(l + "self_attn.o_proj", hidden, heads * dim);
    if (type == "qwen2")
      for (const auto& [key, n] : {std::pair("q", heads * dim), std::pair("k", kv * dim), std::pair("v", kv * dim)})
        add(l + "self_attn." + key + "_proj.bias", {n}, 0.5);
    if (type == "qwen3" || type == "gemma3_text") norm(l + "self_attn.q_norm", dim), norm(l + "self_attn.k_norm", dim);
    if (type == "mixtral") {
      matrix(l + "block_sparse_moe.gate", config["num_local_experts"], hidden);
      for (Extent e = 0; e < config["num_local_experts"].get<Extent>(); ++e) {
        const std::string x = l + "block_sparse_moe.experts." + std::to_string(e) + ".";
        matrix(x + "w1", wide, hidden);
        matrix(x + "w2", hidden, wide);
        matrix(x + "w3", wide, hidden);
      }
    } else if (type != "phi3") {
      matrix(l + "mlp.gate_proj", wide, hidden);
      matrix(l + "mlp.up_proj", wide, hidden);
      matrix(l + "mlp.down_proj", hidden, wide);
    }
  }
  return m;
}

inline TinyModel tiny_gpt2() {
  TinyModel m{"gpt2",
              {{"model_type", "gpt2"},
               {"vocab_size", 48},
               {"n_embd", 32},
               {"n_layer", 2},
               {"n_head", 4},
               {"n_positions", 64},
               {"layer_norm_epsilon", 1e-5},
               {"activation_function", "gelu_new"}},
              {}};
  const auto add = [&](const std::string& key, const Shape& shape, double scale, double offset = 0) {
    m.tensors[key] = random_values("gpt2" + key, shape, scale, offset);
  };
  add("wte.weight", {48, 32}, 1);
  add("wpe.weight", {64, 32}, 0.5);
  const auto norm = [&](const std::string& key) { add(key + ".weight", {32}, 0.3, 1), add(key + ".bias", {32}, 0.3); };
  norm("ln_f");
  for (int i = 0; i < 2; ++i) {
    const std::string l = "h." + std::to_string(i) + ".";
    norm(l + "ln_1");
    norm(l + "ln_2");
    struct Part {
      const char* key;
      Extent in, out;
    };
    for (const auto& [key, in, out] : {Part{"attn.c_attn", 32, 96}, Part{"attn.c_proj", 32, 32},
                                       Part{"mlp.c_fc", 32, 128}, Part{"mlp.c_proj", 128, 32}}) {
      add(l + key + ".weight", {in, out}, 1.7 / std::sqrt(static_cast<double>(in)));
      add(l + key + ".bias", {out}, 0.3);
    }
  }
  return m;
}

inline std::vector<TinyModel> tiny_models() {
  std::vector<TinyModel> models;
  const auto with = [&](const char* name, const char* type, const Json& changes) {
    Json c = base_config(type);
    c.update(changes);
    models.push_back(finish(name, std::move(c)));
  };
  with("llama", "llama", Json::object());
  with("llama tied, three rope", "llama",
       {{"tie_word_embeddings", true},
        {"rope_scaling",
         {{"rope_type", "llama3"},
          {"factor", 8.0},
          {"low_freq_factor", 1.0},
          {"high_freq_factor", 4.0},
          {"original_max_position_embeddings", 16}}}});
  with("mistral", "mistral", {{"sliding_window", 6}, {"head_dim", 16}});
  with("smollm3", "smollm3", {{"no_rope_layer_interval", 2}, {"tie_word_embeddings", true}});
  with("qwen2", "qwen2", {{"rope_theta", 1e6}, {"sliding_window", 4}, {"use_sliding_window", false}});
  with("qwen3", "qwen3", {{"head_dim", 16}});
  with("gemma", "gemma", {{"head_dim", 16}, {"hidden_act", "gelu_pytorch_tanh"}, {"tie_word_embeddings", true}});
  with("gemma2", "gemma2",
       {{"head_dim", 16},
        {"hidden_activation", "gelu_pytorch_tanh"},
        {"tie_word_embeddings", true},
        {"sliding_window", 5},
        {"query_pre_attn_scalar", 24},
        {"attn_logit_softcapping", 5.0},
        {"final_logit_softcapping", 3.0}});
  with("gemma3", "gemma3_text",
       {{"head_dim", 16},
        {"hidden_activation", "gelu_pytorch_tanh"},
        {"tie_word_embeddings", true},
        {"sliding_window", 5},
        {"sliding_window_pattern", 2},
        {"query_pre_attn_scalar", 24},
        {"rope_theta", 1e6},
        {"rope_local_base_freq", 10000.0},
        {"rope_scaling", {{"rope_type", "linear"}, {"factor", 8.0}}}});
  with("phi3", "phi3", {{"partial_rotary_factor", 0.5}, {"sliding_window", nullptr}});
  with("phi3 longrope", "phi3",
       {{"original_max_position_embeddings", 16},
        {"rope_scaling",
         {{"type", "longrope"}, {"short_factor", {1.0, 1.1, 1.2, 1.3}}, {"long_factor", {1.0, 2.0, 3.0, 4.0}}}}});
  with("mixtral", "mixtral", {{"num_local_experts", 4}, {"num_experts_per_tok", 2}});
  models.push_back(tiny_gpt2());
  return models;
}

/// A mistral, gemma2 or gemma3_text with a window of 5 positions and a context of 2048.
inline TinyModel tiny_with_window(const std::string& type, const Json& changes = Json::object()) {
  Json c = base_config(type);
  c.update({{"sliding_window", 5}, {"head_dim", 32}, {"max_position_embeddings", 2048}});
  if (type != "mistral")
    c.update(
        {{"hidden_activation", "gelu_pytorch_tanh"}, {"tie_word_embeddings", true}, {"query_pre_attn_scalar", 24}});
  if (type == "gemma3_text") c.update({{"sliding_window_pattern", 2}, {"rope_local_base_freq", 10000.0}});
  c.update(changes);
  return finish(type, std::move(c));
}

/// A word a token: "w0" ... "w47".
inline std::string tiny_tokenizer(Extent vocabulary) {
  Json words = Json::object();
  for (Extent i = 0; i < vocabulary; ++i) words["w" + std::to_string(i)] = i;
  return Json{{"version", "1.0"},
              {"added_tokens", Json::array()},
              {"normalizer", nullptr},
              {"pre_tokenizer", {{"type", "WhitespaceSplit"}}},
              {"post_processor", nullptr},
              {"decoder", nullptr},
              {"model", {{"type", "WordLevel"}, {"vocab", words}, {"unk_token", "w0"}}}}
      .dump();
}

/// Writes the model into the folder, its tensors as F32 or F16.
inline void put(const TinyModel& model, const TemporaryFolder& folder, const std::string& type = "F32") {
  folder.put("config.json", model.config.dump());
  folder.put("tokenizer.json", tiny_tokenizer(48));
  std::vector<io::TensorView> views;
  std::map<std::string, std::vector<std::uint16_t>> halves;
  for (const auto& [name, tensor] : model.tensors) {
    std::vector<std::uint16_t>& half = halves[name];
    for (const float value : tensor.values) half.push_back(f16_from_f32(value));
    views.push_back({name, type, tensor.shape,
                     type == "F16" ? std::as_bytes(std::span(half)) : std::as_bytes(std::span(tensor.values))});
  }
  io::write_safetensors(folder / "model.safetensors", views);
}

}  // namespace weft::test
