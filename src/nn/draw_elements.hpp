// Elements of distributions from random words, many at a time.
#pragma once

#include <cstdint>
#include <span>

namespace weft::nn {

/// Uniform between two limits: low + (high - low) u for u in [0, 1) of 24 bits. One element of each word.
void uniform_elements(std::span<const std::uint32_t> words, double low, double high, float* out);

/// Normal, by the method of Box and Muller (1958): words 2i and 2i + 1 give elements 2i and 2i + 1,
/// mean + deviation sqrt(-2 ln((w + 1/2) / 2^32)) cos or sin(2 pi v / 2^32) for the words w and v. Computed in f64 by additions,
/// multiplications, divisions and square roots alone, so that every machine gives the same bits. `words`: an even number.
void normal_elements(std::span<const std::uint32_t> words, double mean, double deviation, float* out);

}  // namespace weft::nn
