#include "backend/cpu/loop/accumulators.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "tensor/element.hpp"

namespace weft::cpu {
namespace {

double wrap(double value, DType type) {
  const auto bits = static_cast<std::uint32_t>(static_cast<std::int64_t>(value));
  return type == DType::i32 ? static_cast<double>(static_cast<std::int32_t>(bits)) : bits;
}

/// As `join`, for accumulators that hold bits.
template <class T>
void join_bits(const ReductionInfo& info, double* value, std::int64_t* position, double later,
               std::int64_t later_position) {
  using scalar::Reduction;
  const T a = std::bit_cast<T>(*value), b = std::bit_cast<T>(later);
  const auto x = static_cast<std::uint64_t>(a), y = static_cast<std::uint64_t>(b);
  T joined = a;
  switch (info.reduction) {
    case Reduction::sum: joined = static_cast<T>(x + y); break;
    case Reduction::prod: joined = static_cast<T>(x * y); break;
    case Reduction::max: joined = std::max(a, b); break;
    case Reduction::min: joined = std::min(a, b); break;
    case Reduction::argmax:
    case Reduction::argmin:
      if (later_position < 0) return;
      if (*position >= 0 && !(info.reduction == Reduction::argmax ? b > a : b < a)) return;
      joined = b;
      *position = later_position;
      break;
  }
  *value = std::bit_cast<double>(joined);
}

/// Joins an accumulator of a later part of the inner axis to that of an earlier one.
void join(const ReductionInfo& info, double* value, std::int64_t* position, double later, std::int64_t later_position) {
  using scalar::Reduction;
  if (carries_bits(info.from))
    return element(info.from).is_signed ? join_bits<std::int64_t>(info, value, position, later, later_position)
                                        : join_bits<std::uint64_t>(info, value, position, later, later_position);
  const bool number = is_float(info.from);
  switch (info.reduction) {
    case Reduction::sum:
      if (info.from == DType::boolean)
        *value = std::max(*value, later);
      else
        *value = number ? *value + later : wrap(*value + later, info.from);
      break;
    case Reduction::prod:
      if (number) {
        *value *= later;
      } else if (info.from == DType::boolean) {
        *value = std::min(*value, later);
      } else {
        const auto low = [](double x) { return static_cast<std::uint32_t>(static_cast<std::int64_t>(x)); };
        *value = wrap(static_cast<double>(low(*value) * low(later)), info.from);
      }
      break;
    default: break;
  }
}

/// As `join`, for argmax and argmin of numbers that accumulators hold.
template <bool is_largest>
void join_positions(std::size_t count, double* values, std::int64_t* positions, const double* later,
                    const std::int64_t* later_positions) {
  for (std::size_t o = 0; o < count; ++o) {
    const double x = later[o], than = values[o];
    if (later_positions[o] < 0) continue;
    if (positions[o] >= 0 && !(than == than && (x != x || (is_largest ? x > than : x < than)))) continue;
    values[o] = x, positions[o] = later_positions[o];
  }
}

}  // namespace

bool carries_bits(DType type) { return is_integer(type) && size_bytes(type) == 8; }

double empty_value(scalar::Reduction reduction, DType type) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  using scalar::Reduction;
  if (carries_bits(type)) {
    const bool is_signed = element(type).is_signed;
    std::uint64_t bits = 0;
    if (reduction == Reduction::prod) bits = 1;
    if (reduction == Reduction::max && is_signed) bits = std::uint64_t{1} << 63;
    if (reduction == Reduction::min) bits = is_signed ? ~std::uint64_t{0} >> 1 : ~std::uint64_t{0};
    return std::bit_cast<double>(bits);
  }
  switch (reduction) {
    case Reduction::prod: return 1;
    case Reduction::max: return is_float(type) ? -kInfinity : element(type).lowest;
    case Reduction::min: return is_float(type) ? kInfinity : element(type).highest;
    default: return 0;
  }
}

void join_accumulators(const ReductionInfo& info, std::size_t count, double* values, std::int64_t* positions,
                       const double* later, const std::int64_t* later_positions, Extent count_before,
                       Extent count_later) {
  if (info.is_squares) {
    const auto before = static_cast<double>(count_before), after = static_cast<double>(count_later);
    for (std::size_t o = 0; o < count; ++o) {
      const double mean = std::bit_cast<double>(positions[o]);
      const double apart = std::bit_cast<double>(later_positions[o]) - mean;
      values[o] += later[o] + apart * apart * (before * after / (before + after));
      positions[o] = std::bit_cast<std::int64_t>(mean + apart * (after / (before + after)));
    }
    return;
  }
  using scalar::Reduction;
  const auto with = [&](scalar::Op op) {
    TileCall call;
    call.out = values;
    call.fast = static_cast<Extent>(count);
    call.args[0].data = values;
    call.args[1].data = later;
    tile_table().map[static_cast<std::size_t>(op)][static_cast<std::size_t>(DType::f64)](call);
  };
  if (!carries_bits(info.from)) {
    switch (info.reduction) {
      case Reduction::sum:
        if (is_float(info.from)) return with(scalar::Op::add);
        break;
      case Reduction::max: return with(scalar::Op::max);
      case Reduction::min: return with(scalar::Op::min);
      case Reduction::argmax: return join_positions<true>(count, values, positions, later, later_positions);
      case Reduction::argmin: return join_positions<false>(count, values, positions, later, later_positions);
      case Reduction::prod: break;
    }
  }
  for (std::size_t o = 0; o < count; ++o) join(info, values + o, positions + o, later[o], later_positions[o]);
}

}  // namespace weft::cpu
