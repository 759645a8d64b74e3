// Elementary functions of the tile kernels against the C library in a wider type, on every instruction set.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "backend/cpu/loop/tile.hpp"
#include "base/half.hpp"

namespace weft::cpu::vector_math_test {
namespace {

using scalar::Op;

std::vector<Isa> isas() {
  std::vector<Isa> all;
  for (const Isa i : {Isa::baseline, Isa::avx2, Isa::avx512})
    if (i <= best_isa()) all.push_back(i);
  return all;
}

template <class T>
struct Case {
  const char* name;
  Op op;
  long double (*exact)(long double);
  double low, high;
  double ulp_max;
};

template <class T>
double ulp_distance(T got, long double exact) {
  const T rounded = static_cast<T>(exact);
  if (std::isnan(got) || std::isnan(rounded)) return std::isnan(got) && std::isnan(rounded) ? 0 : 1e30;
  if (got == rounded) return std::signbit(got) == std::signbit(rounded) ? 0 : 1e30;
  if (std::isinf(got) || std::isinf(rounded)) return 1e30;
  const T magnitude = std::fabs(rounded);
  const T ulp = std::nextafter(magnitude, std::numeric_limits<T>::infinity()) - magnitude;
  return static_cast<double>(std::fabs(static_cast<long double>(got) - exact) / ulp);
}

template <class T>
std::vector<T> run(Isa isa, Op op, const std::vector<T>& x) {
  std::vector<T> y(x.size());
  TileCall call;
  call.out = y.data();
  call.fast = static_cast<std::int64_t>(x.size());
  call.args[0] = {x.data(), 0, false};
  tile_table(isa).map[static_cast<int>(op)][static_cast<int>(dtype_of<T>)](call);
  return y;
}

template <class T>
std::vector<T> points(double low, double high) {
  std::mt19937_64 random(7);
  std::vector<T> x;
  for (int i = 0; i < 40000; ++i) x.push_back(static_cast<T>(std::uniform_real_distribution(low, high)(random)));
  for (int e = -149; e < 128; ++e)
    for (const double m : {1.0, 1.37, 1.9999999})
      for (const double sign : {-1.0, 1.0}) {
        const double v = sign * std::ldexp(m, e);
        if (v >= low && v <= high) x.push_back(static_cast<T>(v));
      }
  const T inf = std::numeric_limits<T>::infinity();
  for (const T v : {T(0), T(-0.0), inf, -inf, std::numeric_limits<T>::quiet_NaN(), T(1), T(-1), T(0.5), T(-0.5),
                    std::numeric_limits<T>::denorm_min(), -std::numeric_limits<T>::denorm_min(),
                    std::numeric_limits<T>::max(), std::numeric_limits<T>::lowest(), std::numeric_limits<T>::min()})
    x.push_back(v);
  return x;
}

#define FUNCTION(name) #name, Op::name, [](long double x) -> long double { return std::name(x); }
template <class T>
void check_all() {
  constexpr bool single = std::is_same_v<T, float>;
  const Case<T> cases[] = {
      {FUNCTION(exp), -105, 90, 2},
      {FUNCTION(exp2), -150, 129, 1},
      {FUNCTION(expm1), -20, 90, 1},
      {FUNCTION(log), 0, 1e4, 2},
      {FUNCTION(log2), 0, 1e4, 1},
      {FUNCTION(log10), 0, 1e4, 1},
      {FUNCTION(log1p), -1, 1e4, 1},
      {FUNCTION(sin), -1e6, 1e6, 1},
      {FUNCTION(cos), -1e6, 1e6, 1},
      {FUNCTION(tan), -1e6, 1e6, 1},
      {FUNCTION(asin), -1, 1, 1},
      {FUNCTION(acos), -1, 1, 1},
      {FUNCTION(atan), -100, 100, 1},
      {FUNCTION(sinh), -89, 89, 2},
      {FUNCTION(cosh), -89, 89, 2},
      {FUNCTION(tanh), -10, 10, single ? 2.1 : 2.5},
      {FUNCTION(asinh), -1e5, 1e5, 2},
      {FUNCTION(acosh), 1, 1e5, 2},
      {FUNCTION(atanh), -1, 1, 2},
      {FUNCTION(erf), -4, 4, 2.2},
      {FUNCTION(sqrt), 0, 1e4, 0.5},
      {"rsqrt", Op::rsqrt, [](long double x) { return 1 / std::sqrt(x); }, 0, 1e4, 1.5},
      {FUNCTION(floor), -100, 100, 0},
      {FUNCTION(ceil), -100, 100, 0},
      {FUNCTION(trunc), -100, 100, 0},
      {"round", Op::round, [](long double x) { return std::nearbyint(x); }, -100, 100, 0},
  };
  for (const Isa isa : isas())
    for (const Case<T>& c : cases) {
      std::vector<T> x = points<T>(c.low, c.high);
      for (double half = -50.5; half < 50; half += 0.5) x.push_back(static_cast<T>(half));
      const std::vector<T> y = run(isa, c.op, x);
      double worst = 0;
      T where = 0;
      for (std::size_t i = 0; i < x.size(); ++i) {
        const double ulp = ulp_distance(y[i], c.exact(x[i]));
        if (ulp > worst) worst = ulp, where = x[i];
      }
      // A device without fused multiply-add rounds more often.
      const double limit = single && isa == Isa::baseline ? c.ulp_max * 1.5 : c.ulp_max;
      EXPECT_LE(worst, limit) << c.name << " of " << where << " on " << name(isa);
      if (std::getenv("WEFT_TEST_ULP"))
        printf("%-8s %-8s %s worst %.3f ulp at %.9g\n", name(isa), c.name, single ? "f32" : "f64", worst,
               double(where));
    }
}

TEST(VectorMath, F32MatchesTheLibrary) { check_all<float>(); }
TEST(VectorMath, F64MatchesTheLibrary) { check_all<double>(); }

template <class T>
void check_binary(const char* label, Op op, long double (*exact)(long double, long double), double ulp_max,
                  double range) {
  std::mt19937_64 random(11);
  std::vector<T> a, b;
  const T inf = std::numeric_limits<T>::infinity(), nan = std::numeric_limits<T>::quiet_NaN();
  const T special[] = {T(0),    T(-0.0), T(1), T(-1), T(2), T(-2),    T(3),    T(-3),   T(0.5),
                       T(-0.5), T(2.5),  inf,  -inf,  nan,  T(1e-30), T(1e30), T(-1e30)};
  for (const T x : special)
    for (const T y : special) a.push_back(x), b.push_back(y);
  std::uniform_real_distribution<double> uniform(-range, range);
  for (int i = 0; i < 20000; ++i) {
    a.push_back(static_cast<T>(i % 2 ? uniform(random) : std::fabs(uniform(random))));
    b.push_back(static_cast<T>(uniform(random)));
  }
  for (const Isa isa : isas()) {
    std::vector<T> y(a.size());
    TileCall call;
    call.out = y.data();
    call.fast = static_cast<std::int64_t>(a.size());
    call.args[0] = {a.data(), 0, false};
    call.args[1] = {b.data(), 0, false};
    tile_table(isa).map[static_cast<int>(op)][static_cast<int>(dtype_of<T>)](call);
    for (std::size_t i = 0; i < a.size(); ++i)
      ASSERT_LE(ulp_distance(y[i], exact(a[i], b[i])), ulp_max)
          << label << "(" << a[i] << ", " << b[i] << ") = " << y[i] << " on " << name(isa);
  }
}

TEST(VectorMath, TwoOperands) {
  const auto pow = [](long double x, long double y) { return std::pow(x, y); };
  const auto atan2 = [](long double x, long double y) { return std::atan2(x, y); };
  const auto fmod = [](long double x, long double y) { return std::fmod(x, y); };
  check_binary<float>("pow", Op::pow, pow, 2, 20);
  check_binary<double>("pow", Op::pow, pow, 2, 20);
  check_binary<float>("atan2", Op::atan2, atan2, 1, 1e3);
  check_binary<double>("atan2", Op::atan2, atan2, 1, 1e3);
  check_binary<float>("rem", Op::rem, fmod, 0, 1e6);
  check_binary<double>("rem", Op::rem, fmod, 0, 1e6);
}

TEST(VectorMath, AValueDoesNotDependOnItsPlace) {
  const Op ops[] = {Op::exp, Op::log, Op::tanh, Op::erf, Op::sin, Op::log1p, Op::sqrt};
  for (const Isa isa : isas())
    for (const Op op : ops) {
      std::vector<float> x(131);
      for (std::size_t i = 0; i < x.size(); ++i) x[i] = 0.037f * static_cast<float>(i) + 0.01f;
      const std::vector<float> all = run(isa, op, x);
      for (std::size_t begin = 0; begin < x.size(); begin += 7)
        for (const std::size_t count : {std::size_t{1}, std::size_t{5}, x.size() - begin}) {
          if (begin + count > x.size()) continue;
          const std::vector<float> part =
              run(isa, op, std::vector<float>(x.begin() + begin, x.begin() + begin + count));
          ASSERT_EQ(std::memcmp(part.data(), all.data() + begin, count * sizeof(float)), 0) << name(isa);
        }
    }
}

/// Of all bits a spread, and all of f16's own values with their neighbours.
TEST(VectorMath, CachesRoundToTheNearestFiniteF16) {
  std::vector<float> x;
  for (std::uint64_t bits = 0; bits < std::uint64_t{1} << 32; bits += 4099)
    x.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(bits)));
  for (std::uint32_t half = 0; half < 0x10000; ++half) {
    const float value = f32_from_f16(static_cast<std::uint16_t>(half));
    for (const std::int32_t step : {-0x1001, -0x1000, -0xFFF, -1, 0, 1, 0xFFF, 0x1000, 0x1001})
      x.push_back(std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) + static_cast<std::uint32_t>(step)));
  }
  x.resize(x.size() / 64 * 64 + 13);  // whole vectors and a rest
  for (const Isa isa : isas()) {
    std::vector<std::uint16_t> packed(x.size());
    tile_table(isa).cache.pack_f16(x.data(), packed.data(), static_cast<std::int64_t>(x.size()));
    for (std::size_t i = 0; i < x.size(); ++i)
      ASSERT_EQ(packed[i], f16_from_f32(std::clamp(x[i], -65504.0f, 65504.0f))) << name(isa) << ": " << x[i];
  }
}

}  // namespace
}  // namespace weft::cpu::vector_math_test
