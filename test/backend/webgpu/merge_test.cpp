// Dispatches that may run side by side become one; those that may not keep their order.
#include "backend/webgpu/merge.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "backend/webgpu/render.hpp"
#include "backend/webgpu/render_plan.hpp"
#include "backend/webgpu/render_support.hpp"

#if WEFT_HAS_WEBGPU
namespace weft::webgpu::merge_test {
namespace {

const Target kTarget{{.storage_buffers = 8, .workgroup_bytes = 16384, .workgroup_invocations = 256}};

/// out = in + 1 through workgroup memory, a workgroup of `threads` for 1,024 bytes.
RenderedDispatch plus_one(std::string name, BoundRange in, BoundRange out, int threads = 64, int shared = 64) {
  out.written = true;
  ShaderPieces shader{.threads = threads};
  shader.storage = {{"f32"}, {"f32", true}};
  shader.share("tile", "f32", shared);
  shader.functions = {{"next", "(x: f32) -> f32 { return x + 1f; }\n"}};
  shader.body =
      "  $tile[thread] = $next($data0[group * 64u + thread]);\n"
      "  workgroupBarrier();\n"
      "  $data1[group * 64u + thread] = $tile[thread];\n";
  return {std::move(name), std::move(shader), {in, out}, 4};
}

constexpr BoundRange range(int buffer, std::uint64_t offset = 0) { return {buffer, offset, 1024}; }

std::vector<std::string> names(const std::vector<RenderedDispatch>& dispatches) {
  std::vector<std::string> result;
  for (const RenderedDispatch& d : dispatches) result.push_back(d.name);
  return result;
}
using Names = std::vector<std::string>;

TEST(MergeTest, WorkThatIsIndependentBecomesOneDispatch) {
  const auto merged = merge_dispatches({plus_one("a", range(0), range(1)), plus_one("b", range(0), range(2))}, kTarget);
  ASSERT_EQ(names(merged), Names{"a | b"});
  EXPECT_EQ(merged[0].workgroups, 8u);
  ASSERT_EQ(merged[0].bindings.size(), 3u) << "the operand that both read is bound once";
  EXPECT_FALSE(merged[0].bindings[0].written);
  EXPECT_TRUE(merged[0].bindings[1].written && merged[0].bindings[2].written);
}

TEST(MergeTest, TheSameWorkInAnotherOrderIsTheSameText) {
  const auto a = [](int from) { return plus_one("a", range(from), range(from + 1)); };
  const auto b = [](int from) { return plus_one("b", range(from), range(from + 1), 64, 128); };
  const auto one = merge_dispatches({a(0), b(2)}, kTarget), other = merge_dispatches({b(4), a(6)}, kTarget);
  ASSERT_EQ(names(one), Names{"a | b"});
  ASSERT_EQ(names(other), Names{"a | b"});
  EXPECT_EQ(one[0].shader.text(), other[0].shader.text());
  EXPECT_EQ(other[0].bindings[0].buffer, 6) << "bindings follow the branches";
}

TEST(MergeTest, WhatReadsAResultOrOverwritesAnOperandComesLater) {
  const auto chain = merge_dispatches({plus_one("a", range(0), range(1)), plus_one("b", range(1), range(2))}, kTarget);
  EXPECT_EQ(names(chain), (Names{"a", "b"}));
  const auto overwrite =
      merge_dispatches({plus_one("a", range(0), range(1)), plus_one("b", range(2), range(0))}, kTarget);
  EXPECT_EQ(names(overwrite), (Names{"a", "b"}));
  const auto twice = merge_dispatches({plus_one("a", range(0), range(1)), plus_one("b", range(2), range(1))}, kTarget);
  EXPECT_EQ(names(twice), (Names{"a", "b"}));
}

TEST(MergeTest, WhatIsNotUrgentWaitsForAPlaceBesideTheLongestChain) {
  const auto merged = merge_dispatches({plus_one("a", range(0), range(1)), plus_one("side", range(0), range(5), 32),
                                        plus_one("b", range(1), range(2)), plus_one("c", range(2), range(3), 32)},
                                       kTarget);
  EXPECT_EQ(names(merged), (Names{"a", "b", "c | side"}));
}

TEST(MergeTest, WorkgroupsOfAnotherSizeStayApart) {
  const auto merged =
      merge_dispatches({plus_one("a", range(0), range(1)), plus_one("b", range(0), range(2), 32)}, kTarget);
  EXPECT_EQ(merged.size(), 2u);
}

TEST(MergeTest, BranchesShareWorkgroupMemory) {
  const auto merged = merge_dispatches(
      {plus_one("a", range(0), range(1), 64, 3000), plus_one("b", range(0), range(2), 64, 4000)}, kTarget);
  ASSERT_EQ(merged.size(), 1u);
  const std::vector<ShaderPieces::Shared>& shared = merged[0].shader.shared;
  ASSERT_EQ(shared.size(), 1u);
  EXPECT_EQ(shared[0].element, "f32");
  EXPECT_EQ(shared[0].count, 4000);
}

TEST(MergeTest, BranchesHaveNamesOfTheirOwnAndShareHelpers) {
  std::vector<RenderedDispatch> dispatches{plus_one("a", range(0), range(1)), plus_one("b", range(0), range(2))};
  for (RenderedDispatch& dispatch : dispatches) dispatch.shader.helpers.use("exp_f32");
  const auto merged = merge_dispatches(std::move(dispatches), kTarget);
  ASSERT_EQ(merged.size(), 1u);
  const std::string text = merged[0].shader.text();
  EXPECT_EQ(text.find("fn exp_f32("), text.rfind("fn exp_f32("));
  for (const char* wanted :
       {"fn next_0(x: f32)", "fn next_1(x: f32)", "shared_f32_0[thread] = next_0(data0[group * 64u + thread]);",
        "data1[group * 64u + thread] = shared_f32_0[thread];", "data2[group * 64u + thread] = shared_f32_0[thread];",
        "if (group < 4u) { branch_0(group - 0u, thread); }", "else { branch_1(group - 4u, thread); }"})
    EXPECT_NE(text.find(wanted), std::string::npos) << wanted << " in\n" << text;
  EXPECT_EQ(text.find('$'), std::string::npos);
}

TEST(MergeTest, BranchesOnMatricesKnowTheirSubgroupAndWorkgroup) {
  RenderedDispatch a = plus_one("a", range(0), range(1)), b = plus_one("b", range(0), range(2));
  b.shader.matrices = true;
  b.shader.body += "  $data1[subgroup + workgroup.z] = 0f;\n";
  const auto merged = merge_dispatches({a, b}, kTarget);
  ASSERT_EQ(names(merged), Names{"a | b"});
  const std::string text = merged[0].shader.text();
  EXPECT_NE(text.find("fn branch_1(group: u32, thread: u32, subgroup: u32, workgroup: vec3u) {"), std::string::npos);
  EXPECT_NE(text.find("branch_1(group - 4u, thread, subgroup, workgroup);"), std::string::npos) << text;
  EXPECT_NE(text.find("branch_0(group - 0u, thread);"), std::string::npos) << text;
}

TEST(MergeTest, OverlappingRangesOfABufferThatIsWrittenStayApart) {
  // b reads bytes 512 to 1536 of buffer 0 and a bytes 0 to 1024 of it, while a writes beyond them.
  const auto merged =
      merge_dispatches({plus_one("a", range(0), range(0, 4096)), plus_one("b", range(0, 512), range(1))}, kTarget);
  EXPECT_EQ(merged.size(), 2u);
}

// A buffer that is written is declared so in all its bindings, but what only reads it waits for nothing.
TEST(MergeTest, RangesThatAreOnlyReadDoNotOrderDispatches) {
  const auto reads = [](const char* name, Extent to) {
    RenderedDispatch dispatch = plus_one(name, range(0), range(0, static_cast<std::uint64_t>(to) * 1024));
    dispatch.bindings[0].written = dispatch.bindings[0].only_read = true;
    return dispatch;
  };
  const auto merged = merge_dispatches({reads("a", 1), reads("b", 2)}, kTarget);
  EXPECT_EQ(names(merged), Names{"a | b"});
  const auto chain = merge_dispatches({reads("a", 1), plus_one("b", range(0, 1024), range(1))}, kTarget);
  EXPECT_EQ(names(chain), (Names{"a", "b"}));
}

TEST(MergeTest, LongOrManyOrUnknownWorkIsLeftAlone) {
  std::vector<RenderedDispatch> dispatches{plus_one("a", range(0), range(1)), plus_one("b", range(0), range(2)),
                                           plus_one("c", range(0), range(3)), plus_one("d", range(0), range(4))};
  dispatches[0].workgroups = 5000;
  dispatches[1].operations = 1e12;
  dispatches[2].shader.verbatim = "const n = 1;\n";
  EXPECT_EQ(names(merge_dispatches(dispatches, kTarget)), (Names{"a", "b", "c", "d"}));
}

// Of a product of 2 x 10^9 operations the join of its parts has few.
TEST(MergeTest, TheJoinOfALongProductRunsBesideOtherWork) {
  constexpr Extent kSide = 128, kDepth = 65536;
  const kernel::View one{{1}, {0}, 0, {}};
  kernel::MatmulKernel product{.name = "matmul", .batch = 1, .m = kSide, .n = kSide, .k = kDepth};
  product.a = {0, DType::f32, 0, kSide * kDepth}, product.b = {1, DType::f32, 0, kSide * kDepth};
  product.a_view = kernel::matrix_view(one, kSide, 1, kDepth, kSide);
  product.b_view = kernel::matrix_view(one, kDepth, kSide, kSide, 1);
  product.epilogue.outer = kSide * kSide;
  product.epilogue.steps = {kernel::Step{kernel::StepKind::accumulator}};
  product.epilogue.outputs = {{2, DType::f32, 0, kSide * kSide}};
  product.epilogue.stores = {{0, 0, {{kSide * kSide}, {1}, 0, {}}}};
  kernel::LoopKernel loop;
  loop.name = "loop";
  loop.outer = 256;
  loop.inputs = {{3, DType::f32, 0, 256}};
  loop.outputs = {{4, DType::f32, 0, 256}};
  kernel::Step load{kernel::StepKind::load};
  load.operand = 0, load.view = {{256}, {1}, 0, {}};
  loop.steps = {load};
  loop.stores = {{0, 0, {{256}, {1}, 0, {}}}};
  const Target gpu{
      {.binding_bytes = 1u << 31, .storage_buffers = 16, .workgroup_bytes = 49152, .workgroup_invocations = 1024}};
  kernel::Plan plan;
  plan.buffers.resize(5);
  plan.kernels = {product, loop};
  EXPECT_EQ(names(render_plan(plan, gpu).dispatches), (Names{"matmul.part", "loop | matmul.join"}));
}

class MergeOnDeviceTest : public RenderTest {};

// Two sums of columns and an elementwise kernel, none of which waits for another.
TEST_F(MergeOnDeviceTest, MergedKernelsComputeTheSame) {
  std::mt19937 random(1);
  kernel::Plan plan;
  std::vector<TestBuffer> buffers;
  for (int i = 0; i < 3; ++i) {
    buffers.push_back(random_buffer(random, DType::f32, 64 * 48));
    buffers.push_back({DType::f32, reference::Values(64 * 48, 0.0)});
    kernel::LoopKernel k;
    k.name = "kernel " + std::to_string(i);
    k.outer = 48;
    k.inner = 64;
    k.inputs = {{2 * i, DType::f32, 0, 64 * 48}};
    k.outputs = {{2 * i + 1, DType::f32, 0, 64 * 48}};
    kernel::Step load{kernel::StepKind::load, DType::f32, kernel::Level::inner};
    load.operand = 0;
    load.view = {{48, 64}, {1, 48}, 0, {}};
    kernel::Step reduce{kernel::StepKind::reduce, DType::f32, kernel::Level::outer};
    reduce.a = 0;
    k.steps = {load, reduce};
    k.stores = {{1, 0, {{48}, {1}, 0, {}}}};
    plan.kernels.emplace_back(k);
  }
  Rendered rendered;
  for (const kernel::Kernel& k : plan.kernels) {
    Rendered one = render(k, static_cast<int>(buffers.size()), kTarget);
    ASSERT_EQ(one.dispatches.size(), 1u);
    rendered.dispatches.push_back(std::move(one.dispatches[0]));
  }
  rendered.dispatches = merge_dispatches(std::move(rendered.dispatches), kTarget);
  ASSERT_EQ(names(rendered.dispatches), Names{"kernel 0 | kernel 1 | kernel 2"});
  replay(rendered, plan, buffers, 1e-5);
}

}  // namespace
}  // namespace weft::webgpu::merge_test
#endif
