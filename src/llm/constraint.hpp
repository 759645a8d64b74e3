// The grammar of one generation: which tokens may come next.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/token_matcher.hpp"
#include "text/tokenizer.hpp"
#include "weft/llm.hpp"

namespace weft::llm::detail {

/// What the generations of a model share: the trie of its vocabulary, and the matchers of the last few grammars.
class Constraints {
 public:
  explicit Constraints(std::shared_ptr<const text::Tokenizer> tokenizer, std::vector<text::TokenId> end_tokens)
      : tokenizer_(std::move(tokenizer)), end_tokens_(std::move(end_tokens)) {}

  std::shared_ptr<grammar::TokenMatcher> matcher(const Grammar& grammar);
  /// Tokens that would complete a text `mark`, of which they hold the last k bytes (k = 0: all of it), and go on behind it as the
  /// grammar does not; a list for each k.
  using Unfit = std::vector<std::vector<text::TokenId>>;
  std::shared_ptr<const Unfit> unfit(const Grammar& grammar, const std::string& mark);
  /// What a grammar reads of the text behind a mark: white space alone, most often a line break, belongs to the text before.
  static std::string_view behind_mark(std::string_view rest);
  const text::Tokenizer& tokenizer() const { return *tokenizer_; }
  /// All tokens but those that end a text.
  const grammar::TokenMask& all_but_ends();
  bool is_end(text::TokenId token) const;

 private:
  static constexpr std::size_t kMatchersMax = 8, kReusedBytesMax = std::size_t{64} << 20;
  struct Kept {
    std::shared_ptr<const grammar::CompiledGrammar> grammar;
    std::shared_ptr<grammar::TokenMatcher> matcher;
    std::map<std::string, std::shared_ptr<const Unfit>> unfit;  // by the mark
  };
  Kept& kept(const Grammar& grammar);

  std::shared_ptr<const text::Tokenizer> tokenizer_;
  std::vector<text::TokenId> end_tokens_;
  std::shared_ptr<const grammar::TokenTrie> trie_;  // made when first needed
  grammar::TokenMask all_but_ends_;
  std::vector<Kept> kept_;  // the last used first
};

/// Follows the tokens of one generation.
class Constraint {
 public:
  /// `options` has a grammar.
  Constraint(Constraints& shared, const GenerateOptions& options);

  /// The tokens that may come next. Valid until the next call of any constraint with the same grammar. Errors:
  /// UsageError if there are none, or the text needs too much memory.
  const grammar::TokenMask* allowed();
  /// Errors: UsageError if a token that was drawn may not come next, which is so where no allowed one has a probability above 0.
  void require(text::TokenId token) const;
  /// Goes on by a token that does not end the text. Errors: UsageError if the grammar does not allow it.
  void accept(text::TokenId token);
  /// Whether the text is whole, and nothing may follow.
  bool is_finished() const;
  /// The first of these tokens that may come next, one after another, without the last one of a text.
  std::vector<text::TokenId> fitting(std::span<const text::TokenId> tokens) const;

 private:
  bool read(text::TokenId token);

  Constraints* shared_;
  std::shared_ptr<grammar::TokenMatcher> matcher_;
  grammar::TokenMatcher::State state_;
  std::string after_;  // the grammar begins behind this text; empty once it has begun
  std::string tail_;   // the end of the text before
  bool is_optional_;
  std::shared_ptr<const Constraints::Unfit> unfit_;  // for `after_`
  grammar::TokenMask before_;                        // what may come before `after_`
};

}  // namespace weft::llm::detail
