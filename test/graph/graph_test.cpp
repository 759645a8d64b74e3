// The graph without a device: sharing, shape rules and their messages, printing.
#include <gtest/gtest.h>

#include <cmath>

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
    EXPECT_NE(message.find("graph_test.cpp"), std::string::npos) << message;    \
  } while (false)

TEST(Graph, EqualOpsOnEqualValuesAreOneNode) {
  const Tensor x = argument({2, 3}), y = argument({2, 3});
  EXPECT_NE(x.node(), y.node());
  EXPECT_EQ((x + y).node(), (x + y).node());
  EXPECT_NE((x + y).node(), (y + x).node());
  EXPECT_EQ((x * 2.0).node(), (x * 2.0).node());
  EXPECT_NE((x * 2.0).node(), (x * 3.0).node());
  EXPECT_EQ(transpose(x).node(), permute(x, {1, 0}).node());
  EXPECT_EQ(full({2}, 0.0).node(), zeros({2}).node());
  EXPECT_NE(full({2}, 0.0).node(), full({2}, -0.0).node());
  EXPECT_EQ(full({2}, NAN).node(), full({2}, NAN).node());
  EXPECT_EQ(elementwise("absolute", {x}).node(), elementwise("abs", {x}).node());
  EXPECT_EQ(sum(x, {-1}).node(), sum(x, {1}).node());
}

TEST(Graph, IdentitiesLeaveNoNodes) {
  const Tensor x = argument({2, 3});
  EXPECT_EQ(reshape(x, {2, 3}).node(), x.node());
  EXPECT_EQ(slice(x, 0, 0).node(), x.node());
  EXPECT_EQ(pad(x, {{0, 0}, {0, 0}}).node(), x.node());
  EXPECT_EQ(expand(x, {2, 3}).node(), x.node());
  EXPECT_EQ(cast(x, DType::f32).node(), x.node());
}

TEST(Graph, ShapesAndTypesOfResults) {
  const Tensor x = argument({2, 3, 4}), i = argument({2, 3, 4}, DType::i32), b = argument({4}, DType::boolean);
  EXPECT_EQ((x + argument({3, 1})).shape(), (Shape{2, 3, 4}));
  EXPECT_EQ((argument({5, 1, 3, 4}) + x).shape(), (Shape{5, 2, 3, 4}));
  EXPECT_EQ((argument({0, 1}) + argument({1, 4})).shape(), (Shape{0, 4}));
  EXPECT_EQ((i + x).dtype(), DType::f32);
  EXPECT_EQ((i / i).dtype(), DType::f32);
  EXPECT_EQ((i * 2.0).dtype(), DType::i32);
  EXPECT_EQ((i * 2.5).dtype(), DType::f32);
  EXPECT_EQ((b + b).dtype(), DType::i32);
  EXPECT_EQ((x < i).dtype(), DType::boolean);
  EXPECT_EQ(sum(b).dtype(), DType::i32);
  EXPECT_EQ(mean(i).dtype(), DType::f32);
  EXPECT_EQ(argmax(x, -1).shape(), (Shape{2, 3}));
  EXPECT_EQ(sum(x, {0, -1}, {.keepdims = true}).shape(), (Shape{1, 3, 1}));
  EXPECT_EQ(sum(x).shape(), Shape{});
  EXPECT_EQ(sum(x, {}, {.keepdims = true}).shape(), (Shape{1, 1, 1}));
  EXPECT_EQ(reduce("argmax", x, {}, {.keepdims = true}).shape(), (Shape{1, 1, 1}));
  EXPECT_EQ(matmul(x, argument({4, 5})).shape(), (Shape{2, 3, 5}));
  EXPECT_EQ(matmul(argument({4}), argument({4})).shape(), Shape{});
  EXPECT_EQ(matmul(argument({7, 1, 3, 4}), argument({2, 4, 5})).shape(), (Shape{7, 2, 3, 5}));
  EXPECT_EQ(embedding(argument({10, 8}), argument({2, 5}, DType::i32)).shape(), (Shape{2, 5, 8}));
  EXPECT_EQ(one_hot(argument({3}, DType::i32), 7).shape(), (Shape{3, 7}));
  EXPECT_EQ(slice(x, 2, -1, kEnd, -2).shape(), (Shape{2, 3, 2}));
  EXPECT_EQ(slice(x, 2, 100).shape(), (Shape{2, 3, 0}));
  EXPECT_EQ(slice(x, 2, -3).shape(), (Shape{2, 3, 3}));
  EXPECT_EQ(slice(x, 2, -3, -1).shape(), (Shape{2, 3, 2}));
  EXPECT_EQ(flatten(x, 1).shape(), (Shape{2, 12}));
  EXPECT_EQ(stack(std::vector<Tensor>{x, x}, -1).shape(), (Shape{2, 3, 4, 2}));
}

TEST(Errors, SayWhatWithOperandsLabelsAndTheCallersLine) {
  const Tensor x = argument({2, 3}).named("weights"), y = argument({4, 5}), i = argument({2}, DType::i32);
  const std::string message = message_of<ShapeError>([&] { (void)elementwise("add", {x, y}); });
  EXPECT_NE(message.find("add: shapes do not broadcast"), std::string::npos) << message;
  EXPECT_NE(message.find("f32 [2, 3]  \"weights\""), std::string::npos) << message;
  EXPECT_NE(message.find("f32 [4, 5]"), std::string::npos) << message;
  EXPECT_NE(message.find("graph_test.cpp:" + std::to_string(__LINE__ - 4)), std::string::npos) << message;
  EXPECT_MESSAGE(ShapeError, reshape(x, {4}), "reshape: [4] has 4 elements, x has 6");
  EXPECT_MESSAGE(ShapeError, reshape(x, {-1, -1}), "only one extent may be -1");
  EXPECT_MESSAGE(ShapeError, reshape(x, {-1, 4}), "6 elements do not divide into [-1, 4]");
  EXPECT_MESSAGE(ShapeError, reshape(argument({0, 3}), {0, -1}), "0 elements do not divide into [0, -1]");
  EXPECT_MESSAGE(ShapeError, permute(x, {0}), "order has 1 axes, x has 2");
  EXPECT_MESSAGE(ShapeError, permute(x, {0, 0}), "axis 0 is given twice");
  EXPECT_MESSAGE(ShapeError, transpose(x, 0, 2), "axis 2 is outside of [-2, 2)");
  EXPECT_MESSAGE(ShapeError, expand(x, {2, 4}), "x does not broadcast to [2, 4]");
  EXPECT_MESSAGE(ShapeError, expand(x, {1, 3}), "x does not broadcast to [1, 3]");
  EXPECT_MESSAGE(ShapeError, expand(x, {3}), "x does not broadcast to [3]");
  EXPECT_MESSAGE(ShapeError, slice(x, 0, 0, 1, 0), "step is 0");
  EXPECT_MESSAGE(ShapeError, narrow(x, 1, 2, 2), "[2, 2+2) is outside of axis 1 with extent 3");
  EXPECT_MESSAGE(ShapeError, select(x, 0, 2), "index 2 is outside of axis 0 with extent 2");
  EXPECT_MESSAGE(ShapeError, pad(x, {{1, 0}}), "1 pairs for 2 axes");
  EXPECT_MESSAGE(ShapeError, pad(x, {{1, 0}, {0, -1}}), "negative padding");
  EXPECT_MESSAGE(ShapeError, unsqueeze(x, 4), "axis 4 is outside of [-3, 2]");
  EXPECT_MESSAGE(ShapeError, squeeze(x, 0), "axis 0 has extent 2, not 1");
  EXPECT_MESSAGE(ShapeError, flatten(x, 1, 0), "first axis 1 is after last axis 0");
  EXPECT_MESSAGE(ShapeError, concat(std::vector<Tensor>{x, y}, 0), "extents differ elsewhere than on axis 0");
  EXPECT_MESSAGE(DTypeError, concat(std::vector<Tensor>{i, cast(i, DType::u64)}, 0), "u64");
  EXPECT_EQ(concat(std::vector<Tensor>{i, cast(i, DType::f32)}, 0).dtype(), DType::f32);
  EXPECT_MESSAGE(ShapeError, split(x, std::vector<Extent>{1, 1}, 1), "lengths add up to 2, axis 1 has extent 3");
  EXPECT_MESSAGE(ShapeError, tril(argument({3})), "needs two axes");
  EXPECT_MESSAGE(ShapeError, sum(x, {2}), "axis 2 is outside of [-2, 2)");
  EXPECT_MESSAGE(ShapeError, amax(argument({2, 0}), {1}), "axis 1 is empty");
  EXPECT_MESSAGE(ShapeError, matmul(x, y), "columns of a differ from rows of b");
  EXPECT_MESSAGE(ShapeError, matmul(argument({2, 3, 4}), argument({5, 4, 2})), "batch axes do not broadcast");
  EXPECT_MESSAGE(ShapeError, matmul(argument({}), y), "an operand is a scalar");
  EXPECT_MESSAGE(DTypeError, matmul(x, cast(transpose(x), DType::f64)), "the dtypes differ; cast one");
  EXPECT_MESSAGE(DTypeError, matmul(argument({2, 2}, DType::boolean), argument({2, 2}, DType::boolean)),
                 "takes floats and integers");
  EXPECT_MESSAGE(ShapeError, linear(x, y), "differs from the columns of weight [out, in]");
  EXPECT_MESSAGE(DTypeError, embedding(x, argument({2})), "indices are not integers");
  EXPECT_MESSAGE(ShapeError, embedding(argument({2}), i), "table is not [rows, columns]");
  EXPECT_MESSAGE(ShapeError, take_along_axis(x, argument({3, 3}, DType::i32), 1),
                 "extents differ elsewhere than on axis 1");
  EXPECT_MESSAGE(ShapeError, scatter_add(i, argument({3, 2}), 4), "indices are not [n] with updates [n, ...]");
  EXPECT_MESSAGE(DTypeError, softmax(i), "takes floats; cast x");
  EXPECT_MESSAGE(ShapeError, layer_norm(x, argument({2}), {}), "weight is not as long as the last axis of x");
  EXPECT_MESSAGE(ShapeError, cross_entropy(x, argument({3}, DType::i32)),
                 "targets are not logits' shape without its last axis");
  EXPECT_MESSAGE(ShapeError, rope(x), "an even number of channels");
  EXPECT_MESSAGE(ShapeError, attention(x, x, x), "not q [B, H, T, D]");
  EXPECT_MESSAGE(DeviceError, elementwise("add", {x, full({}, 1, DType::f32, kCpu)}),
                 "operands on trace and cpu; move one with .to(device)");
}

TEST(Errors, OfNamesAndMissingValues) {
  const Tensor x = argument({2});
  EXPECT_NE(message_of<UsageError>([&] { (void)elementwise("tanhh", {x}); }).find("tanh"), std::string::npos);
  EXPECT_NE(message_of<UsageError>([&] { (void)elementwise("add", {x}); }).find("add: takes 2 inputs (x, y), 1 given"),
            std::string::npos);
  for (const auto& use : std::vector<std::function<void()>>{
           [] { (void)reshape({}, {1}); }, [] { (void)sum(Tensor()); }, [] { (void)softmax({}); },
           [] { (void)matmul({}, {}); }, [] { (void)Tensor().shape(); }, [] { (void)detach({}); },
           [] { (void)elementwise("exp", {Tensor()}); }, [] { (void)concat({}, 0); },
           [] { (void)attention({}, {}, {}); }})
    EXPECT_THROW(use(), UsageError);
  EXPECT_NE(message_of<ShapeError>([&] { (void)x.dim(1); }).find("dim: axis 1 is outside of [-1, 1)"),
            std::string::npos);
}

TEST(Graph, Printing) {
  const Tensor x = argument({2, 3}).named("x");
  const graph::NodeRef roots[] = {sum(elementwise("exp", {transpose(x)}), {0}).node()};
  EXPECT_EQ(graph::to_string(roots),
            "%0 = input f32 [2, 3] <0>  \"x\"\n"
            "%1 = permute f32 [3, 2] <1, 0> (%0)\n"
            "%2 = exp f32 [3, 2] (%1)\n"
            "%3 = reduce f32 [2] <0> sum (%2)\n"
            "%4 = reshape f32 [1, 2] (%3)\n"
            "%5 = reshape f32 [2] (%4)\n");
}

}  // namespace
}  // namespace weft
