// Hashing of values into one 64-bit state.
#pragma once

#include <bit>
#include <cstdint>
#include <string_view>

namespace weft {

/// Accumulates values; equal sequences give equal digests. Not for hostile input.
class Hasher {
 public:
  void add(std::uint64_t value) {
    state_ ^= value + 0x9e3779b97f4a7c15ull + (state_ << 6) + (state_ >> 2);
    state_ *= 0xff51afd7ed558ccdull;
    state_ ^= state_ >> 32;
  }
  void add(std::string_view text) {
    add(text.size());
    for (char c : text) add(static_cast<std::uint64_t>(static_cast<unsigned char>(c)));
  }
  void add_double(double value) { add(std::bit_cast<std::uint64_t>(value)); }
  std::uint64_t digest() const { return state_; }

 private:
  std::uint64_t state_ = 0x243f6a8885a308d3ull;
};

}  // namespace weft
