#include "weft/train/text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/file.hpp"
#include "base/philox.hpp"
#include "base/quote.hpp"
#include "base/utf8.hpp"
#include "base/xxh64.hpp"
#include "weft/error.hpp"

namespace weft::train {

Alphabet Alphabet::bytes() {
  Alphabet v;
  for (int i = 0; i < 256; ++i) v.pieces_.emplace_back(1, static_cast<char>(i));
  return v;
}

Alphabet Alphabet::characters_of(std::string_view text, std::string_view source) {
  Alphabet v;
  v.kind_ = Kind::characters;
  const std::u32string decoded = decode_utf8(text, source);
  const std::set<char32_t> distinct(decoded.begin(), decoded.end());
  v.characters_.assign(distinct.begin(), distinct.end());
  for (std::size_t i = 0; i < v.characters_.size(); ++i) {
    v.tokens_.emplace(v.characters_[i], static_cast<Token>(i));
    v.pieces_.push_back(encode_utf8(std::u32string_view(&v.characters_[i], 1)));
  }
  return v;
}

std::vector<Token> Alphabet::encode(std::string_view text) const {
  std::vector<Token> result;
  if (kind_ == Kind::bytes) {
    for (const char c : text) result.push_back(static_cast<unsigned char>(c));
    return result;
  }
  const std::u32string decoded = decode_utf8(text);
  result.reserve(decoded.size());
  for (const char32_t c : decoded) {
    const auto it = tokens_.find(c);
    if (it == tokens_.end())
      throw UsageError(
          fmt::format("the character {} (U+{:04X}) is not in the vocabulary of {} characters that the model was "
                      "trained on; leave it out",
                      quote(encode_utf8(std::u32string_view(&c, 1))), static_cast<std::uint32_t>(c), size()));
    result.push_back(it->second);
  }
  return result;
}

std::string_view Alphabet::piece(Token token) const {
  if (token < 0 || token >= size())
    throw UsageError(fmt::format("token {} is outside of the vocabulary of {}", token, size()));
  return pieces_[static_cast<std::size_t>(token)];
}

std::string Alphabet::decode(std::span<const Token> tokens) const {
  std::string text;
  for (const Token token : tokens) text += piece(token);
  return text;
}

std::string Alphabet::characters() const { return encode_utf8(characters_); }

Alphabet::Kind alphabet_kind(std::string_view name) {
  if (name == "char" || name == "characters") return Alphabet::Kind::characters;
  if (name == "byte" || name == "bytes") return Alphabet::Kind::bytes;
  throw UsageError(fmt::format("vocabulary {}: unknown; choose char or byte", quote(name)));
}

std::string_view name_of(Alphabet::Kind kind) { return kind == Alphabet::Kind::bytes ? "byte" : "char"; }

TextData TextData::load(const std::filesystem::path& path, Alphabet::Kind kind, Extent context) {
  const std::string text = read_text_file(path);
  if (text.empty()) throw FileError(fmt::format("{}: the file is empty; give a UTF-8 text", path.string()));
  if (kind == Alphabet::Kind::characters) require_utf8(text, path.string());  // bytes may be anything

  TextData data;
  data.content_hash = xxh64(text);
  data.vocabulary = kind == Alphabet::Kind::bytes ? Alphabet::bytes() : Alphabet::characters_of(text, path.string());
  data.tokens = data.vocabulary.encode(text);
  data.training_count = data.tokens.size() - data.tokens.size() / 10;

  const auto needed = static_cast<std::size_t>(context) + 1;
  if (data.validation().size() < needed)
    throw FileError(
        fmt::format("{}: a text of {} {} is too short for a context of {}: the last tenth, which is for validation, "
                    "needs {}; give a text of at "
                    "least {}, or a smaller --context",
                    path.string(), data.tokens.size(), kind == Alphabet::Kind::bytes ? "bytes" : "characters", context,
                    needed, needed * 10));
  return data;
}

std::vector<Token> draw_batch(std::span<const Token> tokens, std::uint64_t seed, std::uint64_t step, Extent rows,
                              Extent length) {
  if (static_cast<std::size_t>(length) > tokens.size())
    throw UsageError(fmt::format("batch: rows of {} tokens from a text of {}", length, tokens.size()));
  const std::uint64_t places = tokens.size() - static_cast<std::uint64_t>(length) + 1;
  std::vector<Token> batch;
  batch.reserve(static_cast<std::size_t>(rows * length));
  const philox::Key key = {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)};
  for (Extent row = 0; row < rows; ++row) {
    const philox::Block words =
        philox::block(key, {static_cast<std::uint32_t>(row), static_cast<std::uint32_t>(step),
                            static_cast<std::uint32_t>(step >> 32), static_cast<std::uint32_t>(philox::Use::batches)});
    const auto begin = tokens.begin() + static_cast<std::ptrdiff_t>(philox::to_below(places, words[0], words[1]));
    batch.insert(batch.end(), begin, begin + length);
  }
  return batch;
}

}  // namespace weft::train
