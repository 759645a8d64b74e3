// Operators, brackets, literals and printing as a program writes them.
#include <gtest/gtest.h>

#include <sstream>

#include "base/message_of.hpp"
#include "weft/weft.hpp"

namespace weft {
namespace {

using test::message_of;
using Floats = std::vector<float>;
using Ints = std::vector<std::int32_t>;
using Bools = std::vector<bool>;

Floats floats(const Tensor& x) { return x.to_vector<float>(); }
Tensor grid() { return reshape(arange(12, DType::f32), {3, 4}); }

TEST(Operators, ComparisonsAndLogicTakeNumbers) {
  const Tensor x = tensor({-1.0f, 0.5f, 2.0f});
  EXPECT_EQ((x > 0.5).to_vector<bool>(), (Bools{false, false, true}));
  EXPECT_EQ((0.5 >= x).to_vector<bool>(), (Bools{true, true, false}));
  EXPECT_EQ(((x > 0) & (x < 1)).to_vector<bool>(), (Bools{false, true, false}));
  EXPECT_EQ(((x < 0) | (x > 1)).to_vector<bool>(), (Bools{true, false, true}));
  EXPECT_EQ(((x < 0) ^ (x < 1)).to_vector<bool>(), (Bools{false, true, false}));
  EXPECT_EQ((!x).to_vector<bool>(), (Bools{false, false, false}));
  EXPECT_EQ((~(x > 0)).to_vector<bool>(), (Bools{true, false, false}));
  const Tensor bits = tensor({6, 5});
  EXPECT_EQ((bits & 3).to_vector<std::int32_t>(), (Ints{2, 1}));
  EXPECT_EQ((8 | bits).to_vector<std::int32_t>(), (Ints{14, 13}));
  EXPECT_EQ((~bits).to_vector<std::int32_t>(), (Ints{-7, -6}));
  EXPECT_EQ((tensor<std::int64_t>({std::int64_t{1} << 62}) > (std::int64_t{1} << 62) - 1).to_vector<bool>(),
            (Bools{true}));
}

TEST(Operators, VariablesAndParametersStandBesideThem) {
  Variable v(tensor({1.0f, 2.0f}), "v");
  EXPECT_EQ(floats(-v), (Floats{-1, -2}));
  EXPECT_EQ(floats(2.0 * v + v), (Floats{3, 6}));
  EXPECT_EQ((v > 1.5).to_vector<bool>(), (Bools{false, true}));
  EXPECT_EQ(floats(v[1]), (Floats{2}));
  v += 1.0;
  v *= tensor(2.0f);
  v -= v / 2.0;
  EXPECT_EQ(floats(v), (Floats{2, 3}));
  Tensor x = tensor({1.0f, 2.0f}), before = x;
  x += 1.0;
  x /= x;
  EXPECT_EQ(floats(x), (Floats{1, 1}));
  EXPECT_EQ(floats(before), (Floats{1, 2}));
}

TEST(Operators, MessagesNameTheCallersLine) {
  const Tensor a = ones({2}), b = ones({3});
  const std::string line = "indexing_test.cpp:" + std::to_string(__LINE__ + 1);
  const std::string message = message_of<ShapeError>([&] { a + b; });
  EXPECT_NE(message.find(line), std::string::npos) << message;
  Tensor x = ones({2});
  const std::string wider = message_of<ShapeError>([&] { x += ones({3, 2}); });
  EXPECT_NE(wider.find("x = x + y"), std::string::npos) << wider;
  EXPECT_NE(wider.find("indexing_test.cpp"), std::string::npos) << wider;
  Tensor n = ones({2}, DType::i32);
  EXPECT_NE(message_of<DTypeError>([&] { n += 0.5; }).find("would be f32"), std::string::npos);
  EXPECT_NE(message_of<DTypeError>([&] { x& x; }).find("bitwise_and"), std::string::npos);
  EXPECT_NE(message_of<ShapeError>([&] { grid()[3]; }).find("position 3 is outside of axis 0 with extent 3"),
            std::string::npos);
}

TEST(Brackets, PositionsAndSlices) {
  const Tensor x = grid();
  EXPECT_EQ(floats(x[1]), (Floats{4, 5, 6, 7}));
  EXPECT_EQ(floats(x[-1][-2]), (Floats{10}));
  EXPECT_EQ(floats(x[{2, 1}]), (Floats{9}));
  EXPECT_EQ(floats(x[{kAll, -1}]), (Floats{3, 7, 11}));
  EXPECT_EQ(floats(x[Slice{1, kEnd}]), (Floats{4, 5, 6, 7, 8, 9, 10, 11}));
  EXPECT_EQ(floats(x[{0, Slice{1, 3}}]), (Floats{1, 2}));
  EXPECT_EQ(floats(x[{Slice{.step = -1}, 0}]), (Floats{8, 4, 0}));
  EXPECT_EQ(floats(x[{kAll, Slice{.stop = 3, .step = 2}}]), (Floats{0, 2, 4, 6, 8, 10}));
  EXPECT_EQ((x[Slice{5, 9}].shape()), (Shape{0, 4}));
  EXPECT_THROW((x[{0, 0, 0}]), ShapeError);
  EXPECT_THROW(tensor(1.0f)[0], ShapeError);
  const Tensor v = randn({3, 4});
  EXPECT_EQ(floats(grad(sum(v[{kAll, Slice{1, 3}}]), v)), (Floats{0, 1, 1, 0, 0, 1, 1, 0, 0, 1, 1, 0}));
}

TEST(Brackets, PositionsOfRowsAndMasks) {
  const Tensor x = grid();
  EXPECT_EQ(floats(x[tensor({2, 0, -1})]), (Floats{8, 9, 10, 11, 0, 1, 2, 3, 8, 9, 10, 11}));
  EXPECT_EQ(x[tensor({{0, 1}, {1, 2}})].shape(), (Shape{2, 2, 4}));
  EXPECT_EQ(floats(x[tensor({5})]), (Floats{0, 0, 0, 0}));
  EXPECT_EQ(floats(x[tensor<std::uint8_t>({1})]), (Floats{4, 5, 6, 7}));
  EXPECT_EQ(floats(x[x > 8.5]), (Floats{9, 10, 11}));
  EXPECT_EQ(floats(x[tensor({true, false, true})]), (Floats{0, 1, 2, 3, 8, 9, 10, 11}));
  EXPECT_EQ(x[x > 100].shape(), (Shape{0}));
  const Tensor twice = tensor({1, 1});
  EXPECT_EQ(floats(grad(sum(x[twice]), x)), (Floats{0, 0, 0, 0, 2, 2, 2, 2, 0, 0, 0, 0}));
  EXPECT_EQ(floats(grad(sum(square(x[x > 9.5])), x)), (Floats{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 20, 22}));
  EXPECT_THROW(x[tensor({true, false})], ShapeError);
  EXPECT_THROW(x[tensor({0.5f})], DTypeError);
  auto picked = compile([](const Tensor& v) { return sum(v[v > 0]); });
  const std::string message = message_of<UsageError>([&] { picked(x); });
  EXPECT_NE(message.find("inside a compiled function"), std::string::npos) << message;
}

TEST(Literals, NestedListsAndNumbers) {
  EXPECT_EQ(tensor({{1.0f, 2.0f}, {3.0f, 4.0f}, {5.0f, 6.0f}}).shape(), (Shape{3, 2}));
  EXPECT_EQ(tensor(5.0f).shape(), Shape{});
  EXPECT_EQ(tensor(5.0f).item<float>(), 5);
  EXPECT_EQ(tensor<float>({1}, {}).rank(), 0);
  EXPECT_EQ(tensor(std::vector<std::int64_t>{1, 2}).dtype(), DType::i64);
  EXPECT_NE(message_of<ShapeError>([] {
              tensor({{1, 2}, {3}});
            }).find("a row has 1 numbers and the first has 2"),
            std::string::npos);
}

TEST(Literals, ListsOfTensorsAndSingleAxes) {
  const Tensor a = ones({2, 2}), b = zeros({2, 2});
  EXPECT_EQ(concat({a, b}, 0).shape(), (Shape{4, 2}));
  EXPECT_EQ(stack({a, b, a}, 0).shape(), (Shape{3, 2, 2}));
  EXPECT_EQ(split(a, {1, 1}, 0).size(), 2u);
  EXPECT_EQ(sum(grid(), 1).shape(), (Shape{3}));
  EXPECT_EQ(sum(grid(), {0, 1}).shape(), Shape{});
  EXPECT_EQ(flip(tensor({1.0f, 2.0f}), -1).to_vector<float>(), (Floats{2, 1}));
  const std::vector<Tensor> g = grad(sum(a * b + a), {a, b});
  EXPECT_EQ(floats(g[0]), (Floats{1, 1, 1, 1}));
  EXPECT_EQ(floats(g[1]), (Floats{1, 1, 1, 1}));
}

TEST(Literals, EveryReductionIsAFunction) {
  const Tensor x = tensor({3.0f, 0.0f, 4.0f});
  EXPECT_EQ(norm(x).item<float>(), 5);
  EXPECT_FLOAT_EQ(stddev(x).item<float>(), 2.0816660f);
  EXPECT_FLOAT_EQ(logsumexp(x).item<float>(), 4.3265629f);
  EXPECT_EQ(count_nonzero(x).item<std::int32_t>(), 2);
  EXPECT_TRUE(any(x).item<bool>());
  EXPECT_FALSE(all(x).item<bool>());
}

std::string printed(const Tensor& x) {
  std::ostringstream out;
  out << x;
  return out.str();
}

TEST(Printing, RowsAndColumns) {
  EXPECT_EQ(printed(tensor({{1.0f, -2.5f}, {10.0f, 0.1f}})),
            "[[   1, -2.5],\n"
            " [  10,  0.1]]  f32 [2, 2]");
  EXPECT_EQ(printed(reshape(arange(8), {2, 2, 2})),
            "[[[0, 1],\n"
            "  [2, 3]],\n"
            "\n"
            " [[4, 5],\n"
            "  [6, 7]]]  i32 [2, 2, 2]");
  EXPECT_EQ(printed(tensor({true, false})), "[ true, false]  bool [2]");
  EXPECT_EQ(printed(tensor(2.5f)), "2.5  f32 []");
  EXPECT_EQ(printed(zeros({0, 3})), "[]  f32 [0, 3]");
  EXPECT_EQ(printed(arange(5000)), "[   0,    1,    2, ..., 4997, 4998, 4999]  i32 [5000]");
  EXPECT_EQ(printed(Tensor()), "(no value)");
  EXPECT_EQ(printed(tensor<std::int64_t>({9007199254740993})), "[9007199254740993]  i64 [1]");
}

}  // namespace
}  // namespace weft
