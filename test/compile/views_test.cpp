// Views and the rewrites of views by their values: each case is computed as it is compiled, and without any rewrite.
#include <gtest/gtest.h>

#include <functional>

#include "compile/evaluate_plan.hpp"
#include "compile/rewrite.hpp"
#include "weft/grad.hpp"
#include "weft/ops.hpp"

namespace weft::test {
namespace {

using Numbers = std::vector<double>;

struct ViewCase {
  const char* name;
  Shape shape;  // of an argument with the values 1, 2, 3 ...
  std::function<Tensor(const Tensor&)> make;
  Numbers wanted;
};

Tensor padded(const Tensor& x, Extent before, Extent after) { return pad(x, {{before, after}}); }

const ViewCase kViewCases[] = {
    {"windows",
     {5},
     [](const Tensor& x) { return unfold(x, 0, 3) + 0.5; },
     {1.5, 2.5, 3.5, 2.5, 3.5, 4.5, 3.5, 4.5, 5.5}},
    {"windows with steps, dilated",
     {8},
     [](const Tensor& x) { return unfold(x, 0, 2, 3, 4) * 1.0 + 0.0; },
     {1, 5, 4, 8}},
    {"windows along the first axis, of a flip",
     {3, 2},
     [](const Tensor& x) { return unfold(flip(x, {0}), 0, 2) + 0.5; },
     {5.5, 3.5, 6.5, 4.5, 3.5, 1.5, 4.5, 2.5}},
    {"a product over nothing, of reshaped values",
     {4},
     [](const Tensor& x) {
       return matmul(reshape(slice(x, 0, 0, 0), {3, 0}), reshape(slice(x, 0, 4), {0, 2})) + 1.0;
     },
     {1, 1, 1, 1, 1, 1}},
    {"sums of windows of a pad",
     {3},
     [](const Tensor& x) { return sum(unfold(padded(x, 1, 1), 0, 3), {1}); },
     {3, 6, 5}},
    {"windows of windows",
     {4},
     [](const Tensor& x) {
       return sum(unfold(unfold(x, 0, 2), 0, 2), {1, 2});
     },
     {8, 12}},
    {"gradient of windows",
     {5},
     [](const Tensor& x) { return grad(sum(square(unfold(x, 0, 3))), x); },
     {2, 8, 18, 16, 10}},
    {"gradient of windows with steps and a rest",
     {6},
     [](const Tensor& x) { return grad(sum(square(unfold(x, 0, 3, 2))), x); },
     {2, 4, 12, 8, 10, 0}},
    {"gradient of dilated windows with steps",
     {6},
     [](const Tensor& x) { return grad(sum(square(unfold(x, 0, 2, 2, 3))), x); },
     {2, 0, 6, 8, 0, 12}},
    {"gradient of long windows",
     {20},
     [](const Tensor& x) { return grad(sum(unfold(x, 0, 18)), x); },
     {1, 2, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 2, 1}},
    {"second gradient of windows",
     {4},
     [](const Tensor& x) { return grad(sum(square(grad(sum(square(unfold(x, 0, 2))), x))), x); },
     {8, 64, 96, 32}},
    {"flip of pad", {3}, [](const Tensor& x) { return flip(padded(x, 2, 1), {0}) * 2.0; }, {0, 6, 4, 2, 0, 0}},
    {"flip of pad, nothing before",
     {3},
     [](const Tensor& x) { return flip(padded(x, 0, 2), {0}) * 2.0; },
     {0, 0, 6, 4, 2}},
    {"every second of pad, backwards",
     {4},
     [](const Tensor& x) { return slice(padded(x, 1, 2), 0, -1, -100, -2) * 1.5; },
     {0, 6, 3, 0}},
    {"every third of pad, backwards",
     {4},
     [](const Tensor& x) { return slice(padded(x, 2, 3), 0, 7, -100, -3) * 1.0 + 0.5; },
     {0.5, 3.5, 0.5}},
    {"slice from the end", {5}, [](const Tensor& x) { return slice(x, 0, -3, -1) * 1.0 + 0.5; }, {3.5, 4.5}},
    {"slice backwards from the end",
     {5},
     [](const Tensor& x) { return slice(x, 0, -2, -5, -1) + 0.5; },
     {4.5, 3.5, 2.5}},
    {"pad of flip", {3}, [](const Tensor& x) { return padded(flip(x, {0}), 1, 1) * 2.0; }, {0, 6, 4, 2, 0}},
    {"pad of pad", {2}, [](const Tensor& x) { return padded(padded(x, 1, 1), 2, 0) + 1.0; }, {1, 1, 1, 2, 3, 1}},
    {"pad of a part of a pad",
     {3},
     [](const Tensor& x) { return padded(slice(padded(x, 2, 2), 0, 3, 5), 1, 1) + 1.0; },
     {1, 3, 4, 1}},
    {"pad of a part of a pad, backwards",
     {3},
     [](const Tensor& x) { return padded(slice(padded(x, 2, 2), 0, 4, 2, -1), 1, 2) + 1.0; },
     {1, 4, 3, 1, 1}},
    {"narrow within the pad", {3}, [](const Tensor& x) { return narrow(padded(x, 4, 4), 0, 0, 3) + 1.0; }, {1, 1, 1}},
    {"sum of pads with a gap between",
     {4},
     [](const Tensor& x) { return padded(narrow(x, 0, 0, 2), 0, 5) + padded(narrow(x, 0, 2, 2), 5, 0); },
     {1, 2, 0, 0, 0, 3, 4}},
    {"sum of neighbouring pads",
     {4},
     [](const Tensor& x) { return padded(narrow(x, 0, 0, 2), 1, 3) + padded(narrow(x, 0, 2, 2), 3, 1); },
     {0, 1, 2, 3, 4, 0}},
    {"sum of neighbouring pads, the later first",
     {4},
     [](const Tensor& x) { return padded(narrow(x, 0, 2, 2), 3, 1) + padded(narrow(x, 0, 0, 2), 1, 3); },
     {0, 1, 2, 3, 4, 0}},
    {"sum of overlapping pads",
     {4},
     [](const Tensor& x) { return padded(narrow(x, 0, 0, 3), 0, 2) + padded(narrow(x, 0, 1, 3), 2, 0); },
     {1, 2, 5, 3, 4}},
    {"neighbouring pads, the second times alpha",
     {4},
     [](const Tensor& x) {
       return elementwise("add", {padded(narrow(x, 0, 0, 2), 0, 2), padded(narrow(x, 0, 2, 2), 2, 0)}, {3.0});
     },
     {1, 2, 9, 12}},
    {"a concat of another axis beside a neighbour",
     {2, 2},
     [](const Tensor& x) {
       const Tensor parts[] = {narrow(x, 0, 0, 1), narrow(x, 0, 1, 1)};
       return pad(concat(parts, 0), {{0, 0}, {0, 2}}) + pad(x, {{0, 0}, {2, 0}});
     },
     {1, 2, 1, 2, 3, 4, 3, 4}},
    {"pads that differ on two axes",
     {1, 2},
     [](const Tensor& x) {
       return pad(x, {{0, 1}, {0, 2}}) + pad(x, {{1, 0}, {2, 0}});
     },
     {1, 2, 0, 0, 0, 0, 1, 2}},
    {"permute of a concat",
     {2, 2},
     [](const Tensor& x) {
       const Tensor parts[] = {x, x * 10.0};
       return permute(concat(parts, 0), {1, 0}) + 0.5;
     },
     {1.5, 3.5, 10.5, 30.5, 2.5, 4.5, 20.5, 40.5}},
    {"gradient of slices with a gap",
     {7},
     [](const Tensor& x) { return grad(sum(square(narrow(x, 0, 0, 2))) + sum(square(narrow(x, 0, 5, 2))), x); },
     {2, 4, 0, 0, 0, 12, 14}},
    {"gradient of neighbouring slices",
     {5},
     [](const Tensor& x) { return grad(sum(square(narrow(x, 0, 1, 2))) + sum(square(narrow(x, 0, 3, 2))), x); },
     {0, 4, 6, 8, 10}},
    {"gradient of a slice with steps, backwards",
     {7},
     [](const Tensor& x) { return grad(sum(square(slice(x, 0, 5, -100, -2))), x); },
     {0, 4, 0, 8, 0, 12, 0}},
    {"gradient of an embedding in a part of the table",
     {5, 1},
     [](const Tensor& x) { return grad(sum(square(narrow(x, 0, 1, 3))), x); },
     {0, 4, 6, 8, 0}},
};

TEST(Views, HaveTheirValuesWithEveryRewriteAndWithNone) {
  std::vector<std::string> all;
  for (const auto& rule : compiler::rewrites()) all.emplace_back(rule.name);
  std::vector<compiler::Settings> ways = {{}, {.fusion = false}, {.disabled_rewrites = all}};
  for (const std::string& rule : all) ways.push_back({.disabled_rewrites = {rule}});
  for (const ViewCase& c : kViewCases) {
    SCOPED_TRACE(c.name);
    Arguments arguments;
    Numbers values(static_cast<std::size_t>(c.shape.numel()));
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(i + 1);
    const std::vector<Tensor> outputs{c.make(arguments.make(c.shape, values))};
    for (const compiler::Settings& way : ways) EXPECT_EQ(evaluate(outputs, arguments, way)[0], c.wanted);
  }
}

// Rows by index from a part of a table: the part begins where the narrowed operand does.
TEST(Views, RowsOfAPartOfATable) {
  Arguments arguments;
  const Tensor table = arguments.make({5, 2}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10});
  const Tensor at = arguments.make({3}, {2, 0, 7}, DType::i32);
  const std::vector<Tensor> outputs{embedding(narrow(table, 0, 1, 3), at) + 0.5};
  EXPECT_EQ(evaluate(outputs, arguments)[0], (Numbers{7.5, 8.5, 3.5, 4.5, 0.5, 0.5}));
}

}  // namespace
}  // namespace weft::test
