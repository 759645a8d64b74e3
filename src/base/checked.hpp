// Arithmetic on sizes that throws instead of wrapping. `context` names the thing being sized and opens the message.
#pragma once

#include <fmt/format.h>

#include <concepts>
#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>

#include "weft/error.hpp"
#include "weft/shape.hpp"

namespace weft {

template <std::integral T>
constexpr std::optional<T> try_add(T a, T b) {
  T result{};
  return __builtin_add_overflow(a, b, &result) ? std::nullopt : std::optional<T>(result);
}
template <std::integral T>
constexpr std::optional<T> try_multiply(T a, T b) {
  T result{};
  return __builtin_mul_overflow(a, b, &result) ? std::nullopt : std::optional<T>(result);
}

/// a + b, or E when it does not fit T. E is FileError for sizes read from files, ShapeError for sizes that callers request.
template <class E = FileError, std::integral T>
T checked_add(T a, T b, std::string_view context) {
  if (const auto result = try_add(a, b)) return *result;
  throw E(fmt::format("{}: {} + {} overflows {} bits", context, a, b, 8 * sizeof(T)));
}
/// a * b, or E when it does not fit T.
template <class E = FileError, std::integral T>
T checked_multiply(T a, T b, std::string_view context) {
  if (const auto result = try_multiply(a, b)) return *result;
  throw E(fmt::format("{}: {} x {} overflows {} bits", context, a, b, 8 * sizeof(T)));
}
/// `value` as a To, or E when To cannot hold it.
template <std::integral To, class E = FileError, std::integral From>
To checked_cast(From value, std::string_view context) {
  if (std::in_range<To>(value)) return static_cast<To>(value);
  throw E(fmt::format("{}: {} is not in [{}, {}]", context, value, std::numeric_limits<To>::min(),
                      std::numeric_limits<To>::max()));
}
/// The smallest multiple of `alignment` (at least 1) that is not below `value`, or E when it does not fit T.
template <class E = FileError, std::unsigned_integral T>
T checked_align_up(T value, T alignment, std::string_view context) {
  const T rest = value % alignment;
  return rest == 0 ? value : checked_add<E, T>(value, alignment - rest, context);
}

/// Number of elements of `shape`, or E when an extent is negative or the product of the extents *other than 0*
/// overflows. Leaving zeros out makes the answer independent of their place: [0, huge, huge] and [huge, huge, 0] both
/// fail, since the strides of either overflow.
template <class E = FileError>
std::uint64_t checked_numel(const Shape& shape, std::string_view context) {
  std::int64_t product = 1;
  bool zero = false;
  for (const Extent extent : shape) {
    if (extent < 0)
      throw E(fmt::format("{}: extent {} of shape [{}] is negative", context, extent, fmt::join(shape, ", ")));
    if (extent == 0) {
      zero = true;
    } else if (const auto next = try_multiply<std::int64_t>(product, extent)) {
      product = *next;
    } else {
      throw E(
          fmt::format("{}: the number of elements of shape [{}] overflows 64 bits", context, fmt::join(shape, ", ")));
    }
  }
  return zero ? 0 : static_cast<std::uint64_t>(product);
}

}  // namespace weft
