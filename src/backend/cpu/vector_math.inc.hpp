// Elementary functions on vectors. In f32, exp, log, tanh and erf are computed in f32 (at most 2.1 ulp); the others go through
// vectors of doubles, which leaves little more than the final rounding. In f64, exp and log are vectors and the others call the
// C library lane by lane. Polynomials are Chebyshev fits made for these intervals. Every function treats each lane separately,
// so a value does not depend on its place in a vector.
#pragma once

#include "backend/cpu/vector.inc.hpp"

namespace weft::cpu {
namespace {

template <class Function>
inline F through_double(F x, Function function) {
  return narrow(function(lower(x)), function(upper(x)));
}
template <class Function>
inline F through_double(F x, F y, Function function) {
  return narrow(function(lower(x), lower(y)), function(upper(x), upper(y)));
}
template <class Function>
inline D by_lane(D x, Function function) {
  for (int i = 0; i < kDoubles; ++i) x[i] = function(x[i]);
  return x;
}
template <class Function>
inline D by_lane(D x, D y, Function function) {
  for (int i = 0; i < kDoubles; ++i) x[i] = function(x[i], y[i]);
  return x;
}

/// x * 2^n for an integral n that two factors of 2 can carry; one rounding, into the denormals too.
inline F scale(F x, F n) {
#if defined(__AVX512F__)
  return _mm512_scalef_ps(x, n);
#else
  const I i = __builtin_convertvector(n, I), half = i >> 1;
  return x * (F)((half + 127) << 23) * (F)((i - half + 127) << 23);
#endif
}
inline D scale(D x, D n) {
#if defined(__AVX512F__)
  return _mm512_scalef_pd(x, n);
#else
  // Adding 1.5 * 2^52 leaves the integer in the low bits; the shift drops the rest.
  constexpr double kShift = 0x1.8p52 + 1023;
  const D half = round_even(n * 0.5);
  return x * (D)((L)(half + kShift) << 52) * (D)((L)((n - half) + kShift) << 52);
#endif
}

inline F exp(F x) {
  x = greater(splat(-105.0f), x);  // a NaN stays
  x = lesser(splat(89.0f), x);
  const F n = round_even(x * 1.44269504088896341f);
  F r = fma(n, splat(-0.693359375f), x);
  r = fma(n, splat(2.12194440e-4f), r);
  const F p = polynomial(r, 1.39261835877134949e-3f, 8.36317905272257737e-3f, 4.16665546172045742e-2f,
                         1.66665769896987757e-1f, 0.5f);
  return scale(fma(p, r * r, r) + 1.0f, n);
}

inline D exp(D x) {
  x = greater(splat(-746.0), x);
  x = lesser(splat(710.0), x);
  const D n = round_even(x * 1.44269504088896340736);
  D r = fma(n, splat(-6.93147180369123816490e-01), x);
  r = fma(n, splat(-1.90821492927058770002e-10), r);
  const D p = polynomial(r, 2.51003854955103191e-8, 2.76200884454097482e-7, 2.75572684599970648e-6,
                         2.48015212959543751e-5, 1.98412698630536169e-4, 1.38888889172137169e-3, 8.33333333333006183e-3,
                         4.16666666666241279e-2, 1.66666666666666675e-1, 0.5);
  return scale(fma(p, r * r, r) + 1.0, n);
}

inline F log(F x) {
  const auto tiny = x < 0x1p-126f;
  const F scaled = tiny ? x * 0x1p23f : x;
  // Mantissa in [sqrt(1/2), sqrt(2)), so that 1 has exponent 0 and a small logarithm is not a difference of large ones.
  const I shifted = (I)((U)scaled - 0x3f3504f3u);  // unsigned: below zero it wraps, and y is a NaN in the end
  const F e = __builtin_convertvector(shifted >> 23, F) - (tiny ? splat(23.0f) : F{});
  const F f = (F)((shifted & 0x7fffff) + 0x3f3504f3) - 1.0f;
  const F z = f * f;
  F p = polynomial(f, 6.97161147145117783e-2f, -1.14797338466376356e-1f, 1.16854199234867393e-1f,
                   -1.24256873314511061e-1f, 1.42490576456974804e-1f, -1.66678023195012541e-1f, 2.00007157488921017e-1f,
                   -2.4999996957950882e-1f, 3.33333311800300481e-1f);
  p = fma(e, splat(-2.12194440e-4f), p * f * z);
  p = fma(z, splat(-0.5f), p) + f;
  F y = fma(e, splat(0.693359375f), p);
  y = x > 3.4028234e38f ? x : y;
  y = x == 0.0f ? splat(-__builtin_inff()) : y;
  y = x < 0.0f ? splat(__builtin_nanf("")) : y;
  return x != x ? x : y;
}

inline D log(D x) {
  const auto tiny = x < 0x1p-1022;
  const D scaled = tiny ? x * 0x1p52 : x;
  constexpr std::int64_t kRootHalf = 0x3fe6a09e667f3bcd;
  using UL = V<std::uint64_t, kDoubles>;
  const UL shifted = (UL)scaled - static_cast<std::uint64_t>(kRootHalf) + 0x3ff0000000000000u;
  const D e = (D)((shifted >> 52) | 0x4330000000000000u) - (0x1p52 + 1023.0) - (tiny ? splat(52.0) : D{});
  const D f = (D)((shifted & 0x000fffffffffffffu) + static_cast<std::uint64_t>(kRootHalf)) - 1.0;
  const D s = f / (f + 2.0);
  const D z = s * s;
  const D r =
      z * polynomial(z, 1.4617807153417325e-1, 1.53316117220550079e-1, 1.81828924325368712e-1, 2.22222110893794962e-1,
                     2.85714286262538376e-1, 3.99999999998988905e-1, 6.66666666666666971e-1);
  const D half = 0.5 * f * f;
  const D small = fma(e, splat(1.90821492927058770002e-10), s * (half + r));
  D y = fma(e, splat(6.93147180369123816490e-01), f - (half - small));
  y = x > 1.7976931348623157e308 ? x : y;
  y = x == 0.0 ? splat(-__builtin_inf()) : y;
  y = x < 0.0 ? splat(__builtin_nan("")) : y;
  return x != x ? x : y;
}

/// e^x - 1 for |x| <= 80, as 2^n (e^r - 1) + (2^n - 1), which keeps its digits near 0.
inline F expm1_bounded(F x) {
  const F n = round_even(x * 1.44269504088896341f);
  F r = fma(n, splat(-0.693359375f), x);
  r = fma(n, splat(2.12194440e-4f), r);
  const F p = polynomial(r, 1.39261835877134949e-3f, 8.36317905272257737e-3f, 4.16665546172045742e-2f,
                         1.66665769896987757e-1f, 0.5f);
  const F factor = (F)((__builtin_convertvector(n, I) + 127) << 23);
  return fma(fma(p, r * r, r), factor, factor - 1.0f);
}

/// (e^2x - 1) / (e^2x - 1 + 2); beyond 10 the result is 1.
inline F tanh(F x) {
  const F a = abs(x);
  const F less = expm1_bounded(a > 10.0f ? splat(20.0f) : a + a);
  return copysign(less / (less + 2.0f), x);
}

/// 1 - e^-q with q(|x|) fitted to -log(erfc) / x so that the error of the result is even; beyond 3.95 the result is 1.
inline F erf(F x) {
  F a = abs(x);
  a = a > 3.95f ? splat(3.95f) : a;
  // The last coefficient in two parts: rounded alone it would cost an ulp.
  constexpr float kLast = 1.1283791716f;
  const F q = polynomial(a, -9.25816818269e-6f, 1.17657390043e-4f, -6.32891065936e-4f, 1.66712020979e-3f,
                         -1.60481925614e-4f, -1.91530217368e-2f, 1.02777820561e-1f, 6.36619382844e-1f,
                         static_cast<float>(1.1283791716 - double{kLast}));
  return copysign(-expm1_bounded(-fma(a, splat(kLast), q * a)), x);
}

// Functions of one double vector that the f32 functions use. Their arguments come from floats, so an accuracy of 2^-35 is
// enough.
namespace wide {

inline D expm1(D x) {
  const D series = x + x * x * (0.5 + x * (1.0 / 6));
  return abs(x) < 0x1p-12 ? series : exp(x) - 1.0;
}
inline D log1p(D x) {
  const D series = x - x * x * (0.5 - x * (1.0 / 3));
  return abs(x) < 0x1p-12 ? series : log(x + 1.0);
}
inline D sinh(D x) {
  const D e = exp(x);
  return abs(x) < 0x1p-9 ? x + x * x * x * (1.0 / 6) : 0.5 * (e - 1.0 / e);
}
inline D cosh(D x) {
  const D e = exp(x);
  return 0.5 * (e + 1.0 / e);
}
inline D asinh(D x) {
  const D a = abs(x), z = x * x;
  const D y = a < 0x1p-6 ? a * (1.0 - z * (1.0 / 6 - z * (3.0 / 40 - z * (15.0 / 336)))) : log(a + sqrt(z + 1.0));
  return copysign(y, x);
}
inline D acosh(D x) { return x < 1.0 ? splat(__builtin_nan("")) : log(x + sqrt((x - 1.0) * (x + 1.0))); }
inline D atanh(D x) { return abs(x) < 0x1p-9 ? x + x * x * x * (1.0 / 3) : 0.5 * log((1.0 + x) / (1.0 - x)); }

/// For z = |x| <= 1: one step to below tan(pi/8), then an odd polynomial.
inline D atan_unit(D x) {
  const auto far = x > 0.41421356237309503;
  const D t = far ? (x - 1.0) / (x + 1.0) : x;
  const D z = t * t;
  const D p =
      polynomial(z, 3.29207143107880785e-2, -6.02528796851428766e-2, 7.60435840885732217e-2, -9.08405430821628367e-2,
                 1.11108171042802403e-1, -1.42857080426761203e-1, 1.99999999492043599e-1, -3.33333333332651923e-1);
  return fma(p * z, t, t) + (far ? splat(0.78539816339744830962) : D{});
}
inline D atan(D x) {
  const D a = abs(x);
  const D y = atan_unit(a > 1.0 ? 1.0 / a : a);
  return copysign(a > 1.0 ? 1.57079632679489661923 - y : y, x);
}
inline D atan2(D y, D x) {
  const D ax = abs(x), ay = abs(y);
  const D most = ax > ay ? ax : ay, least = ax > ay ? ay : ax;
  D t = least / most;
  t = most == 0.0 ? D{} : t;
  t = least == __builtin_inf() ? splat(1.0) : t;
  D angle = atan_unit(t);
  angle = ay > ax ? 1.57079632679489661923 - angle : angle;
  angle = (L)x < 0 ? 3.14159265358979323846 - angle : angle;
  angle = copysign(angle, y);
  return (x != x) | (y != y) ? x + y : angle;
}
/// For |x| <= 1/2.
inline D asin_half(D x) {
  const D z = x * x;
  const D p = polynomial(z, 2.83601439457852335e-2, 1.05499484380437441e-3, 1.68688126792970177e-2,
                         1.6901761126881452e-2, 2.24125169359338422e-2, 3.0379939464357362e-2, 4.46429066364168967e-2,
                         7.4999999532581177e-2, 1.66666666667389265e-1);
  return fma(p * z, x, x);
}
inline D asin(D x) {
  const D a = abs(x);
  const D y = asin_half(a > 0.5 ? sqrt(0.5 * (1.0 - a)) : a);
  return copysign(a > 0.5 ? 1.57079632679489661923 - 2.0 * y : y, x);
}
inline D acos(D x) {
  const D a = abs(x);
  const D y = asin_half(a > 0.5 ? sqrt(0.5 * (1.0 - a)) : a);
  const D near = copysign(2.0 * y, x);  // a > 1/2: acos(a) = 2 y, and pi less that for a negative x
  const D outside = (L)x < 0 ? near + 3.14159265358979323846 : near;
  return a > 0.5 ? outside : 1.57079632679489661923 - copysign(y, x);
}

/// sin (quarter 0), cos (quarter 1): Cody and Waite with pi/2 in three parts; beyond 2^20 the C library.
struct Reduced {
  D r, n;
};
inline Reduced reduce_angle(D x) {
  const D n = round_even(x * 0.63661977236758134308);
  D r = fma(n, splat(-1.57079632673412561417e+00), x);
  r = fma(n, splat(-6.07710050630396597660e-11), r);
  return {fma(n, splat(-2.02226624879595063154e-21), r), n};
}
inline D sin_polynomial(D r) {
  const D z = r * r;
  const D p = polynomial(z, -2.48051454067474318e-8, 2.75559856252008621e-6, -1.98412668994373986e-4,
                         8.33333333106116007e-3, -1.6666666666663858e-1);
  return fma(p * z, r, r);
}
inline D cos_polynomial(D r) {
  const D z = r * r;
  const D p = polynomial(z, 2.07002494675627724e-9, -2.75563659022590211e-7, 2.48015851984412168e-5,
                         -1.3888888887264426e-3, 4.16666666666645872e-2);
  return fma(p * z, z, 1.0 - 0.5 * z);
}
template <int quarter>
inline D sine(D x) {
  const Reduced reduced = reduce_angle(x);
  // The quadrant is in the low bits after adding 1.5 * 2^52.
  const L q = (L)(reduced.n + (0x1.8p52 + quarter));
  D y = (q & 1) != 0 ? cos_polynomial(reduced.r) : sin_polynomial(reduced.r);
  y = (q & 2) != 0 ? -y : y;
  if constexpr (quarter == 0) y = x == 0.0 ? x : y;
  const auto huge = abs(x) > 0x1p20;
  if (any(huge))
    for (int i = 0; i < kDoubles; ++i)
      if (huge[i]) y[i] = quarter == 0 ? __builtin_sin(x[i]) : __builtin_cos(x[i]);
  return y;
}
inline D tan(D x) {
  const Reduced reduced = reduce_angle(x);
  const L q = (L)(reduced.n + 0x1.8p52);
  const D s = sin_polynomial(reduced.r), c = cos_polynomial(reduced.r);
  D y = (q & 1) != 0 ? -c / s : s / c;
  y = x == 0.0 ? x : y;
  const auto huge = abs(x) > 0x1p20;
  if (any(huge))
    for (int i = 0; i < kDoubles; ++i)
      if (huge[i]) y[i] = __builtin_tan(x[i]);
  return y;
}
/// The exact remainder if the quotient has fewer than 28 bits: a double holds its product with a float divisor.
inline D rem(D x, D y) {
  const D quotient = x / y;
  D r = fma(-trunc(quotient), y, x);
  r = abs(y) == __builtin_inf() ? ((abs(x) == __builtin_inf()) ? splat(__builtin_nan("")) : x) : r;
  const auto far = abs(quotient) >= 0x1p28;
  if (any(far))
    for (int i = 0; i < kDoubles; ++i)
      if (far[i]) r[i] = __builtin_fmod(x[i], y[i]);
  return copysign(r, x);
}

}  // namespace wide

inline F exp2(F x) {
  return through_double(x, [](D d) { return exp(d * 0.69314718055994530942); });
}
inline F expm1(F x) { return copysign(through_double(x, wide::expm1), x); }
inline F log2(F x) {
  return through_double(x, [](D d) { return log(d) * 1.44269504088896340736; });
}
inline F log10(F x) {
  return through_double(x, [](D d) { return log(d) * 0.43429448190325182765; });
}
inline F log1p(F x) { return copysign(through_double(x, wide::log1p), x); }
inline F sin(F x) { return through_double(x, wide::sine<0>); }
inline F cos(F x) { return through_double(x, wide::sine<1>); }
inline F tan(F x) { return through_double(x, wide::tan); }
inline F asin(F x) { return through_double(x, wide::asin); }
inline F acos(F x) { return through_double(x, wide::acos); }
inline F atan(F x) { return through_double(x, wide::atan); }
inline F sinh(F x) { return through_double(x, wide::sinh); }
inline F cosh(F x) { return through_double(x, wide::cosh); }
inline F asinh(F x) { return through_double(x, wide::asinh); }
inline F acosh(F x) { return through_double(x, wide::acosh); }
inline F atanh(F x) { return through_double(x, wide::atanh); }
inline F atan2(F y, F x) { return through_double(y, x, wide::atan2); }
inline F rem(F x, F y) { return through_double(x, y, wide::rem); }

inline F pow(F x, F y) {
  const F ax = abs(x), inf = splat(__builtin_inff());
  F r = through_double(ax, y, [](D a, D b) { return exp(b * log(a)); });
  r = (ax == 1.0f) & (y == y) ? splat(1.0f) : r;  // 1 to an infinite power, too
  const auto integral = round_even(y) == y;
  const F half = y * 0.5f;
  const auto odd = integral & (abs(y) < inf) & (round_even(half) != half);
  r = odd & ((I)x < 0) ? -r : r;
  r = (x < 0.0f) & (ax < inf) & ~integral & (y == y) ? splat(__builtin_nanf("")) : r;
  return (y == 0.0f) | (x == 1.0f) ? splat(1.0f) : r;
}

// The C library has these in f64, correct to an ulp or two; none is hot.
inline D exp2(D x) {
  return by_lane(x, [](double v) { return __builtin_exp2(v); });
}
inline D expm1(D x) {
  return by_lane(x, [](double v) { return __builtin_expm1(v); });
}
inline D log2(D x) {
  return by_lane(x, [](double v) { return __builtin_log2(v); });
}
inline D log10(D x) {
  return by_lane(x, [](double v) { return __builtin_log10(v); });
}
inline D log1p(D x) {
  return by_lane(x, [](double v) { return __builtin_log1p(v); });
}
inline D sin(D x) {
  return by_lane(x, [](double v) { return __builtin_sin(v); });
}
inline D cos(D x) {
  return by_lane(x, [](double v) { return __builtin_cos(v); });
}
inline D tan(D x) {
  return by_lane(x, [](double v) { return __builtin_tan(v); });
}
inline D asin(D x) {
  return by_lane(x, [](double v) { return __builtin_asin(v); });
}
inline D acos(D x) {
  return by_lane(x, [](double v) { return __builtin_acos(v); });
}
inline D atan(D x) {
  return by_lane(x, [](double v) { return __builtin_atan(v); });
}
inline D sinh(D x) {
  return by_lane(x, [](double v) { return __builtin_sinh(v); });
}
inline D cosh(D x) {
  return by_lane(x, [](double v) { return __builtin_cosh(v); });
}
inline D tanh(D x) {
  return by_lane(x, [](double v) { return __builtin_tanh(v); });
}
inline D asinh(D x) {
  return by_lane(x, [](double v) { return __builtin_asinh(v); });
}
inline D acosh(D x) {
  return by_lane(x, [](double v) { return __builtin_acosh(v); });
}
inline D atanh(D x) {
  return by_lane(x, [](double v) { return __builtin_atanh(v); });
}
inline D erf(D x) {
  return by_lane(x, [](double v) { return __builtin_erf(v); });
}
inline D pow(D x, D y) {
  return by_lane(x, y, [](double a, double b) { return __builtin_pow(a, b); });
}
inline D atan2(D y, D x) {
  return by_lane(y, x, [](double a, double b) { return __builtin_atan2(a, b); });
}
inline D rem(D x, D y) {
  return by_lane(x, y, [](double a, double b) { return __builtin_fmod(a, b); });
}

}  // namespace
}  // namespace weft::cpu
