// Pre-tokenizers: how a text is cut into words before the model sees it.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/function_ref.hpp"
#include "text/pattern.hpp"

namespace weft::text {

/// A part of a text. `first`: the user's text begins with it.
struct Word {
  std::string_view text;
  bool first = false;
};

/// Hands out the words of a word, in order; none is empty. For use by many threads at once.
class PreTokenizer {
 public:
  using Sink = FunctionRef<void(Word)>;
  virtual ~PreTokenizer() = default;
  /// Words handed to `sink` are good until it returns. Errors as `Pattern::for_each`.
  virtual void split(Word word, Sink sink) const = 0;
};
using PreTokenizerPtr = std::unique_ptr<PreTokenizer>;

/// How a delimiter is treated.
enum class SplitBehavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

/// Cuts at matches; `invert`: at the text between them.
PreTokenizerPtr make_split(std::unique_ptr<Pattern> pattern, SplitBehavior behavior, bool invert);
/// GPT-2's: with `add_prefix_space` a space in front of each word that has none, with `use_regex` its words, and then each
/// byte as a character unless `keep_bytes`.
PreTokenizerPtr make_byte_level(bool add_prefix_space, bool use_regex, bool keep_bytes);
/// Where a space is put in front: nowhere, before the first word of the text, before all.
enum class PrependScheme { kNever, kFirst, kAlways };
/// SentencePiece's: spaces become `replacement`, and words begin with it.
PreTokenizerPtr make_metaspace(char32_t replacement, PrependScheme scheme, bool split);
/// At white space, which goes, and around punctuation.
PreTokenizerPtr make_bert_pre_tokenizer();
/// At white space, which goes.
PreTokenizerPtr make_whitespace_split();
/// Words of \w+ or [^\w\s]+.
PreTokenizerPtr make_whitespace();
PreTokenizerPtr make_punctuation(SplitBehavior behavior);
PreTokenizerPtr make_digits(bool individual);
/// At the character, which goes.
PreTokenizerPtr make_character_delimiter(char32_t delimiter);
/// Words of `length` characters, which is at least 1.
PreTokenizerPtr make_fixed_length(std::size_t length);
/// Where the script changes; Hiragana and Katakana count as Han.
PreTokenizerPtr make_unicode_scripts();
/// One after another; an empty sequence hands words on.
PreTokenizerPtr make_pre_tokenizer_sequence(std::vector<PreTokenizerPtr> parts);

}  // namespace weft::text
