// Element types on the CPU: casts, rounding, wrapping, exact 64-bit integers, promotion, views and products of every type.
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "graph/op.hpp"
#include "kernel_reference.hpp"
#include "ops/table.hpp"
#include "tensor/element.hpp"
#include "weft/weft.hpp"

namespace weft {
namespace {

class ElementTypes : public ::testing::Test {
 protected:
  ElementTypes() : before_(default_device()) { set_default_device(kCpu); }
  ~ElementTypes() override { set_default_device(before_); }

 private:
  Device before_;
};

template <class T>
Tensor of(const std::vector<T>& values) {
  return tensor<T>(std::span<const T>(values), Shape{static_cast<Extent>(values.size())});
}
Tensor from_bits(const std::vector<std::uint16_t>& bits, DType type) {
  return tensor_from_bytes(bits.data(), {static_cast<Extent>(bits.size())}, type);
}
template <class Word>
std::vector<Word> bits_of(const Tensor& t) {
  std::vector<Word> words(static_cast<std::size_t>(t.numel()));
  t.copy_to(words.data(), words.size() * sizeof(Word));
  return words;
}
Tensor numbers(const std::vector<double>& values, DType type) {
  std::vector<char> bytes(values.size() * size_bytes(type));
  for (std::size_t i = 0; i < values.size(); ++i) write_element(type, values[i], bytes.data() + i * size_bytes(type));
  return tensor_from_bytes(bytes.data(), {static_cast<Extent>(values.size())}, type);
}
std::vector<double> values_of(const Tensor& t) {
  std::vector<char> bytes(static_cast<std::size_t>(t.numel()) * size_bytes(t.dtype()));
  t.copy_to(bytes.data(), bytes.size());
  std::vector<double> values;
  for (std::size_t at = 0; at < bytes.size(); at += size_bytes(t.dtype()))
    values.push_back(read_element(t.dtype(), bytes.data() + at));
  return values;
}
bool same(double a, double b) {
  return (a == b && std::signbit(a) == std::signbit(b)) || (std::isnan(a) && std::isnan(b));
}

const std::vector<double> kNumbers = {0,
                                      -0.0,
                                      1,
                                      -1,
                                      0.5,
                                      1.5,
                                      2.5,
                                      -2.5,
                                      127,
                                      128,
                                      -128,
                                      -129,
                                      200,
                                      255,
                                      256,
                                      -255.5,
                                      32767,
                                      32768,
                                      -32769,
                                      65504,
                                      65519,
                                      65520,
                                      65535,
                                      65536,
                                      1e-8,
                                      6e-8,
                                      2147483647,
                                      -2147483648.0,
                                      4294967295.0,
                                      4294967296.0,
                                      0x1p40,
                                      -0x1p40,
                                      1e30,
                                      -1e30,
                                      std::numeric_limits<double>::infinity(),
                                      -std::numeric_limits<double>::infinity(),
                                      std::nan("")};

TEST_F(ElementTypes, EveryPairOfCasts) {
  for (const DType from : kComputeDTypes)
    for (const DType to : kComputeDTypes) {
      std::vector<double> values;
      for (const double v : kNumbers) {
        const Element& row = element(from);
        if (!is_float(from) && !(v >= row.lowest && v <= row.highest && std::trunc(v) == v)) continue;
        values.push_back(reference::to_type(v, from) + (is_float(from) ? -0.0 : 0.0));
      }
      const std::vector<double> got = values_of(cast(numbers(values, from), to));
      for (std::size_t i = 0; i < values.size(); ++i)
        EXPECT_TRUE(same(got[i], reference::cast(values[i], from, to)))
            << name_of(from) << " " << values[i] << " to " << name_of(to) << " gives " << got[i] << ", not "
            << reference::cast(values[i], from, to);
    }
}

TEST_F(ElementTypes, EveryHalfGoesToFloatAndBack) {
  for (const DType type : {DType::f16, DType::bf16}) {
    std::vector<std::uint16_t> all(65536);
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::uint16_t>(i);
    const Tensor wide = cast(from_bits(all, type), DType::f32);
    const std::vector<float> floats = wide.to_vector<float>();
    const std::vector<std::uint16_t> back = bits_of<std::uint16_t>(cast(wide, type));
    const std::uint16_t quiet = type == DType::f16 ? 0x200 : 0x40;
    for (std::size_t i = 0; i < all.size(); ++i) {
      const float expected = type == DType::f16 ? f32_from_f16(all[i]) : f32_from_bf16(all[i]);
      if (std::isnan(expected)) {
        ASSERT_TRUE(std::isnan(floats[i])) << i;
        ASSERT_EQ(back[i], all[i] | quiet) << name_of(type);  // sign and payload stay
      } else {
        ASSERT_EQ(std::bit_cast<std::uint32_t>(floats[i]), std::bit_cast<std::uint32_t>(expected)) << i;
        ASSERT_EQ(back[i], all[i]) << name_of(type);
      }
    }
  }
}

// Halfway between neighbours the even one is nearest; next to that point it is the nearer one, from f32 and from f64.
TEST_F(ElementTypes, TiesRoundToEven) {
  for (const DType type : {DType::f16, DType::bf16}) {
    const std::uint16_t last = type == DType::f16 ? 0x7BFF : 0x7F7F;
    std::vector<double> middles, beyond;
    std::vector<std::uint16_t> even, upper;
    for (std::uint16_t bits = 0; bits < last; ++bits) {
      const auto value = [&](std::uint16_t b) -> double {
        return type == DType::f16 ? f32_from_f16(b) : f32_from_bf16(b);
      };
      const double middle = (value(bits) + value(static_cast<std::uint16_t>(bits + 1))) / 2;
      middles.push_back(middle);
      beyond.push_back(std::nextafter(middle, 1e300));
      even.push_back(static_cast<std::uint16_t>(bits % 2 == 0 ? bits : bits + 1));
      upper.push_back(static_cast<std::uint16_t>(bits + 1));
    }
    EXPECT_EQ(bits_of<std::uint16_t>(cast(of(middles), type)), even) << name_of(type);
    EXPECT_EQ(bits_of<std::uint16_t>(cast(of(beyond), type)), upper) << name_of(type);  // f32 would round to the tie
    EXPECT_EQ(bits_of<std::uint16_t>(cast(of(std::vector<float>(middles.begin(), middles.end())), type)), even);
  }
}

// An op of a narrow type is that of the type it computes in, rounded once.
TEST_F(ElementTypes, EveryRowComputesWideAndRoundsOnce) {
  std::mt19937 random(5);
  for (const ops::ElementwiseRow* row : ops::elementwise_rows()) {
    if (row->name.substr(0, 5) == "test_") continue;
    for (const DType type : kComputeDTypes) {
      if (!is_narrow(type) || !ops::allows(row->dtypes, type)) continue;
      std::vector<Tensor> narrow, wide;
      for (std::size_t i = 0; i < row->inputs.size(); ++i) {
        const ops::Range range = row->tested.of(i);
        std::vector<double> values;
        for (int k = 0; k < 150; ++k) {
          const double v = std::uniform_real_distribution<double>(range.lo, range.hi)(random);
          values.push_back(reference::to_type(is_float(type)            ? v
                                              : element(type).is_signed ? std::trunc(v)
                                                                        : std::trunc(std::fabs(v)),
                                              type));
        }
        narrow.push_back(numbers(values, type));
        wide.push_back(numbers(values, compute_type(type)));
      }
      std::vector<double> attributes;
      for (const auto& attribute : row->attributes)
        attributes.push_back(is_float(type) || row->result == ops::Result::floating
                                 ? attribute.tested
                                 : std::fabs(std::trunc(attribute.tested)));
      const Tensor y = elementwise(row->name, narrow, attributes), z = elementwise(row->name, wide, attributes);
      const DType expected = z.dtype() == compute_type(type) && row->result == ops::Result::same ? type
                             : is_float(type) && is_float(z.dtype())                             ? type
                                                                                                 : z.dtype();
      EXPECT_EQ(y.dtype(), expected) << row->name << " of " << name_of(type);
      EXPECT_EQ(bits_of<std::uint8_t>(cast(cast(y, y.dtype()), DType::boolean)),
                bits_of<std::uint8_t>(cast(cast(z, expected), DType::boolean)));
      const std::vector<double> got = values_of(y), want = values_of(cast(z, expected));
      for (std::size_t k = 0; k < got.size(); ++k)
        ASSERT_TRUE(same(got[k], want[k]))
            << row->name << " of " << name_of(type) << ": " << got[k] << ", not " << want[k];
    }
  }
}

TEST_F(ElementTypes, IntegersWrapAtTheirWidth) {
  EXPECT_EQ((of<std::int8_t>({127, -128, 100}) + of<std::int8_t>({1, -1, 100})).to_vector<std::int8_t>(),
            (std::vector<std::int8_t>{-128, 127, -56}));
  EXPECT_EQ((of<std::uint8_t>({3, 255}) - of<std::uint8_t>({5, 0})).to_vector<std::uint8_t>(),
            (std::vector<std::uint8_t>{254, 255}));
  EXPECT_EQ((of<std::uint16_t>({65535, 256}) * of<std::uint16_t>({65535, 257})).to_vector<std::uint16_t>(),
            (std::vector<std::uint16_t>{1, 256}));
  EXPECT_EQ((of<std::int64_t>({INT64_MAX, INT64_MIN}) + of<std::int64_t>({1, -1})).to_vector<std::int64_t>(),
            (std::vector<std::int64_t>{INT64_MIN, INT64_MAX}));
  EXPECT_EQ(elementwise("abs", {of<std::int64_t>({INT64_MIN, -7})}).to_vector<std::int64_t>(),
            (std::vector<std::int64_t>{INT64_MIN, 7}));
  EXPECT_EQ(elementwise("floor_divide", {of<std::int64_t>({INT64_MIN, 5, -7}), of<std::int64_t>({-1, 0, 2})})
                .to_vector<std::int64_t>(),
            (std::vector<std::int64_t>{INT64_MIN, 5, -4}));
  EXPECT_EQ(elementwise("bitwise_left_shift", {of<std::uint64_t>({1, 3}), of<std::uint64_t>({63, 64})})
                .to_vector<std::uint64_t>(),
            (std::vector<std::uint64_t>{std::uint64_t{1} << 63, 3}));
  EXPECT_EQ(elementwise("bitwise_right_shift", {of<std::int8_t>({-128, 127}), of<std::int8_t>({3, 1})})
                .to_vector<std::int8_t>(),
            (std::vector<std::int8_t>{-16, 63}));
  EXPECT_EQ(elementwise("bitwise_not", {of<std::uint8_t>({0, 0xF0})}).to_vector<std::uint8_t>(),
            (std::vector<std::uint8_t>{0xFF, 0x0F}));
}

TEST_F(ElementTypes, LongIntegersAreExactBeyondDoubles) {
  const std::int64_t big = (std::int64_t{1} << 53) + 1;
  const Tensor x = of<std::int64_t>({big, big - 1, -big, 3});
  EXPECT_EQ(sum(x).item<std::int64_t>(), big + 2);
  EXPECT_EQ(amax(x).item<std::int64_t>(), big);
  EXPECT_EQ(amin(x).item<std::int64_t>(), -big);
  EXPECT_EQ(argmax(of<std::int64_t>({big - 1, big, big - 1}), 0).item<std::int32_t>(), 1);
  EXPECT_EQ((x < of<std::int64_t>({big - 1, big, -big + 1, 4})).to_vector<bool>(),
            (std::vector<bool>{false, true, true, true}));
  EXPECT_EQ((x * x).to_vector<std::int64_t>()[0],
            static_cast<std::int64_t>(static_cast<std::uint64_t>(big) * static_cast<std::uint64_t>(big)));
  EXPECT_EQ(prod(of<std::uint64_t>({UINT64_MAX, 3})).item<std::uint64_t>(), UINT64_MAX - 2);
  EXPECT_EQ(amax(of<std::uint64_t>({1, UINT64_MAX, UINT64_MAX - 1})).item<std::uint64_t>(), UINT64_MAX);
  EXPECT_EQ(cast(of<std::int64_t>({-1, big}), DType::u64).to_vector<std::uint64_t>()[0], UINT64_MAX);
  EXPECT_EQ(cast(of<double>({0x1p63, -0x1p63, 1e300, 0x1p62}), DType::i64).to_vector<std::int64_t>(),
            (std::vector<std::int64_t>{INT64_MAX, INT64_MIN, INT64_MAX, std::int64_t{1} << 62}));
  EXPECT_EQ(cast(of<float>({0x1p64f, -1, 0x1p63f}), DType::u64).to_vector<std::uint64_t>(),
            (std::vector<std::uint64_t>{UINT64_MAX, 0, std::uint64_t{1} << 63}));
  // Constants meet in the plan, and are not folded where a double would round them.
  const Tensor two = full({2}, 0x1p53, DType::i64), one = full({2}, 1, DType::i64);
  EXPECT_EQ((two + one).to_vector<std::int64_t>(), (std::vector<std::int64_t>{big, big}));
  EXPECT_EQ((full({2}, 0x1p40, DType::u64) * full({2}, 0x1p20, DType::u64) - ones({2}, DType::u64))
                .to_vector<std::uint64_t>()[1],
            (std::uint64_t{1} << 60) - 1);
}

TEST_F(ElementTypes, LongIntegersOfCppAreExact) {
  constexpr std::int64_t big = (std::int64_t{1} << 60) + 1;
  const Tensor x = of<std::int64_t>({1, -1, big});
  EXPECT_EQ((x + big).to_vector<std::int64_t>(), (std::vector<std::int64_t>{big + 1, big - 1, 2 * big}));
  EXPECT_EQ((x - -big).to_vector<std::int64_t>(), (std::vector<std::int64_t>{big + 1, big - 1, 2 * big}));
  EXPECT_EQ((big - x).to_vector<std::int64_t>(), (std::vector<std::int64_t>{big - 1, big + 1, 0}));
  EXPECT_EQ((x * std::int64_t{3}).to_vector<std::int64_t>(), (std::vector<std::int64_t>{3, -3, 3 * big}));
  constexpr std::int64_t least = std::numeric_limits<std::int64_t>::min();
  EXPECT_EQ((of<std::int64_t>({1}) + least).item<std::int64_t>(), least + 1);
  constexpr std::uint64_t most = ~std::uint64_t{0};
  EXPECT_EQ((most - of<std::uint64_t>({1})).item<std::uint64_t>(), most - 1);
  EXPECT_THROW((void)(x + most), UsageError);
  EXPECT_THROW((void)(of<std::uint64_t>({1}) + -big), UsageError);
  EXPECT_EQ((tensor<float>({2}) * std::int64_t{2}).item<float>(), 4);
  EXPECT_EQ((of<std::int32_t>({2}) + std::int64_t{2}).dtype(), DType::i32);
}

TEST_F(ElementTypes, LongSumsOfLongIntegers) {
  for (const bool columns : {false, true}) {
    const Extent n = 120001;
    std::vector<std::int64_t> values;
    std::int64_t total = 0;
    std::mt19937_64 random(3);
    for (Extent i = 0; i < 2 * n; ++i) {
      values.push_back(static_cast<std::int64_t>(random() >> 18) - (std::int64_t{1} << 45));
      if ((columns ? i % 2 : i / n) == 1) total += values.back();
    }
    const Tensor x = reshape(of(values), columns ? Shape{n, 2} : Shape{2, n});
    EXPECT_EQ(sum(x, {columns ? 0 : 1}).to_vector<std::int64_t>()[1], total);
  }
}

TEST_F(ElementTypes, SumsOfFewBitsAreCountedIn32) {
  EXPECT_EQ(sum(full({1000}, 100, DType::i8)).item<std::int32_t>(), 100000);
  EXPECT_EQ(sum(full({1000}, 60000, DType::u16)).item<std::uint32_t>(), 60000000u);
  EXPECT_EQ(amax(of<std::int8_t>({-3, 100, 7})).item<std::int8_t>(), 100);
  EXPECT_EQ(mean(of<std::uint8_t>({255, 254})).item<float>(), 254.5f);
  // In f16 the running sum would stop at 2048.
  EXPECT_EQ(static_cast<float>(sum(full({4096}, 1, DType::f16)).item<Float16>()), 4096);
  EXPECT_EQ(var(full({4, 500}, 300, DType::bf16), {1}).to_vector<BFloat16>()[2], BFloat16(0.0f));
  EXPECT_EQ(argmin(of<std::uint16_t>({9, 4, 4}), 0).item<std::int32_t>(), 1);
}

TEST_F(ElementTypes, PromotionFollowsTheStandard) {
  struct Pair {
    DType a, b, met;
  };
  using enum DType;
  for (const Pair& p : {Pair{i8, i16, i16}, {i8, i32, i32},   {i8, i64, i64},    {i16, i64, i64}, {u8, u16, u16},
                        {u8, u64, u64},     {u32, u64, u64},  {i8, u8, i16},     {i16, u8, i16},  {i32, u8, i32},
                        {i64, u8, i64},     {i8, u16, i32},   {i16, u16, i32},   {i32, u16, i32}, {i8, u32, i64},
                        {i16, u32, i64},    {i32, u32, i64},  {i64, u32, i64},   {f32, f64, f64}, {f16, f32, f32},
                        {f16, bf16, f32},   {bf16, f64, f64}, {boolean, i8, i8}, {i64, f16, f16}, {u8, f32, f32}}) {
    EXPECT_EQ(promote(p.a, p.b), p.met) << name_of(p.a) << ", " << name_of(p.b);
    EXPECT_EQ(promote(p.b, p.a), p.met);
    EXPECT_EQ((ones({2}, p.a) + ones({2}, p.b)).dtype(), p.met);
    EXPECT_EQ(values_of(ones({2}, p.a) + ones({2}, p.b)), (std::vector<double>{2, 2}));
  }
  for (const DType type : {i8, i16, i32, i64}) EXPECT_THROW(promote(u64, type), DTypeError) << name_of(type);
  EXPECT_THROW(ones({2}, u64) + ones({2}, i64), DTypeError);
  EXPECT_THROW(promote(int4, f32), DTypeError);
}

TEST_F(ElementTypes, NumbersDoNotPromote) {
  EXPECT_EQ((ones({2}, DType::i8) + 100).dtype(), DType::i8);
  EXPECT_EQ((ones({2}, DType::f16) * 0.1).dtype(), DType::f16);
  EXPECT_EQ((ones({2}, DType::u64) + 0.5).dtype(), DType::f32);
  EXPECT_THROW(ones({2}, DType::i8) + 200, UsageError);
  EXPECT_THROW(ones({2}, DType::u8) - (-1), UsageError);
}

TEST_F(ElementTypes, ViewsGathersAndConcatOfEveryType) {
  for (const DType type : kComputeDTypes) {
    std::vector<double> values;
    for (int i = 0; i < 24; ++i) values.push_back(type == DType::boolean ? i % 3 == 0 : i + 1);
    const Tensor x = reshape(numbers(values, type), {2, 3, 4});
    const Tensor turned = permute(x, {2, 0, 1});
    const Tensor parts[] = {turned, flip(turned, {0})};
    const std::vector<double> got = values_of(concat(parts, 1));
    std::vector<double> want;
    for (int c = 0; c < 4; ++c)
      for (int part = 0; part < 2; ++part)
        for (int a = 0; a < 2; ++a)
          for (int b = 0; b < 3; ++b)
            want.push_back(values[static_cast<std::size_t>(12 * a + 4 * b + (part ? 3 - c : c))]);
    EXPECT_EQ(got, want) << name_of(type);
    const std::vector<double> taken = values_of(embedding(reshape(x, {6, 4}), tensor<std::int32_t>({5, 0, 9, 2})));
    for (std::size_t i = 0; i < 16; ++i) {
      const std::size_t row = std::array<std::size_t, 4>{5, 0, 9, 2}[i / 4];
      EXPECT_EQ(taken[i], row > 5 ? 0 : values[row * 4 + i % 4]) << name_of(type);
    }
    EXPECT_EQ(values_of(pad(reshape(x, {24}), {{1, 2}}))[1], values[0]) << name_of(type);
    EXPECT_EQ(values_of(pad(reshape(x, {24}), {{1, 2}}))[25], 0) << name_of(type);
  }
}

TEST_F(ElementTypes, Products) {
  std::mt19937 random(9);
  const Extent m = 33, k = 70, n = 20;
  for (const DType type : kComputeDTypes) {
    if (type == DType::boolean) continue;
    std::vector<double> a, b;
    for (Extent i = 0; i < m * k; ++i) a.push_back(static_cast<int>(random() % 9) - (element(type).is_signed ? 4 : 0));
    for (Extent i = 0; i < k * n; ++i) b.push_back(static_cast<int>(random() % 9) - (element(type).is_signed ? 4 : 0));
    const Tensor y = matmul(reshape(numbers(a, type), {m, k}), reshape(numbers(b, type), {k, n}));
    EXPECT_EQ(y.dtype(), type);
    const std::vector<double> got = values_of(y);
    for (Extent i = 0; i < m; ++i)
      for (Extent j = 0; j < n; ++j) {
        double s = 0;
        for (Extent l = 0; l < k; ++l)
          s += a[static_cast<std::size_t>(i * k + l)] * b[static_cast<std::size_t>(l * n + j)];
        ASSERT_EQ(got[static_cast<std::size_t>(i * n + j)], reference::to_type(s, type)) << name_of(type);
      }
  }
  const std::int64_t big = std::int64_t{1} << 40;
  EXPECT_EQ(matmul(reshape(of<std::int64_t>({big, 1}), {1, 2}), reshape(of<std::int64_t>({big + 3, 5}), {2, 1}))
                .item<std::int64_t>(),
            3 * big + 5);  // 2^80 wraps to 0
}

TEST_F(ElementTypes, GradientsKeepTheType) {
  const Tensor x = cast(tensor<float>({0.5f, -1.25f, 3, 0.1f}), DType::f16), w = cast(full({4, 4}, 0.25), DType::f16);
  const Tensor loss = sum(tanh(matmul(reshape(x, {1, 4}), w)) * 2.0);
  const Tensor g = grad(loss, x);
  EXPECT_EQ(g.dtype(), DType::f16);
  const double t = std::tanh((0.5 - 1.25 + 3 + 0.1) / 4);
  for (const Float16 v : g.to_vector<Float16>()) EXPECT_NEAR(v, 2 * (1 - t * t), 0.01);
}

TEST_F(ElementTypes, CompositesOfHalvesAreThoseOfFloats) {
  const Tensor x = randn({4, 64}), half = cast(x, DType::f16), wide = cast(half, DType::f32);
  const auto check = [](const Tensor& narrow, const Tensor& exact) {
    EXPECT_EQ(narrow.dtype(), DType::f16);
    const std::vector<double> got = values_of(narrow), want = values_of(exact);
    for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-3 * std::max(1.0, std::fabs(want[i])));
  };
  check(softmax(half, -1), softmax(wide, -1));
  check(reduce("logsumexp", half, {1}), reduce("logsumexp", wide, {1}));
  check(mean(half, {1}), mean(wide, {1}));
  check(gelu(half), gelu(wide));
}

TEST_F(ElementTypes, WhatIsMissingIsNamed) {
  const auto message = [](auto f) {
    try {
      f();
    } catch (const DTypeError& error) {
      return std::string(error.what());
    }
    return std::string("nothing");
  };
  EXPECT_NE(message([] {
              (void)elementwise("bitwise_and", {ones({2}, DType::f16), ones({2}, DType::f16)});
            }).find("takes integers and bool, and x is f16"),
            std::string::npos);
  EXPECT_NE(message([] {
              (void)(ones({2}, DType::u64) + ones({2}, DType::i8));
            }).find("u64 and i8 have no common type; cast one of them"),
            std::string::npos);
}

// Random graph 1110: a value that is the same along the reduced axes is reduced in a kernel that has no choice between f16.
TEST_F(ElementTypes, RepeatedNarrowValuesAreReduced) {
  for (const DType type : {DType::f16, DType::bf16, DType::i8}) {
    const Tensor x = numbers({1, -2, 3, 0}, type);
    const Tensor repeated = expand(unsqueeze(x * 2.0, 1), {4, 3});
    EXPECT_EQ(values_of(cast(amax(repeated, {1}), DType::f32)), (std::vector<double>{2, -4, 6, 0})) << name_of(type);
    EXPECT_EQ(argmin(repeated, 1).to_vector<std::int32_t>(), (std::vector<std::int32_t>{0, 0, 0, 0})) << name_of(type);
    EXPECT_EQ(values_of(cast(sum(repeated, {1}), DType::f32)), (std::vector<double>{6, -12, 18, 0})) << name_of(type);
  }
}

// Random graph 138: a kernel adds up 32 and 64 bits; other types are added up in the parts of the op.
TEST_F(ElementTypes, NarrowRowsAreAddedUpByIndex) {
  for (const DType type : {DType::f16, DType::bf16, DType::i8, DType::u16}) {
    const Tensor at = tensor<std::int32_t>({2, 0, 2}), updates = reshape(numbers({1, 2, 3, 4, 5, 6}, type), {3, 2});
    const Tensor added = graph::apply(graph::op_row("scatter_add_rows"), {at, updates}, {{"rows", Extent{3}}})[0];
    EXPECT_EQ(added.dtype(), type);
    EXPECT_EQ(values_of(cast(added, DType::f32)), (std::vector<double>{3, 4, 0, 0, 6, 8})) << name_of(type);
  }
}

}  // namespace
}  // namespace weft
