// Models from Hugging Face folders to GGUF files and back: the same logits, the same bits, and what is refused.
#include "llm/convert.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <set>

#include "base/file.hpp"
#include "base/message_of.hpp"
#include "io/gguf.hpp"
#include "llm/tiny_model.hpp"
#include "llm/transformers_cases.hpp"
#include "llm/weights.hpp"
#include "text/load_tokenizer.hpp"
#include "text/tokenizer_exchange.hpp"
#include "weft/error.hpp"
#include "weft/llm.hpp"

namespace weft::llm {
namespace {

namespace fs = std::filesystem;
using test::message_of;
using test::TemporaryFolder;

std::vector<std::int32_t> some_tokens(std::size_t count) {
  std::vector<std::int32_t> tokens;
  for (std::size_t i = 0; i < count; ++i) tokens.push_back(static_cast<std::int32_t>((i * 29 + 7 * (i % 3)) % 48));
  return tokens;
}

double largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
  EXPECT_EQ(a.size(), b.size());
  double largest = 0;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i)
    largest = std::max(largest, std::abs(double{a[i]} - double{b[i]}));
  return largest;
}

constexpr std::string_view kNotConverted = "does not convert them between GGUF files and folders";
/// What GGUF has no keys for, or Weft does not convert, and the fact that the error names.
const std::map<std::string, std::string_view> kRefused = {
    {"falcon-h1", "ssm_norm would be lost"},
    {"falcon-h1-without-norm", "ssm_in would be lost"},
    {"falcon-mamba", "eps would be"},
    {"lfm2-biases", "conv_in would be lost"},
    {"lfm2-moe-plain-routing", "shares would be"},
    {"mamba-biases", "ssm_in would be lost"},
    {"mamba2-limits", "dt_most would be"},
    {"qwen3-next-some", "shares would be"},
    {"qwen3.5", kNotConverted},
    {"qwen3.5-moe", kNotConverted},
    {"llama4", "chunk would be"},
    {"ernie4_5-moe-some", "layer3_gate would be lost"},
    {"olmoe-shares", "shares would be"},
    {"dots1-window", "window would be"},
    {"falcon", kNotConverted},
    {"falcon-alibi", kNotConverted},
    {"falcon-alibi-parallel", kNotConverted},
    {"falcon-groups", kNotConverted},
    {"falcon-one-norm", kNotConverted},
    {"glm", kNotConverted},
    {"gpt-neox", kNotConverted},
    {"gpt-neox-serial", kNotConverted},
    {"ministral", kNotConverted},
    {"nemotron", kNotConverted},
    {"olmo", kNotConverted},
    {"olmo3", kNotConverted},
    {"olmo3-yarn", kNotConverted},
    {"qwen2-moe-some", "layer0_gate would be lost"},
    {"qwen3-moe-some", "layer0_gate would be lost"},
    {"qwen3-moe-all", "shares would be"},
    {"gpt-oss-clamped", "alpha would be"},
    {"deepseek-v3-halves", "layer0_q_rope: pairs would be"},
    {"llama-yarn-scales", "texts of 256 tokens would have other rotary frequencies"},
    {"smollm3", "layer1_q_rope would be added"},
    {"smollm3-window", "window would be"},
    {"qwen2-window", "window would be"},
    {"qwen3-window", "window would be"},
    {"gemma3n-two-states", "altup_scaled would be added"},
    {"gemma2", "scale would be"},
    {"gemma3", "scale would be"},
    {"gemma3-linear", "window would be"},
    {"gemma3-vision", "scale would be"},
};

/// The case with settings that GGUF's own rules give, or nothing.
std::optional<test::TransformersCase> as_gguf_has_it(test::TransformersCase c) {
  Json& config = c.json["config"];
  if (c.name == "gemma2" || c.name == "gemma3")
    config["query_pre_attn_scalar"] = 16;
  else if (c.name == "gemma3-vision")
    config["text_config"]["query_pre_attn_scalar"] = 16;
  else if (c.name == "llama4")
    config.update({{"attention_chunk_size", 8192}, {"floor_scale", 8192}, {"attn_scale", 0.1}});
  else if (c.name == "falcon-h1")
    config["mamba_norm_before_gate"] = false;
  else if (c.name == "smollm3")
    config["no_rope_layers"] = {1, 1, 1};
  else
    return {};
  return c;
}

void check_there_and_back(const test::TransformersCase& c) {
  const TemporaryFolder folder;
  test::put(c.model(), folder);
  const fs::path gguf = folder / "model.gguf", back = folder / "back";
  const auto source = io::TensorSource::open(folder.path());
  const Converted there = convert_to_gguf(source, gguf);
  const bool sees = c.name == "gemma3-vision";
  ASSERT_EQ(there.notes.size(), sees ? 2u : 1u);
  EXPECT_NE(there.notes.back().find("GGUF has no keys for this tokenizer"), std::string::npos);
  EXPECT_TRUE(convert_to_folder(io::TensorSource::open(gguf), back).notes.empty());

  const auto tokens = some_tokens(30);
  const LoadOptions options{.context = c.json.at("context").get<Extent>()};
  const std::vector<float> logits = load(folder.path(), options).forward(tokens);
  const double near = c.keeps_states() ? 4e-5 : 5e-6;  // rates of states are rounded on the way
  EXPECT_LT(largest_difference(load(gguf, options).forward(tokens), logits), near);
  EXPECT_LT(largest_difference(load(back, options).forward(tokens), logits), near);
  EXPECT_EQ(read_text_file(back / "tokenizer.json"), read_text_file(folder / "tokenizer.json"));

  // Bamba comes back as a Granite 4, and Falcon-H1 with its factors in its weights.
  if (c.name == "bamba" || c.name == "falcon-h1") return;
  const auto returned = io::TensorSource::open(back);
  const TensorNames originals(source);  // with a prefix or without
  for (const io::SourceTensor& tensor : returned.tensors()) {
    ASSERT_TRUE(originals.find(tensor.name)) << tensor.name;
    const io::SourceTensor& original = *originals.find(tensor.name);
    ASSERT_EQ(tensor.shape, original.shape);
    ASSERT_EQ(tensor.type_name, original.type_name);
    // GGUF holds 1 + w of Gemma's and Qwen3-Next's norms and -exp(w) of rates, which rounds.
    if (tensor.name.ends_with("A_log")) {
      EXPECT_LT(largest_difference(returned.read_f32(tensor.name), source.read_f32(original.name)), 2.5e-7);
      continue;
    }
    const bool has_other_norms = c.name.starts_with("gemma") || c.name.starts_with("qwen3-next");
    if (has_other_norms && tensor.name.find("norm") != std::string::npos)
      EXPECT_LT(largest_difference(returned.read_f32(tensor.name), source.read_f32(original.name)), 1.2e-7);
    else
      EXPECT_EQ(std::memcmp(tensor.data.data(), original.data.data(), original.data.size()), 0) << tensor.name;
  }
  if (!sees) {
    EXPECT_EQ(returned.tensors().size(), source.tensors().size());
  }
}

TEST(Convert, ModelsComeBackAsTheyWent) {
  for (const test::TransformersCase& c : test::transformers_cases()) {
    SCOPED_TRACE(c.name);
    const auto found = kRefused.find(c.name);
    if (found == kRefused.end()) {
      check_there_and_back(c);
      continue;
    }
    const std::string_view refused = found->second;
    const TemporaryFolder folder;
    test::put(c.model(), folder);
    const auto source = io::TensorSource::open(folder.path());
    const std::string message = message_of<FileError>([&] { convert_to_gguf(source, folder / "model.gguf"); });
    if (refused != kNotConverted) {
      EXPECT_NE(message.find("a GGUF file cannot express this model"), std::string::npos) << message;
    }
    EXPECT_NE(message.find(refused), std::string::npos) << message;
    EXPECT_FALSE(fs::exists(folder / "model.gguf"));
    if (const auto changed = as_gguf_has_it(c)) check_there_and_back(*changed);
  }
}

/// Ling's models have classes of their own instead of transformers'; llama.cpp judges their logits (gguf_judge.py).
test::TransformersCase ling(bool is_second) {
  Json config = {{"model_type", "bailing_moe"},
                 {"vocab_size", 48},
                 {"hidden_size", 32},
                 {"intermediate_size", 48},
                 {"num_hidden_layers", 2},
                 {"num_attention_heads", 4},
                 {"num_key_value_heads", 2},
                 {"head_dim", 16},
                 {"max_position_embeddings", 64},
                 {"rms_norm_eps", 1e-6},
                 {"num_experts", 4},
                 {"num_experts_per_tok", 2},
                 {"num_shared_experts", 1},
                 {"moe_intermediate_size", 24},
                 {"first_k_dense_replace", 1}};
  if (is_second)
    config.update({{"score_function", "sigmoid"},
                   {"n_group", 2},
                   {"topk_group", 1},
                   {"routed_scaling_factor", 2.5},
                   {"partial_rotary_factor", 0.5},
                   {"use_qk_norm", true}});
  Json tensors = {
      {"model.word_embeddings.weight", {48, 32}}, {"model.norm.weight", {32}}, {"lm_head.weight", {48, 32}}};
  const auto put_mlp = [&](const std::string& mlp, Extent width) {
    for (const char* part : {"gate", "up"}) tensors[fmt::format("{}.{}_proj.weight", mlp, part)] = {width, 32};
    tensors[mlp + ".down_proj.weight"] = {32, width};
  };
  for (int layer = 0; layer < 2; ++layer) {
    const std::string at = fmt::format("model.layers.{}.", layer);
    for (const char* norm : {"input", "post_attention"}) tensors[fmt::format("{}{}_layernorm.weight", at, norm)] = {32};
    tensors[at + "attention.query_key_value.weight"] = {128, 32};
    tensors[at + "attention.dense.weight"] = {32, 64};
    if (is_second)
      for (const char* part : {"query", "key"})
        tensors[fmt::format("{}attention.{}_layernorm.weight", at, part)] = {16};
  }
  put_mlp("model.layers.0.mlp", 48);
  put_mlp("model.layers.1.mlp.shared_experts", 24);
  for (int e = 0; e < 4; ++e) put_mlp(fmt::format("model.layers.1.mlp.experts.{}", e), 24);
  tensors["model.layers.1.mlp.gate.weight"] = {4, 32};
  if (is_second) tensors["model.layers.1.mlp.gate.expert_bias"] = {4};
  return {is_second ? "ling2" : "ling", {{"config", config}, {"context", 64}, {"tensors", tensors}}};
}

TEST(Convert, LingComesBackAsItWent) {
  for (const bool is_second : {false, true}) {
    SCOPED_TRACE(is_second);
    check_there_and_back(ling(is_second));
  }
}

/// A vocabulary of GGUF in which bytes are tokens, "ab" is one more, and <e> ends texts.
io::GgufMetadata small_vocabulary() {
  io::GgufMetadata m("small");
  std::vector<std::string> tokens;
  for (char c = 'a'; c <= 'z'; ++c) tokens.emplace_back(1, c);
  tokens.insert(tokens.end(), {"ab", "\u0120", "<s>", "<e>", "abc"});
  std::vector<std::int32_t> types(tokens.size(), 1);
  types[28] = types[29] = 3;
  m.set("tokenizer.ggml.model", std::string("gpt2"));
  m.set("tokenizer.ggml.pre", std::string("gpt-2"));
  m.set("tokenizer.ggml.tokens", io::GgufArray(tokens));
  m.set("tokenizer.ggml.token_type", io::GgufArray(types));
  m.set("tokenizer.ggml.merges", io::GgufArray(std::vector<std::string>{"a b", "ab c"}));
  m.set("tokenizer.ggml.bos_token_id", std::uint32_t{28});
  m.set("tokenizer.ggml.eos_token_id", std::uint32_t{29});
  m.set("tokenizer.ggml.add_bos_token", true);
  m.set("tokenizer.chat_template", std::string("{{ bos_token }}{% for m in messages %}{{ m.content }}{% endfor %}"));
  return m;
}

/// The files of a folder with a tiny model of 48 tokens and this tokenizer.
void put_with_vocabulary(const io::GgufMetadata& vocabulary, const TemporaryFolder& folder) {
  test::put(test::tiny_models()[0], folder);
  const fs::path bare = folder / "bare.gguf";
  convert_to_gguf(io::TensorSource::open(folder.path()), bare, {.with_tokenizer = false});
  const auto file = io::GgufFile::open(bare);
  io::GgufMetadata all = file.metadata();
  for (const auto& entry : vocabulary.entries()) all.set(entry.key, entry.value);
  io::write_gguf(folder / "model.gguf", all, file.tensors());
}

TEST(Convert, TokenizersTemplatesAndEndsGoAlong) {
  const TemporaryFolder folder;
  put_with_vocabulary(small_vocabulary(), folder);
  const Model model = load(folder / "model.gguf");
  const fs::path there = folder / "there", back = folder / "back.gguf";
  EXPECT_TRUE(convert_to_folder(io::TensorSource::open(folder / "model.gguf"), there).notes.empty());
  EXPECT_TRUE(convert_to_gguf(io::TensorSource::open(there), back).notes.empty());
  for (const fs::path& path : {there, back}) {
    const Model copy = load(path);
    for (const char* text : {"abc cab", "aabb<e>c", "", " a"}) {
      EXPECT_EQ(copy.encode(text), model.encode(text)) << path << ": " << text;
      EXPECT_EQ(copy.decode(copy.encode(text)), model.decode(model.encode(text)));
    }
    EXPECT_EQ(copy.render({{"user", "hi"}}), "<s>hi");
  }
  // Other programs read the keys that the tokenizer first came from.
  const auto returned = io::GgufFile::open(back);
  const io::GgufMetadata first = small_vocabulary();
  for (const auto& entry : first.entries()) {
    if (entry.key == "tokenizer.ggml.tokens" || entry.key == "tokenizer.ggml.token_type") continue;  // filled up to 48
    ASSERT_TRUE(returned.metadata().contains(entry.key)) << entry.key;
    EXPECT_EQ(*returned.metadata().find(entry.key), entry.value) << entry.key;
  }
  const auto& tokens = returned.metadata().array<std::string>("tokenizer.ggml.tokens");
  ASSERT_EQ(tokens.size(), 48u);
  EXPECT_EQ(tokens[30], "abc");
  EXPECT_EQ(tokens[47], "[PAD47]");
  const Json config = read_json_file(there / "config.json");
  EXPECT_EQ(config.at("bos_token_id"), 28);
  EXPECT_EQ(config.at("eos_token_id"), 29);
}

TEST(Convert, RealTokenizersMakeTheSameTokensFromKeysOfGguf) {
  std::vector<std::string> texts = {"",
                                    " ",
                                    "  two  spaces\n\n\nlines\t tab",
                                    "na\u00efve \u6771\u4eac \U0001F642 1234567 3.14",
                                    "<|im_start|>user</s>",
                                    "don't WE'LL I'm",
                                    "a\r\nb",
                                    "\u2581x"};
  const std::string prose = read_text_file(WEFT_TEST_PROSE);
  for (std::size_t i = 0; i + 200 < prose.size(); i += 500) texts.push_back(prose.substr(i, 200));
  int read = 0;
  for (const char* name : {"gpt2", "llama2"}) {
    const fs::path path = fs::path(WEFT_TEST_CACHE) / "data" / "tokenizers" / (std::string(name) + ".json");
    if (!fs::exists(path)) continue;
    ++read;
    const std::string whole = read_text_file(path, 1 << 28);
    const auto official = text::Tokenizer::from_json(whole);
    const text::GgufVocabulary v = text::gguf_vocabulary_of(whole, official, 0);
    const auto keys = text::Tokenizer::from_gguf(v),
               again = text::Tokenizer::from_json(text::tokenizer_json_of(v, name));
    for (const std::string& text : texts) {
      const auto tokens = official.encode(text);
      EXPECT_EQ(keys.encode(text), tokens) << name << ": " << text;
      EXPECT_EQ(again.encode(text), tokens) << name << ": " << text;
      EXPECT_EQ(again.decode(tokens), official.decode(tokens)) << name << ": " << text;
    }
  }
  if (read == 0) GTEST_SKIP() << "no tokenizers; run script/setup --judges";
}

TEST(Convert, WhatCannotBeCarriedOverIsRefused) {
  const TemporaryFolder folder;
  io::GgufMetadata vocabulary = small_vocabulary();
  vocabulary.set("tokenizer.ggml.model", std::string("bert"));
  for (const char* key : {"unknown", "seperator"})
    vocabulary.set(fmt::format("tokenizer.ggml.{}_token_id", key), std::uint32_t{0});
  put_with_vocabulary(vocabulary, folder);
  const auto source = io::TensorSource::open(folder / "model.gguf");
  const auto error = [&](const ConvertOptions& options) {
    return message_of<FileError>([&] { convert_to_folder(source, folder / "out", options); });
  };
  EXPECT_NE(error({}).find("\"bert\" is not carried over into tokenizer.json; give --no-tokenizer"), std::string::npos)
      << error({});
  EXPECT_FALSE(fs::exists(folder / "out"));
  convert_to_folder(source, folder / "out", {.with_tokenizer = false});
  EXPECT_NE(message_of<FileError>([&] {
              convert_to_gguf(io::TensorSource::open(folder / "out"), folder / "out.gguf");
            }).find("no tokenizer.json; put it there, or give --no-tokenizer"),
            std::string::npos);
  EXPECT_NE(message_of<UsageError>([&] {
              convert_to_folder(source, folder / "out", {.type = BlockType::q4_0});
            }).find("not to Q4_0"),
            std::string::npos);

  io::GgufMetadata twice = small_vocabulary();
  auto tokens = twice.array<std::string>("tokenizer.ggml.tokens");
  tokens[3] = "e";
  EXPECT_NE(message_of<FileError>([&] {
              text::GgufVocabulary v = text::gguf_vocabulary(twice);
              v.tokens = tokens;
              (void)text::tokenizer_json_of(v, "small");
            }).find("small: tokenizer.ggml.tokens[4]: \"e\" is there twice"),
            std::string::npos);
}

TEST(Convert, AFolderWithPartsOfAnotherModelIsRefused) {
  const TemporaryFolder folder;
  put_with_vocabulary(small_vocabulary(), folder);
  const auto source = io::TensorSource::open(folder / "model.gguf");
  const fs::path out = folder / "out";
  convert_to_folder(source, out);
  const auto put = [&](const char* name, std::string_view text) { write_file_atomically(out / name, text); };
  const auto refusal = [&] { return message_of<FileError>([&] { convert_to_folder(source, out); }); };

  // What was written is replaced by what the new model is, and other files are nobody's business.
  put("tokenizer_config.json", R"({"chat_template": "old"})");
  put("generation_config.json", R"({"eos_token_id": 3})");
  put("model.safetensors", "old");
  put("README.md", "a model");
  put("other.gguf", "");
  convert_to_folder(source, out);
  EXPECT_EQ(load(out).render({{"user", "hi"}}), "<s>hi");
  EXPECT_EQ(read_json_file(out / "generation_config.json").at("eos_token_id"), 29);
  EXPECT_TRUE(fs::exists(out / "README.md"));

  put("config.json", "{}");
  for (const char* name : {"chat_template.jinja", "chat_template.json", "special_tokens_map.json", "tokenizer.model",
                           "preprocessor_config.json", "model.safetensors.index.json", "adapter_config.json",
                           "model-00001-of-00002.safetensors", "pytorch_model.bin"}) {
    put(name, "{}");
    const std::string message = refusal();
    EXPECT_NE(message.find(fmt::format("taken for parts of this model: \"{}\"; remove them", name)), std::string::npos)
        << message;
    fs::remove(out / name);
  }
  fs::create_directory(out / "additional_chat_templates");
  EXPECT_NE(refusal().find("additional_chat_templates"), std::string::npos);
  EXPECT_EQ(read_text_file(out / "config.json"), "{}");  // nothing was written

  // A user who leaves the tokenizer behind may have put another one there.
  put("chat_template.jinja", "{{ bos_token }}");
  const Converted converted = convert_to_folder(source, out, {.with_tokenizer = false});
  ASSERT_EQ(converted.notes.size(), 1u);
  EXPECT_EQ(converted.notes[0],
            "the folder keeps its tokenizer: \"additional_chat_templates\", \"chat_template.jinja\", "
            "\"generation_config.json\", \"tokenizer.json\", \"tokenizer_config.json\"");
  for (int i = 1; i <= 7; ++i) put(fmt::format("model-0000{}-of-00007.safetensors", i).c_str(), "");
  EXPECT_NE(message_of<FileError>([&] {
              convert_to_folder(source, out, {.with_tokenizer = false});
            }).find("\"model-00005-of-00007.safetensors\" and 2 more; remove them"),
            std::string::npos);
}

// An expert computes the tokens that chose it only, by the products of its weights' type.
TEST(Convert, ExpertsGiveTheSameWhateverTypeTheirWeightsHave) {
  for (const test::TransformersCase& c : test::transformers_cases()) {
    if (!c.name.starts_with("mixtral")) continue;
    SCOPED_TRACE(c.name);
    const TemporaryFolder folder;
    test::put(c.model(), folder);
    convert_to_gguf(io::TensorSource::open(folder.path()), folder / "half.gguf", {.type = BlockType::f16});
    convert_to_folder(io::TensorSource::open(folder / "half.gguf"), folder / "wide", {.type = BlockType::f32});
    const Model half = load(folder / "half.gguf", {.exact = true}), wide = load(folder / "wide");
    for (const std::size_t count : {1, 2, 7, 40}) {
      const auto tokens = some_tokens(count);
      EXPECT_LT(largest_difference(half.forward(tokens), wide.forward(tokens)), 2e-5) << count << " tokens";
    }
    const auto greedy = [&](const Model& model) {
      const auto prompt = some_tokens(12);
      std::vector<std::int32_t> ids;
      Generation generation = model.generate(std::span(prompt), {.max_tokens = 12, .sampling = {.temperature = 0}});
      for (const GeneratedToken& token : generation.result().tokens) ids.push_back(token.id);
      return ids;
    };
    EXPECT_EQ(greedy(half), greedy(wide));
  }
}

TEST(Convert, WhatIsSaidAboutAModelGoesAlong) {
  const TemporaryFolder folder;
  test::put(test::tiny_models()[0], folder);
  const fs::path plain = folder / "plain.gguf", rich = folder / "rich.gguf", back = folder / "back",
                 again = folder / "again.gguf";
  convert_to_gguf(io::TensorSource::open(folder.path()), plain);
  {
    const io::GgufFile file = io::GgufFile::open(plain);
    io::GgufMetadata metadata = file.metadata();
    metadata.set("general.license", std::string("apache-2.0"));
    metadata.set("general.languages", io::GgufArray(std::vector<std::string>{"en", "de"}));
    metadata.set("general.finetune", std::string("Instruct"));
    metadata.set("general.size_label", std::string("135M"));
    metadata.set("general.quantization_version", std::uint32_t{2});
    metadata.set("tokenizer.ggml.unknown_token_id", std::uint32_t{0});
    const io::TensorSource source = io::TensorSource::open(plain);
    std::vector<io::GgufTensorInfo> infos;
    for (const io::SourceTensor& tensor : source.tensors()) infos.push_back({tensor.name, tensor.shape, *tensor.type});
    io::GgufWriter writer(rich, metadata, std::move(infos));
    for (const io::SourceTensor& tensor : source.tensors()) writer.write(tensor.data);
    writer.commit();
  }
  convert_to_folder(io::TensorSource::open(rich), back);
  convert_to_gguf(io::TensorSource::open(back), again);
  const io::GgufFile file = io::GgufFile::open(again);
  const io::GgufMetadata& m = file.metadata();
  EXPECT_EQ(m.get<std::string>("general.license"), "apache-2.0");
  EXPECT_EQ(m.array<std::string>("general.languages"), (std::vector<std::string>{"en", "de"}));
  EXPECT_EQ(m.get<std::string>("general.size_label"), "135M");
  EXPECT_EQ(m.get<int>("tokenizer.ggml.unknown_token_id"), 0);
  EXPECT_FALSE(m.contains("general.quantization_version"));  // that is of the file
}

TEST(Convert, TypesAreAsAsked) {
  const TemporaryFolder folder;
  test::put(test::tiny_models()[0], folder);
  const auto types = [&](const fs::path& path) {
    std::set<std::string> matrices, vectors;
    const auto source = io::TensorSource::open(path);
    for (const io::SourceTensor& tensor : source.tensors())
      (tensor.shape.rank() > 1 ? matrices : vectors).insert(tensor.type_name);
    return std::pair(matrices, vectors);
  };
  const auto half = folder / "half.gguf";
  convert_to_gguf(io::TensorSource::open(folder.path()), half, {.type = BlockType::f16});
  EXPECT_EQ(types(half), std::pair(std::set<std::string>{"F16"}, std::set<std::string>{"F32"}));
  convert_to_folder(io::TensorSource::open(half), folder / "kept");
  EXPECT_EQ(types(folder / "kept"), std::pair(std::set<std::string>{"F16"}, std::set<std::string>{"F32"}));
  EXPECT_EQ(read_json_file(folder / "kept" / "config.json").at("dtype"), "float16");
  convert_to_folder(io::TensorSource::open(half), folder / "all", {.type = BlockType::bf16});
  EXPECT_EQ(types(folder / "all"), std::pair(std::set<std::string>{"BF16"}, std::set<std::string>{"BF16"}));
}

}  // namespace
}  // namespace weft::llm
