// Attention of bf16 on subgroup matrices: operands are scaled to f16, and heads whose numbers do not fit run in f32.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <span>

#include "backend/webgpu/wgsl/attention.hpp"
#include "backend/webgpu/wgsl/attention_support.hpp"
#include "backend/webgpu/wgsl/matrix_support.hpp"

#if WEFT_HAS_WEBGPU
namespace weft::webgpu {
namespace {

using kernel::AttentionKernel;
using reference::Values;

constexpr MatrixAttentionBlocks kFirstBlocks{{32, 1, 32}, {16, 1, 32, false}, {16, 2, 32, true}};
constexpr MatrixAttentionBlocks kSecondBlocks{{16, 2, 32}, {16, 2, 16, true}, {16, 1, 16, false}};
constexpr MatrixAttentionBlocks kSmallBlocks{{16, 1, 16}, {16, 1, 16, true}, {16, 1, 16, false}};

Target scaling_gpu(bool ordered) {
  Target target = running_matrix_gpu();
  target.tested.ordered_subgroups = ordered;
  return target;
}

kernel::Plan plan_of(const Attention& a) {
  kernel::Plan plan;
  plan.kernels.emplace_back(a.forward);
  plan.kernels.emplace_back(a.backward);
  return plan;
}

/// `alone`: without the kernels in f32, so that heads which do not fit keep what their results held before.
std::vector<Values> on_matrices(const Attention& a, const MatrixAttentionBlocks& blocks, bool ordered, bool alone) {
  Rendered rendered;
  Scratch scratch(static_cast<int>(a.buffers.size()), rendered);
  const Target target = scaling_gpu(ordered);
  EXPECT_TRUE(render_on_matrices(a.forward, blocks, target, scratch, rendered));
  EXPECT_TRUE(render_on_matrices(a.backward, blocks, target, scratch, rendered));
  if (alone) std::erase_if(rendered.dispatches, [](const auto& d) { return d.name.find("wide") != std::string::npos; });
  return results_of(rendered, a.buffers, has_real_matrices() ? nullptr : emulated);
}

std::vector<Values> in_f32(const Attention& a) {
  Rendered rendered;
  Scratch scratch(static_cast<int>(a.buffers.size()), rendered);
  Target target = scaling_gpu(true);
  target.lists_matrices = false;
  render(a.forward, target, scratch, rendered);
  render(a.backward, target, scratch, rendered);
  return results_of(rendered, a.buffers);
}

/// The results of a head, each beside its name.
struct HeadResult {
  const char* name;
  AttentionKernel::Tensor tensor;
  Extent rows;
};
std::vector<HeadResult> results_of_heads(const Attention& a) {
  const AttentionKernel& b = a.backward;
  return {{"o", b.o, b.queries}, {"dq", b.d_q, b.queries}, {"dk", b.d_k, b.keys}, {"dv", b.d_v, b.keys}};
}

/// Largest difference in one head of one result, over the largest number there. NaN agrees with NaN.
double difference(const HeadResult& result, Extent head, Extent width, const std::vector<Values>& got,
                  const std::vector<Values>& wanted) {
  const auto buffer = static_cast<std::size_t>(result.tensor.operand.buffer);
  double most = 0, size = 0;
  for (Extent row = 0; row < result.rows; ++row)
    for (Extent c = 0; c < width; ++c) {
      const auto at = static_cast<std::size_t>(result.tensor.operand.offset + head * result.tensor.head_stride +
                                               row * result.tensor.row_stride + c);
      const double g = got[buffer][at], w = wanted[buffer][at];
      if (g == w || (std::isnan(g) && std::isnan(w))) continue;
      most = std::max(most, std::isfinite(g - w) ? std::abs(g - w) : 1e300);
      size = std::max(size, std::abs(w));
    }
  return most == 0 ? 0 : most / size;
}

/// Multiplies the numbers of one head of an operand.
void scale_head(Attention& a, const AttentionKernel::Tensor& tensor, Extent head, Extent rows, double factor) {
  Values& values = a.buffers[static_cast<std::size_t>(tensor.operand.buffer)].values;
  for (Extent row = 0; row < rows; ++row)
    for (Extent c = 0; c < a.forward.width; ++c)
      values[static_cast<std::size_t>(tensor.operand.offset + head * tensor.head_stride + row * tensor.row_stride +
                                      c)] *= factor;
}
double& number(Attention& a, const AttentionKernel::Tensor& tensor, Extent head, Extent row, Extent channel) {
  return a.buffers[static_cast<std::size_t>(tensor.operand.buffer)].values[static_cast<std::size_t>(
      tensor.operand.offset + head * tensor.head_stride + row * tensor.row_stride + channel)];
}

struct ScaledTrial {
  const MatrixAttentionBlocks& blocks;
  bool ordered;
  AttentionCase shape;
  AttentionExtras extras = {};
};

void check_trials(std::span<const ScaledTrial> trials, std::size_t quick) {
  std::mt19937 random(61);
  const bool all = has_real_matrices() || std::getenv("WEFT_TEST_ALL_SHADERS");
  for (const ScaledTrial& trial : trials.first(all ? trials.size() : quick)) {
    const AttentionCase& c = trial.shape;
    SCOPED_TRACE(fmt::format("{} queries, {} keys, width {}", c.queries, c.keys, c.width));
    const Attention a = attention(random, c, DType::bf16, trial.extras);
    std::vector<Values> wanted;
    for (const TestBuffer& buffer : a.buffers) wanted.push_back(buffer.values);
    reference::run(plan_of(a), wanted);
    const std::vector<Values> got = on_matrices(a, trial.blocks, trial.ordered, true);
    for (std::size_t b = 0; b < wanted.size(); ++b)
      for (std::size_t i = 0; i < wanted[b].size(); ++i) {
        if (got[b][i] == wanted[b][i]) continue;
        ASSERT_NEAR(got[b][i], wanted[b][i], 2e-2 * (1 + std::abs(wanted[b][i]))) << "buffer " << b << ", " << i;
      }
  }
}

using WgslMatricesScaledAttentionTest = RenderTest;

TEST_F(WgslMatricesScaledAttentionTest, AgreesWithTheReference) {
  const ScaledTrial trials[] = {{kFirstBlocks, true, {1, 2, 40, 64, 16, true, 1}},
                                {kSecondBlocks, false, {1, 2, 50, 40, 24, true}},
                                {kSecondBlocks, true, {1, 2, 48, 48, 32, true, 0, 0, true}},
                                {kFirstBlocks, false, {2, 4, 150, 170, 16, false, 2, 60}}};
  check_trials(trials, 1);
}

// On lavapipe, as masks of attention on matrices are: see WgslMaskedAttentionTest.
using WgslMaskedScaledAttentionTest = RenderTest;

TEST_F(WgslMaskedScaledAttentionTest, MasksSpansAndDroppedShares) {
  using Mask = AttentionExtras::Mask;
  const ScaledTrial trials[] = {
      {kSmallBlocks, true, {2, 2, 40, 52, 16, true, 1, 30}, {Mask::added, true, true, true, 60}},
      {kFirstBlocks, false, {1, 2, 50, 40, 24, false}, {Mask::bools, false, true, false, 99}}};
  check_trials(trials, 1);
}

// Each head has numbers of another size. Differences are measured against the largest number of the head's result.
TEST_F(WgslMatricesScaledAttentionTest, HeadsOfAnySize) {
  std::mt19937 random(62);
  Attention a = attention(random, {1, 4, 40, 40, 16, true}, DType::bf16);
  const Extent n = 40;
  scale_head(a, a.forward.v, 1, n, 0x1p30), scale_head(a, a.backward.d_o, 1, n, 0x1p-60);
  scale_head(a, a.forward.q, 2, n, 0x1p-25), scale_head(a, a.forward.k, 2, n, 0x1p24);
  scale_head(a, a.forward.v, 2, n, 0x1p-20);
  scale_head(a, a.backward.d_o, 3, n, 0);
  // Rows that are much smaller than others.
  for (Extent c = 0; c < 16; ++c) number(a, a.backward.d_o, 0, 7, c) *= 0x1p-18;
  std::vector<Values> wanted;
  for (const TestBuffer& buffer : a.buffers) wanted.push_back(buffer.values);
  reference::run(plan_of(a), wanted);
  const std::vector<Values> got = on_matrices(a, kFirstBlocks, true, true);
  for (const HeadResult& result : results_of_heads(a))
    for (Extent head = 0; head < 4; ++head)
      EXPECT_LT(difference(result, head, 16, got, wanted), 8e-3) << result.name << " of head " << head;
  // A query's gradient is as exact as its own row of dO allows.
  const HeadResult small{"row 7 of dq", {{a.backward.d_q.operand.buffer, DType::bf16, 7 * 16, 16}, 0, 0, 16}, 1};
  EXPECT_LT(difference(small, 0, 16, got, wanted), 2e-2);
}

// Numbers that no half can stand for give what the kernels in f32 give, bit for bit, and other heads stay on matrices.
TEST_F(WgslMatricesScaledAttentionTest, ExtremesRunInF32) {
  std::mt19937 random(63);
  Attention a = attention(random, {1, 8, 40, 40, 16, true}, DType::bf16);
  const double infinity = std::numeric_limits<double>::infinity();
  const auto bf16 = [](double x) { return rounded_to(DType::bf16, x); };
  number(a, a.forward.k, 1, 20, 3) = bf16(1e30);
  scale_head(a, a.forward.q, 2, 40, 0x1p-100);
  number(a, a.forward.v, 3, 11, 5) = infinity;
  number(a, a.forward.q, 4, 30, 0) = std::nan("");
  number(a, a.backward.d_o, 5, 33, 2) = bf16(1e30);
  for (Extent c = 0; c < 16; ++c) number(a, a.forward.v, 6, 9, c) = bf16(1e-30);
  number(a, a.forward.q, 7, 8, 1) = -infinity;
  const std::vector<Values> got = on_matrices(a, kSecondBlocks, true, false), wanted = in_f32(a);
  for (const HeadResult& result : results_of_heads(a)) {
    EXPECT_LT(difference(result, 0, 16, got, wanted), 8e-3) << result.name;
    for (Extent head = 1; head < 8; ++head) {
      // Only dO keeps head 5 from halves, and so only its gradients, which read what the forward pass has rounded.
      EXPECT_LE(difference(result, head, 16, got, wanted), head == 5 ? 1e-2 : 0) << result.name << " of head " << head;
    }
  }
}

TEST(WgslMatricesScaledAttentionChoiceTest, OneTypeAndBindings) {
  std::mt19937 random(64);
  const auto rendered_as = [&](const Attention& a, const Target& target) {
    std::string names;
    for (const AttentionKernel* kernel : {&a.forward, &a.backward}) {
      Rendered rendered;
      Scratch scratch(static_cast<int>(a.buffers.size()), rendered);
      render(*kernel, target, scratch, rendered);
      for (const RenderedDispatch& dispatch : rendered.dispatches) names += dispatch.name + " ";
    }
    return names;
  };
  Target target = matrix_gpu();
  target.limits.storage_buffers = 10;
  const AttentionCase usual{2, 2, 256, 256, 64, true};
  const Attention a = attention(random, usual, DType::bf16);
  EXPECT_EQ(rendered_as(a, target),
            "attention.ranges attention.matrices attention.wide attention.ranges attention.delta "
            "attention.matrices.dkv attention.matrices.dq attention.wide.dq attention.wide.dkv ");
  target.limits.storage_buffers = 8;
  EXPECT_EQ(rendered_as(a, target), "attention.ranges attention.matrices attention.wide attention.dq attention.dkv ")
      << "ranges cannot be bound beside all tensors going backward";
  target.limits.storage_buffers = 10;
  Attention mixed = a;
  mixed.forward.k.operand.type = mixed.backward.k.operand.type = DType::f16;
  EXPECT_EQ(rendered_as(mixed, target).find("matrices"), std::string::npos);
}

}  // namespace
}  // namespace weft::webgpu
#endif
