// XXH64 (Yann Collet): a fast 64-bit checksum of bytes. It detects damage, but does not protect against an attacker.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

namespace weft {

/// Takes bytes piece by piece; the digest does not depend on how they are cut.
class Xxh64 {
 public:
  void add(std::span<const std::byte> bytes) {
    total_ += bytes.size();
    while (!bytes.empty()) {
      if (held_ == 0 && bytes.size() >= 32) {
        const std::size_t whole = bytes.size() / 32 * 32;
        for (std::size_t i = 0; i < whole; i += 32) stripe(bytes.data() + i);
        bytes = bytes.subspan(whole);
        continue;
      }
      const std::size_t taken = std::min<std::size_t>(32 - held_, bytes.size());
      std::memcpy(buffer_ + held_, bytes.data(), taken);
      held_ += taken;
      bytes = bytes.subspan(taken);
      if (held_ == 32) {
        stripe(buffer_);
        held_ = 0;
      }
    }
  }
  void add(std::string_view text) { add(std::as_bytes(std::span(text))); }

  std::uint64_t digest() const {
    std::uint64_t h = kPrime5;
    if (total_ >= 32) {
      h = std::rotl(lanes_[0], 1) + std::rotl(lanes_[1], 7) + std::rotl(lanes_[2], 12) + std::rotl(lanes_[3], 18);
      for (const std::uint64_t lane : lanes_) h = (h ^ round(0, lane)) * kPrime1 + kPrime4;
    }
    h += total_;
    std::size_t i = 0;
    for (; i + 8 <= held_; i += 8)
      h = std::rotl(h ^ round(0, load<std::uint64_t>(buffer_ + i)), 27) * kPrime1 + kPrime4;
    if (i + 4 <= held_) {
      h = std::rotl(h ^ load<std::uint32_t>(buffer_ + i) * kPrime1, 23) * kPrime2 + kPrime3;
      i += 4;
    }
    for (; i < held_; ++i) h = std::rotl(h ^ std::to_integer<std::uint64_t>(buffer_[i]) * kPrime5, 11) * kPrime1;
    h = (h ^ h >> 33) * kPrime2;
    h = (h ^ h >> 29) * kPrime3;
    return h ^ h >> 32;
  }

 private:
  static constexpr std::uint64_t kPrime1 = 0x9E3779B185EBCA87, kPrime2 = 0xC2B2AE3D27D4EB4F,
                                 kPrime3 = 0x165667B19E3779F9, kPrime4 = 0x85EBCA77C2B2AE63,
                                 kPrime5 = 0x27D4EB2F165667C5;

  template <class T>
  static std::uint64_t load(const std::byte* at) {
    T value;
    std::memcpy(&value, at, sizeof(T));
    return value;
  }
  static std::uint64_t round(std::uint64_t lane, std::uint64_t input) {
    return std::rotl(lane + input * kPrime2, 31) * kPrime1;
  }
  void stripe(const std::byte* at) {
    for (int i = 0; i < 4; ++i) lanes_[i] = round(lanes_[i], load<std::uint64_t>(at + 8 * i));
  }

  std::uint64_t lanes_[4] = {kPrime1 + kPrime2, kPrime2, 0, 0 - kPrime1};
  std::byte buffer_[32] = {};
  std::size_t held_ = 0;
  std::uint64_t total_ = 0;
};

/// The digest of one piece.
inline std::uint64_t xxh64(std::span<const std::byte> bytes) {
  Xxh64 hash;
  hash.add(bytes);
  return hash.digest();
}
inline std::uint64_t xxh64(std::string_view text) { return xxh64(std::as_bytes(std::span(text))); }

}  // namespace weft
