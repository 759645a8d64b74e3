// Signals that the tests of sound share; make.py computes the same.
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>
#include <vector>

namespace weft::test {

/// A rising tone with some noise: x[t] = 0.5 sin(2 pi (200 s + 900 s^2)) + 0.01 u[t], s = t / rate, where u is a congruential generator's.
inline std::vector<float> chirp(std::size_t frames, double rate) {
  std::vector<float> x(frames);
  std::uint32_t state = 1;
  for (std::size_t t = 0; t < frames; ++t) {
    state = 1664525u * state + 1013904223u;
    const double s = static_cast<double>(t) / rate, u = static_cast<double>(state >> 8) / (1 << 23) - 1;
    x[t] = static_cast<float>(0.5 * std::sin(2 * std::numbers::pi * (200 * s + 900 * s * s)) + 0.01 * u);
  }
  return x;
}

inline std::vector<float> tone(std::size_t frames, double rate, double hz, double phase = 0.3) {
  std::vector<float> x(frames);
  for (std::size_t t = 0; t < frames; ++t)
    x[t] = static_cast<float>(0.5 * std::sin(2 * std::numbers::pi * hz * static_cast<double>(t) / rate + phase));
  return x;
}

}  // namespace weft::test
