// Gradients as graphs, without a device: long chains, leaks, and the messages of errors.
#include <gtest/gtest.h>

#include <ctime>

#include "base/message_of.hpp"
#include "graph/node.hpp"
#include "weft/grad.hpp"
#include "weft/ops.hpp"

namespace weft {
namespace {

using test::message_of;

constexpr Device kTrace{Device::Kind::trace, 0};

Tensor argument(const Shape& shape, DType type = DType::f32, Extent number = 0) {
  return Tensor(
      graph::make_node({.kind = graph::Kind::input, .type = type, .shape = shape, .device = kTrace, .ints = {number}}));
}

#define EXPECT_MESSAGE(Error, expression, part)                                 \
  do {                                                                          \
    const std::string message = message_of<Error>([&] { (void)(expression); }); \
    EXPECT_NE(message.find(part), std::string::npos) << message;                \
    EXPECT_NE(message.find("grad_test.cpp"), std::string::npos) << message;     \
  } while (false)

TEST(Gradients, LongChainsTakeLinearTimeAndNoStack) {
  const std::size_t before = graph::live_node_count();
  {
    auto build = [](int count) {
      const auto start = std::clock();
      Tensor x = argument({4});
      const Tensor first = x;
      for (int i = 0; i < count; ++i) x = elementwise("sin", {x});
      const Tensor g = grad(sum(x), first);
      EXPECT_EQ(g.shape(), first.shape());
      return static_cast<double>(std::clock() - start);
    };
    build(1000);
    const double small = build(10000), large = build(100000);
    EXPECT_LT(large, 40 * (small + 1e4));
  }
  EXPECT_EQ(graph::live_node_count(), before);
}

TEST(Gradients, NothingLeaks) {
  auto use = [] {
    const Tensor x = argument({2, 4}), q = argument({1, 2, 3, 4});
    const Tensor y = sum(softmax(matmul(x, transpose(x)))) + sum(attention(q, q, q));
    const Tensor g = grad(sum(grad(y, q) * q), q);
    return g.shape();
  };
  use();  // expressions are interned at their first use
  const std::size_t before = graph::live_node_count();
  for (int i = 0; i < 10; ++i) use();
  EXPECT_EQ(graph::live_node_count(), before);
}

// An op on two types computes in the wider one; each operand's gradient has the operand's own.
TEST(Gradients, HaveTheTypesOfTheirOperands) {
  const Tensor narrow = argument({3}), wide = argument({3}, DType::f64, 1);
  const Tensor y = sum(narrow * wide);
  EXPECT_EQ(y.dtype(), DType::f64);
  EXPECT_EQ(grad(y, narrow).dtype(), DType::f32);
  EXPECT_EQ(grad(y, wide).dtype(), DType::f64);
}

TEST(Gradients, ErrorsSayWhatWithOperandsAndTheCallersLine) {
  const Tensor x = argument({2, 3}), y = argument({4, 5}), i = argument({2}, DType::i32);
  EXPECT_MESSAGE(UsageError, grad(x, x), "more than one element; sum it, or give a seed");
  EXPECT_MESSAGE(DTypeError, grad(sum(i), x), "the output is not a float");
  EXPECT_MESSAGE(ShapeError, grad(x, std::vector<Tensor>{x}, y), "the seed's shape differs");
  EXPECT_MESSAGE(ShapeError, grad(x, std::vector<Tensor>{x}, argument({3, 2})), "the seed's shape differs");
  EXPECT_THROW((void)grad(Tensor(), x), UsageError);
  EXPECT_THROW((void)grad(sum(x), Tensor()), UsageError);
}

}  // namespace
}  // namespace weft
