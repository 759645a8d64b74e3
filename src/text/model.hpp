// Models: from a word to tokens.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/token.hpp"
#include "text/vocabulary.hpp"

namespace weft::text {

/// Cuts words into the pieces of its vocabulary. For use by many threads at once.
class Model {
 public:
  virtual ~Model() = default;
  /// Appends the tokens of a word, which is not empty. UsageError if it has characters that the model cannot express.
  virtual void encode(std::string_view word, std::vector<TokenId>& out) const = 0;
  virtual const Vocabulary& vocabulary() const = 0;
};
using ModelPtr = std::unique_ptr<Model>;

/// Two neighbours that become one: smaller ranks first, then from the left.
struct Merge {
  TokenId left, right, result;
  std::uint32_t rank;
};

struct BpeOptions {
  TokenId unknown = kNoToken;  ///< for characters without a piece; without it they vanish
  std::string continuing_prefix;
  std::string word_suffix;
  bool fuse_unknown = false;
  bool byte_fallback = false;
  bool ignore_merges = false;  ///< a word that is a piece is that token
  bool bytes = false;  ///< words and pieces are plain bytes, as byte-level tokenizers have them without the alphabet
};
/// Byte pair encoding: starts with characters (or bytes), joins neighbours by the merges. n log n in the length of a word.
/// The last of equal pairs counts.
ModelPtr make_bpe(Vocabulary vocabulary, std::vector<Merge> merges, BpeOptions options);

struct UnigramOptions {
  TokenId unknown = kNoToken;
  bool byte_fallback = false;
};
/// The likeliest cut by the scores of pieces, which are log-probabilities by id; what no piece covers costs the least of
/// them less 10. FileError if the pieces have too many bytes in all.
ModelPtr make_unigram(Vocabulary vocabulary, std::vector<double> scores, UnigramOptions options);

struct WordPieceOptions {
  TokenId unknown = kNoToken;
  std::string continuing_prefix = "##";
  std::size_t max_characters = 100;  ///< longer words are unknown
};
/// The longest piece first. FileError as `make_unigram`.
ModelPtr make_word_piece(Vocabulary vocabulary, WordPieceOptions options);

/// Whole words.
ModelPtr make_word_level(Vocabulary vocabulary, TokenId unknown);

/// "<0x0A>" of a byte.
std::string byte_piece(unsigned char byte);
/// The byte of such a piece, in capitals or not.
std::optional<unsigned char> byte_of_piece(std::string_view piece);

}  // namespace weft::text
