// Vocabularies of GGUF files as tokenizer.json, and back.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "text/tokenizer.hpp"

namespace weft::text {

/// The tokenizer.json of a vocabulary, which makes the same tokens. FileError "SOURCE: tokenizer.ggml.KEY: ..." as
/// `Tokenizer::from_gguf`, and for what tokenizer.json does not have: models other than gpt2 and llama, two tokens of the
/// same text.
std::string tokenizer_json_of(const GgufVocabulary& vocabulary, std::string_view source);

/// The vocabulary of a tokenizer.json that `Tokenizer` has read; ids up to `count` that it leaves free become unused
/// tokens. `model` is empty where GGUF has no model that makes the same tokens: then it holds only how ids read.
GgufVocabulary gguf_vocabulary_of(std::string_view tokenizer_json, const Tokenizer& tokenizer, TokenId count);

}  // namespace weft::text
