// Sizes that 64 bits do not count, and graphs that are far longer than a stack is deep.
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <functional>

#include "base/message_of.hpp"
#include "graph/node.hpp"
#include "weft/weft.hpp"

namespace weft {
namespace {

TEST(Sizes, Beyond64BitsAreRefused) {
  constexpr Extent kHuge = Extent{1} << 62, kHalf = Extent{1} << 31, kWide = Extent{1} << 32,
                   kMost = (kHuge - 1) * 2 + 1;
  const Tensor four = ones({4}), index = tensor<std::int32_t>({0, 1, 2, 3});
  const auto wide = [&] { return expand(ones({1}, DType::boolean), {kHuge}); };
  const std::pair<const char*, std::function<Tensor()>> cases[] = {
      {"rand", [&] { return rand({kHuge}); }},
      {"rand of two extents",
       [&] {
         return rand({kHalf, kHalf, 4});
       }},
      {"ones",
       [&] {
         return ones({kWide, kWide});
       }},
      {"bytes of ones",
       [&] {
         return ones({kHalf, kHalf});
       }},
      {"with an extent of 0",
       [&] {
         return ones({0, kWide, kWide});
       }},
      {"full", [&] { return full({kMost}, 1); }},
      {"expand",
       [&] {
         return expand(ones({1, 1}), {kWide, kWide});
       }},
      {"pad",
       [&] {
         return pad(four, {{kHuge - 4, 0}});
       }},
      {"pad that wraps",
       [&] {
         return pad(four, {{kMost, kMost}});
       }},
      {"concat",
       [&] {
         return concat({wide(), wide(), wide(), wide()}, 0);
       }},
      {"one_hot", [&] { return one_hot(index, kHuge / 4); }},
      {"arange", [&] { return arange(kHuge); }},
      {"a view of nothing",
       [&] {
         return reshape(ones({0}), {0, kWide, kWide});
       }},
      {"a product of wide matrices",
       [&] {
         return matmul(expand(ones({1, 1}), {kHalf, 1}), expand(ones({1, 1}), {1, kHalf}));
       }},
      {"tensor", [&] { return tensor_from_bytes(nullptr, {kHuge}, DType::f32); }},
      {"tensor of two extents",
       [&] {
         return tensor_from_bytes(nullptr, {kWide, kWide}, DType::i8);
       }},
  };
  for (const auto& [name, call] : cases) {
    SCOPED_TRACE(name);
    const std::string message = test::message_of<ShapeError>(call);
    EXPECT_NE(message.find("64 bits"), std::string::npos) << message;
  }
  // What fits is taken, however large: nothing is made of it yet.
  EXPECT_EQ(wide().numel(), kHuge);
}

// Each walk over a graph keeps its own stack, because recursion would overflow the call stack.
TEST(Chains, OfManyNodes) {
  const auto chain = [](const Tensor& x, int nodes) {
    Tensor y = x;
    for (int i = 0; i < nodes; ++i) y = i % 2 ? y * 0.5f + x : sin(y);
    return y;
  };
  const std::size_t before = graph::live_node_count();
  {
    const Tensor x = full({2}, 0.5);
    const Tensor g = grad(sum(chain(x, 100'000)), {x})[0];
    EXPECT_GT(graph::live_node_count(), 200'000u);
    const Tensor y = chain(x, 3'000), values[] = {y, grad(sum(y), {x})[0]};
    eval(values);
    for (const Tensor& value : values) EXPECT_TRUE(std::isfinite(value.to_vector<float>()[0]));
  }
  EXPECT_LE(graph::live_node_count(), before + 16);
}

TEST(Chains, OfManyNodesAreEvaluatedInPieces) {
  double expected = 0.5, slope = 1;
  const Tensor x = tensor<double>({0.5}, {1});
  Tensor y = x;
  for (int i = 0; i < 40'000; ++i) {
    y = i % 2 ? y * 0.999 + 0.001 : sin(y);
    if (i < 20'000) {
      slope *= i % 2 ? 0.999 : std::cos(expected);
      expected = i % 2 ? expected * 0.999 + 0.001 : std::sin(expected);
    }
    if (i == 19'999) {
      // Both results of a call at the border of pieces, and views of earlier values, are found again.
      const Tensor sorted = sort(concat({y, x}, 0)).values;
      EXPECT_NEAR(flip(y, {0}).item<double>(), expected, 1e-9 * std::abs(expected));
      EXPECT_NEAR(sum(sorted).item<double>(), expected + 0.5, 1e-9);
      const Tensor gradient = grad(sum(y), {x})[0];
      EXPECT_NEAR(gradient.item<double>(), slope, 1e-9 * std::abs(slope));
    }
  }
  EXPECT_TRUE(std::isfinite(y.item<double>()));
}

TEST(Chains, CompileInATimeThatGrowsWithTheirLength) {
  const auto seconds = [](int steps) {
    const Tensor w = full({8, 8}, 0.1).eval(), x = ones({4, 8}).eval();
    auto run = compile([&](Tensor start) {
      Tensor z = start;
      for (int i = 0; i < steps; ++i) z = tanh(matmul(z, w));
      return grad(sum(z), {w})[0];
    });
    const auto begin = std::chrono::steady_clock::now();
    run(x).eval();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  (void)seconds(20);
  const double some = seconds(150), many = seconds(600);
  EXPECT_LT(many, 8 * some + 0.5) << some << " s for 150 steps";
}

// How batches are collated. Compiling one kernel for all inputs took more than a minute for 10,000 rows.
TEST(Chains, StackingManyRowsTakesATimeThatGrowsWithTheirNumber) {
  const auto seconds = [](int count) {
    std::vector<Tensor> rows;
    for (int i = 0; i < count; ++i) rows.push_back(full({4}, i).eval());
    const auto begin = std::chrono::steady_clock::now();
    const Tensor stacked = stack(rows, 0).eval();
    const double taken = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    EXPECT_EQ(stacked.shape(), (Shape{count, 4}));
    EXPECT_EQ(stacked.to_vector<float>()[static_cast<std::size_t>(4 * count - 1)], static_cast<float>(count - 1));
    return taken;
  };
  (void)seconds(10);
  const double some = seconds(1000), many = seconds(10'000);
  EXPECT_LT(many, 30 * some + 0.2) << some << " s for 1,000 rows";
}

}  // namespace
}  // namespace weft
