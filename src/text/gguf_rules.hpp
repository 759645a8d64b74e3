// What the vocabularies of GGUF files mean, for their reader and for what turns them into other files.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/model.hpp"
#include "text/tokenizer.hpp"

namespace weft::text {

enum TokenType : std::int32_t { kNormal = 1, kUnknown = 2, kControl = 3, kUser = 4, kUnused = 5, kByte = 6 };
inline constexpr std::string_view kMarker = "\u2581";  ///< a space, in pieces of SentencePiece

std::int32_t type_of_token(const GgufVocabulary& vocabulary, std::size_t id);
bool is_special_token(const GgufVocabulary& vocabulary, std::size_t id);

/// How texts are cut into words for a value of tokenizer.ggml.pre. Each expression cuts what the one before left.
struct WordRule {
  std::vector<std::string_view> names;
  std::vector<std::string_view> expressions;
  bool ignore_merges = false;
  bool add_bos = false;
};
std::span<const WordRule> word_rules();
/// The rule of a name, or nullptr.
const WordRule* find_word_rule(std::string_view name);

/// The two pieces of the i-th merge. FileError, which names `source`, for a line that is not two pieces.
std::pair<std::string, std::string> merged_pieces(const GgufVocabulary& vocabulary, std::size_t i,
                                                  std::string_view source);

/// SentencePiece joins the two neighbours that make the piece of the highest score. As merges: any cut of a piece in two
/// pieces is one, ranked by the score of the whole.
std::vector<Merge> sentence_piece_merges(const GgufVocabulary& vocabulary, const Vocabulary& pieces);

}  // namespace weft::text
