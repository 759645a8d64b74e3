// Scatter-add on the device against the reference, in one pass and in parts.
#include "backend/webgpu/wgsl/scatter.hpp"

#include <fmt/format.h>

#include "backend/webgpu/render.hpp"
#include "backend/webgpu/render_support.hpp"

#if WEFT_HAS_WEBGPU
namespace weft::webgpu {
namespace {

using WgslScatterTest = RenderTest;

TEST_F(WgslScatterTest, AddsRowsAndDropsIndicesOutside) {
  std::mt19937 random(1);
  struct Case {
    Extent count, rows, columns;
    DType index, value;
  };
  for (const Case c : {Case{0, 5, 3, DType::i32, DType::f32},
                       {1, 1, 1, DType::i32, DType::f32},
                       {1000, 7, 300, DType::i32, DType::f32},
                       {5000, 83, 12, DType::u32, DType::f32},
                       {100, 1000, 5, DType::i32, DType::f32},
                       {2100, 3, 4, DType::i32, DType::i32},
                       {10, 0, 4, DType::i32, DType::f32}}) {
    SCOPED_TRACE(fmt::format("{} into {} x {}", c.count, c.rows, c.columns));
    TestBuffer indices{c.index, {}};
    for (Extent i = 0; i < c.count; ++i)
      indices.values.push_back(static_cast<double>(random() % static_cast<unsigned>(c.rows + 2)) -
                               (c.index == DType::i32 ? 1 : 0));
    std::vector<TestBuffer> buffers{
        indices,
        random_buffer(random, c.value, c.count * c.columns),
        {c.value, reference::Values(static_cast<std::size_t>(c.rows * c.columns + 10), 9.0)}};
    kernel::ScatterAddKernel kernel{.name = "scatter", .count = c.count, .rows = c.rows, .columns = c.columns};
    kernel.indices = {0, c.index, 0, c.count};
    kernel.updates = {1, c.value, 0, c.count * c.columns};
    kernel.out = {2, c.value, 5, c.rows * c.columns};
    kernel::Plan plan;
    plan.kernels.emplace_back(kernel);
    expect_same(plan, buffers, 1e-4);
  }
}

// Some rows meet most of the updates: more of them in the first case than a workgroup lists.
TEST_F(WgslScatterTest, ManyRowsListTheirUpdates) {
  std::mt19937 random(2);
  const Target target{
      {.storage_buffers = 8, .workgroup_bytes = 16384, .workgroup_invocations = 256}, 0, false, {.compute_units = 1}};
  struct Case {
    Extent count, rows, columns;
    DType index, value;
    Extent offset;
  };
  for (const Case c : {Case{3000, 83, 8, DType::i32, DType::f32, 8},
                       {700, 100, 3, DType::u32, DType::f32, 5},
                       {1300, 40, 5, DType::i32, DType::i32, 0},
                       {20, 35, 4, DType::i32, DType::boolean, 0}}) {
    SCOPED_TRACE(fmt::format("{} into {} x {}", c.count, c.rows, c.columns));
    TestBuffer indices{c.index, {}};
    for (Extent i = 0; i < c.count; ++i)
      indices.values.push_back(random() % 4 != 0 ? 7.0 + static_cast<double>(random() % 2)
                                                 : static_cast<double>(random() % static_cast<unsigned>(c.rows + 2)) -
                                                       (c.index == DType::i32 ? 1 : 0));
    std::vector<TestBuffer> buffers{indices,
                                    random_buffer(random, c.value, c.count * c.columns),
                                    {c.value, reference::Values(static_cast<std::size_t>(c.rows * c.columns + 10),
                                                                c.value == DType::boolean ? 1 : 9)}};
    kernel::ScatterAddKernel kernel{.name = "scatter", .count = c.count, .rows = c.rows, .columns = c.columns};
    kernel.indices = {0, c.index, 0, c.count};
    kernel.updates = {1, c.value, 0, c.count * c.columns};
    kernel.out = {2, c.value, c.offset, c.rows * c.columns};
    kernel::Plan plan;
    plan.kernels.emplace_back(kernel);
    Rendered rendered;
    Scratch scratch(3, rendered);
    render(kernel, target, scratch, rendered);
    ASSERT_EQ(rendered.dispatches.size(), 5u);
    EXPECT_NE(rendered.dispatches[4].shader.text().find("sorted"), std::string::npos);
    replay(rendered, plan, buffers, 1e-4);
  }
}

TEST(WgslScatterTextTest, LongInputsForFewRowsAreDividedAndJoined) {
  kernel::ScatterAddKernel kernel{.name = "scatter", .count = 16384, .rows = 83, .columns = 384};
  kernel.indices = {0, DType::i32, 0, kernel.count};
  kernel.updates = {1, DType::f32, 0, kernel.count * kernel.columns};
  kernel.out = {2, DType::f32, 0, kernel.rows * kernel.columns};
  const Target target{{.storage_buffers = 8, .workgroup_bytes = 32768, .workgroup_invocations = 256}, 32};
  EXPECT_EQ(render(kernel::Kernel(kernel), 3, target).dispatches.size(), 2u);
  kernel.rows = 50257;
  kernel.out.count = kernel.rows * kernel.columns;
  EXPECT_EQ(render(kernel::Kernel(kernel), 3, target).dispatches.size(), 5u);
}

}  // namespace
}  // namespace weft::webgpu
#endif
