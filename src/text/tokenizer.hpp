// Tokenizers: from text to tokens and back, as the files of language models describe them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/token.hpp"

namespace weft::text {

struct AddedToken;
struct TokenizerParts;

struct EncodeOptions {
  bool add_special = true;  ///< the tokens that the model expects around a text, such as a BOS
  /// Added tokens written out in the text become tokens. Else the text is plain, as what users type should be: it holds none
  /// of them but white space, whatever it looks like.
  bool parse_special = true;
};

/// A part of a text. What a user typed has `parse_special` false, and then holds no added token, however it is cut.
struct TextSegment {
  std::string_view text;
  bool parse_special = false;
};

/// What a GGUF file says of its vocabulary (tokenizer.ggml.*), checked for its types only.
struct GgufVocabulary {
  std::string model;  ///< llama, gpt2, bert or t5
  std::string pre;    ///< which words there are, for gpt2
  std::vector<std::string> tokens;
  std::vector<float> scores;        ///< of llama and t5: one a token
  std::vector<std::int32_t> types;  ///< 1 normal, 2 unknown, 3 control, 4 user, 5 unused, 6 byte; empty: all normal
  std::vector<std::string> merges;  ///< of gpt2: "left right"
  TokenId bos = kNoToken, eos = kNoToken, unknown = kNoToken, separator = kNoToken, padding = kNoToken;
  std::optional<bool> add_bos, add_eos, add_space_prefix;  ///< nothing: what the model's kind does
  std::string precompiled_charsmap;                        ///< of t5: bytes of SentencePiece's normalizer
};

/// Immutable; all calls may come from many threads at once. Texts need not be UTF-8: ill-formed parts are read as U+FFFD.
/// A call ends with UsageError after 20 seconds, or when a step makes more than 64 MiB of its text, or 16 times the text if
/// that is more: files may be hostile.
class Tokenizer {
 public:
  /// A tokenizer.json of version 1.0. Its settings of truncation and padding are the caller's business and are ignored.
  /// FileError "SOURCE: PATH: fact; cure", as in "tokenizer.json: model.merges[17]: ..." if it is malformed or uses what
  /// Weft does not know.
  static Tokenizer from_json_file(const std::filesystem::path& path);
  static Tokenizer from_json(std::string_view text, std::string_view source = "tokenizer.json");
  /// FileError "SOURCE: tokenizer.ggml.KEY: fact; cure". A name of `pre` that is unknown is refused with the known ones.
  static Tokenizer from_gguf(GgufVocabulary vocabulary, std::string_view source = "GGUF");

  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  /// The tokens of a text. UsageError if the text has characters that the vocabulary cannot express (no byte-level or
  /// byte-fallback pieces and no token for unknown ones), or a regular expression of the file exceeds its limits.
  std::vector<TokenId> encode(std::string_view text, EncodeOptions options = {}) const;
  /// The tokens of the segments as one text.
  std::vector<TokenId> encode(std::span<const TextSegment> segments, bool add_special = true) const;
  /// The tokens of two texts, such as a question and an answer. `types`, unless it is null, gets for each token which of the two
  /// texts it belongs to, as the file says; many models have only 0.
  std::vector<TokenId> encode_pair(std::string_view first, std::string_view second, EncodeOptions options = {},
                                   std::vector<std::int32_t>* types = nullptr) const;

  /// The text of tokens, always UTF-8. Leaves out ids without a token, and special tokens on request.
  std::string decode(std::span<const TokenId> ids, bool skip_special = true) const;

  /// The piece as the file writes it ("Ġthe", "▁the", "<|im_end|>"); nothing for an id without one.
  std::optional<std::string> piece(TokenId id) const;
  /// The id of a piece or of an added token's content; kNoToken if there is none.
  TokenId id_of(std::string_view piece) const;
  /// The bytes that the token adds in the middle of a text (" the"); they may be part of a character. Empty for an id
  /// without a piece; the content for an added token.
  std::string token_bytes(TokenId id) const;

  /// One above the largest id.
  TokenId vocabulary_size() const;
  bool is_special(TokenId id) const;
  /// All added tokens, by id.
  const std::vector<AddedToken>& added_tokens() const;
  /// What the file names as such: of GGUF only; kNoToken if nothing.
  TokenId bos() const;
  TokenId eos() const;
  TokenId padding() const;

 private:
  friend class StreamDecoder;
  explicit Tokenizer(std::unique_ptr<const TokenizerParts> parts);
  std::unique_ptr<const TokenizerParts> parts_;
};

/// Decodes token by token. All that it gives, joined, is `decode` of all tokens, but for damaged byte-fallback runs, of which
/// characters that were whole have then been given already. One thread at a time; the tokenizer must outlive it.
class StreamDecoder {
 public:
  explicit StreamDecoder(const Tokenizer& tokenizer, bool skip_special = true);
  ~StreamDecoder();
  StreamDecoder(StreamDecoder&&) noexcept;

  /// The text that the token makes certain; empty while a character is incomplete.
  std::string put(TokenId id);
  /// What was held back, at the end of the text. The decoder can then only be destroyed.
  std::string finish();

 private:
  struct Run;
  const Tokenizer* tokenizer_;
  bool skip_special_;
  std::unique_ptr<Run> run_;
};

}  // namespace weft::text
