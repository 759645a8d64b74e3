#include "speech/whisper_config.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "base/json.hpp"
#include "base/quote.hpp"
#include "io/config_keys.hpp"
#include "weft/error.hpp"

namespace weft::speech {
namespace {

constexpr JsonLimits kLimits{.max_bytes = std::uint64_t{8} << 20, .max_values = 200'000};

/// Ids of tokens in a file of settings.
class TokenKeys {
 public:
  TokenKeys(const Json& json, std::string source, Extent vocabulary)
      : json_(json), source_(std::move(source)), keys_(json_, source_), vocabulary_(vocabulary) {}

  bool has(const char* key) const { return keys_.find({key}) != nullptr; }
  std::int32_t token(const char* key, std::int32_t fallback) const {
    const Json* value = keys_.find({key});
    return value ? checked(*value, key) : fallback;
  }
  std::vector<std::int32_t> tokens(const char* key) const {
    std::vector<std::int32_t> list;
    const Json* value = keys_.find({key});
    if (!value) return list;
    if (!value->is_array()) keys_.fail(key, "is not a list of tokens");
    for (const Json& each : *value)
      if (each != -1) list.push_back(checked(each, key));  // -1 was once written for "those that are no speech"
    return list;
  }
  std::vector<std::pair<std::string, std::int32_t>> named(const char* key) const {
    std::vector<std::pair<std::string, std::int32_t>> list;
    const Json* value = keys_.find({key});
    if (!value) return list;
    if (!value->is_object()) keys_.fail(key, "is not an object of tokens");
    for (const auto& [name, id] : value->items()) list.emplace_back(name, checked(id, key));
    return list;
  }
  const io::ConfigKeys& keys() const { return keys_; }

 private:
  std::int32_t checked(const Json& value, const char* key) const {
    if (!value.is_number_integer() || value < 0 || value >= vocabulary_)
      keys_.fail(key, fmt::format("has {}, which is not a token of the vocabulary of {}", value.dump(), vocabulary_));
    return value.get<std::int32_t>();
  }
  Json json_;
  std::string source_;
  io::ConfigKeys keys_;
  Extent vocabulary_;
};

/// "en" of "<|en|>"; "" for another form.
std::string code_of(std::string_view piece) {
  if (!piece.starts_with("<|") || !piece.ends_with("|>") || piece.size() < 6 || piece.size() > 7) return {};
  const std::string_view code = piece.substr(2, piece.size() - 4);
  return std::all_of(code.begin(), code.end(), [](char c) { return c >= 'a' && c <= 'z'; }) ? std::string(code) : "";
}

}  // namespace

WhisperConfig read_whisper_config(const std::filesystem::path& folder) {
  const std::string source = (folder / "config.json").string();
  const Json json = read_json_file(source, kLimits);
  const io::ConfigKeys keys(json, source);
  if (const std::string type = keys.text({"model_type"}); type != "whisper")
    keys.fail(
        "model_type",
        fmt::format("is {}; speech models are \"whisper\", \"moonshine\", \"wav2vec2\" or \"hubert\"", quote(type)));
  WhisperConfig c;
  c.vocabulary = keys.size({"vocab_size"});
  c.width = keys.size({"d_model"});
  c.mels = keys.size({"num_mel_bins"}, 80);
  c.encoder_layers = keys.size({"encoder_layers"});
  c.encoder_heads = keys.size({"encoder_attention_heads"});
  c.encoder_inner = keys.size({"encoder_ffn_dim"});
  c.decoder_layers = keys.size({"decoder_layers"});
  c.decoder_heads = keys.size({"decoder_attention_heads"});
  c.decoder_inner = keys.size({"decoder_ffn_dim"});
  c.source_positions = keys.size({"max_source_positions"}, 1500);
  c.target_positions = keys.size({"max_target_positions"}, 448);
  c.scales_embedding = keys.flag("scale_embedding", false);
  c.is_tied = keys.flag("tie_word_embeddings", true);
  c.activation = keys.text({"activation_function"}, "gelu");
  if (c.activation != "gelu" && c.activation != "relu" && c.activation != "silu" && c.activation != "gelu_new")
    keys.fail("activation_function",
              fmt::format("is {}; known are gelu, gelu_new, relu and silu", quote(c.activation)));
  struct Size {
    const char* key;
    Extent value, max;
  };
  for (const Size& s :
       {Size{"vocab_size", c.vocabulary, 1 << 22}, Size{"d_model", c.width, 1 << 14},
        Size{"num_mel_bins", c.mels, 4096}, Size{"encoder_layers", c.encoder_layers, 1024},
        Size{"decoder_layers", c.decoder_layers, 1024}, Size{"encoder_ffn_dim", c.encoder_inner, 1 << 17},
        Size{"decoder_ffn_dim", c.decoder_inner, 1 << 17}, Size{"max_source_positions", c.source_positions, 1 << 16},
        Size{"max_target_positions", c.target_positions, 1 << 16},
        Size{"encoder_attention_heads", c.encoder_heads, c.width},
        Size{"decoder_attention_heads", c.decoder_heads, c.width}})
    if (s.value < 1 || s.value > s.max) keys.fail(s.key, fmt::format("is {}; it must be in [1, {}]", s.value, s.max));
  if (c.width % c.encoder_heads != 0 || c.width % c.decoder_heads != 0)
    keys.fail("d_model",
              fmt::format("is {}, which {} and {} heads do not divide", c.width, c.encoder_heads, c.decoder_heads));
  return c;
}

WhisperTokens read_whisper_tokens(const std::filesystem::path& folder, const WhisperConfig& config,
                                  const llm::Tokenizer& tokenizer) {
  const std::filesystem::path model = folder / "config.json", generation = folder / "generation_config.json";
  const TokenKeys first(read_json_file(model, kLimits), model.string(), config.vocabulary);
  std::optional<TokenKeys> second;
  if (std::filesystem::exists(generation))
    second.emplace(read_json_file(generation, kLimits), generation.string(), config.vocabulary);
  const TokenKeys& keys = second ? *second : first;
  const auto piece = [&](std::string_view name) -> std::int32_t {
    const auto id = tokenizer.id_of(name);
    return id && *id < config.vocabulary ? *id : -1;
  };
  const auto id_of = [&](const char* key, std::int32_t fallback) {
    return keys.token(key, first.token(key, fallback));
  };

  WhisperTokens t;
  t.start = id_of("decoder_start_token_id", piece("<|startoftranscript|>"));
  t.end = id_of("eos_token_id", piece("<|endoftext|>"));
  if (t.start < 0 || t.end < 0)
    throw FileError(
        fmt::format("{}: neither the configuration nor the tokenizer names the tokens that begin and end a text; "
                    "add decoder_start_token_id and eos_token_id",
                    model.string()));
  t.transcribe = piece("<|transcribe|>");
  t.translate = piece("<|translate|>");
  for (const auto& [name, id] : keys.named("task_to_id")) {
    if (name == "transcribe") t.transcribe = id;
    if (name == "translate") t.translate = id;
  }
  t.previous = piece("<|startofprev|>");
  t.no_speech = piece("<|nospeech|>") >= 0 ? piece("<|nospeech|>") : piece("<|nocaptions|>");
  t.no_timestamps = keys.token("no_timestamps_token_id", piece("<|notimestamps|>"));
  if (t.no_timestamps >= 0 && t.no_timestamps + 1 < config.vocabulary) t.first_time = t.no_timestamps + 1;
  for (const auto& [name, id] : keys.named("lang_to_id"))
    if (const std::string code = code_of(name); !code.empty()) t.languages.emplace_back(code, id);
  // Without a list, the tokens between the start and the tasks that look like a language.
  if (t.languages.empty() && t.translate > t.start)
    for (std::int32_t id = t.start + 1; id < t.translate; ++id)
      if (const std::string code = code_of(tokenizer.piece(id).value_or("")); !code.empty())
        t.languages.emplace_back(code, id);
  std::sort(t.languages.begin(), t.languages.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  // A model of English alone may have these tokens too, but was not trained with them.
  if (!keys.keys().flag("is_multilingual", true) || t.transcribe < 0) t.languages.clear();
  const TokenKeys& rules = keys.has("suppress_tokens") || keys.has("begin_suppress_tokens") ? keys : first;
  t.suppressed = rules.tokens("suppress_tokens");
  t.suppressed_at_first = rules.tokens("begin_suppress_tokens");
  t.latest_first_time = keys.keys().size({"max_initial_timestamp_index"}, -1);
  return t;
}

std::vector<AlignmentHead> read_alignment_heads(const std::filesystem::path& folder, const WhisperConfig& config) {
  std::vector<AlignmentHead> heads;
  const std::filesystem::path file = folder / "generation_config.json";
  if (std::filesystem::exists(file)) {
    const std::string source = file.string();
    const Json json = read_json_file(file, kLimits);
    const io::ConfigKeys keys(json, source);
    constexpr const char* kKey = "alignment_heads";
    const auto index = [&](const Json& value, Extent count, const char* what) {
      if (!value.is_number_integer() || value < 0 || value >= count)
        keys.fail(kKey, fmt::format("has the {} {}; the model has {} of them", what, value.dump(), count));
      return value.get<Extent>();
    };
    if (const Json* list = keys.find({kKey})) {
      if (!list->is_array()) keys.fail(kKey, "is not a list of pairs [layer, head]");
      for (const Json& pair : *list) {
        if (!pair.is_array() || pair.size() != 2) keys.fail(kKey, "is not a list of pairs [layer, head]");
        heads.push_back({index(pair[0], config.decoder_layers, "layer"), index(pair[1], config.decoder_heads, "head")});
      }
    }
  }
  if (heads.empty())
    for (Extent layer = config.decoder_layers / 2; layer < config.decoder_layers; ++layer)
      for (Extent head = 0; head < config.decoder_heads; ++head) heads.push_back({layer, head});
  std::stable_sort(heads.begin(), heads.end(), [](const auto& a, const auto& b) { return a.layer < b.layer; });
  return heads;
}

}  // namespace weft::speech
