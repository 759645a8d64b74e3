// Pieces and their ids, both ways.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/token.hpp"

namespace weft::text {

/// Pieces are byte strings. Ids may leave holes. Lookups are for many threads at once. Beside the bytes it takes 8 bytes an id
/// and 6 to 11 a piece.
class Vocabulary {
 public:
  /// Room for `pieces` of `bytes` in all.
  void reserve(std::size_t pieces, std::size_t bytes);
  /// Sets the piece of an id, and the id of a piece unless `findable` is false. False if the piece was there already: its
  /// id is then the new one. The id must be in [0, kMaxTokenId] and keeps its first piece.
  bool add(std::string_view piece, TokenId id, bool findable = true);

  /// Makes `find` pass over a piece: special tokens are not to be made of plain text.
  void hide(std::string_view piece);

  /// kNoToken if there is none.
  TokenId find(std::string_view piece) const;
  /// The same, including hidden pieces.
  TokenId find_any(std::string_view piece) const;
  /// Nothing for an id without a piece.
  std::optional<std::string_view> piece(TokenId id) const;
  /// The number of pieces that `find` can find.
  std::size_t size() const { return count_; }
  /// One above the largest id.
  TokenId id_limit() const { return static_cast<TokenId>(spans_.size()); }
  std::size_t longest_bytes() const { return longest_; }

 private:
  struct Span {
    std::uint32_t begin = 0, size = kAbsent;
  };
  /// An id, whether it is hidden, and the first bits of the piece's hash, so that few other pieces are looked at; 0 is free.
  using Slot = std::uint32_t;
  static constexpr Slot kId = (1u << 22) - 1, kHidden = 1u << 22, kTaken = 1u << 23;
  static_assert(kMaxTokenId <= static_cast<TokenId>(kId));
  static constexpr std::uint32_t kAbsent = 0xFFFFFFFF;
  std::string_view text_of(Span span) const { return std::string_view(bytes_).substr(span.begin, span.size); }
  /// Where the piece is, or would go.
  std::size_t place_of(std::string_view piece, std::uint64_t hash) const;
  Slot slot_of(std::string_view piece) const;
  void grow(std::size_t slots);

  std::string bytes_;
  std::vector<Span> spans_;  // by id
  std::vector<Slot> slots_;
  std::size_t mask_ = 0, count_ = 0, longest_ = 0;
};

/// A hash of short strings that differs from process to process, so that no file can be made of colliding ones.
std::uint64_t seeded_hash(std::string_view text);
/// The same of a number.
std::uint64_t seeded_hash(std::uint64_t value);

}  // namespace weft::text
