#include <memory>

#include "io/gguf.hpp"
#include "io/quantise_model.hpp"
#include "io/tensor_source.hpp"
#include "llm/convert.hpp"
#include "llm/tiny_model.hpp"
#include "snapshot/cases.hpp"
#include "snapshot/inputs.hpp"

namespace weft::snapshot {
namespace {

namespace fs = std::filesystem;

struct PassOptions {
  CacheType cache = CacheType::f32;
  bool exact = false;
  int sequences = 1;
};

/// A prompt of several tokens, and tokens after it, drawn on the device.
void passes(const fs::path& model, const PassOptions& options) {
  const llm::Model loaded = llm::load(
      model, {.sequences = options.sequences, .cache = options.cache, .exact = options.exact, .keep_packed = false});
  const std::vector<std::int32_t> prompt = {3, 14, 15, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3, 2, 3, 8, 4, 6, 2};
  loaded.generate(prompt, {.max_tokens = 3, .sampling = {.seed = 1}}).result();
}

std::string file_name(std::string name) {
  for (char& c : name)
    if (c == ' ' || c == ',') c = '_';
  return name;
}

Case of_model(const std::string& name, const test::TinyModel& model, const PassOptions& options = {},
              const std::string& type = "F32", bool on_small_gpu = false) {
  return {"llm_" + file_name(name),
          [model = std::make_shared<test::TinyModel>(model), options, type] {
            const test::TemporaryFolder folder;
            test::put(*model, folder, type);
            passes(folder.path(), options);
          },
          on_small_gpu};
}

/// Wide enough for blocks of 256.
test::TinyModel wide(const std::string& type, const Json& changes) {
  Json config = test::base_config(type);
  config.update({{"hidden_size", 256}, {"intermediate_size", 512}, {"num_hidden_layers", 2}});
  config.update(changes);
  return test::finish("wide " + type, std::move(config));
}

/// The model as a GGUF file with weights in blocks, and a vocabulary that its files need.
fs::path quantised(const test::TinyModel& model, const test::TemporaryFolder& folder, const std::string& type) {
  test::put(model, folder);
  const fs::path bare = folder / "bare.gguf", whole = folder / "whole.gguf", result = folder / "quantised.gguf";
  llm::convert_to_gguf(io::TensorSource::open(folder.path()), bare, {.with_tokenizer = false});
  const auto file = io::GgufFile::open(bare);
  io::GgufMetadata metadata = file.metadata();
  std::vector<std::string> tokens;
  for (int i = 0; i < 48; ++i) tokens.push_back("w" + std::to_string(i));
  metadata.set("tokenizer.ggml.model", std::string("gpt2"));
  metadata.set("tokenizer.ggml.pre", std::string("gpt-2"));
  metadata.set("tokenizer.ggml.tokens", io::GgufArray(tokens));
  metadata.set("tokenizer.ggml.token_type", io::GgufArray(std::vector<std::int32_t>(tokens.size(), 1)));
  metadata.set("tokenizer.ggml.merges", io::GgufArray(std::vector<std::string>()));
  metadata.set("tokenizer.ggml.eos_token_id", std::uint32_t{47});
  io::write_gguf(whole, metadata, file.tensors());
  io::quantise_model(io::TensorSource::open(whole), result, {.type = type});
  return result;
}

Case of_quantised(const std::string& name, const test::TinyModel& model, const std::string& type,
                  const PassOptions& options = {}, bool on_small_gpu = false) {
  return {"llm_" + name,
          [model = std::make_shared<test::TinyModel>(model), type, options] {
            const test::TemporaryFolder folder;
            passes(quantised(*model, folder, type), options);
          },
          on_small_gpu};
}

Case of_batch(const test::TinyModel& model) {
  return {"llm_batch", [model = std::make_shared<test::TinyModel>(model)] {
            const test::TemporaryFolder folder;
            test::put(*model, folder);
            const llm::Model loaded = llm::load(folder.path(), {.sequences = 3, .keep_packed = false});
            const std::vector<std::string> prompts = {"w1 w2", "w3 w4 w5", "w9"};
            loaded.generate_batch(prompts, {.max_tokens = 2, .sampling = {.temperature = 0}});
            loaded.generate("w1 w2 w3 w1 w2", {.max_tokens = 4, .sampling = {.temperature = 0}, .draft = 5}).result();
            loaded.forward(std::vector<std::int32_t>{1, 2, 3, 4, 5});
          }};
}

}  // namespace

std::vector<Case> language_cases() {
  std::vector<Case> cases;
  for (const test::TinyModel& model : test::tiny_models())
    cases.push_back(of_model(model.name, model, {}, "F32", model.name == "llama" || model.name == "mixtral"));
  const test::TinyModel llama = test::tiny_models()[0];
  cases.push_back(of_model("llama_f16", llama, {}, "F16"));
  cases.push_back(of_model("llama_cache_f16", llama, {.cache = CacheType::f16}));
  cases.push_back(of_model("llama_cache_q8",
                           test::finish("q8",
                                        [] {
                                          Json c = test::base_config("llama");
                                          c.update({{"head_dim", 32}});
                                          return c;
                                        }()),
                           {.cache = CacheType::q8}));
  cases.push_back(of_model("window_ring", test::tiny_with_window("mistral"), {.cache = CacheType::f16}));
  cases.push_back(of_batch(llama));
  const test::TinyModel dense = wide("llama", Json::object()),
                        mixture = wide("mixtral", {{"num_local_experts", 4}, {"num_experts_per_tok", 2}});
  cases.push_back(of_quantised("llama_q4_k_m", dense, "Q4_K_M", {.cache = CacheType::q8}, true));
  cases.push_back(of_quantised("llama_q8_0", dense, "Q8_0", {}, true));
  cases.push_back(of_quantised("llama_q4_0_exact", dense, "Q4_0", {.cache = CacheType::f16, .exact = true}));
  cases.push_back(of_quantised("mixtral_q4_k_m", mixture, "Q4_K_M", {.cache = CacheType::f16}, true));
  cases.push_back(of_quantised("gemma2_q6_k",
                               wide("gemma2", {{"head_dim", 64},
                                               {"hidden_activation", "gelu_pytorch_tanh"},
                                               {"tie_word_embeddings", true},
                                               {"sliding_window", 5},
                                               {"query_pre_attn_scalar", 64},
                                               {"attn_logit_softcapping", 5.0},
                                               {"final_logit_softcapping", 3.0}}),
                               "Q6_K"));
  return cases;
}

}  // namespace weft::snapshot
