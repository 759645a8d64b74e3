// The tile kernels of one instruction set; see tile.hpp. A row is processed in whole vectors and one partial vector with the
// same formula, so a value depends neither on its place nor on the length of its row.
#pragma once

#include <cstring>

#include "backend/cpu/loop/tile.hpp"
#include "backend/cpu/vector_math.inc.hpp"

namespace weft::cpu {
namespace {

using Byte = std::uint8_t;  // a bool: 0 or 1
using scalar::Op;
using scalar::Reduction;

/// The rows of one source, as vectors of N.
template <class T, int N>
struct Reader {
  const T* data = nullptr;
  std::int64_t step = N;
  alignas(64) T constant[N];

  void open(const TileArg& arg, std::int64_t slow) {
    data = reinterpret_cast<const T*>(static_cast<const char*>(arg.data) + slow * arg.slow_stride);
    if (!arg.broadcast) return;
    store<N>(constant, splat<N>(*data));
    data = constant;
    step = 0;
  }
  V<T, N> whole(std::int64_t vector) const { return load<N>(data + vector * step); }
  V<T, N> part(std::int64_t vector, std::int64_t count) const {
    return step == 0 ? load<N>(data) : load_first<N>(data + vector * step, count);
  }
};

template <class... T>
constexpr int kLanesOf = kVectorBytes / static_cast<int>([] {
                           std::size_t most = 1;
                           ((most = sizeof(T) > most ? sizeof(T) : most), ...);
                           return most;
                         }());

/// Rows of `out` from rows of the arguments, each read at a pointer that moves by `step` elements a vector: N, or 0 for
/// one that is constant along the row, which is in `constants`.
template <class R, class... A, class Function, int... i>
inline void run_rows(const TileCall& call, Function function, std::integer_sequence<int, i...>) {
  constexpr int N = kLanesOf<R, A...>;
  const std::int64_t vectors = call.fast / N, rest = call.fast % N;
  alignas(64) char constants[sizeof...(A)][64];
  for (std::int64_t s = 0; s < call.slow; ++s) {
    const char* at[] = {static_cast<const char*>(call.args[i].data) + s * call.args[i].slow_stride...};
    std::int64_t step[] = {static_cast<std::int64_t>(N * sizeof(A))...};
    const auto open = [&]<class T>(int k, T) {
      if (!call.args[k].broadcast) return;
      store<N>(reinterpret_cast<T*>(constants[k]), splat<N>(*reinterpret_cast<const T*>(at[k])));
      at[k] = constants[k];
      step[k] = 0;
    };
    (open(i, A{}), ...);
    R* out = reinterpret_cast<R*>(static_cast<char*>(call.out) + s * call.out_stride);
    std::int64_t v = 0;
    for (; v + 2 <= vectors; v += 2, out += 2 * N) {
      const auto first = function(load<N>(reinterpret_cast<const A*>(at[i]))...);
      const auto second = function(load<N>(reinterpret_cast<const A*>(at[i] + step[i]))...);
      store<N>(out, (V<R, N>)first);
      store<N>(out + N, (V<R, N>)second);
      ((at[i] += 2 * step[i]), ...);
    }
    if (v < vectors) {
      store<N>(out, (V<R, N>)function(load<N>(reinterpret_cast<const A*>(at[i]))...));
      ((at[i] += step[i]), ...);
      out += N;
    }
    if (rest != 0) {
      const auto part = [&]<class T>(int k, T) {
        const T* data = reinterpret_cast<const T*>(at[k]);
        return step[k] == 0 ? load<N>(data) : load_first<N>(data, rest);
      };
      store_first<N>(out, (V<R, N>)function(part(i, A{})...), rest);
    }
  }
}

/// The tile kernel that gives R from operands of types A by a function of vectors.
template <class R, class... A, class Function>
constexpr TileFunction tile(Function) {
  return [](const TileCall& call) {
    run_rows<R, A...>(call, Function{}, std::make_integer_sequence<int, sizeof...(A)>());
  };
}

template <int bytes>
using Signed = std::conditional_t<
    bytes == 8, std::int64_t,
    std::conditional_t<bytes == 4, std::int32_t, std::conditional_t<bytes == 2, std::int16_t, std::int8_t>>>;
template <class T>
using Mask = V<Signed<static_cast<int>(sizeof(T))>, kVectorBytes / static_cast<int>(sizeof(T))>;
template <class T>
constexpr int kNative = kVectorBytes / static_cast<int>(sizeof(T));
template <class T>
using Native = V<T, kNative<T>>;

/// A comparison's result as bools, and bools as a mask for T.
template <class T>
inline V<Byte, kNative<T>> to_bools(Mask<T> mask) {
  return (V<Byte, kNative<T>>)__builtin_convertvector(mask, V<std::int8_t, kNative<T>>) & 1;
}
template <class T>
inline Mask<T> to_mask(V<Byte, kNative<T>> bools) {
  return __builtin_convertvector(bools, Mask<T>) != 0;
}

template <class X>
constexpr bool kIsFloat = std::is_floating_point_v<std::remove_cvref_t<decltype(X{}[0])>>;

/// The larger or smaller; a NaN in either wins.
template <class X>
inline X max_nan(X a, X b) {
#if defined(__AVX512F__)
  if constexpr (std::is_same_v<X, F>) return _mm512_mask_max_ps(b, _mm512_cmp_ps_mask(b, b, _CMP_ORD_Q), b, a);
  if constexpr (std::is_same_v<X, D>) return _mm512_mask_max_pd(b, _mm512_cmp_pd_mask(b, b, _CMP_ORD_Q), b, a);
#endif
  if constexpr (kIsFloat<X> && sizeof(X) == kVectorBytes)
    return b != b ? b : greater(b, a);
  else
    return (b > a) | (b != b) ? b : a;
}
template <class X>
inline X min_nan(X a, X b) {
#if defined(__AVX512F__)
  if constexpr (std::is_same_v<X, F>) return _mm512_mask_min_ps(b, _mm512_cmp_ps_mask(b, b, _CMP_ORD_Q), b, a);
  if constexpr (std::is_same_v<X, D>) return _mm512_mask_min_pd(b, _mm512_cmp_pd_mask(b, b, _CMP_ORD_Q), b, a);
#endif
  if constexpr (kIsFloat<X> && sizeof(X) == kVectorBytes)
    return b != b ? b : lesser(b, a);
  else
    return (b < a) | (b != b) ? b : a;
}

constexpr int at(DType type) { return static_cast<int>(type); }
template <class T>
constexpr int kIndexOf = at(std::is_same_v<T, Byte> ? DType::boolean : dtype_of<T>);

constexpr int at(Op op) { return static_cast<int>(op); }

/// The signed integers of T's width. Where only bits matter, T has their kernels, so that each is compiled once.
template <class T>
using Bits = Signed<static_cast<int>(sizeof(T))>;
template <class T>
constexpr bool kIsInteger = std::is_integral_v<T> && !std::is_same_v<T, Byte>;
template <class T>
using Equal = std::conditional_t<kIsInteger<T>, Bits<T>, T>;  // == and sums that wrap know no sign

template <class T>
void fill_equal(TileTable& table, int t) {
  using X = Native<T>;
  table.map[at(Op::eq)][t] = tile<Byte, T, T>([](X a, X b) { return to_bools<T>(a == b); });
  table.map[at(Op::ne)][t] = tile<Byte, T, T>([](X a, X b) { return to_bools<T>(a != b); });
}
template <class T>
void fill_select(TileTable& table, int t) {
  using X = Native<T>;
  table.map[at(Op::select)][t] =
      tile<T, Byte, T, T>([](V<Byte, kNative<T>> c, X a, X b) { return to_mask<T>(c) ? a : b; });
}
template <class T>
void fill_comparisons(TileTable& table) {
  fill_equal<Equal<T>>(table, kIndexOf<T>);
  fill_select<Bits<T>>(table, kIndexOf<T>);
  constexpr int t = kIndexOf<T>;
  using X = Native<T>;
  table.map[at(Op::lt)][t] = tile<Byte, T, T>([](X a, X b) { return to_bools<T>(a < b); });
  table.map[at(Op::le)][t] = tile<Byte, T, T>([](X a, X b) { return to_bools<T>(a <= b); });
  table.map[at(Op::gt)][t] = tile<Byte, T, T>([](X a, X b) { return to_bools<T>(a > b); });
  table.map[at(Op::ge)][t] = tile<Byte, T, T>([](X a, X b) { return to_bools<T>(a >= b); });
}

template <class T>
void fill_float(TileTable& table) {
  constexpr int t = kIndexOf<T>;
  using X = Native<T>;
  const auto unary = [&]<class Function>(Op op, Function f) { table.map[at(op)][t] = tile<T, T>(f); };
  const auto binary = [&]<class Function>(Op op, Function f) { table.map[at(op)][t] = tile<T, T, T>(f); };
  unary(Op::neg, [](X x) { return -x; });
  unary(Op::abs, [](X x) { return abs(x); });
  unary(Op::sign, [](X x) { return x > T{0} ? splat(T{1}) : x < T{0} ? splat(T{-1}) : x; });
  unary(Op::floor, [](X x) { return floor(x); });
  unary(Op::ceil, [](X x) { return ceil(x); });
  unary(Op::round, [](X x) { return round_even(x); });
  unary(Op::trunc, [](X x) { return trunc(x); });
  unary(Op::sqrt, [](X x) { return sqrt(x); });
  unary(Op::rsqrt, [](X x) { return T{1} / sqrt(x); });
  unary(Op::exp, [](X x) { return exp(x); });
  unary(Op::exp2, [](X x) { return exp2(x); });
  unary(Op::expm1, [](X x) { return expm1(x); });
  unary(Op::log, [](X x) { return log(x); });
  unary(Op::log2, [](X x) { return log2(x); });
  unary(Op::log10, [](X x) { return log10(x); });
  unary(Op::log1p, [](X x) { return log1p(x); });
  unary(Op::sin, [](X x) { return sin(x); });
  unary(Op::cos, [](X x) { return cos(x); });
  unary(Op::tan, [](X x) { return tan(x); });
  unary(Op::asin, [](X x) { return asin(x); });
  unary(Op::acos, [](X x) { return acos(x); });
  unary(Op::atan, [](X x) { return atan(x); });
  unary(Op::sinh, [](X x) { return sinh(x); });
  unary(Op::cosh, [](X x) { return cosh(x); });
  unary(Op::tanh, [](X x) { return tanh(x); });
  unary(Op::asinh, [](X x) { return asinh(x); });
  unary(Op::acosh, [](X x) { return acosh(x); });
  unary(Op::atanh, [](X x) { return atanh(x); });
  unary(Op::erf, [](X x) { return erf(x); });
  table.map[at(Op::is_nan)][t] = tile<Byte, T>([](X x) { return to_bools<T>(x != x); });

  binary(Op::add, [](X a, X b) { return a + b; });
  binary(Op::sub, [](X a, X b) { return a - b; });
  binary(Op::mul, [](X a, X b) { return a * b; });
  binary(Op::div, [](X a, X b) { return a / b; });
  binary(Op::rem, [](X a, X b) { return rem(a, b); });
  binary(Op::pow, [](X a, X b) { return pow(a, b); });
  binary(Op::atan2, [](X a, X b) { return atan2(a, b); });
  binary(Op::min, [](X a, X b) { return min_nan(a, b); });
  binary(Op::max, [](X a, X b) { return max_nan(a, b); });
  binary(Op::copysign, [](X a, X b) { return copysign(a, b); });

  table.mul_add[t] = tile<T, T, T, T>([](X a, X b, X c) { return fma(a, b, c); });
  table.mul_sub[t] = tile<T, T, T, T>([](X a, X b, X c) { return fma(a, b, -c); });
  table.sub_mul[t] = tile<T, T, T, T>([](X a, X b, X c) { return fma(-a, b, c); });
  const auto choose = [&]<class Function>(Op op, Function f) {
    table.compare_select[at(op)][t] = tile<T, T, T, T, T>(f);
  };
  choose(Op::eq, [](X a, X b, X c, X d) { return a == b ? c : d; });
  choose(Op::ne, [](X a, X b, X c, X d) { return a != b ? c : d; });
  choose(Op::lt, [](X a, X b, X c, X d) { return a < b ? c : d; });
  choose(Op::le, [](X a, X b, X c, X d) { return a <= b ? c : d; });
  choose(Op::gt, [](X a, X b, X c, X d) { return a > b ? c : d; });
  choose(Op::ge, [](X a, X b, X c, X d) { return a >= b ? c : d; });
}

/// Without hardware for it, division goes lane by lane; by zero it gives the dividend, with remainder 0, and the smallest
/// number over -1 wraps.
template <class X>
using Lane = std::remove_cvref_t<decltype(X{}[0])>;
template <class X>
constexpr int kLanes = static_cast<int>(sizeof(X) / sizeof(Lane<X>));
template <class X>
inline X divide_lanes(X a, X b) {
  using T = Lane<X>;
  for (int i = 0; i < kLanes<X>; ++i) {
    if constexpr (std::is_signed_v<T>)
      a[i] = b[i] == 0    ? a[i]
             : b[i] == -1 ? static_cast<T>(0 - static_cast<std::make_unsigned_t<T>>(a[i]))
                          : a[i] / b[i];
    else
      a[i] = b[i] == 0 ? a[i] : a[i] / b[i];
  }
  return a;
}
template <class X>
inline X remainder_lanes(X a, X b) {
  using T = Lane<X>;
  for (int i = 0; i < kLanes<X>; ++i) {
    if constexpr (std::is_signed_v<T>)
      a[i] = b[i] == 0 || b[i] == -1 ? 0 : a[i] % b[i];
    else
      a[i] = b[i] == 0 ? 0 : a[i] % b[i];
  }
  return a;
}
template <class X>
inline X power_lanes(X a, X b) {
  using T = Lane<X>;
  using Wrapping = std::make_unsigned_t<T>;
  for (int i = 0; i < kLanes<X>; ++i) {
    T exponent = b[i];
    Wrapping result = 1, base = static_cast<Wrapping>(a[i]);
    if (exponent < 0)
      result = base == 1 || (base == Wrapping(~Wrapping{0}) && exponent % 2 == 0) ? 1
               : base == Wrapping(~Wrapping{0})                                   ? base
                                                                                  : 0;
    for (; exponent > 0; exponent /= 2, base *= base)
      if (exponent % 2 != 0) result *= base;
    a[i] = static_cast<T>(result);
  }
  return a;
}

/// Operations on the bits of T, which is signed, for it and for the unsigned type of its width.
template <class T>
void fill_wrapping(TileTable& table, int t) {
  using X = Native<T>;
  using W = Native<std::make_unsigned_t<T>>;  // signed lanes may not overflow
  constexpr auto kPlaces = static_cast<std::make_unsigned_t<T>>(8 * sizeof(T) - 1);
  const auto unary = [&]<class Function>(Op op, Function f) { table.map[at(op)][t] = tile<T, T>(f); };
  const auto binary = [&]<class Function>(Op op, Function f) { table.map[at(op)][t] = tile<T, T, T>(f); };
  unary(Op::neg, [](X x) { return (X) - (W)x; });
  unary(Op::bit_not, [](X x) { return ~x; });
  for (const Op same : {Op::floor, Op::ceil, Op::round, Op::trunc}) unary(same, [](X x) { return x; });
  table.map[at(Op::is_nan)][t] = tile<Byte, T>([](X x) { return to_bools<T>(x != x); });
  binary(Op::add, [](X a, X b) { return (X)((W)a + (W)b); });
  binary(Op::sub, [](X a, X b) { return (X)((W)a - (W)b); });
  binary(Op::mul, [](X a, X b) { return (X)((W)a * (W)b); });
  binary(Op::bit_and, [](X a, X b) { return a & b; });
  binary(Op::bit_or, [](X a, X b) { return a | b; });
  binary(Op::bit_xor, [](X a, X b) { return a ^ b; });
  binary(Op::shl, [](X a, X b) { return (X)((W)a << ((W)b & kPlaces)); });
}

template <class T>
void fill_integer(TileTable& table) {
  fill_wrapping<Bits<T>>(table, kIndexOf<T>);
  constexpr int t = kIndexOf<T>;
  using X = Native<T>;
  using W = Native<std::make_unsigned_t<T>>;
  constexpr auto kPlaces = static_cast<std::make_unsigned_t<T>>(8 * sizeof(T) - 1);
  const auto unary = [&]<class Function>(Op op, Function f) { table.map[at(op)][t] = tile<T, T>(f); };
  const auto binary = [&]<class Function>(Op op, Function f) { table.map[at(op)][t] = tile<T, T, T>(f); };
  unary(Op::abs, [](X x) { return std::is_signed_v<T> ? (X)(x < T{0} ? -(W)x : (W)x) : x; });
  unary(Op::sign, [](X x) { return (X)((W)(x != T{0}) & ((W)(x < T{0}) | std::make_unsigned_t<T>{1})); });
  binary(Op::div, [](X a, X b) { return divide_lanes(a, b); });
  binary(Op::rem, [](X a, X b) { return remainder_lanes(a, b); });
  binary(Op::pow, [](X a, X b) { return power_lanes(a, b); });
  binary(Op::min, [](X a, X b) { return b < a ? b : a; });
  binary(Op::max, [](X a, X b) { return b > a ? b : a; });
  binary(Op::shr, [](X a, X b) { return (X)(a >> (X)((W)b & kPlaces)); });
}

void fill_bool(TileTable& table) {
  constexpr int t = kIndexOf<Byte>;
  using X = Native<Byte>;
  const auto binary = [&]<class Function>(Op op, Function f) { table.map[at(op)][t] = tile<Byte, Byte, Byte>(f); };
  for (const Op op : {Op::logical_and, Op::bit_and, Op::mul, Op::min}) binary(op, [](X a, X b) { return a & b; });
  for (const Op op : {Op::logical_or, Op::bit_or, Op::add, Op::max}) binary(op, [](X a, X b) { return a | b; });
  binary(Op::bit_xor, [](X a, X b) { return a ^ b; });
  for (const Op op : {Op::logical_not, Op::bit_not}) table.map[at(op)][t] = tile<Byte, Byte>([](X a) { return a ^ 1; });
  table.map[at(Op::is_nan)][t] = tile<Byte, Byte>([](X a) { return a ^ a; });
  for (const Op op : {Op::abs, Op::sign}) table.map[at(op)][t] = tile<Byte, Byte>([](X a) { return a; });
}

/// The high and the low half of a 32 by 32 bit product.
inline U multiply_high(U a, std::uint32_t factor) {
#if defined(__AVX512F__)
  const __m512i k = _mm512_set1_epi32(static_cast<int>(factor));
  const __m512i even = _mm512_srli_epi64(_mm512_mul_epu32((__m512i)a, k), 32);
  const __m512i odd = _mm512_mul_epu32(_mm512_srli_epi64((__m512i)a, 32), k);
  return (U)_mm512_mask_blend_epi32(0xaaaa, even, odd);
#elif defined(__AVX2__)
  const __m256i k = _mm256_set1_epi32(static_cast<int>(factor));
  const __m256i even = _mm256_srli_epi64(_mm256_mul_epu32((__m256i)a, k), 32);
  const __m256i odd = _mm256_mul_epu32(_mm256_srli_epi64((__m256i)a, 32), k);
  return (U)_mm256_blend_epi32(even, odd, 0xaa);
#elif defined(__aarch64__)
  const uint64x2_t low = vmull_n_u32(vget_low_u32(a), factor), high = vmull_high_n_u32(a, factor);
  return vuzp2q_u32(vreinterpretq_u32_u64(low), vreinterpretq_u32_u64(high));
#else
  for (int i = 0; i < kFloats; ++i) a[i] = static_cast<std::uint32_t>((std::uint64_t{a[i]} * factor) >> 32);
  return a;
#endif
}

/// Philox 4x32-10 of key (seed, stream) and counter (index, 0, 0, 0): the first word.
inline U philox(U seed, U stream, U index) {
  U c0 = index, c1 = {}, c2 = {}, c3 = {};
  for (int round = 0; round < 10; ++round) {
    const U high0 = multiply_high(c0, 0xD2511F53u), low0 = c0 * 0xD2511F53u;
    const U high1 = multiply_high(c2, 0xCD9E8D57u), low1 = c2 * 0xCD9E8D57u;
    c0 = high1 ^ c1 ^ seed;
    c1 = low1;
    c2 = high0 ^ c3 ^ stream;
    c3 = low0;
    seed += 0x9E3779B9u;
    stream += 0xBB67AE85u;
  }
  return c0;
}

template <class To, class From>
inline To cast_lane(From x) {
  const double d = static_cast<double>(x);
  if constexpr (sizeof(To) == 4) {
    constexpr double low = std::is_signed_v<To> ? -2147483648.0 : 0.0,
                     high = std::is_signed_v<To> ? 2147483647.0 : 4294967295.0;
    const double inside = d > low ? (d < high ? d : high) : low;
    return d != d ? To{0} : static_cast<To>(static_cast<std::int64_t>(inside));
  } else {
    constexpr double low = std::is_signed_v<To> ? -0x1p63 : 0.0, beyond = std::is_signed_v<To> ? 0x1p63 : 0x1p64;
    if (d != d) return 0;
    if (d >= beyond) return std::is_signed_v<To> ? static_cast<To>(INT64_MAX) : static_cast<To>(UINT64_MAX);
    return d <= low ? static_cast<To>(low) : static_cast<To>(d);
  }
}
template <class To, class From>
constexpr TileFunction cast_kernel() {
  constexpr int N = kLanesOf<To, From>;
  if constexpr (std::is_same_v<To, From>) {
    return tile<To, From>([](V<From, N> x) { return x; });
  } else if constexpr (std::is_same_v<To, Byte> && !std::is_same_v<From, Byte>) {
    return tile<To, From>([](V<From, N> x) { return to_bools<From>(x != From{0}); });
  } else if constexpr (sizeof(To) == sizeof(From) && std::is_integral_v<To> && std::is_integral_v<From>) {
    return tile<To, From>([](V<From, N> x) { return (V<To, N>)x; });
  } else if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To>) {
    return tile<To, From>([](V<From, N> x) {
      if constexpr (sizeof(To) == 8) {
        constexpr int n = kLanesOf<To, From>;  // Clang would capture N
        To lanes[n];                           // a vector filled lane by lane makes GCC 12 give up
        for (int i = 0; i < n; ++i) lanes[i] = cast_lane<To>(x[i]);
        return load<n>(lanes);
      } else {
        V<To, N> y;
        for (int i = 0; i < N; ++i) y[i] = cast_lane<To>(x[i]);
        return y;
      }
    });
  } else {
    return tile<To, From>([](V<From, N> x) { return __builtin_convertvector(x, V<To, N>); });
  }
}
/// Integers that become integers keep their low bits, and the sign of a number that gets no wider does not matter.
template <class To, class From>
void fill_cast(TileTable& table) {
  using Result = std::conditional_t<std::is_integral_v<From>, Equal<To>, To>;
  using Operand = std::conditional_t<std::is_integral_v<To> && sizeof(To) <= sizeof(From), Equal<From>, From>;
  TileFunction& slot = table.cast[kIndexOf<From>][kIndexOf<To>];
  if constexpr (std::is_same_v<To, From>)
    slot = cast_kernel<Bits<To>, Bits<To>>();
  else
    slot = cast_kernel<Result, Operand>();
}
template <class From>
void fill_casts(TileTable& table) {
  fill_cast<float, From>(table);
  fill_cast<double, From>(table);
  fill_cast<std::int32_t, From>(table);
  fill_cast<std::uint32_t, From>(table);
  fill_cast<std::int64_t, From>(table);
  fill_cast<std::uint64_t, From>(table);
  fill_cast<Byte, From>(table);
}

/// Copies rows, bypassing the caches. The caller must fence.
template <class T>
void stream_rows(const TileCall& call) {
  for (std::int64_t s = 0; s < call.slow; ++s) {
    Reader<T, kNative<T>> reader;
    reader.open(call.args[0], s);
    T* out = reinterpret_cast<T*>(static_cast<char*>(call.out) + s * call.out_stride);
    std::int64_t i = 0;
    const auto unaligned =
        static_cast<std::int64_t>((0 - reinterpret_cast<std::uintptr_t>(out)) % kVectorBytes / sizeof(T));
    const std::int64_t head = unaligned < call.fast ? unaligned : call.fast;
    for (; i < head; ++i) out[i] = reader.step == 0 ? reader.constant[0] : reader.data[i];
    for (; i + kNative<T> <= call.fast; i += kNative<T>) {
      const auto v = load<kNative<T>>(reader.step == 0 ? reader.data : reader.data + i);
#if defined(__AVX512F__)
      _mm512_stream_si512(reinterpret_cast<__m512i*>(out + i), (__m512i)v);
#elif defined(__AVX2__)
      _mm256_stream_si256(reinterpret_cast<__m256i*>(out + i), (__m256i)v);
#elif defined(__SSE2__)
      _mm_stream_si128(reinterpret_cast<__m128i*>(out + i), (__m128i)v);
#else
      store<kNative<T>>(out + i, v);
#endif
    }
    for (; i < call.fast; ++i) out[i] = reader.step == 0 ? reader.constant[0] : reader.data[i];
  }
}

#if defined(__AVX512F__)
/// Loads one by one: a gather instruction takes twice as long. Indices are read two at a time, because a core reads few words in a
/// cycle.
inline __m512i sixteen_words(const std::uint32_t* row, const std::uint32_t* at) {
  const auto four = [&](int k) {
    std::uint64_t two[2];
    std::memcpy(two, at + k, sizeof(two));
    __m128i x = _mm_cvtsi32_si128(static_cast<int>(row[static_cast<std::uint32_t>(two[0])]));
    x = _mm_insert_epi32(x, static_cast<int>(row[two[0] >> 32]), 1);
    x = _mm_insert_epi32(x, static_cast<int>(row[static_cast<std::uint32_t>(two[1])]), 2);
    return _mm_insert_epi32(x, static_cast<int>(row[two[1] >> 32]), 3);
  };
  const __m256i low = _mm256_inserti128_si256(_mm256_castsi128_si256(four(0)), four(4), 1);
  const __m256i high = _mm256_inserti128_si256(_mm256_castsi128_si256(four(8)), four(12), 1);
  return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
}
#endif

/// Requests go out between the elements, so that they do not wait for each other.
void take_words(const TakeCall& call) {
  constexpr std::int64_t kPiece = 16, kAhead = kStreamAhead / sizeof(std::uint32_t);
  const std::int64_t share = call.next_bytes * kPiece / (call.count > kPiece ? call.count : kPiece);
  std::int64_t i = 0, asked = 0;
#if defined(__AVX512F__)
  const bool streams = call.streams && reinterpret_cast<std::uintptr_t>(call.to) % 64 == 0;
  const __m512i extent = _mm512_set1_epi32(static_cast<int>(call.extent));
#endif
  for (std::int64_t due = share; i + kPiece <= call.count; i += kPiece, due += share) {
    for (; asked < due; asked += 64) __builtin_prefetch(call.next + asked, 0, 2);
    __builtin_prefetch(call.indices + i + kAhead, 0, 2);
#if defined(__AVX512F__)
    const __m512i at = _mm512_loadu_si512(call.indices + i);
    const __mmask16 inside = _mm512_cmplt_epu32_mask(at, extent);
    const __m512i taken = inside == 0xffff
                              ? sixteen_words(call.row, call.indices + i)
                              : _mm512_mask_i32gather_epi32(_mm512_setzero_si512(), inside, at, call.row, 4);
    if (streams)
      _mm512_stream_si512(reinterpret_cast<__m512i*>(call.to + i), taken);
    else
      _mm512_storeu_si512(call.to + i, taken);
#else
    for (std::int64_t k = i; k < i + kPiece; ++k)
      call.to[k] = call.indices[k] < call.extent ? call.row[call.indices[k]] : 0;
#endif
  }
  for (; asked < call.next_bytes; asked += 64) __builtin_prefetch(call.next + asked, 0, 2);
  for (; i < call.count; ++i) call.to[i] = call.indices[i] < call.extent ? call.row[call.indices[i]] : 0;
}

// Reductions. A combination works on vectors within a tile and on doubles between tiles. Integers of 64 bits do not fit a
// double; there they are carried as their bits. Every other value, and every sum of 32-bit integers after wrapping, is exact.

template <class T>
constexpr bool kCarriesBits = std::is_integral_v<T> && sizeof(T) == 8;
template <class T>
inline double carried(T x) {
  if constexpr (kCarriesBits<T>)
    return __builtin_bit_cast(double, x);
  else
    return static_cast<double>(x);
}
template <class T>
using Held = std::conditional_t<kCarriesBits<T>, T, double>;
/// The type of an accumulator for a reduction of T.
template <class T>
inline Held<T> held(double accumulator) {
  return __builtin_bit_cast(Held<T>, accumulator);
}

template <Reduction reduction, class X>
inline X combine(X a, X b) {
  constexpr bool overflows = reduction == Reduction::sum || reduction == Reduction::prod;
  using T = Lane<X>;
  if constexpr (overflows && std::is_integral_v<T> && std::is_signed_v<T>) {
    using Wrapping = V<std::make_unsigned_t<T>, kLanes<X>>;  // signed lanes may not overflow
    return (X)combine<reduction>((Wrapping)a, (Wrapping)b);
  }
  if constexpr (reduction == Reduction::sum) return a + b;
  if constexpr (reduction == Reduction::prod) return a * b;
  if constexpr (reduction == Reduction::max) return max_nan(a, b);
  return min_nan(a, b);
}
template <Reduction reduction>
inline double combine_scalar(double a, double b) {
  if constexpr (reduction == Reduction::sum) return a + b;
  if constexpr (reduction == Reduction::prod) return a * b;
  if constexpr (reduction == Reduction::max) return a != a || !(b > a || b != b) ? a : b;
  return a != a || !(b < a || b != b) ? a : b;
}
/// Joins a tile's result to the accumulator.
template <Reduction reduction, class T>
inline double join(double accumulator, double value) {
  if constexpr (kCarriesBits<T>) {
    const T a = held<T>(accumulator), b = held<T>(value);
    if constexpr (reduction == Reduction::max) return carried(b > a ? b : a);
    if constexpr (reduction == Reduction::min) return carried(b < a ? b : a);
    const auto x = static_cast<std::uint64_t>(a), y = static_cast<std::uint64_t>(b);
    return carried(static_cast<T>(reduction == Reduction::sum ? x + y : x * y));
  }
  if constexpr (std::is_floating_point_v<T> || reduction == Reduction::max || reduction == Reduction::min)
    return combine_scalar<reduction>(accumulator, value);
  const auto a = static_cast<std::uint32_t>(static_cast<std::int64_t>(accumulator)),
             b = static_cast<std::uint32_t>(static_cast<std::int64_t>(value));
  return static_cast<double>(static_cast<T>(reduction == Reduction::sum ? a + b : a * b));
}
template <Reduction reduction, class T>
constexpr T identity() {
  if constexpr (reduction == Reduction::sum) return T{0};
  if constexpr (reduction == Reduction::prod) return T{1};
  constexpr bool max = reduction == Reduction::max;
  if constexpr (std::is_floating_point_v<T>) return static_cast<T>(max ? -__builtin_inf() : __builtin_inf());
  if constexpr (std::is_same_v<T, Byte>) return max ? 0 : 1;
  if constexpr (sizeof(T) == 8 && std::is_signed_v<T>) return static_cast<T>(max ? INT64_MIN : INT64_MAX);
  if constexpr (sizeof(T) == 8) return static_cast<T>(max ? 0 : UINT64_MAX);
  if constexpr (std::is_signed_v<T>) return static_cast<T>(max ? INT32_MIN : INT32_MAX);
  return static_cast<T>(max ? 0 : UINT32_MAX);
}

/// Lanes from `count` on become the identity.
template <Reduction reduction, class T>
inline Native<T> pad(Native<T> x, std::int64_t count) {
  constexpr int N = kNative<T>;
  Mask<T> lane;
  for (int i = 0; i < N; ++i) lane[i] = static_cast<std::remove_reference_t<decltype(lane[0])>>(i);
  return lane < splat<N>(static_cast<std::remove_cvref_t<decltype(lane[0])>>(count))
             ? x
             : splat<N>(identity<reduction, T>());
}
template <Reduction reduction, class T>
inline double across(Native<T> x) {
  return carried(fold<T, kNative<T>>(x, [](auto a, auto b) { return combine<reduction>(a, b); }));
}

/// The reduction of one row, with four vectors in flight. `asks`: memory far ahead is prefetched, for callers that do other work
/// between rows.
template <Reduction reduction, class T, bool asks = false>
inline double reduce_row(const Reader<T, kNative<T>>& reader, std::int64_t count) {
  constexpr int N = kNative<T>;
  using X = Native<T>;
  const std::int64_t vectors = count / N, rest = count % N;
  X a[4];
  for (X& x : a) x = splat<N>(identity<reduction, T>());
  std::int64_t v = 0;
  for (; v + 4 <= vectors; v += 4)
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      if constexpr (asks)
        __builtin_prefetch(reinterpret_cast<const char*>(reader.data + (v + i) * N) + kStreamAhead, 0, 2);
      a[i] = combine<reduction>(a[i], reader.whole(v + i));
    }
  for (; v < vectors; ++v) a[0] = combine<reduction>(a[0], reader.whole(v));
  if (rest != 0) a[1] = combine<reduction>(a[1], pad<reduction, T>(reader.part(vectors, rest), rest));
  return across<reduction, T>(combine<reduction>(combine<reduction>(a[0], a[1]), combine<reduction>(a[2], a[3])));
}

template <Reduction reduction, class T>
void reduce_fast(const TileReduction& call) {
  for (std::int64_t s = 0; s < call.slow; ++s) {
    Reader<T, kNative<T>> reader;
    reader.open(call.arg, s);
    call.accumulators[s] = join<reduction, T>(call.accumulators[s], reduce_row<reduction, T>(reader, call.fast));
  }
}

/// Joins the results of a column of vectors to the accumulators of its columns.
template <Reduction reduction, class T>
inline void join_lanes(double* accumulators, Native<T> x, std::int64_t count) {
  constexpr int N = kNative<T>;
  alignas(64) T lanes[N];
  store<N>(lanes, x);
  if constexpr ((reduction == Reduction::max || reduction == Reduction::min) && sizeof(T) == 4) {
    if (count == N) {
      for (int i = 0; i < N; i += kDoubles) {
        const D before = load<kDoubles>(accumulators + i), now = __builtin_convertvector(load<kDoubles>(lanes + i), D);
        store<kDoubles>(accumulators + i, combine<reduction>(before, now));
      }
      return;
    }
  }
  if (count == N)  // a loop of known length becomes vectors
    for (int i = 0; i < N; ++i) accumulators[i] = join<reduction, T>(accumulators[i], carried(lanes[i]));
  else
    for (std::int64_t i = 0; i < count; ++i) accumulators[i] = join<reduction, T>(accumulators[i], carried(lanes[i]));
}

/// Down the columns, in groups of rows so that f32 sums stay short before they widen. Rows are read along, four at a time and
/// in stripes whose results stay in the nearest cache: memory gives long runs much faster than pieces of many rows.
template <Reduction reduction, class T>
void reduce_slow(const TileReduction& call) {
  constexpr bool adds = reduction == Reduction::sum || reduction == Reduction::prod;
  constexpr int N = kNative<T>, kGroup = adds ? 32 : 1 << 20, kBeside = 4, kStripe = 128, kStreamAhead = 4096;
  constexpr std::int64_t kShort = 32;  // vectors of a row
  const auto row = [&](std::int64_t s) {
    return reinterpret_cast<const T*>(static_cast<const char*>(call.arg.data) + s * call.arg.slow_stride);
  };
  for (std::int64_t begin = 0; begin < call.slow; begin += kGroup) {
    const std::int64_t end = begin + kGroup < call.slow ? begin + kGroup : call.slow;
    const std::int64_t whole = call.arg.broadcast ? 0 : call.fast / N;
    // Short rows are asked for from further away.
    const std::int64_t ahead = (whole < kShort ? 3 : 1) * kBeside * call.arg.slow_stride;
    const bool is_stream = whole <= kShort && call.arg.slow_stride == call.fast * static_cast<std::int64_t>(sizeof(T));
    for (std::int64_t v = 0; v < whole; v += kStripe) {
      const std::int64_t count = whole - v < kStripe ? whole - v : kStripe;
      Native<T> a[kStripe];
      for (std::int64_t i = 0; i < count; ++i) a[i] = splat<N>(identity<reduction, T>());
      std::int64_t s = begin;
      // Short rows without gaps are one stream, which memory guesses best if it is read in order.
      if (is_stream) {
        for (; s < end; ++s)
          for (std::int64_t i = 0; i < count; ++i) {
            const T* const from = row(s) + i * N;
            __builtin_prefetch(reinterpret_cast<const char*>(from) + kStreamAhead, 0, 2);
            a[i] = combine<reduction>(a[i], load<N>(from));
          }
      }
      for (; s + kBeside <= end; s += kBeside) {
        const T* const rows[kBeside] = {row(s) + v * N, row(s + 1) + v * N, row(s + 2) + v * N, row(s + 3) + v * N};
        for (std::int64_t i = 0; i < count; ++i) {
          Native<T> x = a[i];
          for (const T* each : rows) {
            __builtin_prefetch(reinterpret_cast<const char*>(each + i * N) + ahead, 0, 2);
            x = combine<reduction>(x, load<N>(each + i * N));
          }
          a[i] = x;
        }
      }
      for (; s < end; ++s)
        for (std::int64_t i = 0; i < count; ++i) a[i] = combine<reduction>(a[i], load<N>(row(s) + (v + i) * N));
      for (std::int64_t i = 0; i < count; ++i) join_lanes<reduction, T>(call.accumulators + (v + i) * N, a[i], N);
    }
    for (std::int64_t f = whole * N; f < call.fast; f += N) {
      const std::int64_t count = call.fast - f < N ? call.fast - f : N;
      Native<T> a = splat<N>(identity<reduction, T>());
      for (std::int64_t s = begin; s < end; ++s) {
        const Native<T> x = call.arg.broadcast ? splat<N>(*row(s))
                            : count == N       ? load<N>(row(s) + f)
                                               : load_first<N>(row(s) + f, count);
        a = combine<reduction>(a, x);
      }
      join_lanes<reduction, T>(call.accumulators + f, a, count);
    }
  }
}

template <Reduction reduction, class X>
inline bool better(X x, X than) {
  return than == than && (x != x || (reduction == Reduction::argmax ? x > than : x < than));
}
/// Where the first element equal to `value` is, or the first NaN if that is one. The row has one.
template <class T>
inline std::int64_t first_place_of(T value, const T* row, std::int64_t count) {
  constexpr int N = kNative<T>, kBeside = 4;
  const bool is_nan = value != value;
  std::int64_t i = 0;
  for (; i + kBeside * N <= count; i += kBeside * N) {
    Mask<T> is_here{};
    for (int beside = 0; beside < kBeside; ++beside) {
      const Native<T> x = load<N>(row + i + beside * N);
      is_here |= is_nan ? x != x : x == splat<N>(value);
    }
    if (any(is_here)) break;
  }
  while (is_nan ? row[i] == row[i] : row[i] != value) ++i;
  return i;
}
template <Reduction reduction, class T>
void find_fast(const TileReduction& call) {
  constexpr Reduction extreme = reduction == Reduction::argmax ? Reduction::max : Reduction::min;
  for (std::int64_t s = 0; s < call.slow && call.fast > 0; ++s) {
    Reader<T, kNative<T>> reader;
    reader.open(call.arg, s);
    const double carrier = reduce_row<extreme, T, true>(reader, call.fast);
    const Held<T> found = held<T>(carrier);
    if (call.positions[s] >= 0 && !better<reduction>(found, held<T>(call.accumulators[s]))) continue;
    call.accumulators[s] = carrier;
    call.positions[s] = call.base;
    if (reader.step != 0) call.positions[s] += first_place_of(static_cast<T>(found), reader.data, call.fast);
  }
}
/// Joins an element and its row to what a column has found before.
template <Reduction reduction, class T>
inline void join_found(const TileReduction& call, std::int64_t f, T x, std::int64_t s) {
  const double carrier = carried(x);
  if (call.positions[f] >= 0 && !better<reduction>(held<T>(carrier), held<T>(call.accumulators[f]))) return;
  call.accumulators[f] = carrier;
  call.positions[f] = call.base + s;
}
/// The element of row `s` takes the place of the best so far where it is better.
template <Reduction reduction, class T, class Row>
inline void take_better(Native<T> x, Row s, Native<T>& best, Mask<T>& where) {
  constexpr bool is_largest = reduction == Reduction::argmax;
#if defined(__AVX512F__)
  // Not above or below includes a NaN.
  constexpr int kBetter = is_largest ? _CMP_NLE_UQ : _CMP_NGE_UQ;
  if constexpr (std::is_same_v<T, float>) {
    const __mmask16 is_better = _mm512_mask_cmp_ps_mask(_mm512_cmp_ps_mask(best, best, _CMP_ORD_Q), x, best, kBetter);
    best = _mm512_mask_mov_ps(best, is_better, x);
    where = (Mask<T>)_mm512_mask_mov_epi32((__m512i)where, is_better, _mm512_set1_epi32(s));
    return;
  }
#endif
  const Mask<T> is_better = (best == best) & ((x != x) | (is_largest ? x > best : x < best));
  best = is_better ? x : best;
  where = is_better ? splat<kNative<T>>(s) : where;
}
/// Down the columns, a stripe of rows after another, eight rows side by side; vectors of the tile's first extremes join to the
/// accumulators.
template <Reduction reduction, class T>
void find_slow(const TileReduction& call) {
  constexpr int N = kNative<T>, kStripe = 128, kBeside = 8;
  using Row = std::remove_cvref_t<decltype(Mask<T>{}[0])>;
  const auto row = [&](std::int64_t s) {
    return reinterpret_cast<const T*>(static_cast<const char*>(call.arg.data) + s * call.arg.slow_stride);
  };
  const bool wide = sizeof(T) >= 4 && !call.arg.broadcast && call.slow > 0 && call.slow <= INT32_MAX;
  const std::int64_t whole = wide ? call.fast / N : 0;
  for (std::int64_t v = 0; v < whole; v += kStripe) {
    const std::int64_t count = whole - v < kStripe ? whole - v : kStripe;
    Native<T> best[kStripe];
    Mask<T> where[kStripe];
    for (std::int64_t i = 0; i < count; ++i) best[i] = load<N>(row(0) + (v + i) * N), where[i] = Mask<T>{};
    std::int64_t s = 1;
    for (; s + kBeside <= call.slow; s += kBeside)
      for (std::int64_t i = 0; i < count; ++i) {
        Native<T> found = best[i];
        Mask<T> at = where[i];
        const T* from = row(s) + (v + i) * N;
        for (int beside = 0; beside < kBeside; ++beside) {
          __builtin_prefetch(reinterpret_cast<const char*>(from) + kBeside * call.arg.slow_stride, 0, 2);
          take_better<reduction, T>(load<N>(from), static_cast<Row>(s + beside), found, at);
          from = reinterpret_cast<const T*>(reinterpret_cast<const char*>(from) + call.arg.slow_stride);
        }
        best[i] = found, where[i] = at;
      }
    for (; s < call.slow; ++s)
      for (std::int64_t i = 0; i < count; ++i)
        take_better<reduction, T>(load<N>(row(s) + (v + i) * N), static_cast<Row>(s), best[i], where[i]);
    for (std::int64_t i = 0; i < count; ++i)
      for (int lane = 0; lane < N; ++lane)
        join_found<reduction, T>(call, (v + i) * N + lane, best[i][lane], where[i][lane]);
  }
  for (std::int64_t s = 0; s < call.slow; ++s)
    for (std::int64_t f = whole * N; f < call.fast; ++f)
      join_found<reduction, T>(call, f, row(s)[call.arg.broadcast ? 0 : f], s);
}

template <class T>
void fill_reductions(TileTable& table) {
  constexpr int t = kIndexOf<T>;
  constexpr bool is_bool = std::is_same_v<T, Byte>;
  constexpr Reduction kSum = is_bool ? Reduction::max : Reduction::sum,
                      kProd = is_bool ? Reduction::min : Reduction::prod;
  const auto set = [&](Reduction r, ReduceFunction fast, ReduceFunction slow) {
    table.reduce_fast[static_cast<int>(r)][t] = fast;
    table.reduce_slow[static_cast<int>(r)][t] = slow;
  };
  set(Reduction::sum, reduce_fast<kSum, T>, reduce_slow<kSum, T>);
  set(Reduction::prod, reduce_fast<kProd, T>, reduce_slow<kProd, T>);
  set(Reduction::max, reduce_fast<Reduction::max, T>, reduce_slow<Reduction::max, T>);
  set(Reduction::min, reduce_fast<Reduction::min, T>, reduce_slow<Reduction::min, T>);
  set(Reduction::argmax, find_fast<Reduction::argmax, T>, find_slow<Reduction::argmax, T>);
  set(Reduction::argmin, find_fast<Reduction::argmin, T>, find_slow<Reduction::argmin, T>);
}

}  // namespace
}  // namespace weft::cpu

#include "backend/cpu/attention_parts.inc.hpp"
#include "backend/cpu/cache_parts.inc.hpp"
#include "backend/cpu/column_gather.inc.hpp"
#include "backend/cpu/column_softmax.inc.hpp"
#include "backend/cpu/loop/moments.inc.hpp"
#include "backend/cpu/loop/narrow_casts.inc.hpp"
#include "backend/cpu/loop/reverse.inc.hpp"
#include "backend/cpu/loop/turn.inc.hpp"
#include "backend/cpu/loop/widen.inc.hpp"
#include "backend/cpu/recurrent_parts.inc.hpp"
#include "backend/cpu/scan_parts.inc.hpp"
#include "backend/cpu/state_scan_parts.inc.hpp"
#include "backend/cpu/sum_rows.inc.hpp"
#if defined(__AVX512F__)
#include "backend/cpu/extremes_avx512.inc.hpp"
#include "backend/cpu/scan_avx512.inc.hpp"
#endif

namespace weft::cpu {
namespace {

TileTable make_tile_table() {
  TileTable table;
  fill_float<float>(table);
  fill_float<double>(table);
  fill_integer<std::int32_t>(table);
  fill_integer<std::uint32_t>(table);
  fill_integer<std::int64_t>(table);
  fill_integer<std::uint64_t>(table);
  fill_bool(table);
  fill_narrow(table);
  fill_widen(table);
  table.map[at(Op::philox)][kIndexOf<std::uint32_t>] = tile<std::uint32_t, std::uint32_t, std::uint32_t, std::uint32_t>(
      [](U seed, U stream, U index) { return philox(seed, stream, index); });
  const auto all = [&]<class... T>(T...) {
    (fill_comparisons<T>(table), ...);
    (fill_casts<T>(table), ...);
    (fill_reductions<T>(table), ...);
    ((table.stream[kIndexOf<T>] = stream_rows<Bits<T>>), ...);
  };
  all(float{}, double{}, std::int32_t{}, std::uint32_t{}, std::int64_t{}, std::uint64_t{}, Byte{});
  const auto with_moments = [&]<class... T>(T...) {
    ((table.moments_fast[kIndexOf<T>] = moments_fast<T>, table.moments_slow[kIndexOf<T>] = moments_slow<T>), ...);
  };
  with_moments(float{}, double{});
  table.take = take_words;
  const auto sums_rows = [&]<class... T>(T...) { ((table.sum_rows[kIndexOf<T>] = sum_rows<T>), ...); };
  sums_rows(float{}, double{}, std::uint32_t{}, std::uint64_t{});
  table.copy_lines = copy_lines;
  table.reverse32 = reverse_words;
  table.column_gather32 = column_gather<std::uint32_t>;
  table.column_gather64 = column_gather<std::uint64_t>;
  table.column_softmax = column_softmax;
  table.turn32 = turn<std::uint32_t>;
  table.turn64 = turn<std::uint64_t>;
  fill_scans<RunningSum>(table.running_sum);
  fill_scans<RunningProduct>(table.running_product);
#if defined(__AVX512F__)
  fill_scans_of_floats<RunningSum>(table.running_sum);
  fill_scans_of_floats<RunningProduct>(table.running_product);
  table.running_min = run_extremes<false>;
  table.running_max = run_extremes<true>;
#endif
  table.attention_f32 = attention_parts_of<float>();
  table.attention_f64 = attention_parts_of<double>();
  table.attention_keep = attention_keep;
  table.recurrent_f32 = recurrent_parts_of<float>();
  table.recurrent_f64 = recurrent_parts_of<double>();
  table.state_scan_f32 = state_scan_parts_of<float>();
  table.state_scan_f64 = state_scan_parts_of<double>();
  table.cache = cache_parts_of_isa();
  return table;
}

}  // namespace
}  // namespace weft::cpu
