// The tokens of texts, as a model reads them.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "encoder/config.hpp"
#include "encoder/passes.hpp"
#include "text/tokenizer.hpp"
#include "weft/encoder.hpp"

namespace weft::encoder {

/// The tokenizer of a folder, which lies beside the model or beside its modules; or that of a GGUF file.
text::Tokenizer tokenizer_of(const std::filesystem::path& whole, const std::filesystem::path& transformer);

/// The tokens of a text, or of a pair. UsageError for too many, unless they may be cut, and for none.
TokenText tokens_of(const text::Tokenizer& tokenizer, const EncoderConfig& config, Extent length, std::string_view text,
                    const std::string* pair, TooLong too_long, bool parse_special = false);

/// The tokens of words, which are those of the words with spaces between them, and for each word the place of its first token; -1 where
/// it is beyond the length, or has no token.
struct TokenWords {
  TokenText text;
  std::vector<std::int32_t> firsts;
};
TokenWords tokens_of_words(const text::Tokenizer& tokenizer, const EncoderConfig& config, Extent length,
                           const std::vector<std::string>& words);

}  // namespace weft::encoder
