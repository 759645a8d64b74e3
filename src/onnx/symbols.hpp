// Numbers of a model that depend on extents that may change.
#pragma once

#include <compare>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace weft::onnx {

/// A sum of products of at most two variables, with whole coefficients. Variables are the extents that may change, and quotients.
struct Polynomial {
  /// coefficient * v_a, or coefficient * v_a * v_b with a <= b.
  struct Term {
    int a = 0, b = -1;
    std::int64_t coefficient = 1;
    auto operator<=>(const Term&) const = default;
  };
  std::int64_t constant = 0;
  std::vector<Term> terms;

  /// Wraps around, as the numbers of a model do.
  std::int64_t at(std::span<const std::int64_t> variables) const;
  bool is_constant() const { return terms.empty(); }
  /// "2*batch + 1".
  std::string to_string(std::span<const std::string> names) const;
  auto operator<=>(const Polynomial&) const = default;
};

/// floor(numerator / divisor), such as the number of windows along an axis.
struct Quotient {
  Polynomial numerator;
  std::int64_t divisor = 1;

  std::int64_t at(std::span<const std::int64_t> variables) const;
  /// "floor((length + 1)/2)".
  std::string to_string(std::span<const std::string> names) const;
  /// Without whole multiples of the divisor, which are polynomials; what is left has no negative coefficients.
  Quotient remainder() const;
  auto operator<=>(const Quotient&) const = default;
};

}  // namespace weft::onnx
