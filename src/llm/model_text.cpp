#include "llm/model_text.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/json.hpp"
#include "text/load_tokenizer.hpp"
#include "weft/error.hpp"

namespace weft::llm {
namespace {

using text::TokenId;

constexpr const char* kGivenTemplate = "the chat template given";

/// Ends that models of chats use, where a file names only the end of a document.
void add_usual_ends(ModelText& v) {
  for (const char* piece :
       {"<|im_end|>", "<|eot_id|>", "<end_of_turn>", "<|end|>", "<|endoftext|>", "</s>", "<|end_of_text|>"}) {
    const TokenId id = v.tokenizer->id_of(piece);
    if (id == text::kNoToken || !v.tokenizer->is_special(id)) continue;
    if (std::find(v.end_tokens.begin(), v.end_tokens.end(), id) == v.end_tokens.end()) v.end_tokens.push_back(id);
  }
}

void add_ends(ModelText& v, const ModelConfig& config) {
  for (const std::int64_t id : config.end_tokens)
    if (id >= 0 && id < config.vocabulary) v.end_tokens.push_back(static_cast<TokenId>(id));
  add_usual_ends(v);
}

}  // namespace

ModelText model_text_of_gguf(const io::GgufFile& file, const ModelConfig& config, const std::string& chat_template,
                             const std::string& more_token) {
  const io::GgufMetadata& m = file.metadata();
  ModelText v{std::make_shared<const text::Tokenizer>(text::tokenizer_of_gguf(m, more_token)), {}, {}};
  if (!chat_template.empty())
    v.chat = text::ChatTemplate(chat_template, text::ChatTemplate::tokens_of(m), kGivenTemplate);
  else if (m.contains("tokenizer.chat_template"))
    v.chat = text::ChatTemplate::from_gguf(m);
  add_ends(v, config);
  return v;
}

ModelText model_text_of_folder(const std::filesystem::path& folder, const ModelConfig& config,
                               const std::string& chat_template) {
  const auto path = folder / "tokenizer.json";
  if (!std::filesystem::exists(path))
    throw FileError(
        fmt::format("{}: the folder has no tokenizer.json, which text is read with; download it beside the weights",
                    folder.string()));
  ModelText v{std::make_shared<const text::Tokenizer>(text::Tokenizer::from_json_file(path)), {}, {}};
  const auto settings_path = folder / "tokenizer_config.json";
  const Json settings = std::filesystem::exists(settings_path) ? read_json_file(settings_path) : Json::object();
  if (!chat_template.empty())
    v.chat = text::ChatTemplate(chat_template, text::ChatTemplate::tokens_of(folder), kGivenTemplate);
  else if (std::filesystem::exists(folder / "chat_template.jinja") ||
           std::filesystem::exists(folder / "chat_template.json") || settings.contains("chat_template"))
    v.chat = text::ChatTemplate::from_folder(folder);
  ModelConfig ends = config;
  if (const auto generation = folder / "generation_config.json"; std::filesystem::exists(generation)) {
    const Json json = read_json_file(generation);
    if (const auto it = json.find("eos_token_id"); it != json.end() && !it->is_null()) {
      ends.end_tokens.clear();  // generation_config.json overrides config.json
      for (const Json& id : it->is_array() ? *it : Json::array({*it}))
        if (id.is_number_integer()) ends.end_tokens.push_back(id.get<std::int64_t>());
    }
  }
  if (v.chat)
    if (const auto it = v.chat->special_tokens().find("eos_token");
        it != v.chat->special_tokens().end() && it->is_string())
      if (const TokenId eos = v.tokenizer->id_of(it->get<std::string>()); eos != text::kNoToken)
        ends.end_tokens.push_back(eos);
  add_ends(v, ends);
  return v;
}

bool takes_texts(const text::ChatTemplate& chat) {
  constexpr std::string_view kProbe = "weft-probe";
  try {
    const text::OrderedJson message = {{"role", "user"}, {"content", kProbe}};
    return chat.render(text::OrderedJson::array({message})).text().find(kProbe) != std::string::npos;
  } catch (const UsageError&) {
    return false;
  }
}

}  // namespace weft::llm
