// Philox 4x32-10 (Salmon, Moraes, Dror, Shaw 2011): random words as a function of a key and a counter, so that any
// element of any stream can be drawn alone, in any order, on any machine.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace weft::philox {

using Key = std::array<std::uint32_t, 2>;
using Block = std::array<std::uint32_t, 4>;

/// Four random words for (key, counter).
constexpr Block block(Key key, Block counter) {
#pragma GCC unroll 10  // -O2 would not, and drawing the parameters of a model took 1.4 times as many instructions
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = std::uint64_t{0xD2511F53} * counter[0];
    const std::uint64_t b = std::uint64_t{0xCD9E8D57} * counter[2];
    counter = {static_cast<std::uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(b),
               static_cast<std::uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(a)};
    key = {key[0] + 0x9E3779B9, key[1] + 0xBB67AE85};
  }
  return counter;
}

/// The use of random words on the host. It is the last counter word, so that uses never share words with each other or with the
/// draws of tensors, which set it to 0.
enum class Use : std::uint32_t { parameters = 1, batches = 2, sampling = 3, data = 4, grids = 5 };

/// [0, 1) with 24 bits.
constexpr float to_unit_float(std::uint32_t word) { return static_cast<float>(word >> 8) * 0x1p-24f; }
/// [0, 1) with 53 bits.
constexpr double to_unit_double(std::uint32_t high, std::uint32_t low) {
  return static_cast<double>((std::uint64_t{high} << 32 | low) >> 11) * 0x1p-53;
}
/// [0, n) with a bias below n / 2^64.
constexpr std::uint64_t to_below(std::uint64_t n, std::uint32_t high, std::uint32_t low) {
  __extension__ using Wide = unsigned __int128;
  return static_cast<std::uint64_t>(static_cast<Wide>(std::uint64_t{high} << 32 | low) * n >> 64);
}

/// 64-bit FNV-1a, to turn names into stream numbers.
constexpr std::uint64_t stream_of(std::string_view name) {
  std::uint64_t hash = 0xcbf29ce484222325ull;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ull;
  return hash;
}

}  // namespace weft::philox
