// Neighbours, mantissas and exponents of floating-point numbers, bit by bit, and counts of the Poisson distribution.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "open_device.hpp"
#include "tensor/element.hpp"
#include "weft/weft.hpp"

namespace weft::test {
namespace {

class FloatParts : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    open_device(GetParam(), device_);
    set_default_device(device_);
  }
  ~FloatParts() override { set_default_device(before_); }
  bool on_cpu() const { return device_ == kCpu; }

  Device before_ = default_device(), device_ = kCpu;
};

template <class Word>
std::vector<Word> words_of(const Tensor& t) {
  std::vector<Word> words(static_cast<std::size_t>(t.numel()));
  t.copy_to(words.data(), words.size() * sizeof(Word));
  return words;
}

// The bits of the number beside it: those of positive numbers are in order.
std::uint16_t neighbour(std::uint16_t bits, bool up) {
  const bool negative = bits >> 15;
  if ((bits & 0x7fff) == 0) return up ? 1 : 0x8001;
  return static_cast<std::uint16_t>(bits + (up == negative ? -1 : 1));
}

TEST_P(FloatParts, EveryNumberOf16BitsHasItsNeighbours) {
  for (const DType type : {DType::f16, DType::bf16}) {
    const std::uint16_t infinity = type == DType::f16 ? 0x7c00 : 0x7f80;
    // A GPU may compute bf16 below 2^-126 as 0.
    const std::uint16_t least = type == DType::f16 || on_cpu() ? 0 : 0x0100;
    std::vector<std::uint16_t> numbers;
    for (std::uint32_t bits = 0; bits <= 0xffff; ++bits)
      if (const std::uint32_t size = bits & 0x7fff; size <= infinity && size >= least)
        numbers.push_back(static_cast<std::uint16_t>(bits));
    const auto n = static_cast<Extent>(numbers.size());
    const Tensor x = tensor_from_bytes(numbers.data(), {n}, type);
    for (const bool up : {true, false}) {
      const Tensor y = cast(full({}, up ? INFINITY : -INFINITY), type);
      const std::vector<std::uint16_t> found = words_of<std::uint16_t>(nextafter(x, y));
      for (std::size_t i = 0; i < numbers.size(); ++i) {
        const std::uint16_t end = up ? infinity : infinity | 0x8000;
        const std::uint16_t wanted = numbers[i] == end ? end : neighbour(numbers[i], up);
        ASSERT_EQ(found[i], wanted) << name_of(type) << " " << std::hex << numbers[i] << (up ? " up" : " down");
      }
    }
    const auto [mantissa, exponent] = frexp(x);
    const std::vector<float> m = cast(mantissa, DType::f32).to_vector<float>(),
                             v = cast(x, DType::f32).to_vector<float>();
    const std::vector<std::int32_t> e = exponent.to_vector<std::int32_t>();
    EXPECT_EQ(mantissa.dtype(), type);
    for (std::size_t i = 0; i < v.size(); ++i) {
      int power = 0;
      ASSERT_EQ(m[i], std::frexp(v[i], &power)) << v[i];
      ASSERT_EQ(e[i], std::isfinite(v[i]) ? power : 0) << v[i];
    }
  }
}

template <class T>
std::vector<T> numbers_of_all_sizes(bool with_subnormal) {
  using Limits = std::numeric_limits<T>;
  std::vector<T> numbers{1, 2, 0.5, 3, Limits::max(), 2 * Limits::min(), Limits::infinity(), 1 - Limits::epsilon() / 2};
  if (with_subnormal) {
    for (const T x : {T{0}, Limits::denorm_min(), Limits::min(), Limits::min() / 2, 3 * Limits::denorm_min()})
      numbers.push_back(x);
    numbers.push_back(std::nextafter(Limits::min(), T{0}));
  }
  std::mt19937_64 draw(5);
  for (int power = Limits::min_exponent + 1; power < Limits::max_exponent; ++power) {
    const T x = std::ldexp(1 + std::generate_canonical<T, 64>(draw), power - 1);
    for (const T each : {x, std::ldexp(T{1}, power), std::nextafter(std::ldexp(T{1}, power), T{0})})
      numbers.push_back(each);
  }
  for (std::size_t i = 0, n = numbers.size(); i < n; ++i) numbers.push_back(-numbers[i]);
  return numbers;
}

template <class T>
void compare_with_std(bool with_subnormal) {
  const std::vector<T> x = numbers_of_all_sizes<T>(with_subnormal);
  const auto n = static_cast<Extent>(x.size());
  const Tensor given = tensor<T>(std::span<const T>(x), {n});
  for (const T y : {T{0}, std::numeric_limits<T>::infinity(), -std::numeric_limits<T>::infinity(), T{1}}) {
    const std::vector<T> found = nextafter(given, full({}, y, dtype_of<T>)).template to_vector<T>();
    for (std::size_t i = 0; i < x.size(); ++i) {
      const T wanted = std::nextafter(x[i], y);
      if (!with_subnormal && std::abs(wanted) < std::numeric_limits<T>::min()) continue;
      ASSERT_EQ(found[i], wanted) << x[i] << " to " << y;
      if (with_subnormal) {
        ASSERT_EQ(std::signbit(found[i]), std::signbit(wanted)) << x[i] << " to " << y;
      }
    }
  }
  const auto [mantissa, exponent] = frexp(given);
  const std::vector<T> m = mantissa.template to_vector<T>();
  const std::vector<std::int32_t> e = exponent.to_vector<std::int32_t>();
  for (std::size_t i = 0; i < x.size(); ++i) {
    int power = 0;
    ASSERT_EQ(m[i], std::frexp(x[i], &power)) << x[i];
    ASSERT_EQ(e[i], std::isfinite(x[i]) ? power : 0) << x[i];
  }
}

TEST_P(FloatParts, NumbersOfAllSizesAreThoseOfTheStandardLibrary) {
  compare_with_std<float>(on_cpu());
  if (on_cpu()) compare_with_std<double>(true);
}

TEST_P(FloatParts, NanAndEqualNumbers) {
  const float nan = std::nanf("");
  const Tensor x = tensor<float>({nan, 1, 2, nan}), y = tensor<float>({1, nan, 2, nan});
  const std::vector<float> next = nextafter(x, y).to_vector<float>();
  EXPECT_TRUE(std::isnan(next[0]) && std::isnan(next[1]) && std::isnan(next[3]));
  EXPECT_EQ(next[2], 2);
  const auto [mantissa, exponent] = frexp(x);
  EXPECT_TRUE(std::isnan(mantissa.to_vector<float>()[0]));
  EXPECT_EQ(exponent.to_vector<std::int32_t>(), (std::vector<std::int32_t>{0, 1, 2, 0}));
}

TEST_P(FloatParts, GradientOfTheMantissa) {
  const Tensor x = tensor<float>({3, -0.375f, 1024, 0});
  const Tensor slope = grad(sum(frexp(x).mantissa), x);
  EXPECT_EQ(slope.to_vector<float>(), (std::vector<float>{0.25f, 2, 1.0f / 2048, 1}));
}

// How often each count is drawn, and the mean and variance of all, lie within five standard deviations of what the
// distribution says.
TEST_P(FloatParts, PoissonCountsFollowTheirRates) {
  manual_seed(11);
  constexpr Extent kDraws = 20000;
  for (const float rate : {0.0f, 0.03f, 1.5f, 9.7f, 10.2f, 250.0f, 90000.0f, 4e6f}) {
    const std::vector<float> counts = poisson(full({kDraws}, rate)).to_vector<float>();
    double sum = 0, squares = 0;
    std::vector<double> shares(40);
    for (const float count : counts) {
      ASSERT_TRUE(count >= 0 && count == std::floor(count)) << rate << ": " << count;
      sum += count, squares += (count - rate) * (count - rate);
      if (count < 40) shares[static_cast<std::size_t>(count)] += 1.0 / kDraws;
    }
    EXPECT_NEAR(sum / kDraws, rate, 5 * std::sqrt(rate / kDraws)) << rate;
    EXPECT_NEAR(squares / kDraws, rate, 5 * rate * std::sqrt((2 + 1 / std::max(rate, 1e-3f)) / kDraws)) << rate;
    for (int k = 0; k < 40 && rate < 20; ++k) {
      const double p = rate == 0 ? k == 0 : std::exp(k * std::log(rate) - rate - std::lgamma(k + 1.0));
      EXPECT_NEAR(shares[static_cast<std::size_t>(k)], p, 5 * std::sqrt(p / kDraws) + 1e-4) << rate << ": " << k;
    }
  }
  EXPECT_TRUE(std::isnan(poisson(full({}, -1)).item<float>()));
  // No gradient flows through the draws.
  const Tensor rate = full({5}, 3.0);
  manual_seed(12);
  const std::vector<float> slope = grad(weft::sum(poisson(rate) * rate), rate).to_vector<float>();
  manual_seed(12);
  EXPECT_EQ(slope, poisson(rate).to_vector<float>());
}

INSTANTIATE_TEST_SUITE_P(Devices, FloatParts, ::testing::Values("cpu", "webgpu:0"),
                         [](const auto& test) { return std::string(test.param).substr(0, 3); });

}  // namespace
}  // namespace weft::test
