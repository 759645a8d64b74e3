// Tokens that are found in a text before it is cut into words: special ones, and words added to a vocabulary.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/function_ref.hpp"
#include "text/byte_trie.hpp"
#include "text/token.hpp"

namespace weft::text {

struct AddedToken {
  std::string content;
  TokenId id = kNoToken;
  bool single_word = false;  ///< only if no word character is next to it
  bool lstrip = false;       ///< takes the white space before it
  bool rstrip = false;       ///< and after it
  bool normalized = true;    ///< is looked for, in normal form, in the normalized text
  bool special = false;      ///< left out of texts on request
};

/// Whether plain text never becomes the token. True for all tokens except white space, which models were trained
/// to see as such tokens.
bool is_control(const AddedToken& token);
/// Whether the content is a word in brackets or the like (<tool_call>, [INST]): then the vocabulary hides a piece of this
/// name too, or plain text would become the token by merges.
bool is_marked_word(std::string_view content);

/// Parts of a text in which control tokens are not recognised: ranges of bytes in order, none touching the next.
struct ByteRange {
  std::size_t begin, end;
};

/// The added tokens that are looked for at one stage. For use by many threads at once.
class AddedTokenFinder {
 public:
  /// Looks for `form` as the token. The first token of equal forms counts; an empty form is never found. FileError as ByteTrie.
  void add(std::string_view form, const AddedToken& token);

  /// Cuts `text` at tokens, leftmost first and the longest there. `part(begin, end, id)` gets each piece, with kNoToken
  /// for other text; none is empty. A control token that touches a range of `plain` is not recognised.
  using OnPart = FunctionRef<void(std::size_t begin, std::size_t end, TokenId id)>;
  void find(std::string_view text, std::span<const ByteRange> plain, OnPart part) const;

  bool empty() const { return tokens_.empty(); }
  bool has_control() const { return has_control_; }

 private:
  struct Flags {
    TokenId id;
    bool single_word, lstrip, rstrip, control;
  };
  std::vector<Flags> tokens_;
  ByteTrie trie_;
  std::array<bool, 256> starts_{};
  bool has_control_ = false;
};

}  // namespace weft::text
