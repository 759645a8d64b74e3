// SHA-256 of bytes that come in pieces.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace weft {

/// The hash of FIPS 180-4. Copies go on from the same state.
class Sha256 {
 public:
  void add(std::span<const std::byte> bytes);
  /// The hash of everything added, as 64 lower-case hexadecimal digits. The object can then only be destroyed or assigned to.
  std::string finish();
  std::uint64_t bytes() const { return bytes_; }

 private:
  void mix(const std::byte* block);

  std::array<std::uint32_t, 8> state_ = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                         0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<std::byte, 64> waiting_ = {};
  std::uint64_t bytes_ = 0;
};

}  // namespace weft
