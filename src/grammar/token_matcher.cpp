#include "grammar/token_matcher.hpp"

#include <algorithm>

namespace weft::grammar {

bool TokenMask::any() const {
  return std::any_of(words_.begin(), words_.end(), [](std::uint64_t word) { return word != 0; });
}

TokenMatcher::TokenMatcher(CompiledGrammar grammar, std::shared_ptr<const TokenTrie> trie,
                           std::vector<std::int32_t> end_tokens)
    : grammar_(std::move(grammar)),
      trie_(std::move(trie)),
      end_tokens_(std::move(end_tokens)),
      recognizer_(grammar_.network),
      path_(trie_->longest_bytes() + 1) {
  if (grammar_.has_open_objects)
    for (std::size_t i = 0; i < trie_->size(); ++i) {
      const auto token = static_cast<std::int32_t>(i);
      if (trie_->bytes_of(token).find('"') != std::string_view::npos) quoted_.push_back(token);
    }
}

TokenMask TokenMatcher::make_mask(Recognizer::Place place) {
  TokenMask mask(trie_->size());
  const std::span<const TokenTrie::Node> nodes = trie_->nodes();
  path_[0] = place;
  for (std::size_t i = 0; i < nodes.size();) {
    const TokenTrie::Node& node = nodes[i];
    const Recognizer::Place next = recognizer_.step(path_[node.depth - 1u], node.byte);
    if (next == Recognizer::kDead) {
      i = node.end;
      continue;
    }
    path_[node.depth] = next;
    for (std::int32_t token = node.token; token != TokenTrie::kNoToken; token = trie_->same(token))
      mask.allow(static_cast<std::size_t>(token));
    ++i;
  }
  for (const std::int32_t token : end_tokens_) {
    if (static_cast<std::size_t>(token) >= mask.size()) continue;
    if (recognizer_.accepts(place))
      mask.allow(static_cast<std::size_t>(token));
    else
      mask.forbid(static_cast<std::size_t>(token));
  }
  return mask;
}

const TokenMask& TokenMatcher::allowed(const State& state) {
  auto found = masks_.find(state.place);
  if (found == masks_.end()) {
    if (masks_.size() * (trie_->size() / 8 + 64) > kMaskBytesMax) masks_.clear();
    found = masks_.emplace(state.place, make_mask(state.place)).first;
  }
  if (!grammar_.has_open_objects) return found->second;
  without_repeats_ = found->second;
  for (const std::int32_t token : quoted_)
    if (without_repeats_[static_cast<std::size_t>(token)] && !state.keys.would_read(trie_->bytes_of(token)))
      without_repeats_.forbid(static_cast<std::size_t>(token));
  return without_repeats_;
}

bool TokenMatcher::allows(const State& state, std::int32_t token) {
  if (std::find(end_tokens_.begin(), end_tokens_.end(), token) != end_tokens_.end()) return may_end(state);
  State copy = state;
  return accept(copy, token);
}

bool TokenMatcher::accept(State& state, std::int32_t token) {
  if (token < 0 || static_cast<std::size_t>(token) >= trie_->size()) return false;
  const std::string_view bytes = trie_->bytes_of(token);
  return !bytes.empty() && accept_bytes(state, bytes);
}

bool TokenMatcher::accept_bytes(State& state, std::string_view bytes) {
  const Recognizer::Place next = recognizer_.step(state.place, bytes);
  if (next == Recognizer::kDead) return false;
  if (grammar_.has_open_objects) {
    JsonKeys keys = state.keys;
    if (!keys.read(bytes)) return false;
    state.keys = std::move(keys);
  }
  state.place = next;
  return true;
}

bool TokenMatcher::must_end(const State& state) {
  if (!recognizer_.accepts(state.place)) return false;
  for (int byte = 0; byte < 256; ++byte)
    if (recognizer_.step(state.place, static_cast<std::uint8_t>(byte)) != Recognizer::kDead) return false;
  return true;
}

}  // namespace weft::grammar
