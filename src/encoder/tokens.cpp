#include "encoder/tokens.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/quote.hpp"
#include "text/load_tokenizer.hpp"
#include "weft/error.hpp"

namespace weft::encoder {
namespace {

void check_tokens(const std::vector<text::TokenId>& tokens, const EncoderConfig& config) {
  if (tokens.empty()) throw UsageError("encoder: a text has no tokens; give some text");
  for (const text::TokenId token : tokens)
    if (token < 0 || token >= config.vocabulary)
      throw UsageError(
          fmt::format("encoder: token {} is outside of the vocabulary of {}; is the tokenizer of this model?", token,
                      config.vocabulary));
}

/// Leaves out what is beyond the length, but for the token that closes the text.
void cut_tokens(TokenText& text, Extent length, const text::Tokenizer& tokenizer) {
  const auto most = static_cast<std::size_t>(length);
  if (text.tokens.size() <= most) return;
  const text::TokenId last = text.tokens.back();
  const bool closes = tokenizer.is_special(last);
  text.tokens.resize(most);
  text.types.resize(most);
  if (closes) text.tokens.back() = last;
}

}  // namespace

text::Tokenizer tokenizer_of(const std::filesystem::path& whole, const std::filesystem::path& transformer) {
  namespace fs = std::filesystem;
  const bool is_beside = fs::is_directory(transformer) && !fs::exists(transformer / "tokenizer.json") &&
                         fs::exists(whole / "tokenizer.json");
  return text::load_tokenizer(is_beside ? whole : transformer);
}

TokenText tokens_of(const text::Tokenizer& tokenizer, const EncoderConfig& config, Extent length, std::string_view text,
                    const std::string* pair, TooLong too_long, bool parse_special) {
  const text::EncodeOptions how{.parse_special = parse_special};
  TokenText made;
  if (pair) {
    made.tokens = tokenizer.encode_pair(text, *pair, how, &made.types);
  } else {
    made.tokens = tokenizer.encode(text, how);
    made.types.assign(made.tokens.size(), 0);
  }
  check_tokens(made.tokens, config);
  for (std::int32_t& type : made.types)
    type = std::min(type, static_cast<std::int32_t>(std::max<Extent>(config.types, 1)) - 1);
  if (too_long == TooLong::error && static_cast<Extent>(made.tokens.size()) > length)
    throw UsageError(
        fmt::format("encoder: the text {} has {} tokens, and the model reads {}; shorten it, divide it, or let "
                    "it be cut (TooLong::cut)",
                    quote(text, 40), made.tokens.size(), length));
  cut_tokens(made, length, tokenizer);
  return made;
}

TokenWords tokens_of_words(const text::Tokenizer& tokenizer, const EncoderConfig& config, Extent length,
                           const std::vector<std::string>& words) {
  TokenWords made;
  if (words.empty()) throw UsageError("encoder: a text has no words");
  const auto bare = [&](const std::string& text) {
    return tokenizer.encode(text, {.add_special = false, .parse_special = false});
  };
  // What the model expects around a text is what is around its first word.
  const std::vector<text::TokenId> first = bare(words[0]),
                                   around = tokenizer.encode(words[0], {.parse_special = false});
  const auto at = std::search(around.begin(), around.end(), first.begin(), first.end());
  std::vector<text::TokenId>& tokens = made.text.tokens;
  tokens.assign(around.begin(), at);
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::vector<text::TokenId> word = i == 0 ? first : bare(" " + words[i]);
    const bool is_within = !word.empty() && static_cast<Extent>(tokens.size()) < length - (at == around.end() ? 0 : 1);
    made.firsts.push_back(is_within ? static_cast<std::int32_t>(tokens.size()) : -1);
    tokens.insert(tokens.end(), word.begin(), word.end());
  }
  if (at != around.end()) tokens.insert(tokens.end(), at + static_cast<std::ptrdiff_t>(first.size()), around.end());
  check_tokens(tokens, config);
  made.text.types.assign(tokens.size(), 0);
  cut_tokens(made.text, length, tokenizer);
  return made;
}

}  // namespace weft::encoder
