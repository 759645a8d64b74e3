// A stream of random numbers on the host: the same seed and name give the same numbers on every machine.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/philox.hpp"

namespace weft::grid {

class RandomDraws {
 public:
  RandomDraws(std::uint64_t seed, std::string_view name)
      : key_{static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)},
        stream_(philox::stream_of(name)) {}

  /// [0, 1).
  double unit() {
    const philox::Block b = next();
    return philox::to_unit_double(b[0], b[1]);
  }
  double uniform(double low, double high) { return low + (high - low) * unit(); }
  /// [0, n).
  std::size_t below(std::size_t n) {
    const philox::Block b = next();
    return static_cast<std::size_t>(philox::to_below(n, b[0], b[1]));
  }
  bool chance(double probability) { return unit() < probability; }
  std::uint64_t word() {
    const philox::Block b = next();
    return std::uint64_t{b[0]} << 32 | b[1];
  }

 private:
  philox::Block next() {
    const auto low = static_cast<std::uint32_t>(stream_), high = static_cast<std::uint32_t>(stream_ >> 32);
    return philox::block(key_, {count_++, low, high, static_cast<std::uint32_t>(philox::Use::grids)});
  }
  philox::Key key_;
  std::uint64_t stream_;
  std::uint32_t count_ = 0;
};

}  // namespace weft::grid
