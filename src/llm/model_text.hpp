// The tokenizer and the chat template of a model, from where its files keep them.
#pragma once

#include <filesystem>
#include <optional>

#include "io/gguf.hpp"
#include "llm/config.hpp"
#include "text/chat_template.hpp"
#include "text/tokenizer.hpp"

namespace weft::llm {

struct ModelText {
  text::Tokenizer tokenizer;
  std::optional<text::ChatTemplate> chat;
  std::vector<text::TokenId> end_tokens;
};

ModelText model_text_of_gguf(const io::GgufFile& file, const ModelConfig& config);
/// FileError if there is no tokenizer.json.
ModelText model_text_of_folder(const std::filesystem::path& folder, const ModelConfig& config);

}  // namespace weft::llm
