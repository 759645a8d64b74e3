// Attention on subgroup matrices, with those emulated where the device has none: widths, ragged lengths, masks, groups,
// strides, steep scores; with barriers for the order inside subgroups, and without.
#include <fmt/format.h>

#include <cstdlib>
#include <span>

#include "backend/webgpu/wgsl/attention.hpp"
#include "backend/webgpu/wgsl/attention_support.hpp"
#include "backend/webgpu/wgsl/matrix_support.hpp"

#if WEFT_HAS_WEBGPU
namespace weft::webgpu {
namespace {

Target attention_gpu(bool ordered) {
  Target target = running_matrix_gpu();
  target.tested.ordered_subgroups = ordered;
  return target;
}

void check_on_matrices(const Attention& a, const MatrixAttentionBlocks& blocks, bool ordered, double tolerance = 4e-3) {
  Rendered rendered;
  Scratch scratch(static_cast<int>(a.buffers.size()), rendered);
  const Target target = attention_gpu(ordered);
  ASSERT_TRUE(render_on_matrices(a.forward, blocks, target, scratch, rendered));
  ASSERT_TRUE(render_on_matrices(a.backward, blocks, target, scratch, rendered));
  kernel::Plan plan;
  plan.kernels.emplace_back(a.forward);
  plan.kernels.emplace_back(a.backward);
  replay(rendered, plan, a.buffers, tolerance, has_real_matrices() ? nullptr : emulated);
}

// Small blocks, because emulation is slow: 32 and 16 rows a subgroup, both forms going backward.
constexpr MatrixAttentionBlocks kWide{{32, 1, 32}, {16, 1, 32, false}, {16, 2, 32, true}};
constexpr MatrixAttentionBlocks kNarrowBlocks{{16, 2, 32}, {16, 2, 16, true}, {16, 1, 16, false}};
constexpr MatrixAttentionBlocks kSmall{{16, 1, 16}, {16, 1, 16, false}, {16, 1, 16, true}};
// Workgroups that share the rows going backward, each with some channels.
constexpr MatrixAttentionBlocks kSliced{{16, 1, 16}, {16, 1, 16, false, 2}, {16, 1, 16, false, 2}};
struct MatrixTrial {
  const MatrixAttentionBlocks& blocks;
  bool ordered;
  AttentionCase shape;
  AttentionExtras extras = {};
};

using WgslMatricesAttentionTest = RenderTest;

TEST_F(WgslMatricesAttentionTest, ForwardAndBackwardAgreeWithTheReference) {
  std::mt19937 random(41);
  const MatrixTrial trials[] = {
      {kWide, true, {1, 2, 40, 64, 16, true, 1}},        {kNarrowBlocks, true, {1, 2, 50, 40, 24, true}},
      {kSliced, true, {1, 1, 33, 40, 24, true}},         {kWide, false, {1, 1, 50, 70, 24, true}},
      {kNarrowBlocks, false, {2, 1, 37, 53, 16, false}}, {kWide, true, {1, 4, 40, 70, 16, false, 2}},
      {kNarrowBlocks, true, {1, 2, 64, 64, 32, true}},   {kNarrowBlocks, false, {1, 2, 48, 48, 32, true, 0, 0, true}},
      {kWide, true, {1, 1, 90, 90, 16, true, 0, 20}},    {kNarrowBlocks, true, {1, 2, 60, 80, 16, false, 1, 9}},
      {kSliced, false, {2, 2, 40, 40, 32, false}}};
  constexpr std::size_t kQuick = 4;  // as many as fit the time of the quick tests where matrices are emulated
  const bool all = has_real_matrices() || std::getenv("WEFT_TEST_ALL_SHADERS");
  for (const MatrixTrial& trial : std::span(trials).first(all ? std::size(trials) : kQuick)) {
    const AttentionCase& c = trial.shape;
    SCOPED_TRACE(fmt::format("{}x{} heads, {} queries, {} keys, width {}, {}, window {}, {}, {} rows", c.batch, c.heads,
                             c.queries, c.keys, c.width, c.causal ? "causal" : "full", c.window,
                             trial.ordered ? "in order" : "with barriers", trial.blocks.forward.subgroup_rows));
    check_on_matrices(attention(random, c, DType::f16), trial.blocks, trial.ordered);
  }
}

// On lavapipe, as ctest filters by this name: SwiftShader takes 24 GB of memory to compile one of these shaders.
using WgslMaskedAttentionTest = RenderTest;

TEST_F(WgslMaskedAttentionTest, MasksSpansAndDroppedShares) {
  using Mask = AttentionExtras::Mask;
  std::mt19937 random(45);
  const MatrixTrial trials[] = {
      {kSmall, true, {2, 2, 40, 52, 16, true, 1, 30}, {Mask::added, true, true, true, 60}},
      {kNarrowBlocks, false, {1, 2, 50, 40, 24, false}, {Mask::bools, false, true, false, 99}},
      {kNarrowBlocks, true, {2, 2, 64, 70, 16, false, 1}, {Mask::none, true, true, true, 0}},
      {kWide, false, {1, 2, 48, 48, 32, true}, {Mask::added, true, false, false, 30}}};
  const bool all = has_real_matrices() || std::getenv("WEFT_TEST_ALL_SHADERS");
  for (const MatrixTrial& trial : std::span(trials).first(all ? std::size(trials) : 1)) {
    SCOPED_TRACE(fmt::format("width {}, {}", trial.shape.width, trial.ordered ? "in order" : "with barriers"));
    check_on_matrices(attention(random, trial.shape, DType::f16, trial.extras), trial.blocks, trial.ordered);
  }
}

// Later scores that are above the first sixteen. Less far, the reference serves, which is above the first scores. Far above,
// references rise, once or with each tile; after barriers the first attempt overflows, and the second knows the largest.
TEST_F(WgslMatricesAttentionTest, SteepScores) {
  const std::vector<double> of_tiles[] = {{1, 8, 8}, {1, 64, 64}, {1, 16, 256}, {64, 1, 1}, {1, 64, 0.01}};
  for (const int rows : {16, 32})
    for (const bool ordered : {false, true})
      for (const std::vector<double>& steep : of_tiles) {
        SCOPED_TRACE(fmt::format("{} rows, {}, {}", rows, ordered, fmt::join(steep, ", ")));
        std::mt19937 random(42);
        Attention a = attention(random, {1, 1, 32, 48, 16, false}, DType::f16);
        for (std::size_t key = 0; key < 48; ++key)
          for (std::size_t c = 0; c < 16; ++c) a.buffers[1].values[key * 16 + c] *= steep[key / 16];
        Rendered rendered;
        Scratch scratch(static_cast<int>(a.buffers.size()), rendered);
        const Target target = attention_gpu(ordered);
        ASSERT_TRUE(render_on_matrices(a.forward, {{rows, 1, 16}, {}, {}}, target, scratch, rendered));
        replay(rendered, a.forward, a.buffers, 4e-3, has_real_matrices() ? nullptr : emulated);
      }
}

// Wide heads as they are cut on a device; emulation would take minutes. The gradient of keys is as exact as O in halves and these
// steep shares allow: about 0.012 at width 256 (computed in f64 with the same roundings), more for two heads that share keys.
TEST_F(WgslMatricesAttentionTest, WideHeads) {
  if (!has_real_matrices()) GTEST_SKIP() << "the device has no subgroup matrices";
  std::mt19937 random(47);
  for (const Extent width : {136, 160, 192, 208, 256})
    for (const bool ordered : {true, false}) {
      SCOPED_TRACE(fmt::format("width {}, {}", width, ordered ? "in order" : "with barriers"));
      const Attention a = attention(random, {1, 4, 90, 130, width, true, 2}, DType::f16);
      Target target = attention_gpu(ordered);
      MatrixAttentionBlocks blocks = choose_matrix_blocks(a.backward, target);
      blocks.forward = choose_matrix_blocks(a.forward, target).forward;
      check_on_matrices(a, blocks, ordered, 3e-2);
    }
}

TEST(WgslMatricesAttentionChoiceTest, HalvesInEightsAndEnoughRows) {
  std::mt19937 random(43);
  const auto rendered_as = [&](const AttentionCase& c, DType type, const Target& target) {
    const Attention a = attention(random, c, type);
    std::string names;
    for (const kernel::AttentionKernel* kernel : {&a.forward, &a.backward}) {
      Rendered rendered;
      Scratch scratch(static_cast<int>(a.buffers.size()), rendered);
      render(*kernel, target, scratch, rendered);
      for (const RenderedDispatch& dispatch : rendered.dispatches) names += dispatch.name + " ";
    }
    return names;
  };
  const Target with = matrix_gpu();
  const AttentionCase usual{2, 2, 64, 64, 64, true};
  const char* const on_matrices = "attention.matrices attention.delta attention.matrices.dkv attention.matrices.dq ";
  EXPECT_EQ(rendered_as(usual, DType::f16, with), on_matrices);
  EXPECT_EQ(rendered_as({2, 4, 40, 72, 40, true, 2}, DType::f16, with), on_matrices);
  EXPECT_EQ(rendered_as({2, 2, 64, 64, 64, true, 0, 0, true}, DType::f16, with), on_matrices)
      << "q, k, v in one matrix";
  EXPECT_EQ(rendered_as({1, 2, 64, 64, 256, true}, DType::f16, with), on_matrices);
  const std::string plain = rendered_as(usual, DType::f16, kLargeGpu);
  EXPECT_EQ(plain.find("matrices"), std::string::npos) << plain;
  EXPECT_EQ(rendered_as(usual, DType::f32, with).find("matrices"), std::string::npos);
  EXPECT_EQ(rendered_as({2, 2, 64, 64, 60, true}, DType::f16, with).find("matrices"), std::string::npos) << "width 60";
  EXPECT_EQ(rendered_as({2, 2, 4, 64, 64, true}, DType::f16, with).find("matrices"), std::string::npos) << "4 queries";
}

}  // namespace
}  // namespace weft::webgpu
#endif
