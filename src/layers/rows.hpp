// Rows of numbers that a model gives, on the host.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <span>
#include <vector>

namespace weft::layers {

/// Divides each row of `width` numbers by its length, so that products of rows are cosines.
inline void normalize_rows(std::span<float> rows, std::size_t width) {
  for (std::size_t at = 0; at < rows.size(); at += width) {
    const std::span<float> row = rows.subspan(at, width);
    double squares = 0;
    for (const float each : row) squares += double{each} * double{each};
    const double length = std::max(std::sqrt(squares), 1e-12);
    for (float& each : row) each = static_cast<float>(each / length);
  }
}

/// The places of the `count` largest values in order, the first of equals first and NaNs last.
template <class T>
std::vector<std::size_t> places_of_largest(std::span<const T> values, std::size_t count) {
  std::vector<std::size_t> order(values.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  count = std::min(count, order.size());
  std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(count), order.end(),
                    [&](std::size_t a, std::size_t b) {
                      if (values[a] > values[b] || values[a] < values[b]) return values[a] > values[b];
                      const bool a_is_nan = std::isnan(values[a]), b_is_nan = std::isnan(values[b]);
                      return a_is_nan != b_is_nan ? b_is_nan : a < b;
                    });
  order.resize(count);
  return order;
}

}  // namespace weft::layers
