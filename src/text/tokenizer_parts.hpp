// The parts of a tokenizer, which the readers of files fill in.
#pragma once

#include <optional>
#include <unordered_map>
#include <vector>

#include "text/added_tokens.hpp"
#include "text/decoder.hpp"
#include "text/model.hpp"
#include "text/normalizer.hpp"
#include "text/post_processor.hpp"
#include "text/pre_tokenizer.hpp"

namespace weft::text {

struct TokenizerParts {
  NormalizerPtr normalizer;       // null: the text as it is
  PreTokenizerPtr pre_tokenizer;  // null: a text is one word
  ModelPtr model;
  bool byte_level = false;  // the model's pieces are bytes, which the file writes in the byte-level alphabet
  Vocabulary other_pieces;  // of such a file: those with characters that are not in the alphabet; no word has them
  std::vector<PostProcessor> post_processors;
  Decoder decoder{{}};
  std::vector<AddedToken> added;  // by id
  TokenId bos = kNoToken, eos = kNoToken, padding = kNoToken;

  // Made by `complete`.
  AddedTokenFinder raw_finder, normalized_finder;
  std::vector<std::string>
      added_text;  // what each of `added` is decoded to: its content, in normal form if it is normalized
  std::unordered_map<TokenId, std::size_t> added_by_id;  // place in `added`
  std::unordered_map<std::string_view, TokenId> added_by_content;
  TokenId id_limit = 0;

  /// The piece as the file writes it, perhaps in `memory`.
  std::optional<std::string_view> piece(TokenId id, std::string& memory) const;
  /// The id of a piece as the file writes it, hidden or not; kNoToken if there is none.
  TokenId id_of_piece(std::string_view piece) const;
  std::size_t piece_count() const { return model->vocabulary().size() + other_pieces.size(); }
  /// Call this once `added` and all members above it are set.
  void complete();
};

}  // namespace weft::text
