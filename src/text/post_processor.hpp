// Post-processors: the special tokens around one sequence, or two.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "text/token.hpp"

namespace weft::text {

/// An item of a template: a token, or one of the sequences.
struct TemplateItem {
  enum class Kind { kToken, kFirst, kSecond };
  Kind kind;
  TokenId token = kNoToken;
  std::int32_t type = 0;  ///< of the token, or of all tokens of the sequence: which of two texts they belong to
};

/// Templates for one sequence and for two; of each post-processor that a tokenizer has, in order.
struct PostProcessor {
  std::vector<TemplateItem> single, pair;
};

/// Applies them: with `special` false sequences are laid out but no tokens added. `second` may be null. A post-processor after
/// one that took two sequences gets what that gave as one. `types`, unless it is null, gets the type of each token.
std::vector<TokenId> post_process(const std::vector<PostProcessor>& processors, std::vector<TokenId> first,
                                  const std::vector<TokenId>* second, bool special,
                                  std::vector<std::int32_t>* types = nullptr);

}  // namespace weft::text
