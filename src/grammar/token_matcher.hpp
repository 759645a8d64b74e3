// Which tokens of a vocabulary may come next in a text of a grammar.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "grammar/json_keys.hpp"
#include "grammar/recognizer.hpp"
#include "grammar/token_trie.hpp"

namespace weft::grammar {

/// A bit for each token.
class TokenMask {
 public:
  explicit TokenMask(std::size_t tokens = 0, bool allowed = false)
      : words_((tokens + 63) / 64, allowed ? ~std::uint64_t{0} : 0), size_(tokens) {}
  bool operator[](std::size_t token) const { return token < size_ && (words_[token / 64] >> token % 64 & 1) != 0; }
  void allow(std::size_t token) { words_[token / 64] |= std::uint64_t{1} << token % 64; }
  void forbid(std::size_t token) { words_[token / 64] &= ~(std::uint64_t{1} << token % 64); }
  std::size_t size() const { return size_; }
  bool any() const;

 private:
  std::vector<std::uint64_t> words_;
  std::size_t size_;
};

/// What the texts of a grammar are.
struct CompiledGrammar {
  std::shared_ptr<const Network> network;
  bool has_open_objects = false;  ///< objects of JSON with keys that the grammar does not name, which must not repeat
};

/// Matches texts that are made of tokens. Masks are remembered by place, so that most of them are made once: in a string, after
/// each character, the same tokens may follow. One thread at a time; any number of texts may go on at once.
class TokenMatcher {
 public:
  struct State {
    Recognizer::Place place = 0;
    JsonKeys keys = {};
  };

  /// `end_tokens`: those that are allowed where the text is whole, and nowhere else.
  TokenMatcher(CompiledGrammar grammar, std::shared_ptr<const TokenTrie> trie, std::vector<std::int32_t> end_tokens);

  /// The tokens that may come next. Valid until the next call. Errors: UsageError as Recognizer.
  const TokenMask& allowed(const State& state);
  /// Whether one token may come next.
  bool allows(const State& state, std::int32_t token);
  /// Goes on by a token that is not an end; false, with the state as it was, if the grammar does not allow it.
  bool accept(State& state, std::int32_t token);
  /// The same by bytes of a text.
  bool accept_bytes(State& state, std::string_view bytes);
  bool may_end(const State& state) const { return recognizer_.accepts(state.place); }
  /// Whether the text is whole, and no byte may follow.
  bool must_end(const State& state);
  std::size_t memory_bytes() const { return recognizer_.memory_bytes(); }

 private:
  static constexpr std::size_t kMaskBytesMax = std::size_t{64} << 20;

  TokenMask make_mask(Recognizer::Place place);

  CompiledGrammar grammar_;
  std::shared_ptr<const TokenTrie> trie_;
  std::vector<std::int32_t> end_tokens_;
  std::vector<std::int32_t> quoted_;  // tokens with a quote, which may end keys
  Recognizer recognizer_;
  std::unordered_map<Recognizer::Place, TokenMask> masks_;
  TokenMask without_repeats_;
  std::vector<Recognizer::Place> path_;
};

}  // namespace weft::grammar
