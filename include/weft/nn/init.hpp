// Initial elements of parameters: drawn on the host, with the same bits on every device.
#pragma once

#include <cmath>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "weft/error.hpp"
#include "weft/shape.hpp"

namespace weft::nn {

/// An initialiser: a distribution and its two numbers.
struct Init {
  enum class Kind : std::uint8_t { constant, normal, uniform };
  Kind kind = Kind::constant;
  double a = 0;  // constant: the value; normal: the mean; uniform: the lower limit
  double b = 0;  // normal: the deviation; uniform: the upper limit

  static Init constant(double value) { return {Kind::constant, value, 0}; }
  static Init zeros() { return constant(0); }
  static Init ones() { return constant(1); }
  static Init normal(double deviation, double mean = 0) { return {Kind::normal, mean, deviation}; }
  static Init uniform(double low, double high) { return {Kind::uniform, low, high}; }
  /// Uniform in +-gain * sqrt(3 / fan_in), gain = sqrt(2 / (1 + slope^2)) for a leaky rectifier with this slope. The default
  /// slope sqrt(5) gives +-1/sqrt(fan_in). Source: He et al. 2015, arXiv:1502.01852.
  static Init kaiming_uniform(Extent fan_in, double slope = 2.23606797749979);
  /// Normal with deviation sqrt(2 / fan_in).
  static Init kaiming_normal(Extent fan_in);
  /// Uniform in +-sqrt(6 / (fan_in + fan_out)). Source: Glorot and Bengio 2010.
  static Init xavier_uniform(Extent fan_in, Extent fan_out);
};

/// `count` elements of `init` for the stream called `name` under `seed`: Philox words for (seed, name, element), the
/// normal distribution by Box-Muller in f64. Element i does not depend on `count` or on the number of threads.
std::vector<float> draw(const Init& init, Extent count, std::uint64_t seed, std::string_view name);
/// The same for all elements of `out`.
void draw_into(std::span<float> out, const Init& init, std::uint64_t seed, std::string_view name);

}  // namespace weft::nn
