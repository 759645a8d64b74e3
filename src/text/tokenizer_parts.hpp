// What tokenizers are made of; the readers of files fill it in.
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
  std::optional<Vocabulary> file_pieces;  // where the model's are bytes instead
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

  const Vocabulary& pieces() const { return file_pieces ? *file_pieces : model->vocabulary(); }
  /// To be called once `added` and all above it stand.
  void complete();
};

}  // namespace weft::text
