// What embeds the texts of a memory: a text encoder, or a language model.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "cli/language_model.hpp"
#include "weft/encoder.hpp"
#include "weft/llm.hpp"

namespace weft::cli {

class TextEmbedder {
 public:
  /// The model that the options name.
  explicit TextEmbedder(const ModelOptions& options);

  Extent width() const;
  /// Rows of texts that are kept, and the row of one that they are searched with: encoders put their prompts "document" and "query" before
  /// them, where they have such.
  std::vector<float> documents(std::span<const std::string> texts) const { return rows(texts, "document"); }
  std::vector<float> query(const std::string& text) const { return rows(std::span(&text, 1), "query"); }
  /// The number of tokens of a text.
  std::size_t tokens(std::string_view text) const;

 private:
  std::vector<float> rows(std::span<const std::string> texts, const char* prompt) const;
  std::variant<llm::Model, encoder::Model> model_;
};

}  // namespace weft::cli
