// Rules that rewrite graphs.
#include "compile/rewrite.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "ops/parse.hpp"

namespace weft::compiler {
namespace {

graph::NodeRef argument(DType type) {
  return graph::make_node({.kind = graph::Kind::input, .type = type, .shape = {4}, .ints = {0}});
}
graph::NodeRef mapped(const std::string& text, const graph::NodeRef& x) {
  const std::vector<std::string> names{"x"};
  return graph::map_typed(scalar::parse(text, names), {x}, "map");
}
graph::NodeRef rewritten(const graph::NodeRef& node, const std::vector<std::string>& disabled = {}) {
  return rewrite(ordered({&node, 1}), disabled).outputs[0];
}

TEST(Rewrite, AMapThatGivesItsOperandIsTheOperand) {
  const graph::NodeRef x = argument(DType::f32);
  // Not simplified when it was made, as derivatives may be.
  scalar::Expression times_one{1,
                               {{.op = scalar::Op::input, .type = DType::f32, .slot = 0},
                                {.op = scalar::Op::constant, .type = DType::f32, .value = 1},
                                {.op = scalar::Op::mul, .type = DType::f32, .a = 0, .b = 1}}};
  const graph::NodeRef product = graph::map_typed(times_one, {x}, "mul.grad");
  ASSERT_NE(product, x);
  EXPECT_EQ(rewritten(product), x);
  EXPECT_EQ(rewritten(product, {"identity_map"}), product);
}

TEST(Rewrite, AMapThatChangesItsOperandStays) {
  const graph::NodeRef x = argument(DType::f32);
  for (const char* text : {"-x", "x + 0", "x * 0"}) {
    const graph::NodeRef node = mapped(text, x);
    EXPECT_EQ(rewritten(node), node) << text;
  }
  const graph::NodeRef copy = copy_of(x);
  EXPECT_EQ(rewritten(copy), copy);
}

// Found by random graph 635. Padded f16 tensors that are added may become one concat, but not if the sum has taken in a cast to
// f32: a concat of f16 would have the wrong type.
TEST(Rewrite, NeighbouringPadsOfAnotherTypeStay) {
  const graph::NodeRef x = argument(DType::f16);
  const std::vector<std::string> names{"x", "y"};
  const graph::NodeRef sum =
      graph::map_typed(scalar::parse("f32(x) + f32(y)", names), {graph::pad(x, {0, 4}), graph::pad(x, {4, 0})}, "add");
  ASSERT_EQ(sum->type, DType::f32);
  EXPECT_EQ(rewritten(sum), sum);
}

}  // namespace
}  // namespace weft::compiler
