#include "text/vocabulary.hpp"

#include <algorithm>
#include <cstring>
#include <random>
#include <utility>

#include "weft/error.hpp"

namespace weft::text {
namespace {

std::uint64_t mix(std::uint64_t a, std::uint64_t b) {
  const auto product = static_cast<unsigned __int128>(a) * b;
  return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
}

struct Seeds {
  std::uint64_t first, second;
  Seeds() {
    std::random_device device;
    const auto draw = [&] { return (std::uint64_t{device()} << 32 | device()) | 1; };
    first = draw();
    second = draw();
  }
};
const Seeds kSeeds;

/// Whether a table has room enough. Slots have bits of the hash, so that a search passes over others of a line quickly.
bool has_room(std::size_t pieces, std::size_t slots) { return 4 * pieces <= 3 * slots; }

}  // namespace

std::uint64_t seeded_hash(std::string_view text) {
  std::uint64_t state = kSeeds.first ^ text.size();
  const char* at = text.data();
  std::size_t left = text.size();
  std::uint64_t word = 0;
  for (; left >= 8; at += 8, left -= 8) {
    std::memcpy(&word, at, 8);
    state = mix(state ^ word, kSeeds.second);
  }
  if (left > 0) {
    word = 0;
    std::memcpy(&word, at, left);
    state = mix(state ^ word, kSeeds.second);
  }
  return mix(state, kSeeds.first);
}

std::uint64_t seeded_hash(std::uint64_t value) { return mix(value ^ kSeeds.first, kSeeds.second); }

void Vocabulary::reserve(std::size_t pieces, std::size_t bytes) {
  bytes_.reserve(bytes);
  spans_.reserve(pieces);
  std::size_t slots = 64;
  while (!has_room(pieces, slots)) slots *= 2;
  if (slots > slots_.size()) grow(slots);
}

void Vocabulary::grow(std::size_t slots) {
  const std::vector<Slot> old = std::exchange(slots_, std::vector<Slot>(slots));
  mask_ = slots - 1;
  for (const Slot slot : old) {
    if (slot == 0) continue;
    std::size_t at = seeded_hash(text_of(spans_[slot & kId])) & mask_;
    while (slots_[at] != 0) at = (at + 1) & mask_;
    slots_[at] = slot;
  }
}

std::size_t Vocabulary::place_of(std::string_view piece, std::uint64_t hash) const {
  const Slot tag = static_cast<Slot>(hash >> 56);
  std::size_t at = hash & mask_;
  while (slots_[at] != 0 && (slots_[at] >> 24 != tag || text_of(spans_[slots_[at] & kId]) != piece))
    at = (at + 1) & mask_;
  return at;
}

bool Vocabulary::add(std::string_view piece, TokenId id, bool findable) {
  if (id < 0 || id > kMaxTokenId) throw InternalError("an id outside of the vocabulary's range");
  if (bytes_.size() + piece.size() >= kAbsent) throw FileError("the pieces of the vocabulary exceed 4 GiB");
  if (static_cast<std::size_t>(id) >= spans_.size()) spans_.resize(static_cast<std::size_t>(id) + 1);
  Span& span = spans_[static_cast<std::size_t>(id)];
  if (span.size != kAbsent) throw InternalError("a second piece for an id");
  span = {static_cast<std::uint32_t>(bytes_.size()), static_cast<std::uint32_t>(piece.size())};
  bytes_.append(piece);
  longest_ = std::max(longest_, piece.size());
  if (!findable) return true;

  if (!has_room(count_ + 1, slots_.size())) grow(std::max<std::size_t>(64, 2 * slots_.size()));
  const std::uint64_t hash = seeded_hash(piece);
  Slot& slot = slots_[place_of(piece, hash)];
  const bool is_new = slot == 0;
  count_ += is_new;
  slot = static_cast<Slot>(hash >> 56) << 24 | kTaken | (slot & kHidden) | static_cast<Slot>(id);
  return is_new;
}

Vocabulary::Slot Vocabulary::slot_of(std::string_view piece) const {
  return count_ == 0 ? 0 : slots_[place_of(piece, seeded_hash(piece))];
}

TokenId Vocabulary::find(std::string_view piece) const {
  const Slot slot = slot_of(piece);
  return slot == 0 || (slot & kHidden) != 0 ? kNoToken : static_cast<TokenId>(slot & kId);
}

TokenId Vocabulary::find_any(std::string_view piece) const {
  const Slot slot = slot_of(piece);
  return slot == 0 ? kNoToken : static_cast<TokenId>(slot & kId);
}

void Vocabulary::hide(std::string_view piece) {
  if (count_ == 0) return;
  Slot& slot = slots_[place_of(piece, seeded_hash(piece))];
  if (slot != 0) slot |= kHidden;
}

std::optional<std::string_view> Vocabulary::piece(TokenId id) const {
  if (id < 0 || static_cast<std::size_t>(id) >= spans_.size() || spans_[static_cast<std::size_t>(id)].size == kAbsent)
    return std::nullopt;
  return text_of(spans_[static_cast<std::size_t>(id)]);
}

}  // namespace weft::text
