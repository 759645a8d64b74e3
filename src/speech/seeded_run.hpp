// A run of a model that draws random numbers itself.
#pragma once

#include <cstdint>

#include "weft/ops.hpp"

namespace weft::speech::detail {

/// Sets the generator of random numbers for a run, and sets it back.
class SeededRun {
 public:
  /// The generator takes 32 bits: sentences of a seed have neighbouring ones.
  SeededRun(std::uint64_t seed, std::uint32_t sentence) : before_(random_state().value().eval()) {
    manual_seed(static_cast<std::uint32_t>(seed ^ (seed >> 32)) + 0x9E3779B9u * sentence);
  }
  ~SeededRun() { random_state().assign(before_); }
  SeededRun(const SeededRun&) = delete;
  SeededRun& operator=(const SeededRun&) = delete;

 private:
  Tensor before_;
};

}  // namespace weft::speech::detail
