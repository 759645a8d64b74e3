// Attention of a prompt over caches in f16 on subgroup matrices: sequences side by side, padding, windows, shared heads.
#include "backend/webgpu/wgsl/cache_attention_matrices.hpp"

#include <cmath>
#include <limits>

#include "backend/webgpu/wgsl/matrix_support.hpp"
#include "compile/call_attributes.hpp"
#include "graph/cache.hpp"

#if WEFT_HAS_WEBGPU
namespace weft::webgpu {
namespace {

struct Prompt {
  kernel::CallKernel kernel;
  std::vector<TestBuffer> buffers;
};

Prompt prompt(std::mt19937& random, Extent tokens, Extent heads, Extent width, Extent rows,
              const graph::CacheAttention& attributes) {
  Prompt p;
  const Extent cached = attributes.kv_heads * width;
  p.buffers = {random_buffer(random, DType::f32, tokens * heads * width),
               random_buffer(random, DType::f16, rows * cached),
               random_buffer(random, DType::f16, rows * cached),
               TestBuffer{DType::i32, {}},
               TestBuffer{DType::i32, {}},
               random_buffer(random, DType::f32, tokens * heads * width)};
  // Two sequences that grow by a token each time, and padding between them.
  const Extent half = tokens / 2;
  for (Extent t = 0; t < tokens; ++t) {
    p.buffers[3].values.push_back(t < half ? 3 : static_cast<double>(rows / 2));
    p.buffers[4].values.push_back(t % 11 == 5 ? 0 : static_cast<double>(t % half + 5));
  }
  kernel::CallKernel& k = p.kernel;
  k.name = "cache_attention";
  k.op = &graph::cache_attention_row();
  k.shapes = {{tokens, heads, width}, {rows, cached}, {rows, cached}, {tokens}, {tokens}};
  for (int b = 0; b < 6; ++b) {
    const TestBuffer& buffer = p.buffers[static_cast<std::size_t>(b)];
    const kernel::Operand operand{b, buffer.type, 0, static_cast<Extent>(buffer.values.size())};
    if (b < 5) k.types.push_back(buffer.type);
    (b < 5 ? k.reads : k.outs).push_back(operand);
  }
  k.out_types = {DType::f32};
  k.out_shapes = {k.shapes[0]};
  k.attributes = graph::words_of(k.op->attributes, attributes);
  return p;
}

using WgslMatricesCacheAttentionTest = RenderTest;

TEST_F(WgslMatricesCacheAttentionTest, AgreesWithTheReference) {
  std::mt19937 random(51);
  const graph::CacheAttention plain{.type = CacheType::f16, .kv_heads = 2, .scale = 0.4, .exact = false},
      windowed{.type = CacheType::f16, .kv_heads = 1, .scale = 0.3, .window = 6, .exact = false};
  for (const Prompt& p : {prompt(random, 40, 4, 16, 90, plain), prompt(random, 33, 2, 24, 70, windowed)}) {
    Rendered rendered;
    Scratch scratch(static_cast<int>(p.buffers.size()), rendered);
    ASSERT_TRUE(
        render_cache_attention_on_matrices(kernel::with_words(p.kernel), running_matrix_gpu(), scratch, rendered));
    replay(rendered, p.kernel, p.buffers, 4e-3, has_real_matrices() ? nullptr : emulated);
  }
}

// Queries of two sequences share a tile of keys, whose rows may also belong to neither.
TEST_F(WgslMatricesCacheAttentionTest, InfinitiesReachOnlyTheQueriesThatSeeThem) {
  std::mt19937 random(53);
  const graph::CacheAttention plain{.type = CacheType::f16, .kv_heads = 2, .scale = 0.4, .exact = false};
  const Extent tokens = 40, heads = 4, width = 24, rows = 90, cached = 2 * width;
  Prompt p = prompt(random, tokens, heads, width, rows, plain);
  constexpr double kInfinity = std::numeric_limits<double>::infinity(), kNan = std::numeric_limits<double>::quiet_NaN();
  const auto at = [&](Extent row, Extent channel) { return static_cast<std::size_t>(row * cached + channel); };
  for (Extent row = 0; row < rows; ++row) {
    if ((row >= 3 && row < 27) || (row >= 45 && row < 69)) continue;
    for (Extent c = 0; c < cached; ++c) {
      p.buffers[1].values[at(row, c)] = row % 3 ? -kInfinity : kNan;
      p.buffers[2].values[at(row, c)] = row % 2 ? kInfinity : kNan;
    }
  }
  // The second sequence has a few of its own, some of them in the same channel.
  p.buffers[2].values[at(47, 2)] = kInfinity;
  p.buffers[2].values[at(50, 2)] = -kInfinity;
  p.buffers[2].values[at(51, 17)] = -kInfinity;
  p.buffers[2].values[at(60, 40)] = kNan;
  for (const bool ordered : {true, false}) {
    if (!ordered && !has_real_matrices()) continue;  // emulation is slow
    Target target = running_matrix_gpu();
    target.tested.ordered_subgroups = ordered;
    Rendered rendered;
    Scratch scratch(static_cast<int>(p.buffers.size()), rendered);
    ASSERT_TRUE(render_cache_attention_on_matrices(kernel::with_words(p.kernel), target, scratch, rendered));
    replay(rendered, p.kernel, p.buffers, 4e-3, has_real_matrices() ? nullptr : emulated);
  }
  kernel::Plan plan;
  plan.kernels.emplace_back(p.kernel);
  std::vector<reference::Values> wanted;
  for (const TestBuffer& buffer : p.buffers) wanted.push_back(buffer.values);
  reference::run(plan, wanted);
  for (Extent i = 0; i < tokens / 2 * heads * width; ++i)
    ASSERT_TRUE(std::isfinite(wanted[5][static_cast<std::size_t>(i)])) << "of the first sequence";
  EXPECT_TRUE(std::isnan(wanted[5].at(static_cast<std::size_t>(26 * heads * width + 2))));
}

TEST(WgslCacheAttentionChoiceTest, OnlyPromptsThatMayBeRounded) {
  std::mt19937 random(52);
  const graph::CacheAttention usual{.type = CacheType::f16, .kv_heads = 2, .scale = 0.4, .exact = false};
  const auto on_matrices = [&](Extent tokens, Extent width, graph::CacheAttention attributes, const Target& target) {
    const Prompt p = prompt(random, tokens, 4, width, 90, attributes);
    Rendered rendered;
    Scratch scratch(static_cast<int>(p.buffers.size()), rendered);
    const bool done = render_cache_attention_on_matrices(kernel::with_words(p.kernel), target, scratch, rendered);
    EXPECT_EQ(done, !rendered.dispatches.empty());
    EXPECT_EQ(done, !rendered.scratch_bytes.empty());
    return done;
  };
  const Target with = matrix_gpu();
  EXPECT_TRUE(on_matrices(40, 16, usual, with));
  EXPECT_FALSE(on_matrices(40, 16, usual, kLargeGpu)) << "no matrices";
  EXPECT_FALSE(on_matrices(16, 16, usual, with)) << "a token and its guesses";
  EXPECT_FALSE(on_matrices(40, 20, usual, with)) << "width 20";
  graph::CacheAttention other = usual;
  other.exact = true;
  EXPECT_FALSE(on_matrices(40, 16, other, with));
  other = usual;
  other.soft_cap = 2;
  EXPECT_FALSE(on_matrices(40, 16, other, with));
  other = usual;
  other.window = 5, other.ring = 9;
  EXPECT_FALSE(on_matrices(40, 16, other, with));
}

}  // namespace
}  // namespace weft::webgpu
#endif
