#include "llm/convert_vocabulary.hpp"

#include <fmt/format.h>

#include "base/file.hpp"
#include "text/load_tokenizer.hpp"
#include "text/tokenizer_exchange.hpp"
#include "weft/error.hpp"

namespace weft::llm {
namespace {

namespace fs = std::filesystem;
using text::kNoToken;
using text::TokenId;

Json settings_in(const fs::path& path) {
  const Json json = fs::exists(path) ? read_json_file(path) : Json::object();
  if (!json.is_object()) throw FileError(fmt::format("{}: is not an object", path.string()));
  return json;
}

/// A special token of tokenizer_config.json: a text, or an object with its content.
TokenId token_of(const Json& settings, const char* key, const text::Tokenizer& tokenizer) {
  const auto entry = settings.find(key);
  if (entry == settings.end()) return kNoToken;
  const Json content = entry->is_object() ? entry->value("content", Json()) : *entry;
  return content.is_string() ? tokenizer.id_of(content.get<std::string>()) : kNoToken;
}

void add_templates(io::GgufMetadata& metadata, const fs::path& folder, const Json& settings) {
  if (const fs::path file = folder / "chat_template.jinja"; fs::exists(file)) {
    metadata.set("tokenizer.chat_template", read_text_file(file, std::size_t{16} << 20));
    return;
  }
  Json entry = settings.value("chat_template", Json());
  if (entry.is_null()) entry = settings_in(folder / "chat_template.json").value("chat_template", Json());
  if (entry.is_string()) metadata.set("tokenizer.chat_template", entry.get<std::string>());
  if (!entry.is_array()) return;
  std::vector<std::string> names;
  for (const Json& each : entry) {
    const auto text = [&](const char* key) {
      const auto found = each.find(key);
      if (found == each.end() || !found->is_string())
        throw FileError(fmt::format("{}: chat_template has an entry without a {}", folder.string(), key));
      return found->get<std::string>();
    };
    const std::string name = text("name"), source = text("template");
    metadata.set(name == "default" ? "tokenizer.chat_template" : "tokenizer.chat_template." + name, source);
    if (name != "default") names.push_back(name);
  }
  if (!names.empty()) metadata.set("tokenizer.chat_templates", io::GgufArray(names));
}

}  // namespace

TokenizerFiles tokenizer_files_of(const io::GgufFile& file, const ModelConfig& config, Json& config_json) {
  const io::GgufMetadata& m = file.metadata();
  TokenizerFiles out;
  std::vector<std::string> tokens;
  if (m.contains("tokenizer.ggml.tokens")) tokens = m.array<std::string>("tokenizer.ggml.tokens");
  out.files["tokenizer.json"] = m.contains(text::kWholeTokenizerKey)
                                    ? m.get<std::string>(text::kWholeTokenizerKey)
                                    : text::tokenizer_json_of(text::gguf_vocabulary(m), file.source());
  Json settings = {{"tokenizer_class", "PreTrainedTokenizerFast"},
                   {"clean_up_tokenization_spaces", false},
                   {"model_max_length", config.context}};
  Json generation = Json::object();
  for (const auto& [name, key] : {std::pair("bos", "bos"), {"eos", "eos"}, {"pad", "padding"}, {"unk", "unknown"}}) {
    const auto id = m.get_if<std::int64_t>(fmt::format("tokenizer.ggml.{}_token_id", key));
    if (!id || *id < 0 || static_cast<std::size_t>(*id) >= tokens.size()) continue;
    settings[fmt::format("{}_token", name)] = tokens[static_cast<std::size_t>(*id)];
    if (name == std::string_view("unk")) continue;
    config_json[fmt::format("{}_token_id", name)] = *id;
    generation[fmt::format("{}_token_id", name)] = *id;
  }
  if (config.end_tokens.size() > 1) generation["eos_token_id"] = config.end_tokens;
  if (const auto chat = m.get_if<std::string>("tokenizer.chat_template")) {
    settings["chat_template"] = *chat;
    if (const auto* names = m.array_if<std::string>("tokenizer.chat_templates")) {
      settings["chat_template"] = Json::array({{{"name", "default"}, {"template", *chat}}});
      for (const std::string& name : *names)
        if (const auto each = m.get_if<std::string>("tokenizer.chat_template." + name))
          settings["chat_template"].push_back({{"name", name}, {"template", *each}});
    }
  }
  out.files["tokenizer_config.json"] = settings.dump(2) + "\n";
  out.files["generation_config.json"] = generation.dump(2) + "\n";
  return out;
}

std::vector<std::string> add_tokenizer(io::GgufMetadata& metadata, const fs::path& folder, const ModelConfig& config) {
  const fs::path path = folder / "tokenizer.json";
  if (!fs::exists(path))
    throw FileError(
        fmt::format("{}: the folder has no tokenizer.json; put it there, or give --no-tokenizer", folder.string()));
  const std::string whole = read_text_file(path, std::size_t{256} << 20);
  const text::Tokenizer tokenizer = text::Tokenizer::from_json(whole, path.string());
  text::GgufVocabulary v = text::gguf_vocabulary_of(whole, tokenizer, static_cast<TokenId>(config.vocabulary));
  const Json settings = settings_in(folder / "tokenizer_config.json"),
             generation = settings_in(folder / "generation_config.json"), model = settings_in(folder / "config.json");
  const auto id_of = [&](const char* token, const char* key) {
    if (const TokenId id = token_of(settings, token, tokenizer); id != kNoToken) return id;
    for (const Json* json : {&generation, &model})
      if (const Json id = json->value(key, Json()); id.is_number_integer()) return id.get<TokenId>();
    return kNoToken;
  };
  const auto key = [](std::string_view name) { return fmt::format("tokenizer.ggml.{}", name); };
  if (!v.model.empty()) metadata.set(key("model"), v.model);
  if (!v.pre.empty()) metadata.set(key("pre"), v.pre);
  metadata.set(key("tokens"), io::GgufArray(v.tokens));
  metadata.set(key("token_type"), io::GgufArray(v.types));
  if (!v.scores.empty()) metadata.set(key("scores"), io::GgufArray(v.scores));
  if (!v.merges.empty()) metadata.set(key("merges"), io::GgufArray(v.merges));
  const TokenId bos = v.bos != kNoToken ? v.bos : id_of("bos_token", "bos_token_id");
  const auto put_id = [&](std::string_view name, TokenId id) {
    if (id >= 0 && static_cast<std::size_t>(id) < v.tokens.size())
      metadata.set(key(name), static_cast<std::uint32_t>(id));
  };
  put_id("bos_token_id", bos);
  put_id("eos_token_id", id_of("eos_token", "eos_token_id"));
  put_id("padding_token_id", id_of("pad_token", "pad_token_id"));
  put_id("unknown_token_id", v.unknown != kNoToken ? v.unknown : id_of("unk_token", "unk_token_id"));
  metadata.set(key("add_bos_token"), *v.add_bos);
  if (v.add_space_prefix) metadata.set(key("add_space_prefix"), *v.add_space_prefix);
  metadata.set(std::string(text::kWholeTokenizerKey), whole);
  add_templates(metadata, folder, settings);
  if (!v.model.empty()) return {};
  return {
      fmt::format("GGUF has no keys for this tokenizer, so tokenizer.json goes along whole as {}, which Weft reads and "
                  "llama.cpp does not",
                  text::kWholeTokenizerKey)};
}

}  // namespace weft::llm
