// How exactly a device multiplies matrices of f32.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace weft {

/// How products of f32 (and of types that compute in f32) are computed where a device has matrix units for f16:
/// - exact: in f32.
/// - high: each operand is split into two halves of f16 and three products are added in f32.
/// - medium: each operand is rounded to f16.
/// Rows of the left operand and columns of the right one are first scaled by powers of two, so that no exponent of f32 is
/// too large or too small. With a_i the largest size in row i of A and b_j that in column j of B, the error of C[i, j] is at
/// most e * sum_k |A[i, k] B[k, j]| + 2^-36 * k * a_i * b_j beside the rounding of the sum in f32, where e is 2^-19 (high) or
/// 2^-9 (medium). A row or column that holds an infinity or NaN gives infinities or NaN.
/// Devices without such units, and products for which it would not be faster, stay exact.
enum class ProductPrecision : std::uint8_t { exact, high, medium };

constexpr std::string_view kProductPrecisions[] = {"exact", "high", "medium"};

constexpr std::string_view name_of(ProductPrecision precision) {
  return kProductPrecisions[static_cast<std::size_t>(precision)];
}
/// By name; nothing for another word.
constexpr std::optional<ProductPrecision> product_precision_of(std::string_view name) {
  for (std::uint8_t i = 0; i < 3; ++i)
    if (kProductPrecisions[i] == name) return static_cast<ProductPrecision>(i);
  return {};
}

}  // namespace weft
