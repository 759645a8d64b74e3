#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <random>

#include "tensor/element.hpp"
#include "weft/error.hpp"
#include "weft/grad.hpp"
#include "weft/grid/number_types.hpp"
#include "weft/ops.hpp"

namespace weft::grid::number_types {
namespace {

std::vector<float> quantised_values(const std::vector<float>& w, DType type) {
  return quantised(tensor<float>(w), type).to_vector<float>();
}
void expect_bits(const std::vector<float>& got, const std::vector<float>& wanted) {
  ASSERT_EQ(got.size(), wanted.size());
  for (std::size_t i = 0; i < got.size(); ++i)
    EXPECT_EQ(std::bit_cast<std::uint32_t>(got[i]), std::bit_cast<std::uint32_t>(wanted[i]))
        << i << ": " << got[i] << " " << wanted[i];
}

struct ValuesCase {
  std::string name;
  std::vector<float> values;
};
/// Weights as networks have them, and awkward ones: odd numbers of them, zeros, one outlier, equal ones, tiny and huge ones.
std::vector<ValuesCase> cases() {
  std::mt19937 engine(5);
  std::normal_distribution<float> normal;
  std::vector<ValuesCase> all = {{"zeros", std::vector<float>(7, 0)},
                                 {"negative zeros", std::vector<float>(3, -0.0f)},
                                 {"equal", std::vector<float>(5, 0.3f)},
                                 {"one", {-0.7f}},
                                 {"halves", {0.5f, -0.5f, 1, -1, 1.5f, 0}},
                                 {"positive", {1, 2, 3}},
                                 {"none", {}}};
  for (const std::size_t count : {1u, 2u, 31u, 257u, 4099u}) {
    ValuesCase c{"normal " + std::to_string(count), {}};
    for (std::size_t i = 0; i < count; ++i) c.values.push_back(normal(engine) * 0.1f);
    all.push_back(c);
  }
  ValuesCase outlier = all.back();
  outlier.name = "outlier";
  outlier.values[17] = -1234.5f;
  all.push_back(outlier);
  for (const float factor : {1e-30f, 3e-38f, 1e-42f, 1e30f}) {
    ValuesCase c = all[10];
    c.name = "times " + std::to_string(factor);
    for (float& v : c.values) v *= factor;
    all.push_back(c);
  }
  return all;
}

TEST(GridNumberTypes, ThereAreTwentyOne) {
  EXPECT_EQ(kNumberTypes.size(), 21u);
  for (const DType type : kNumberTypes) EXPECT_EQ(number_type(name_of(type)), type);
  EXPECT_EQ(number_type("fp8e4m3"), DType::fp8_e4m3);
  EXPECT_EQ(number_type("bfloat16"), DType::bf16);
  EXPECT_EQ(number_type("int8"), DType::i8);
  EXPECT_THROW(number_type("q4_0"), UsageError);
  EXPECT_THROW(number_type("int3"), UsageError);
}

// So a network that was stored packed and loaded gives the same pass.
TEST(GridNumberTypes, RoundingTwiceIsRoundingOnce) {
  for (const ValuesCase& c : cases())
    for (const DType type : kNumberTypes) {
      SCOPED_TRACE(c.name + " " + std::string(name_of(type)));
      const std::vector<float> once = quantised_values(c.values, type);
      expect_bits(quantised_values(once, type), once);
    }
}

TEST(GridNumberTypes, PackedValuesComeBackBitForBit) {
  for (const ValuesCase& c : cases())
    for (const DType type : kNumberTypes) {
      SCOPED_TRACE(c.name + " " + std::string(name_of(type)));
      const std::vector<float> values = quantised_values(c.values, type);
      const PackedValues packed = pack(values, type);
      EXPECT_EQ(packed.bytes.size(), bytes_of(type, values.size()));
      expect_bits(unpack(packed), values);
    }
}

/// The greatest distance of a value to the nearest number at the scale of the type, by its definition in f64.
TEST(GridNumberTypes, ErrorsAreAtMostHalfAStep) {
  for (const ValuesCase& c : cases()) {
    double top = 0;
    for (const float v : c.values) top = std::max(top, std::fabs(static_cast<double>(v)));
    if (top < 1e-25) continue;  // steps end at the smallest normal number
    for (const DType type : {DType::i8, DType::u8, DType::int4, DType::uint4, DType::int2, DType::uint2}) {
      SCOPED_TRACE(c.name + " " + std::string(name_of(type)));
      const double most = std::ldexp(1.0, element(type).bits - 1) - 1, step = top / most;
      const std::vector<float> got = quantised_values(c.values, type);
      for (std::size_t i = 0; i < got.size(); ++i)
        EXPECT_LE(std::fabs(static_cast<double>(got[i]) - static_cast<double>(c.values[i])), 0.505 * step) << i;
    }
    for (const DType type : {DType::i16, DType::u16, DType::i32, DType::u32, DType::i64, DType::u64}) {
      SCOPED_TRACE(c.name + " " + std::string(name_of(type)));
      const double step = top * std::ldexp(1.0, 2 - element(type).bits);
      const std::vector<float> got = quantised_values(c.values, type);
      for (std::size_t i = 0; i < got.size(); ++i)
        EXPECT_LE(std::fabs(static_cast<double>(got[i]) - static_cast<double>(c.values[i])), step) << i;
    }
    for (const DType type : {DType::fp8_e4m3, DType::fp8_e5m2, DType::fp4_e2m1}) {
      SCOPED_TRACE(c.name + " " + std::string(name_of(type)));
      const double scale = top / element(type).highest;
      const std::vector<float> got = quantised_values(c.values, type);
      for (std::size_t i = 0; i < got.size(); ++i) {
        const double wanted = rounded_to(type, static_cast<double>(c.values[i]) / scale) * scale;
        // A scale that is rounded to bf16 moves some values over the middle between two numbers.
        const double unit =
            std::fabs(static_cast<double>(c.values[i])) * std::ldexp(1.0, 1 - element(type).digits) + scale;
        EXPECT_NEAR(got[i], wanted, unit) << i;
      }
    }
  }
}

TEST(GridNumberTypes, FloatsOfSixteenBitsRoundToTheNearest) {
  const std::vector<float> w = {1.0f + 0x1p-9f, 0.1f, -65520.0f, 1e6f, -0.0f, 0x1.01p0f, 0x1.03p0f};
  for (const DType type : {DType::f16, DType::bf16}) {
    const std::vector<float> got = quantised_values(w, type);
    for (std::size_t i = 0; i < w.size(); ++i) {
      const double within = std::clamp(static_cast<double>(w[i]), element(type).lowest, element(type).highest);
      EXPECT_EQ(static_cast<double>(got[i]), rounded_to(type, within)) << name_of(type) << " " << i;
    }
  }
}

TEST(GridNumberTypes, TernaryAndBinaryHaveTheirScales) {
  const std::vector<float> w = {1, -1, 0.25f, 0.125f, -0.375f, 0};  // mean |w| = 0.458..., threshold 0.32...
  const float ternary = 0.79296875f;                                // bf16 of (1 + 1 + 0.375) / 3
  EXPECT_EQ(quantised_values(w, DType::ternary), (std::vector<float>{ternary, -ternary, 0, 0, -ternary, 0}));
  const float binary = 0.458984375f;  // bf16 of 2.75 / 6
  EXPECT_EQ(quantised_values(w, DType::binary),
            (std::vector<float>{binary, -binary, binary, binary, -binary, -binary}));
}

TEST(GridNumberTypes, UnsignedTypesHaveTheirZeroInTheMiddle) {
  const PackedValues packed = pack(quantised_values({-1, 0, 1}, DType::u8), DType::u8);
  EXPECT_EQ(std::to_integer<int>(packed.bytes[0]), 1);
  EXPECT_EQ(std::to_integer<int>(packed.bytes[1]), 128);
  EXPECT_EQ(std::to_integer<int>(packed.bytes[2]), 255);
  const PackedValues narrow = pack(quantised_values({-1, 0, 1}, DType::uint2), DType::uint2);
  EXPECT_EQ(std::to_integer<int>(narrow.bytes[0]), 1 | 2 << 2 | 3 << 4);
}

TEST(GridNumberTypes, GradientsGoStraightThrough) {
  const Tensor w = tensor<float>({0.3f, -0.7f, 0.01f, 1.0f}), c = tensor<float>({1.0f, 2.0f, -3.0f, 0.5f});
  for (const DType type : kNumberTypes)
    EXPECT_EQ(grad(sum(quantised(w, type) * c), w).to_vector<float>(), c.to_vector<float>()) << name_of(type);
}

TEST(GridNumberTypes, RefuseWhatIsNotTheirs) {
  EXPECT_THROW(quantised(tensor<double>({1.0}), DType::i8), DTypeError);
  EXPECT_THROW(quantised(ones({2}), DType::q4_0), DTypeError);
  EXPECT_THROW(quantised(Tensor(), DType::i8), UsageError);
  EXPECT_THROW(pack(std::vector<float>{1, 0.3f}, DType::int2), UsageError);
  EXPECT_THROW(pack(std::vector<float>{NAN}, DType::i8), UsageError);
  EXPECT_THROW(pack(std::vector<float>{INFINITY, 1}, DType::fp8_e5m2), UsageError);
  EXPECT_THROW(unpack({DType::i8, 1, 3, std::vector<std::byte>(2)}), UsageError);
  EXPECT_THROW(unpack({DType::i8, NAN, 1, std::vector<std::byte>(1)}), UsageError);
  EXPECT_THROW(unpack({DType::q4_0, 1, 32, std::vector<std::byte>(18)}), UsageError);
}

}  // namespace
}  // namespace weft::grid::number_types
