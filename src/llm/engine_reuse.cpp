// What the caches of a sequence hold, and how much of it serves the next prompt.
#include <algorithm>
#include <utility>

#include "llm/engine.hpp"

namespace weft::llm::detail {

bool Engine::has_window(int slot, Extent position) const {
  const Extent ring = settings_.ring;
  const Extent lost = cached_[static_cast<std::size_t>(slot)].written - ring;  // positions whose rows have others now
  return ring == 0 || position == 0 || std::max<Extent>(position + 1 - config().window, 0) >= lost;
}

bool Engine::turns_anew(int slot, Extent length) const {
  return short_positions_ && (length > *short_positions_) != cached_[static_cast<std::size_t>(slot)].is_long;
}

void Engine::grow(int slot, Extent length) {
  if (!turns_anew(slot, length)) return;
  cached_[static_cast<std::size_t>(slot)].is_long = length > *short_positions_;
  const std::vector<text::TokenId> held = std::exchange(cached(slot), {});
  std::vector<PositionedToken> batch;
  for (std::size_t i = 0; i < held.size(); ++i) batch.push_back({held[i], static_cast<Extent>(i), slot});
  if (!batch.empty()) read(batch);
  cached(slot) = held;
}

void Engine::keep_states(int slot) {
  const std::vector<text::TokenId>& held = cached(slot);
  if (!checkpoints_ || checkpoints_->is_off() || held.empty() || checkpoints_->has(held, slot)) return;
  if (static_cast<Extent>(held.size()) != cached_[static_cast<std::size_t>(slot)].written) return;
  finish_reading();
  std::vector<Tensor> states;
  for (const auto& stage : stages_)
    for (Tensor& state : stage->states_of(slot)) states.push_back(std::move(state));
  checkpoints_->add({held, slot, std::move(states)});
}

void Engine::keep_states_sometimes(int slot) {
  if (checkpoints_ && cached(slot).size() % kStateInterval == 0) keep_states(slot);
}

std::size_t Engine::restore_states(int slot, std::span<const text::TokenId> prompt, std::size_t same,
                                   std::size_t more_than) {
  // Keys and values of attention are those of this sequence, up to `same`; states alone may be those of any.
  const bool has_keys =
      std::any_of(stages_.begin(), stages_.end(), [](const auto& stage) { return stage->has_keys(); });
  const std::size_t longest = has_keys ? same : prompt.size() - 1;
  const StateCheckpoints::Checkpoint* found = checkpoints_->best(prompt, longest, has_keys ? slot : -1);
  if (!found || found->tokens.size() <= more_than) return 0;
  std::span<const Tensor> states = found->states;
  for (const auto& stage : stages_) {
    stage->set_states(slot, states.first(stage->state_count()));
    states = states.subspan(stage->state_count());
  }
  cached_[static_cast<std::size_t>(slot)].written = static_cast<Extent>(found->tokens.size());
  cached(slot) = found->tokens;
  return found->tokens.size();
}

Extent Engine::reuse(int slot, std::span<const text::TokenId> prompt) {
  std::vector<text::TokenId>& held = cached(slot);
  if (turns_anew(slot, static_cast<Extent>(prompt.size()))) held.clear();
  grow(slot, static_cast<Extent>(prompt.size()));
  std::size_t same = 0;
  while (same < held.size() && same + 1 < prompt.size() && held[same] == prompt[same]) ++same;
  if (sees_images_whole() && is_image_row(prompt[same]))
    if (const auto image = images_.find(prompt[same]))
      same -= std::min(
          same, static_cast<std::size_t>((image->first - prompt[same]) % image_reader_->tile_rows(image->image)));
  if (!has_window(slot, static_cast<Extent>(same))) same = 0;
  if (has_states()) {
    const bool goes_on = static_cast<Extent>(same) == cached_[static_cast<std::size_t>(slot)].written;
    const std::size_t restored = restore_states(slot, prompt, same, goes_on ? same : 0);
    if (restored > 0 || !goes_on) same = restored;
  }
  held.resize(same);
  return static_cast<Extent>(same);
}

}  // namespace weft::llm::detail
