// Where the tokens of a text are in it.
#pragma once

#include <string_view>
#include <utility>
#include <vector>

#include "text/tokenizer.hpp"

namespace weft::encoder {

/// Of each token of a text, the bytes [first, second) that it stands for. Tokens are compared with the text without case, marks and white
/// space, which tokenizers leave out; one that stands for another text, as that of unknown words does, has the rest of the word.
std::vector<std::pair<std::size_t, std::size_t>> places_of_tokens(const text::Tokenizer& tokenizer,
                                                                  std::string_view text,
                                                                  const std::vector<text::TokenId>& tokens);

/// [first, second) widened to whole words.
std::pair<std::size_t, std::size_t> whole_words(std::string_view text, std::pair<std::size_t, std::size_t> place);

}  // namespace weft::encoder
