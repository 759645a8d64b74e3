// Which kernels wait for which.
#include "backend/cpu/schedule.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace weft::cpu {
namespace {

kernel::LoopKernel loop(std::vector<kernel::Operand> reads, std::vector<kernel::Operand> writes) {
  kernel::LoopKernel made;
  made.inputs = std::move(reads);
  made.outputs = std::move(writes);
  return made;
}
kernel::Operand floats(int buffer, Extent offset, Extent count) { return {buffer, DType::f32, offset, count}; }

TEST(Schedule, AKernelWaitsForTheLastThatTouchesWhatItTouches) {
  kernel::Plan plan;
  plan.kernels.push_back(loop({floats(0, 0, 8)}, {floats(1, 0, 8)}));   // 0
  plan.kernels.push_back(loop({floats(0, 0, 8)}, {floats(1, 8, 8)}));   // 1: beside it in the same buffer
  plan.kernels.push_back(loop({floats(1, 0, 8)}, {floats(2, 0, 8)}));   // 2: reads what 0 wrote
  plan.kernels.push_back(loop({floats(1, 7, 2)}, {floats(3, 0, 2)}));   // 3: reads what 0 and 1 wrote
  plan.kernels.push_back(loop({floats(0, 0, 8)}, {floats(1, 0, 4)}));   // 4: writes what 2 read
  plan.kernels.push_back(loop({}, {floats(3, 1, 1)}));                  // 5: writes what 3 wrote
  plan.kernels.push_back(loop({floats(9, 0, 1)}, {floats(10, 0, 1)}));  // 6: touches nothing of theirs
  EXPECT_EQ(last_needed(plan, 0, 7), (std::vector<int>{-1, -1, 0, 1, 2, 3, -1}));
  EXPECT_EQ(last_needed(plan, 2, 7), (std::vector<int>{-1, -1, 0, 1, -1}));
}

TEST(Schedule, WhatARangeOfKernelsWritesIsFound) {
  kernel::Plan plan;
  plan.kernels.push_back(loop({floats(0, 0, 8)}, {floats(1, 0, 8)}));
  plan.kernels.push_back(loop({floats(1, 0, 8)}, {floats(2, 0, 8)}));
  EXPECT_TRUE(is_written(plan, 0, 2, {floats(0, 0, 8), floats(2, 7, 1)}));
  EXPECT_FALSE(is_written(plan, 0, 1, {floats(0, 0, 8), floats(2, 7, 1)}));
  EXPECT_FALSE(is_written(plan, 0, 2, {floats(0, 0, 8)}));
  EXPECT_FALSE(is_written(plan, 0, 2, {}));
}

TEST(Schedule, SizesOfElementsCount) {
  kernel::Plan plan;
  plan.kernels.push_back(loop({}, {{0, DType::f64, 4, 4}}));  // bytes 32 to 64
  plan.kernels.push_back(loop({{0, DType::f32, 0, 8}}, {}));  // bytes 0 to 32
  plan.kernels.push_back(loop({{0, DType::f32, 0, 9}}, {}));
  EXPECT_EQ(last_needed(plan, 0, 3), (std::vector<int>{-1, -1, 0}));
}

TEST(Schedule, ProductsAndAttentionTellWhatTheyTouch) {
  kernel::MatmulKernel product;
  product.a = floats(0, 0, 4);
  product.b = floats(1, 0, 4);
  product.epilogue = loop({floats(2, 0, 4)}, {floats(3, 0, 4)});
  kernel::AttentionKernel forward;
  forward.q.operand = floats(3, 0, 4);
  forward.k.operand = forward.v.operand = floats(0, 0, 4);
  forward.o.operand = floats(4, 0, 4);
  forward.logsumexp = floats(5, 0, 4);
  kernel::AttentionKernel backward = forward;
  backward.backward = true;
  backward.d_o.operand = floats(6, 0, 4);
  backward.d_q.operand = backward.d_k.operand = backward.d_v.operand = floats(7, 0, 4);
  kernel::Plan plan;
  plan.kernels = {product,
                  forward,
                  backward,
                  loop({floats(7, 0, 1)}, {}),
                  loop({}, {floats(1, 0, 1)}),
                  loop({}, {floats(2, 0, 1)})};
  EXPECT_EQ(last_needed(plan, 0, 6), (std::vector<int>{-1, 0, 1, 2, 0, 0}));
}

}  // namespace
}  // namespace weft::cpu
