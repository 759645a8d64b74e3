// Attention on the device against the reference: widths, ragged lengths, masks, strides, forward and backward.
#include "backend/webgpu/wgsl/attention.hpp"

#include <fmt/format.h>

#include "backend/webgpu/render.hpp"
#include "backend/webgpu/render_support.hpp"

#if WEFT_HAS_WEBGPU
namespace weft::webgpu {
namespace {

using kernel::AttentionKernel;

struct Case {
  Extent batch, heads, queries, keys, width;
  bool causal;
  bool packed = false;  // q, k and v lie in one matrix [batch, row, 3, head, channel], o as [batch, row, head, channel]
};

struct Attention {
  AttentionKernel forward, backward;
  std::vector<TestBuffer> buffers;
};

Attention attention(std::mt19937& random, const Case& c) {
  Attention a;
  AttentionKernel& f = a.forward;
  f = {.name = "attention",
       .batch = c.batch,
       .heads = c.heads,
       .queries = c.queries,
       .keys = c.keys,
       .width = c.width,
       .scale = 0.37,
       .causal = c.causal};
  const auto buffer = [&](Extent count) {
    a.buffers.push_back(random_buffer(random, DType::f32, count));
    return static_cast<int>(a.buffers.size()) - 1;
  };
  const auto tensor = [&](Extent rows) {
    const Extent count = c.batch * c.heads * rows * c.width;
    return c.packed ? AttentionKernel::Tensor{{buffer(count), DType::f32, 0, count},
                                              c.heads * rows * c.width,
                                              c.width,
                                              c.heads * c.width}
                    : AttentionKernel::Tensor{
                          {buffer(count), DType::f32, 0, count}, c.heads * rows * c.width, rows * c.width, c.width};
  };
  if (c.packed) {
    const Extent row = 3 * c.heads * c.width, count = c.batch * c.queries * row;
    const int all = buffer(count);
    Extent offset = 0;
    for (AttentionKernel::Tensor* t : {&f.q, &f.k, &f.v}) {
      *t = {{all, DType::f32, offset, count - offset}, c.queries * row, c.width, row};
      offset += c.heads * c.width;
    }
  } else {
    f.q = tensor(c.queries);
    f.k = tensor(c.keys);
    f.v = tensor(c.keys);
  }
  f.o = tensor(c.queries);
  f.logsumexp = {buffer(c.batch * c.heads * c.queries), DType::f32, 0, c.batch * c.heads * c.queries};
  a.backward = f;
  a.backward.backward = true;
  a.backward.d_o = tensor(c.queries);
  a.backward.d_q = tensor(c.queries);
  a.backward.d_k = tensor(c.keys);
  a.backward.d_v = tensor(c.keys);
  return a;
}

void check(const Attention& a) {
  kernel::Plan plan;
  plan.kernels.emplace_back(a.forward);
  plan.kernels.emplace_back(a.backward);
  expect_same(plan, a.buffers, 1e-4);
}

using WgslAttentionTest = RenderTest;

TEST_F(WgslAttentionTest, ForwardAndBackwardAgreeWithTheReference) {
  std::mt19937 random(1);
  for (const Case c : {Case{1, 2, 40, 40, 64, true},
                       {2, 1, 7, 50, 8, true},
                       {1, 1, 50, 7, 9, true},
                       {1, 2, 37, 21, 32, false},
                       {2, 2, 35, 35, 12, true, true}}) {
    SCOPED_TRACE(fmt::format("{}x{} heads, {} queries, {} keys, width {}, {}", c.batch, c.heads, c.queries, c.keys,
                             c.width, c.causal ? "causal" : "full"));
    check(attention(random, c));
  }
}

TEST_F(WgslAttentionTest, NothingToAttendTo) {
  std::mt19937 random(2);
  check(attention(random, {1, 2, 5, 0, 8, false}));
  check(attention(random, {1, 2, 0, 5, 8, true}));
  check(attention(random, {0, 2, 5, 5, 8, true}));
}

TEST_F(WgslAttentionTest, OtherBlocksAndNoSubgroups) {
  std::mt19937 random(3);
  // Limits as on a large GPU (blocks of 128 and 64 rows, several groups a thread) and on a small one.
  const Target large{{.storage_buffers = 16, .workgroup_bytes = 32768, .workgroup_invocations = 1024}, 8, 2, false};
  const Target no_subgroups{
      {.storage_buffers = 8, .workgroup_bytes = 16384, .workgroup_invocations = 256}, 0, 16, false};
  for (const auto& [target, width] : {std::pair(large, 24), {large, 128}, {no_subgroups, 24}}) {
    const Attention a = attention(random, {1, 4, 130, 130, width, true});
    Rendered forward;
    Scratch scratch(static_cast<int>(a.buffers.size()), forward);
    render(a.forward, target, scratch, forward);
    replay(forward, a.forward, a.buffers, 1e-4);
  }
}

TEST(WgslAttentionTextTest, ErrorsNameTheWidthAndTheMemory) {
  std::mt19937 random(4);
  const Target small{{.storage_buffers = 8, .workgroup_bytes = 8192, .workgroup_invocations = 256}, 0, 16};
  for (const auto& [width, part] :
       {std::pair<Extent, const char*>{160, "attention of width 160 per head; the device computes at most 128"},
        {128, "attention of width 128 needs more workgroup memory than the 8192 bytes"}})
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
