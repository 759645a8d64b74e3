// Scatter-add on the device against the reference, in one pass and in parts.
#include "backend/webgpu/wgsl/scatter.hpp"

#include <fmt/format.h>

#include "backend/webgpu/render.hpp"
#include "backend/webgpu/render_support.hpp"
#include "graph/scatter.hpp"

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

// Most updates go to few places, as in a histogram.
TEST_F(WgslScatterTest, ManyNumbersAreAddedAsIntegers) {
  std::mt19937 random(3);
  const Extent count = 40000, rows = 300;
  for (const DType type : {DType::f32, DType::u32}) {
    SCOPED_TRACE(name_of(type));
    TestBuffer indices{DType::i32, {}};
    for (Extent i = 0; i < count; ++i)
      indices.values.push_back(random() % 4 != 0 ? 7.0 : static_cast<double>(random() % 302) - 1);
    const std::vector<TestBuffer> buffers{indices,
                                          random_buffer(random, type, count),
                                          {type, reference::Values(static_cast<std::size_t>(rows + 10), 9.0)}};
    kernel::ScatterAddKernel kernel{.name = "scatter", .count = count, .rows = rows, .columns = 1};
    kernel.indices = {0, DType::i32, 0, count};
    kernel.updates = {1, type, 0, count};
    kernel.out = {2, type, 5, rows};
    const Rendered rendered =
        render(kernel::Kernel(kernel), 3, target_of(Device::open(0, {.cache_folder = {}})->info()));
    EXPECT_EQ(rendered.dispatches.back().name, type == DType::f32 ? "scatter.values" : "scatter");
    replay(rendered, kernel::Kernel(kernel), buffers, 1e-5);
    EXPECT_EQ(results_of(rendered, buffers)[2], results_of(rendered, buffers)[2]);
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

// Rows and columns whose places are kept in workgroup memory as GPUs do it: several updates at a time, and the rest.
TEST_F(WgslScatterTest, TheLastUpdateOfAPlaceStays) {
  std::mt19937 random(43);
  struct Case {
    Shape result, updates;
    Extent axis;
  };
  const Case cases[] = {{{3, 4001}, {3, 5000}, 1},        {{2, 9001}, {2, 2048}, 1},
                        {{2, 300, 13}, {2, 700, 13}, 1},  {{500, 6}, {500, 11}, 1},
                        {{2, 40, 64}, {2, 30, 64}, 1},    {{4096, 256}, {300, 256}, 0},
                        {{2, 4097, 130}, {2, 50, 130}, 1}};
  for (const Case& c : cases_to_run(cases, 1))
    for (const bool puts : {false, true}) {
      SCOPED_TRACE(fmt::format("[{}] to [{}]{}", c.updates.to_string(), c.result.to_string(), puts ? ", put" : ""));
      const Extent places = c.result.numel(), count = c.updates.numel(), extent = c.result[static_cast<int>(c.axis)];
      TestBuffer indices{DType::i32, {}};
      for (Extent i = 0; i < count; ++i)
        indices.values.push_back(i % 50 == 7 ? -1 : static_cast<double>(random() % static_cast<unsigned>(extent + 2)));
      const std::vector<TestBuffer> buffers{
          random_buffer(random, DType::f32, places),
          indices,
          random_buffer(random, DType::f32, count),
          {puts ? DType::f32 : DType::i32, reference::Values(static_cast<std::size_t>(places))}};
      kernel::CallKernel call{.name = "put", .outs = {{3, buffers[3].type, 0, places}}, .out_shapes = {c.result}};
      const kernel::Operand x{0, DType::f32, 0, places}, at{1, DType::i32, 0, count}, values{2, DType::f32, 0, count};
      call.out_types = {buffers[3].type};
      if (puts) {
        call.op = &graph::put_along_row();
        call.reads = {x, at, values}, call.shapes = {c.result, c.updates, c.updates};
        call.types = {DType::f32, DType::i32, DType::f32}, call.attributes = {c.axis};
      } else {
        call.op = &graph::last_along_row();
        call.reads = {at}, call.shapes = {c.updates}, call.types = {DType::i32};
        call.attributes = {c.axis, extent};
      }
      Target target = target_of(Device::open(0, {.cache_folder = {}})->info());
      target.unroll = true;
      const kernel::Kernel kernel = call;
      const Rendered rendered = render(kernel, 4, target);
      const bool turns = c.result.numel() >= 1 << 20;
      EXPECT_EQ(rendered.dispatches.size(), !turns ? 1u : puts ? 5u : 3u);
      replay(rendered, kernel, buffers, 0);
    }
}

}  // namespace
}  // namespace weft::webgpu
#endif
