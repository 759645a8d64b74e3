// Damaged model files through the doors that users have: `llm::load`, text to tokens, a pass, a chat. Whatever is done to
// a file, it loads or is refused by name.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include "base/hostile_files.hpp"
#include "io/gguf.hpp"
#include "llm/tiny_model.hpp"
#include "weft/error.hpp"
#include "weft/llm.hpp"

namespace weft::llm {
namespace {

using test::Outcome;
using test::TemporaryFolder;
using test::TinyModel;

constexpr std::size_t kFew = 120;
constexpr Extent kVocabulary = 16;
constexpr const char* kTemplate =
    "{% for m in messages %}{{ '<s>' + m['role'] + ' ' + m.content|trim }}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'assistant' }}{% endif %}";

TinyModel small_llama() {
  Json c = test::base_config("llama");
  c.update({{"num_hidden_layers", 1},
            {"hidden_size", 16},
            {"num_attention_heads", 2},
            {"num_key_value_heads", 1},
            {"intermediate_size", 32},
            {"vocab_size", kVocabulary},
            {"max_position_embeddings", 32},
            {"eos_token_id", 2}});
  return test::finish("small", c);
}

std::string bytes_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// The model as a GGUF file, with a SentencePiece vocabulary and a template, and the length of its head.
std::pair<std::string, std::size_t> small_gguf() {
  const TinyModel model = small_llama();
  io::GgufMetadata m;
  m.set("general.architecture", std::string("llama"));
  m.set("llama.embedding_length", 16u);
  m.set("llama.block_count", 1u);
  m.set("llama.attention.head_count", 2u);
  m.set("llama.attention.head_count_kv", 1u);
  m.set("llama.feed_forward_length", 32u);
  m.set("llama.context_length", 32u);
  m.set("llama.attention.layer_norm_rms_epsilon", 1e-5f);
  m.set("llama.rope.freq_base", 1e4f);
  m.set("tokenizer.ggml.model", std::string("llama"));
  std::vector<std::string> tokens = {"<unk>",
                                     "<s>",
                                     "</s>",
                                     "\xE2\x96\x81",
                                     "a",
                                     "b",
                                     "ab",
                                     "\xE2\x96\x81"
                                     "a",
                                     "abab"};
  std::vector<float> scores = {0, 0, 0, -9, -8, -7, -1, -2, -5};
  std::vector<std::int32_t> types = {2, 3, 3, 1, 1, 1, 1, 1, 1};
  while (tokens.size() < kVocabulary) {
    tokens.push_back(fmt::format("<0x{:02X}>", tokens.size()));
    scores.push_back(0);
    types.push_back(6);
  }
  m.set("tokenizer.ggml.tokens", io::GgufArray(tokens));
  m.set("tokenizer.ggml.scores", io::GgufArray(scores));
  m.set("tokenizer.ggml.token_type", io::GgufArray(types));
  m.set("tokenizer.ggml.bos_token_id", 1u);
  m.set("tokenizer.ggml.eos_token_id", 2u);
  m.set("tokenizer.ggml.unknown_token_id", 0u);
  m.set("tokenizer.chat_template", std::string(kTemplate));
  const std::pair<const char*, const char*> names[] = {
      {"model.embed_tokens.weight", "token_embd.weight"},
      {"model.norm.weight", "output_norm.weight"},
      {"lm_head.weight", "output.weight"},
      {"model.layers.0.input_layernorm.weight", "blk.0.attn_norm.weight"},
      {"model.layers.0.post_attention_layernorm.weight", "blk.0.ffn_norm.weight"},
      {"model.layers.0.self_attn.q_proj.weight", "blk.0.attn_q.weight"},
      {"model.layers.0.self_attn.k_proj.weight", "blk.0.attn_k.weight"},
      {"model.layers.0.self_attn.v_proj.weight", "blk.0.attn_v.weight"},
      {"model.layers.0.self_attn.o_proj.weight", "blk.0.attn_output.weight"},
      {"model.layers.0.mlp.gate_proj.weight", "blk.0.ffn_gate.weight"},
      {"model.layers.0.mlp.up_proj.weight", "blk.0.ffn_up.weight"},
      {"model.layers.0.mlp.down_proj.weight", "blk.0.ffn_down.weight"}};
  std::vector<io::GgufTensor> tensors;
  std::size_t data = 0;
  for (const auto& [from, to] : names) {
    const test::TinyTensor& t = model.tensors.at(from);
    tensors.push_back({to, t.shape, BlockType::f32, std::as_bytes(std::span(t.values))});
    data += tensors.back().data.size();
  }
  const std::string file = bytes_of(io::gguf_bytes(m, tensors));
  return {file, file.size() - data};
}

/// Loads the model and uses it. What two files together get wrong is told by tensors.
Outcome use(const std::filesystem::path& model, const std::string& file) {
  return test::outcome_of(file, {"fit the architecture"}, [&](Outcome& outcome) {
    const Model loaded = load(model);
    outcome.loaded = true;
    // A token that the model has no row for and a template that refuses these messages are UsageErrors.
    const std::vector<std::int32_t> tokens = loaded.encode("ab a w3 w1");
    (void)loaded.decode(tokens);
    if (!tokens.empty() && tokens.size() < 32) (void)loaded.forward(tokens);
    if (loaded.has_template()) (void)loaded.render({{"user", " ab "}});
  });
}

/// Damages one file of a model and uses the model.
void damage(const TemporaryFolder& folder, const std::string& name, const std::string& good, std::size_t end,
            const std::filesystem::path& model) {
  test::expect_damage_is_survived(folder, name, good, end, kFew, [&] { return use(model, name); });
}

TEST(HostileModel, Gguf) {
  const TemporaryFolder folder;
  const auto [file, head] = small_gguf();
  damage(folder, "m.gguf", file, head, folder / "m.gguf");
}

void put_tensors(const TemporaryFolder& folder, const TinyModel& model) {
  std::vector<io::TensorView> views;
  for (const auto& [name, tensor] : model.tensors)
    views.push_back({name, "F32", tensor.shape, std::as_bytes(std::span(tensor.values))});
  io::write_safetensors(folder / "model.safetensors", views);
}

class HostileFolder : public testing::Test {
 protected:
  HostileFolder() : model_(small_llama()) {
    put_tensors(folder_, model_);
    folder_.put("config.json", model_.config.dump());
    folder_.put("tokenizer.json", test::tiny_tokenizer(kVocabulary));
    folder_.put("chat_template.jinja", kTemplate);
  }
  std::string text_of(const char* name) const { return read_text_file(folder_ / name); }
  void damage_all(const char* name) {
    const std::string good = text_of(name);
    damage(folder_, name, good, good.size(), folder_.path());
  }
  TemporaryFolder folder_;
  TinyModel model_;
};

TEST_F(HostileFolder, Safetensors) {
  const std::string good = text_of("model.safetensors");
  std::uint64_t head = 0;
  std::memcpy(&head, good.data(), sizeof head);
  damage(folder_, "model.safetensors", good, sizeof head + head, folder_.path());
}

TEST_F(HostileFolder, SafetensorsIndex) {
  std::vector<io::TensorView> parts[2];
  Json map = Json::object();
  std::size_t i = 0;
  for (const auto& [name, tensor] : model_.tensors) {
    const std::size_t part = i++ % 2;
    parts[part].push_back({name, "F32", tensor.shape, std::as_bytes(std::span(tensor.values))});
    map[name] = fmt::format("part{}.safetensors", part);
  }
  for (std::size_t part : {0, 1}) io::write_safetensors(folder_ / fmt::format("part{}.safetensors", part), parts[part]);
  std::filesystem::remove(folder_ / "model.safetensors");
  folder_.put("model.safetensors.index.json", Json{{"metadata", {{"total_size", 8}}}, {"weight_map", map}}.dump());
  const std::string good = text_of("model.safetensors.index.json");
  // A name that changed leads to a file that is not there, which is then the one that the message names.
  test::expect_damage_is_survived(folder_, "model.safetensors.index.json", good, good.size(), kFew,
                                  [&] { return use(folder_.path(), folder_.path().string()); });
}

TEST_F(HostileFolder, Config) { damage_all("config.json"); }

TEST_F(HostileFolder, ConfigOfEveryFamily) {
  for (const TinyModel& tiny : test::tiny_models()) {
    SCOPED_TRACE(tiny.name);
    const TemporaryFolder folder;
    test::put(tiny, folder);
    const std::string good = tiny.config.dump();
    if (test::every_mutation()) {
      damage(folder, "config.json", good, good.size(), folder.path());
      continue;
    }
    // Each value replaced by what it is not.
    for (const auto& [key, value] : tiny.config.items())
      for (const Json& other : {Json(), Json(-1), Json(1e300), Json("x"), Json::array({1})}) {
        Json changed = tiny.config;
        changed[key] = other;
        folder.put("config.json", changed.dump());
        EXPECT_EQ(use(folder.path(), folder.path().string()).complaint, "") << key << ": " << other.dump();
      }
  }
}

TEST_F(HostileFolder, Tokenizer) { damage_all("tokenizer.json"); }

TEST_F(HostileFolder, SettingsBesideTheTokenizer) {
  folder_.put("generation_config.json", R"({"eos_token_id": [2, 3], "max_length": 20})");
  folder_.put("tokenizer_config.json", R"({"eos_token": "w2", "bos_token": {"content": "w1"}, "chat_template": "x"})");
  for (const char* name : {"generation_config.json", "tokenizer_config.json"}) damage_all(name);
}

TEST_F(HostileFolder, Template) { damage_all("chat_template.jinja"); }

// A model is as large as its tensors, whatever a few bytes of its head claim.
TEST_F(HostileFolder, ClaimsWithoutTensorsCostNothing) {
  const auto begun = std::chrono::steady_clock::now();
  for (const Json& claim :
       {Json{{"num_hidden_layers", 4096}}, Json{{"vocab_size", 1 << 24}}, Json{{"hidden_size", 1 << 18}},
        Json{{"intermediate_size", 1 << 20}}, Json{{"max_position_embeddings", 1 << 24}},
        Json{{"model_type", "mixtral"},
             {"num_hidden_layers", 4096},
             {"num_local_experts", 1024},
             {"num_experts_per_tok", 1024}}}) {
    Json changed = model_.config;
    changed.update(claim);
    folder_.put("config.json", changed.dump());
    EXPECT_EQ(use(folder_.path(), folder_.path().string()).complaint, "") << claim.dump();
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begun, std::chrono::seconds(5 * test::kSlowdown));
}

}  // namespace
}  // namespace weft::llm
