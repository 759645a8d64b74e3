// Post-processors: the special tokens around one sequence, or two.
#pragma once

#include <memory>
#include <vector>

#include "text/token.hpp"

namespace weft::text {

/// An item of a template: a token, or one of the sequences.
struct TemplateItem {
  enum class Kind { kToken, kFirst, kSecond };
  Kind kind;
  TokenId token = kNoToken;
};

/// Templates for one sequence and for two; of each post-processor that a tokenizer has, in order.
struct PostProcessor {
  std::vector<TemplateItem> single, pair;
};

/// Applies them: with `special` false sequences are laid out but no tokens added. `second` may be null. A post-processor after
/// one that took two sequences gets what that gave as one.
std::vector<TokenId> post_process(const std::vector<PostProcessor>& processors, std::vector<TokenId> first,
                                  const std::vector<TokenId>* second, bool special);

}  // namespace weft::text
