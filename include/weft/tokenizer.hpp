// Tokenizers alone, without the weights of their models.
//
//   const auto tokenizer = llm::Tokenizer::load("tokenizer.json");
//   std::vector<std::int32_t> ids = tokenizer.encode("Hello world");
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weft/shape.hpp"

namespace weft::text {
class Tokenizer;
}

namespace weft::llm {

struct EncodeOptions {
  bool add_special = true;  ///< add the tokens that the model expects around a text, such as a BOS
  /// Special and added tokens written out in the text become tokens. Turn it off for text that others wrote: then none of it
  /// can end a turn or call a tool, whatever it looks like.
  bool parse_special = true;
};

/// Immutable and cheap to copy; all calls may come from many threads at once.
class Tokenizer {
 public:
  /// A tokenizer.json, a folder that holds one, or a GGUF file. FileError if it is missing or malformed.
  static Tokenizer load(const std::filesystem::path& path);

  /// The tokens of a text. UsageError if the vocabulary cannot express it, or the file's rules exceed their limits of time
  /// and memory.
  std::vector<std::int32_t> encode(std::string_view text, EncodeOptions options = {}) const;
  /// The text of tokens, always UTF-8. Ids without a piece (see `piece`) add nothing; special tokens are optional.
  std::string decode(std::span<const std::int32_t> ids, bool skip_special = false) const;
  /// The piece as the file writes it ("\u0120the", "<|im_end|>"); nothing for an id without one.
  std::optional<std::string> piece(std::int32_t id) const;
  /// The id of a piece or of an added token's content.
  std::optional<std::int32_t> id_of(std::string_view piece) const;
  bool is_special(std::int32_t id) const;
  /// One above the largest id.
  Extent size() const;

 private:
  friend class Model;
  explicit Tokenizer(std::shared_ptr<const text::Tokenizer> tokenizer) : tokenizer_(std::move(tokenizer)) {}
  std::shared_ptr<const text::Tokenizer> tokenizer_;
};

}  // namespace weft::llm
