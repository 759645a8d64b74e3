// Text as data: a vocabulary, tokens, and the split into training and validation text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weft/shape.hpp"

namespace weft::train {

using Token = std::int32_t;

/// The vocabulary of tokens: the characters of a text, in ascending order, or the 256 bytes.
class Alphabet {
 public:
  enum class Kind : std::uint8_t { characters, bytes };

  static Alphabet bytes();
  /// The characters of UTF-8 text. Errors: FileError (naming `source`) if it is not UTF-8.
  static Alphabet characters_of(std::string_view text, std::string_view source = "text");

  Kind kind() const { return kind_; }
  Extent size() const { return kind_ == Kind::bytes ? 256 : static_cast<Extent>(characters_.size()); }
  /// Errors  UsageError that names a character which the vocabulary lacks; FileError if `text` is not UTF-8.
  std::vector<Token> encode(std::string_view text) const;
  /// The bytes of a token. Errors: UsageError if there is no such token.
  std::string_view piece(Token token) const;
  std::string decode(std::span<const Token> tokens) const;
  /// All characters as one UTF-8 text; empty for bytes. `characters_of` turns it into the same vocabulary.
  std::string characters() const;
  bool operator==(const Alphabet& other) const { return kind_ == other.kind_ && characters_ == other.characters_; }

 private:
  Kind kind_ = Kind::bytes;
  std::u32string characters_;
  std::map<char32_t, Token> tokens_;
  std::vector<std::string> pieces_;
};

/// "characters" or "bytes" by its short name on the command line: "char", "byte". Errors: UsageError.
Alphabet::Kind alphabet_kind(std::string_view name);
std::string_view name_of(Alphabet::Kind kind);

/// A UTF-8 file as tokens: the last tenth (rounded down) is for validation.
struct TextData {
  Alphabet vocabulary;
  std::vector<Token> tokens;
  std::size_t training_count = 0;
  std::uint64_t content_hash = 0;  // of the file's bytes

  std::span<const Token> training() const { return std::span(tokens).first(training_count); }
  std::span<const Token> validation() const { return std::span(tokens).subspan(training_count); }

  /// Errors  FileError: missing, unreadable, empty, not UTF-8 (with the byte position), or so short that the training or
  ///         validation text is not longer than `context` tokens.
  static TextData load(const std::filesystem::path& path, Alphabet::Kind kind, Extent context);
};

/// Rows of `length` consecutive tokens, one after another, each from a place drawn by Philox on (seed, step, row): the batch of
/// a step does not depend on earlier steps. Errors: UsageError if there are fewer than `length` tokens.
std::vector<Token> draw_batch(std::span<const Token> tokens, std::uint64_t seed, std::uint64_t step, Extent rows,
                              Extent length);

}  // namespace weft::train
