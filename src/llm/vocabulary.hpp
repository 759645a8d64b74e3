// The tokenizer and the chat template of a model, from where its files keep them.
#pragma once

#include <filesystem>
#include <optional>

#include "io/gguf.hpp"
#include "llm/config.hpp"
#include "text/template.hpp"
#include "text/tokenizer.hpp"

namespace weft::llm {

struct Vocabulary {
  text::Tokenizer tokenizer;
  std::optional<text::Template> chat;
  std::string bos, eos;  // as templates ask for them
  std::vector<text::TokenId> end_tokens;
};

Vocabulary vocabulary_of_gguf(const io::GgufFile& file, const ModelConfig& config);
/// FileError if there is no tokenizer.json.
Vocabulary vocabulary_of_folder(const std::filesystem::path& folder, const ModelConfig& config);

}  // namespace weft::llm
