// Extents of a model that may change, and numbers that depend on them.
//
// An export with changing extents traces the function at several points, each of which gives every symbol an extent. A number
// that differs between the traces must be a polynomial of the symbols, of degree two at most: the points determine it, and
// further points confirm it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "weft/shape.hpp"

namespace weft::onnx {

/// constant + sum linear[k] s_k + sum square[j][k] s_j s_k over j <= k, with whole coefficients.
struct Polynomial {
  std::int64_t constant = 0;
  std::vector<std::int64_t> linear;
  std::vector<std::vector<std::int64_t>> square;  // square[j][k - j]

  std::int64_t at(std::span<const Extent> symbols) const;
  bool is_constant() const;
  /// "2*batch + 1".
  std::string to_string(std::span<const std::string> names) const;
  auto operator<=>(const Polynomial&) const = default;
};

/// Points that determine a polynomial, and some that confirm it.
struct TracePoints {
  std::vector<std::vector<Extent>> at;  // of each point: the extents of the symbols
  std::size_t symbols = 0;
  Extent step = 1;  // between neighbours: 1 or -1

  /// From `base` on in steps of one, upwards or downwards.
  static TracePoints from(const std::vector<Extent>& base, Extent step);
  Polynomial constant(std::int64_t value) const;
  /// The polynomial with these values at the points, if there is one.
  std::optional<Polynomial> polynomial(std::span<const std::int64_t> values) const;
  /// "batch = 4, length = 7".
  std::string to_string(std::size_t point, std::span<const std::string> names) const;
};

}  // namespace weft::onnx
