// Operands cut down to what the views of a kernel reach.
#include "compile/trim.hpp"

#include <gtest/gtest.h>

namespace weft::compiler {
namespace {

using kernel::LoopKernel;
using kernel::Operand;
using kernel::Step;
using kernel::StepKind;
using kernel::View;

LoopKernel copy(View from, View to, Operand in, Operand out) {
  LoopKernel k;
  k.outer = 6;
  k.inputs = {in};
  k.outputs = {out};
  Step load{StepKind::load};
  load.operand = 0;
  load.view = std::move(from);
  k.steps = {load};
  k.stores = {{0, 0, std::move(to)}};
  return k;
}

const LoopKernel& trimmed(kernel::Kernel& k) {
  trim_operands(k);
  return std::get<LoopKernel>(k);
}

TEST(TrimTest, BeginsAndEndsWhereTheViewsDo) {
  kernel::Kernel k = copy({{2, 3}, {10, 1}, 7, {}}, {{6}, {1}, 0, {}}, {0, DType::f32, 100, 50}, {1, DType::f32, 0, 6});
  const LoopKernel& n = trimmed(k);
  EXPECT_EQ(n.inputs[0].offset, 107);
  EXPECT_EQ(n.inputs[0].count, 13);
  EXPECT_EQ(n.steps[0].view.offset, 0);
  EXPECT_EQ(n.outputs[0], (Operand{1, DType::f32, 0, 6}));
}

TEST(TrimTest, NegativeStridesReachBackwards) {
  kernel::Kernel k = copy({{6}, {-2}, 20, {}}, {{6}, {1}, 0, {}}, {0, DType::f32, 0, 50}, {1, DType::f32, 0, 6});
  const LoopKernel& n = trimmed(k);
  EXPECT_EQ(n.inputs[0].offset, 10);
  EXPECT_EQ(n.inputs[0].count, 11);
  EXPECT_EQ(n.steps[0].view.offset, 10);
}

TEST(TrimTest, OnlyWhatLiesWithinTheBoundsIsReached) {
  // A view that is padded by two on the left: coordinate 2 is element 0.
  kernel::Kernel k = copy({{6}, {1}, -2, {{2, 5}}}, {{6}, {1}, 0, {}}, {0, DType::f32, 0, 50}, {1, DType::f32, 0, 6});
  const LoopKernel& n = trimmed(k);
  EXPECT_EQ(n.inputs[0].offset, 0);
  EXPECT_EQ(n.inputs[0].count, 3);
  EXPECT_EQ(n.steps[0].view.offset, -2);
}

TEST(TrimTest, AProductsOperandIsCutToItsWindowsWithinTheEdges) {
  kernel::MatmulKernel product;
  product.batch = 1, product.m = 4, product.n = 1, product.k = 3;
  product.a = {0, DType::f32, 10, 50};
  product.b = {1, DType::f32, 0, 3};
  // Windows of three of a row that begins at element 5, the first of which is a zero of the pad.
  const View one{{1}, {0}, 0, {}};
  product.a_view = kernel::matrix_view({{1}, {0}, 4, {}}, 4, 1, 3, 1);
  product.b_view = kernel::matrix_view(one, 3, 1, 1, 1);
  kernel::Kernel plain = product;
  trim_operands(plain);
  const auto& cut = std::get<kernel::MatmulKernel>(plain);
  EXPECT_EQ(cut.a, (Operand{0, DType::f32, 14, 6}));
  EXPECT_EQ(cut.a_view.at.batch.offset, 0);
  product.a_view = kernel::matrix_view({{1}, {0}, -1, {}}, 4, 1, 3, 1);
  product.a_view.edges = {{{one, {{4}, {1}, 0, {}}, {{3}, {1}, 0, {}}}, 1, 6}};
  kernel::Kernel padded = product;
  trim_operands(padded);
  const auto& within = std::get<kernel::MatmulKernel>(padded);
  EXPECT_EQ(within.a, (Operand{0, DType::f32, 10, 5}));
  EXPECT_EQ(within.a_view.at.batch.offset, -1);
}

TEST(TrimTest, AGatherReachesEveryRow) {
  kernel::Kernel k = copy({{6}, {1}, 3, {}}, {{6}, {1}, 0, {}}, {0, DType::f32, 0, 500}, {1, DType::f32, 0, 6});
  Step& gather = std::get<LoopKernel>(k).steps[0];
  gather.kind = StepKind::gather;
  gather.axis_stride = 10;
  gather.axis_extent = 4;
  const LoopKernel& n = trimmed(k);
  EXPECT_EQ(n.inputs[0].offset, 3);
  EXPECT_EQ(n.inputs[0].count, 36);
  EXPECT_EQ(n.steps[0].view.offset, 0);
}

TEST(TrimTest, WhatIsUpdatedInPlaceStaysOneRange) {
  const Operand same{0, DType::f32, 0, 50};
  kernel::Kernel k = copy({{6}, {1}, 10, {}}, {{6}, {1}, 10, {}}, same, same);
  Step more = std::get<LoopKernel>(k).steps[0];
  more.view.offset = 30;
  std::get<LoopKernel>(k).steps.push_back(more);
  const LoopKernel& n = trimmed(k);
  EXPECT_EQ(n.inputs[0], n.outputs[0]);
  EXPECT_EQ(n.inputs[0].offset, 10);
  EXPECT_EQ(n.inputs[0].count, 26);
  EXPECT_EQ(n.stores[0].view.offset, 0);
  EXPECT_EQ(n.steps[1].view.offset, 20);
}

TEST(TrimTest, WhatIsUpdatedInTwoPlacesStaysOneRange) {
  const Operand same{0, DType::f32, 0, 50};
  kernel::Kernel k = copy({{6}, {1}, 10, {}}, {{6}, {1}, 10, {}}, same, same);
  kernel::Store more = std::get<LoopKernel>(k).stores[0];
  more.view.offset = 30;
  std::get<LoopKernel>(k).stores.push_back(more);
  const LoopKernel& n = trimmed(k);
  EXPECT_EQ(n.inputs[0], n.outputs[0]);
  EXPECT_EQ(n.inputs[0].offset, 10);
  EXPECT_EQ(n.inputs[0].count, 26);
  EXPECT_EQ(n.steps[0].view.offset, 0);
  EXPECT_EQ(n.stores[1].view.offset, 20);
}

TEST(TrimTest, OperandsOfPackedTypesBeginAtAWholeByte) {
  kernel::Kernel k = copy({{6}, {1}, 7, {}}, {{6}, {1}, 5, {}}, {0, DType::int4, 14, 50}, {1, DType::binary, 8, 20});
  const LoopKernel& n = trimmed(k);
  EXPECT_EQ(n.inputs[0], (Operand{0, DType::int4, 16, 11}));  // elements 21 to 26
  EXPECT_EQ(n.steps[0].view.offset, 5);
  EXPECT_EQ(n.outputs[0], (Operand{1, DType::binary, 8, 11}));  // elements 13 to 18
  EXPECT_EQ(n.stores[0].view.offset, 5);
}

TEST(TrimTest, NothingReachedIsLeftAlone) {
  kernel::Kernel k = copy({{0}, {1}, 10, {}}, {{6}, {1}, 0, {}}, {0, DType::f32, 5, 50}, {1, DType::f32, 0, 6});
  EXPECT_EQ(trimmed(k).inputs[0], (Operand{0, DType::f32, 5, 50}));
}

}  // namespace
}  // namespace weft::compiler
