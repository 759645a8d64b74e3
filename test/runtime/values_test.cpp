// Values: to the device and back for every dtype, printing, and the errors of asking wrongly.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>

#include "base/message_of.hpp"
#include "runtime/evaluate.hpp"
#include "weft/ops.hpp"

namespace weft {
namespace {

using test::message_of;

template <class T>
void expect_round_trip(const std::vector<T>& values, const Shape& shape) {
  std::vector<unsigned char> bytes(values.size() * sizeof(T));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const T v = values[i];
    std::memcpy(bytes.data() + i * sizeof(T), &v, sizeof(T));
  }
  const Tensor x = tensor_from_bytes(bytes.data(), shape, dtype_of<T>);
  EXPECT_EQ(x.dtype(), dtype_of<T>);
  EXPECT_EQ(x.shape(), shape);
  std::vector<unsigned char> back(bytes.size());
  x.copy_to(back.data(), back.size());
  EXPECT_EQ(back, bytes);
  // The same through a kernel.
  flip(flip(reshape(x, {x.numel()}), {0}), {0}).copy_to(back.data(), back.size());
  EXPECT_EQ(back, bytes) << "through a kernel, " << name_of(dtype_of<T>);
}

TEST(Values, RoundTripBitForBit) {
  const float quiet = std::bit_cast<float>(0x7fc12345u);
  expect_round_trip<float>({0.0f, -0.0f, 1.5f, -std::numeric_limits<float>::infinity(), quiet, 1e-45f}, {2, 3});
  expect_round_trip<double>({0.0, -0.0, 1e-310, std::numeric_limits<double>::infinity(), 1.0 / 3, -7}, {6});
  expect_round_trip<std::int32_t>(
      {0, -1, std::numeric_limits<std::int32_t>::min(), std::numeric_limits<std::int32_t>::max()}, {2, 1, 2});
  expect_round_trip<std::uint32_t>({0, 1, 4294967295u}, {3, 1});
  expect_round_trip<bool>({true, false, true, true, false}, {5});
  expect_round_trip<float>({}, {2, 0});
  expect_round_trip<float>({42.0f}, {});
}

TEST(Values, ConstantsOfEveryDTypeSaturate) {
  EXPECT_EQ(full({2}, 0.1).to_vector<float>(), std::vector<float>(2, 0.1f));
  EXPECT_EQ(full({1}, 0.1, DType::f64).item<double>(), 0.1);
  EXPECT_EQ(full({}, -2.9, DType::i32).item<std::int32_t>(), -2);
  EXPECT_EQ(full({}, 1e20, DType::i32).item<std::int32_t>(), std::numeric_limits<std::int32_t>::max());
  EXPECT_EQ(full({}, -1, DType::u32).item<std::uint32_t>(), 0u);
  EXPECT_EQ(full({}, std::nan(""), DType::i32).item<std::int32_t>(), 0);
  EXPECT_TRUE(full({}, 3, DType::boolean).item<bool>());
  EXPECT_EQ(arange(4).to_vector<std::int32_t>(), (std::vector<std::int32_t>{0, 1, 2, 3}));
  EXPECT_EQ(arange(3, DType::f32).to_vector<float>(), (std::vector<float>{0, 1, 2}));
  EXPECT_TRUE(arange(0).to_vector<std::int32_t>().empty());
}

TEST(Values, Printing) {
  EXPECT_EQ(tensor<float>({1, 2, 3.5f, -4}, {2, 2}).to_string(), "f32 [2, 2] [[1, 2], [3.5, -4]]");
  EXPECT_EQ(full({}, 3).to_string(), "f32 [] 3");
  EXPECT_EQ(tensor<bool>({true, false}).to_string(), "bool [2] [true, false]");
  EXPECT_EQ(tensor<std::int32_t>({-7}).to_string(), "i32 [1] [-7]");
  EXPECT_EQ(zeros({2, 0}).to_string(), "f32 [2, 0] [[], []]");
  EXPECT_EQ(tensor<float>({NAN, INFINITY, -INFINITY}).to_string(), "f32 [3] [nan, inf, -inf]");
  EXPECT_EQ(tensor<double>({std::copysign(NAN, -1.0)}).to_string(), "f64 [1] [nan]");
  EXPECT_EQ(cast(tensor<float>({std::copysign(NAN, -1.0f)}), DType::bf16).to_string(), "bf16 [1] [nan]");
  EXPECT_EQ(arange(2000).to_string(), "i32 [2000] [0, 1, 2, ..., 1997, 1998, 1999]");
}

TEST(Values, ErrorsSayWhatToDo) {
  const Tensor x = tensor<float>({1, 2, 3});
  // Metadata and elements name the caller's line as ops do.
  const Tensor none;
  const Variable nothing;
  float out[2];
  const struct {
    std::function<void()> use;
    const char* text;
  } wrong_uses[] = {
      {[&] { (void)x.item<float>(); }, "item: the tensor has 3 elements; item takes one\n  x  f32 [3]"},
      {[&] { (void)x.to_vector<double>(); }, "to_vector: the tensor is f32, not f64; cast it\n  x  f32 [3]"},
      {[&] { (void)sum(x).item<std::int32_t>(); }, "item: the tensor is f32, not i32; cast it\n  x  f32 []"},
      {[&] { x.copy_to(out, sizeof out); }, "copy_to: 8 bytes are given for 12 bytes\n  x  f32 [3]"},
      {[&] { (void)x.named("images").dim(7); }, "dim: axis 7 is outside of [-1, 1)\n  x  f32 [3]  \"images\""},
      {[&] { (void)x.shape().dim(-2); }, "dim: axis -2 is outside of [-1, 1)\n  shape  [3]"},
      {[&] { none.eval(); }, "tensor: used before it was given a value"},
      {[&] { (void)none.shape(); }, "tensor: used before it was given a value"},
      {[&] { (void)none.rank(); }, "tensor: used before it was given a value"},
      {[&] { (void)none.dim(0); }, "tensor: used before it was given a value"},
      {[&] { (void)none.numel(); }, "tensor: used before it was given a value"},
      {[&] { (void)none.dtype(); }, "tensor: used before it was given a value"},
      {[&] { (void)none.device(); }, "tensor: used before it was given a value"},
      {[&] { (void)none.label(); }, "tensor: used before it was given a value"},
      {[&] { (void)none.named("x"); }, "tensor: used before it was given a value"},
      {[&] { (void)none.item<float>(); }, "tensor: used before it was given a value"},
      {[&] { (void)none.to_vector<float>(); }, "tensor: used before it was given a value"},
      {[&] { (void)none.to_string(); }, "tensor: used before it was given a value"},
      {[&] { (void)none.to(kCpu); }, "tensor: used before it was given a value"},
      {[&] { (void)nothing.value(); }, "variable: used before it was given a value"},
      {[&] { (void)nothing.shape(); }, "variable: used before it was given a value"},
      {[&] { (void)nothing.numel(); }, "variable: used before it was given a value"},
  };
  for (const auto& [use, text] : wrong_uses) {
    std::string message;
    try {
      use();
    } catch (const Error& error) {
      message = error.what();
    }
    EXPECT_EQ(message.substr(0, message.find("\n  called at ")), text);
    EXPECT_NE(message.find("\n  called at test/runtime/values_test.cpp:"), std::string::npos) << message;
  }
  const std::function<void()> uses[] = {[] { (void)(Tensor() * 2.0); }, [] { (void)(Tensor() * ones({2})); }};
  for (const auto& wrong : uses)
    EXPECT_NE(message_of<UsageError>(wrong).find("mul: x was used before it was given a value\n  called at "),
              std::string::npos);
  EXPECT_NE(message_of<UsageError>([] { (void)(2.0 - Tensor()); }).find("sub: y was used before"), std::string::npos);
  EXPECT_NE(message_of<UsageError>([] {
              (void)elementwise("exp", {ones({2}), ones({2})});
            }).find("exp: takes 1 inputs (x), 2 given\n  called at "),
            std::string::npos);
  EXPECT_NE(message_of<ShapeError>([&] {
              (void)tensor<float>({1, 2}, {3});
            }).find("tensor: 2 values for shape [3] with 3 elements\n  called at "),
            std::string::npos);
  EXPECT_EQ(message_of<ShapeError>([&] { (void)tensor_from_bytes(nullptr, {-1}, DType::f32); }),
            "tensor: extent -1 of shape [-1] is negative");
}

TEST(Values, ElementsOfViewsAreReadWithoutPlans) {
  std::vector<float> values(60);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  const Tensor x = tensor<float>(values, {3, 4, 5}), turned = permute(x, {2, 0, 1});
  const std::size_t plans = runtime::compiled_plan_count();
  for (Extent i = 0; i < 3; ++i)
    for (Extent j = 0; j < 4; ++j)
      for (Extent k = 0; k < 5; ++k) {
        const float expected = static_cast<float>(20 * i + 5 * j + k);
        EXPECT_EQ(select(select(select(x, 0, i), 0, j), 0, k).item<float>(), expected);
        EXPECT_EQ(select(select(select(turned, 0, k), 0, i), 0, j).item<float>(), expected);
        EXPECT_EQ(select(reshape(flip(x, {0, 2}), {60}), 0, 20 * (2 - i) + 5 * j + 4 - k).item<float>(), expected);
      }
  EXPECT_EQ(narrow(select(x, 0, 2), 0, 1, 2).to_vector<float>(),
            (std::vector<float>{45, 46, 47, 48, 49, 50, 51, 52, 53, 54}));
  EXPECT_EQ(expand(select(select(select(x, 0, 1), 0, 1), 0, 1), {1}).item<float>(), 26);
  EXPECT_EQ(runtime::compiled_plan_count(), plans);
  // Elements that are not adjacent, and zeros around them, take a plan.
  EXPECT_EQ(select(select(x, 2, 1), 0, 1).to_vector<float>(), (std::vector<float>{21, 26, 31, 36}));
  EXPECT_EQ(pad(select(select(x, 0, 0), 0, 0), {{1, 0}}).to_vector<float>(), (std::vector<float>{0, 0, 1, 2, 3, 4}));
}

TEST(Values, NumbersThatChangeMakeTwoPlansInAll) {
  const Tensor x = tensor<float>({1, 2, 3});
  const std::size_t plans = runtime::compiled_plan_count();
  for (int i = 0; i < 50; ++i) {
    const double rate = 1.0 / (1 + i);
    const auto expected = static_cast<float>(2 * (static_cast<float>(rate) * 6.0f) + 3);
    EXPECT_FLOAT_EQ(sum(x * rate * 2.0 + 1.0).item<float>(), expected);
  }
  EXPECT_EQ(runtime::compiled_plan_count(), plans + 2);  // 1 is in the first; the others are operands of the second
  EXPECT_FLOAT_EQ(sum(x * 1.0 * 2.0 + 1.0).item<float>(), 15);
  EXPECT_FLOAT_EQ(sum(x * 0.5 * 3.0 + 1.0).item<float>(), 12);  // another number begins to change
  EXPECT_EQ(runtime::compiled_plan_count(), plans + 3);
  for (int i = 0; i < 20; ++i)
    EXPECT_FLOAT_EQ(sum(x * 0.5 * (0.1 * i) + 1.0).item<float>(), 3 + 0.3f * static_cast<float>(i));
  EXPECT_EQ(runtime::compiled_plan_count(), plans + 3);
}

TEST(Values, OperandsOfPowersKeepTheirBits) {
  const Tensor x = tensor<float>({1.7f, 2.3f});
  const auto powers = [&](double p) { return (pow(x, p) + 0.0).to_vector<float>(); };
  const auto squares = powers(2), cubes = powers(3);
  EXPECT_EQ(squares, (x * x).to_vector<float>());
  EXPECT_EQ(powers(2.5).size(), 2u);
  EXPECT_EQ(powers(2), squares);
  EXPECT_EQ(powers(3), cubes);
}

TEST(Values, StartsOfSlicesStopMakingPlans) {
  std::vector<float> values(400);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  const Tensor x = tensor<float>(values, {20, 20});
  const std::size_t plans = runtime::compiled_plan_count();
  for (Extent i = 0; i < 15; ++i) {
    const Tensor part = slice(slice(x, 0, i, i + 4, 2), 1, 18 - i, 20 - i);
    float expected = 0;
    for (Extent row : {i, i + 2})
      for (Extent column : {18 - i, 19 - i}) expected += 2 * static_cast<float>(20 * row + column);
    EXPECT_EQ(sum(part * 2.0).item<float>(), expected) << i;
  }
  EXPECT_EQ(runtime::compiled_plan_count(), plans + 5);
}

TEST(Values, ConcatOfVeryManyPartsIsComputedInPieces) {
  std::vector<Tensor> rows;
  for (int i = 0; i < 1000; ++i) {
    const auto v = static_cast<float>(i);
    rows.push_back(tensor<float>({v, v + 1, v + 2, v + 3}));
  }
  const std::size_t plans = runtime::compiled_plan_count();
  const std::vector<float> whole = (stack(rows, 0) * 2.0).to_vector<float>();
  EXPECT_LE(runtime::compiled_plan_count(), plans + 5);
  ASSERT_EQ(whole.size(), 4000u);
  for (std::size_t i = 0; i < whole.size(); ++i) ASSERT_EQ(whole[i], 2 * static_cast<float>(i / 4 + i % 4)) << i;
  // Parts that are computed, from something in common.
  const Tensor common = exp(tensor<float>({0, 1, 2, 3}));
  std::vector<Tensor> columns;
  for (int i = 0; i < 200; ++i) columns.push_back(reshape(common * static_cast<double>(i), {4, 1}));
  const Tensor wide = concat(columns, 1);
  const std::vector<float> sums = sum(wide, {1}).to_vector<float>(), base = common.to_vector<float>();
  for (std::size_t i = 0; i < 4; ++i) EXPECT_NEAR(sums[i], 19900 * base[i], 1e-1);
}

TEST(Values, EvaluatedTensorsAreReadAgain) {
  const Tensor x = tensor<float>({1, 2, 3});
  const Tensor y = x * 2.0;
  y.eval();
  EXPECT_EQ((y + x).to_vector<float>(), (std::vector<float>{3, 6, 9}));
  const Tensor both[] = {y, y * y, x};
  eval(both);
  EXPECT_EQ(both[1].to_vector<float>(), (std::vector<float>{4, 16, 36}));
  eval(std::span<const Tensor>{});
}

TEST(Values, LongChainsRun) {
  Tensor x = tensor<float>({1, 2, 3});
  for (int i = 0; i < 3000; ++i) x = x * 0.5 + 1.0;
  for (float v : x.to_vector<float>()) EXPECT_FLOAT_EQ(v, 2);
}

}  // namespace
}  // namespace weft
