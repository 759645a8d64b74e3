// Attention on the device against the reference: widths, ragged lengths, masks, strides, forward and backward.
#include "backend/webgpu/wgsl/attention.hpp"

#include <fmt/format.h>

#include <cstdlib>
#include <span>

#include "backend/webgpu/render.hpp"
#include "backend/webgpu/render_support.hpp"
#include "backend/webgpu/wgsl/attention_support.hpp"

#if WEFT_HAS_WEBGPU
namespace weft::webgpu {
namespace {

void check(const Attention& a, double tolerance = 1e-4) {
  kernel::Plan plan;
  plan.kernels.emplace_back(a.forward);
  plan.kernels.emplace_back(a.backward);
  expect_same(plan, a.buffers, tolerance);
}

using WgslAttentionTest = RenderTest;

/// The cases that fit the time of the quick tests, or with WEFT_TEST_ALL_SHADERS all: lavapipe takes six seconds to compile
/// the shaders of each.
template <class Case, std::size_t count>
std::span<const Case> chosen(const Case (&cases)[count], std::size_t quick) {
  return std::span(cases).first(std::getenv("WEFT_TEST_ALL_SHADERS") ? count : quick);
}

struct Trial {
  AttentionCase shape;
  AttentionExtras extras;
  DType type = DType::f32;
};

TEST_F(WgslAttentionTest, ForwardAndBackwardAgreeWithTheReference) {
  std::mt19937 random(1);
  const AttentionCase cases[] = {{1, 4, 70, 70, 32, true, 2, 20}, {2, 2, 35, 35, 12, true, 0, 0, true},
                                 {1, 2, 33, 65, 40, false, 1, 7}, {1, 1, 50, 7, 9, true},
                                 {2, 2, 35, 21, 32, false},       {1, 1, 17, 33, 192, true}};
  for (const AttentionCase& c : chosen(cases, 3)) {
    SCOPED_TRACE(fmt::format("{}x{} heads, {} queries, {} keys, width {}, {}, window {}", c.batch, c.heads, c.queries,
                             c.keys, c.width, c.causal ? "causal" : "full", c.window));
    check(attention(random, c));
  }
}

TEST_F(WgslAttentionTest, HalvesAreReadAndWritten) {
  std::mt19937 random(5);
  const AttentionCase cases[] = {
      {1, 2, 33, 21, 40, true, 1}, {2, 2, 35, 35, 12, true, 0, 0, true}, {1, 1, 20, 24, 9, false}};
  for (const DType type : {DType::f16, DType::bf16})
    for (const AttentionCase& c : chosen(cases, 1)) {
      SCOPED_TRACE(fmt::format("{} width {}", name_of(type), c.width));
      check(attention(random, c, type), type == DType::f16 ? 2e-3 : 1e-2);
    }
}

TEST_F(WgslAttentionTest, MasksSpansAndDroppedShares) {
  using Mask = AttentionExtras::Mask;
  std::mt19937 random(7);
  const Trial trials[] = {{{2, 4, 45, 53, 12, true, 2, 30}, {Mask::added, true, true, true, 60}},
                          {{2, 2, 35, 35, 32, false}, {Mask::bools, false, true, false, 0}},
                          {{2, 2, 150, 140, 16, false}, {Mask::none, true, true, true, 0}},
                          {{1, 2, 33, 65, 40, true}, {Mask::bools, true, false, false, 128}},
                          {{1, 1, 20, 40, 192, false}, {Mask::added, false, false, true, 30}}};
  for (const Trial& trial : chosen(trials, 1)) {
    SCOPED_TRACE(fmt::format("width {}", trial.shape.width));
    check(attention(random, trial.shape, DType::f32, trial.extras));
  }
}

// Few queries of many keys: workgroups share the keys, and a second dispatch joins their results.
TEST_F(WgslAttentionTest, FewQueriesShareTheirKeys) {
  using Mask = AttentionExtras::Mask;
  std::mt19937 random(8);
  const Trial trials[] = {{{2, 2, 3, 1100, 12, true, 1, 700}, {Mask::added, true, true, true, 60}},
                          {{1, 2, 1, 1030, 16, true}, {}, DType::f16},
                          {{1, 1, 5, 777, 40, false}, {Mask::bools, false, true, false, 0}}};
  for (const Trial& trial : chosen(trials, 1)) {
    const Attention a = attention(random, trial.shape, trial.type, trial.extras);
    const Target target{{.storage_buffers = 16, .workgroup_bytes = 32768, .workgroup_invocations = 256},
                        0,
                        false,
                        {.compute_units = 20}};
    Rendered rendered;
    Scratch scratch(static_cast<int>(a.buffers.size()), rendered);
    render(a.forward, target, scratch, rendered);
    ASSERT_EQ(rendered.dispatches.size(), 2u);
    EXPECT_GT(rendered.dispatches[0].workgroups, 2u);
    kernel::Plan plan;
    plan.kernels.emplace_back(a.forward);
    replay(rendered, plan, a.buffers, trial.type == DType::f16 ? 2e-3 : 1e-4);
  }
}

TEST_F(WgslAttentionTest, OtherTypesAreRefused) {
  std::mt19937 random(6);
  Attention a = attention(random, {1, 1, 8, 8, 8, true}, DType::f16);
  a.forward.o.operand.type = DType::fp8_e4m3;
  EXPECT_THROW(render(kernel::Kernel(a.forward), 9,
                      {{.storage_buffers = 8, .workgroup_bytes = 32768, .workgroup_invocations = 256}, 0}),
               DTypeError);
  a = attention(random, {1, 1, 8, 8, 8, true}, DType::i32);
  EXPECT_THROW(render(kernel::Kernel(a.forward), 9,
                      {{.storage_buffers = 8, .workgroup_bytes = 32768, .workgroup_invocations = 256}, 0}),
               DTypeError);
}

TEST_F(WgslAttentionTest, NothingToAttendTo) {
  std::mt19937 random(2);
  check(attention(random, {1, 2, 5, 0, 8, false}));
  check(attention(random, {1, 2, 0, 5, 8, true}));
  check(attention(random, {0, 2, 5, 5, 8, true}));
}

TEST_F(WgslAttentionTest, OtherBlocksAndNoSubgroups) {
  std::mt19937 random(3);
  // Limits as on a large GPU and on a small one; blocks with and without reading ahead, and threads without subgroups.
  const Target large{
      {.storage_buffers = 16, .workgroup_bytes = 49152, .workgroup_invocations = 1024}, 8, false, {.compute_units = 2}};
  const Target no_subgroups{
      {.storage_buffers = 8, .workgroup_bytes = 16384, .workgroup_invocations = 256}, 0, false, {.compute_units = 16}};
  const AttentionBlock ahead{1, 4, 2, 3, true, true}, two_slabs{2, 8, 1, 2, false, false};
  struct Trial {
    const Target& target;
    const AttentionBlock* block;
    AttentionCase shape;
  };
  const Trial trials[] = {{large, &ahead, {1, 2, 40, 75, 24, true, 1, 50}},
                          {large, &two_slabs, {1, 1, 70, 65, 18, true}},
                          {no_subgroups, nullptr, {1, 1, 130, 130, 24, true}},
                          {large, &two_slabs, {1, 1, 70, 65, 70, true}}};
  for (const Trial& trial : chosen(trials, 3)) {
    const Attention a = attention(random, trial.shape);
    Rendered rendered;
    Scratch scratch(static_cast<int>(a.buffers.size()), rendered);
    render(a.forward, trial.target, scratch, rendered, trial.block);
    render(a.backward, trial.target, scratch, rendered, trial.block);
    kernel::Plan plan;
    plan.kernels.emplace_back(a.forward);
    plan.kernels.emplace_back(a.backward);
    replay(rendered, plan, a.buffers, 1e-4);
  }
}

TEST(WgslAttentionTextTest, ErrorsNameTheWidthAndTheMemory) {
  std::mt19937 random(4);
  const Target small{
      {.storage_buffers = 8, .workgroup_bytes = 4096, .workgroup_invocations = 256}, 0, true, {.compute_units = 16}};
  for (const auto& [width, part] :
       {std::pair<Extent, const char*>{260, "attention of width 260 per head; the device computes at most 256"},
        {128, "attention of width 128 needs more workgroup memory than the 4096 bytes"}})
    try {
      render(kernel::Kernel(attention(random, {1, 1, 8, 8, width, true}).forward), 9, small);
      FAIL();
    } catch (const DeviceError& error) {
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    }
}

}  // namespace
}  // namespace weft::webgpu
#endif
