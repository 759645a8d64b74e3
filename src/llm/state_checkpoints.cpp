#include "llm/state_checkpoints.hpp"

#include <algorithm>

namespace weft::llm::detail {

bool StateCheckpoints::has(std::span<const text::TokenId> tokens, int slot) const {
  return std::any_of(list_.begin(), list_.end(), [&](const Checkpoint& each) {
    return each.slot == slot && std::equal(tokens.begin(), tokens.end(), each.tokens.begin(), each.tokens.end());
  });
}

void StateCheckpoints::add(Checkpoint checkpoint) {
  if (is_off()) return;
  while (list_.size() >= count_max_) list_.pop_back();
  list_.push_front(std::move(checkpoint));
}

const StateCheckpoints::Checkpoint* StateCheckpoints::best(std::span<const text::TokenId> prompt, std::size_t longest,
                                                           int slot) {
  auto best = list_.end();
  for (auto each = list_.begin(); each != list_.end(); ++each) {
    const auto& tokens = each->tokens;
    if ((slot >= 0 && each->slot != slot) || tokens.size() > std::min(longest, prompt.size()) ||
        !std::equal(tokens.begin(), tokens.end(), prompt.begin()))
      continue;
    if (best == list_.end() || tokens.size() > best->tokens.size()) best = each;
  }
  if (best == list_.end()) return nullptr;
  list_.splice(list_.begin(), list_, best);
  return &list_.front();
}

}  // namespace weft::llm::detail
