#include "random_model.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/file.hpp"
#include "base/half.hpp"
#include "base/json.hpp"
#include "base/philox.hpp"
#include "base/threads.hpp"
#include "io/quantise_model.hpp"
#include "io/safetensors.hpp"
#include "io/tensor_source.hpp"
#include "llm/convert.hpp"
#include "llm/families.hpp"

namespace weft::bench {
namespace {

namespace fs = std::filesystem;

struct ModelShape {
  std::string_view name, config;
};

constexpr ModelShape kShapes[] = {
    {"qwen2-0.5b", R"({"model_type": "qwen2", "vocab_size": 151936, "hidden_size": 896, "num_hidden_layers": 24,
                      "num_attention_heads": 14, "num_key_value_heads": 2, "intermediate_size": 4864,
                      "max_position_embeddings": 32768, "rms_norm_eps": 1e-6, "rope_theta": 1000000.0,
                      "tie_word_embeddings": true, "hidden_act": "silu"})"},
    {"smollm2-135m", R"({"model_type": "llama", "vocab_size": 49152, "hidden_size": 576, "num_hidden_layers": 30,
                        "num_attention_heads": 9, "num_key_value_heads": 3, "intermediate_size": 1536,
                        "max_position_embeddings": 8192, "rms_norm_eps": 1e-5, "rope_theta": 100000.0,
                        "tie_word_embeddings": true, "hidden_act": "silu"})"},
    {"llama-3.2-1b", R"({"model_type": "llama", "vocab_size": 128256, "hidden_size": 2048, "num_hidden_layers": 16,
                        "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 8192,
                        "max_position_embeddings": 131072, "rms_norm_eps": 1e-5, "rope_theta": 500000.0,
                        "tie_word_embeddings": true, "hidden_act": "silu"})"},
    // 16 GB.
    {"llama-3.1-8b", R"({"model_type": "llama", "vocab_size": 128256, "hidden_size": 4096, "num_hidden_layers": 32,
                        "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14336,
                        "max_position_embeddings": 131072, "rms_norm_eps": 1e-5, "rope_theta": 500000.0,
                        "tie_word_embeddings": false, "hidden_act": "silu"})"},
    // Four of its layers, and fewer words: 1.9 GB, and the same kernels.
    {"llama-3.1-8b-4-layers",
     R"({"model_type": "llama", "vocab_size": 8000, "hidden_size": 4096, "num_hidden_layers": 4,
                        "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14336,
                        "max_position_embeddings": 131072, "rms_norm_eps": 1e-5, "rope_theta": 500000.0,
                        "tie_word_embeddings": false, "hidden_act": "silu"})"},
    {"mamba-130m",
     R"({"model_type": "mamba", "vocab_size": 50280, "hidden_size": 768, "num_hidden_layers": 24, "state_size": 16,
                      "conv_kernel": 4, "expand": 2, "intermediate_size": 1536, "time_step_rank": 48, "use_conv_bias": true,
                      "use_bias": false, "layer_norm_epsilon": 1e-5, "tie_word_embeddings": true})"},
    {"mamba2-130m", R"({"model_type": "mamba2", "vocab_size": 50288, "hidden_size": 768, "num_hidden_layers": 24,
                       "state_size": 128, "conv_kernel": 4, "expand": 2, "num_heads": 24, "head_dim": 64, "n_groups": 1,
                       "use_conv_bias": true, "use_bias": false, "layer_norm_epsilon": 1e-5, "tie_word_embeddings": true})"},
    // Four of its 48 layers, and fewer words: 128 experts, of which a token has eight. 5 GB.
    {"qwen3-30b-a3b-4-layers",
     R"({"model_type": "qwen3_moe", "vocab_size": 8000, "hidden_size": 2048, "num_hidden_layers": 4, "head_dim": 128,
                        "num_attention_heads": 32, "num_key_value_heads": 4, "intermediate_size": 6144,
                        "moe_intermediate_size": 768, "num_experts": 128, "num_experts_per_tok": 8, "norm_topk_prob": true,
                        "max_position_embeddings": 40960, "rms_norm_eps": 1e-6, "rope_theta": 1000000.0,
                        "tie_word_embeddings": false, "hidden_act": "silu", "decoder_sparse_step": 1,
                        "mlp_only_layers": []})"},
    // Of no known model: an eighth of Mixtral's width and its share of experts.
    {"mixtral-8x40m", R"({"model_type": "mixtral", "vocab_size": 32000, "hidden_size": 768, "num_hidden_layers": 6,
                         "num_attention_heads": 12, "num_key_value_heads": 4, "intermediate_size": 2688,
                         "max_position_embeddings": 32768, "rms_norm_eps": 1e-5, "rope_theta": 1000000.0,
                         "num_local_experts": 8, "num_experts_per_tok": 2, "hidden_act": "silu"})"},
    // Two layers that are half as wide, so that an expert is large beside what a dispatch costs. 1.1 GB.
    {"mixtral-2-layers", R"({"model_type": "mixtral", "vocab_size": 8000, "hidden_size": 2048, "num_hidden_layers": 2,
                            "num_attention_heads": 16, "num_key_value_heads": 4, "intermediate_size": 5376,
                            "max_position_embeddings": 32768, "rms_norm_eps": 1e-5, "rope_theta": 1000000.0,
                            "num_local_experts": 8, "num_experts_per_tok": 2, "hidden_act": "silu"})"},
};

/// The part of NAME or NAME:TYPE before the colon.
std::string_view shape_name(std::string_view name) { return name.substr(0, name.find(':')); }

const ModelShape* find_shape(std::string_view name) {
  name = shape_name(name);
  const auto* found =
      std::find_if(std::begin(kShapes), std::end(kShapes), [&](const ModelShape& shape) { return shape.name == name; });
  return found == std::end(kShapes) ? nullptr : found;
}

/// Uniform, with the deviation of the usual initialisation: large enough that no f16 is a denormal, small enough that
/// sums stay within it.
void fill_random(std::span<std::uint16_t> values, std::string_view tensor) {
  constexpr std::size_t kTask = 1 << 16;
  const std::uint64_t stream = philox::stream_of(tensor);
  const philox::Key key = {static_cast<std::uint32_t>(stream), static_cast<std::uint32_t>(stream >> 32)};
  const float scale = 0.02f * std::sqrt(3.0f) / 32768;
  parallel_for(static_cast<std::int64_t>((values.size() + kTask - 1) / kTask), [&](std::int64_t task) {
    const std::size_t begin = static_cast<std::size_t>(task) * kTask, end = std::min(begin + kTask, values.size());
    for (std::size_t i = begin; i < end; i += 8) {
      const philox::Block words = philox::block(key, {static_cast<std::uint32_t>(i / 8), 0, 0, 0});
      for (std::size_t j = 0; j < std::min<std::size_t>(8, end - i); ++j) {
        const auto word = static_cast<float>(words[j / 2] >> (16 * (j % 2)) & 0xFFFF);
        values[i + j] = f16_from_f32((word - 32767.5f) * scale);
      }
    }
  });
}

/// A word a token, so that any id can be read and written.
std::string tokenizer_of(Extent vocabulary) {
  Json words = Json::object();
  for (Extent i = 0; i < vocabulary; ++i) words[fmt::format("w{}", i)] = i;
  return Json{{"version", "1.0"},
              {"added_tokens", Json::array()},
              {"normalizer", nullptr},
              {"pre_tokenizer", {{"type", "WhitespaceSplit"}}},
              {"post_processor", nullptr},
              {"decoder", nullptr},
              {"model", {{"type", "WordLevel"}, {"vocab", std::move(words)}, {"unk_token", "w0"}}}}
      .dump();
}

/// The model of a folder as a GGUF file beside it, all its matrices in `type`.
fs::path quantised(const fs::path& folder, std::string_view type) {
  const fs::path file = fs::path(folder).concat(fmt::format("-{}.gguf", type)),
                 halves = fs::path(folder).concat("-F16.gguf");
  if (fs::exists(file)) return file;
  if (!fs::exists(halves)) llm::convert_to_gguf(io::TensorSource::open(folder), halves);
  if (file != halves)
    io::quantise_model(io::TensorSource::open(halves), file, {.type = std::string(type), .pure = true});
  return file;
}

}  // namespace

std::string random_model_names() {
  std::string names;
  for (const ModelShape& shape : kShapes) names += (names.empty() ? "" : ", ") + std::string(shape.name);
  return names;
}

bool is_random_model(std::string_view name) { return find_shape(name) != nullptr; }

std::string random_model_title(std::string_view name) {
  const std::string_view shape = shape_name(name);
  return fmt::format("{} in {}, random weights", shape, shape == name ? "F16" : name.substr(shape.size() + 1));
}

fs::path random_model(std::string_view name) {
  if (shape_name(name) != name)
    return quantised(random_model(shape_name(name)), name.substr(shape_name(name).size() + 1));
  const ModelShape& shape = *find_shape(name);
  const fs::path folder = fs::temp_directory_path() / "weft-bench" / shape.name, done = folder / "config.json";
  if (fs::exists(done)) return folder;
  fs::create_directories(folder);
  const llm::ModelConfig config = llm::config_from_json(parse_json(shape.config, done.string()), done.string());
  const llm::Family& family = llm::family_of(config);
  // Of what a file may have or not, a head of its own unless it is tied, and no biases but those of convolutions.
  const llm::ModelGraph graph = family.build(
      {config, family, [](std::string_view key) { return !key.ends_with(".bias") || key.ends_with("conv1d.bias"); }});
  std::vector<io::TensorInfo> tensors;
  std::vector<bool> ones;  // weights of norms
  for (const llm::TensorDesc& tensor : graph.tensors)
    for (const std::string& key : tensor.keys) {
      Shape extents;
      for (const llm::Dim& dim : tensor.shape) extents.push_back(dim.value);
      if (tensor.keys.size() > 1)
        extents = Shape(std::vector<Extent>(extents.begin() + 1, extents.end()));  // an expert
      tensors.push_back({key, "F16", extents});
      ones.push_back(tensor.element == llm::Element::f32 && key.ends_with(".weight"));
    }
  io::write_safetensors(folder / "model.safetensors", tensors, {}, [&](std::size_t i, const auto& put) {
    std::vector<std::uint16_t> values(static_cast<std::size_t>(tensors[i].shape.numel()), f16_from_f32(1));
    if (!ones[i]) fill_random(values, tensors[i].name);
    put(std::as_bytes(std::span(values)));
  });
  write_file_atomically(folder / "tokenizer.json", tokenizer_of(config.vocabulary));
  write_file_atomically(done, shape.config);  // last: then the folder is whole
  return folder;
}

}  // namespace weft::bench
