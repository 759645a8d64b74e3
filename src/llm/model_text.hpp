// The tokenizer and the chat template of a model, from where its files keep them.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "io/gguf.hpp"
#include "llm/config.hpp"
#include "text/chat_template.hpp"
#include "text/tokenizer.hpp"

namespace weft::llm {

struct ModelText {
  std::shared_ptr<const text::Tokenizer> tokenizer;
  std::optional<text::ChatTemplate> chat;
  std::vector<text::TokenId> end_tokens;
};

/// `chat_template`: a template in place of the model's own, or empty. `more_token`: a special token behind those of the
/// vocabulary, or empty.
ModelText model_text_of_gguf(const io::GgufFile& file, const ModelConfig& config, const std::string& chat_template = {},
                             const std::string& more_token = {});
/// FileError if there is no tokenizer.json.
ModelText model_text_of_folder(const std::filesystem::path& folder, const ModelConfig& config,
                               const std::string& chat_template = {});

/// Whether the template writes a content that is a text. Those of models with images often know lists of parts alone, and leave a
/// text out.
bool takes_texts(const text::ChatTemplate& chat);

}  // namespace weft::llm
