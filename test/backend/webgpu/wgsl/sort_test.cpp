// Sorts of lines in workgroup memory, and sums by sorted places, as GPUs get them.
#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <random>

#include "backend/webgpu/render.hpp"
#include "backend/webgpu/render_support.hpp"
#include "graph/order.hpp"
#include "graph/scatter.hpp"

#if WEFT_HAS_WEBGPU
namespace weft::webgpu {
namespace {

using WgslSortTest = RenderTest;

kernel::CallKernel sort_kernel(DType type, Extent lines, Extent n, const graph::SortAttributes& a, Extent count) {
  const Shape from{lines, n}, to{lines, count};
  return {.name = "sort",
          .op = &graph::sort_row(),
          .reads = {{0, type, 3, lines * n}},
          .shapes = {from},
          .types = {type},
          .out_types = {type, DType::i32},
          .outs = {{1, type, 0, lines * count}, {2, DType::i32, 0, lines * count}},
          .out_shapes = {to, to},
          .attributes = graph::words_of(graph::sort_row().attributes, a)};
}

// Keys that fill a line's last digits, equal ones, NaN and both zeros; with subgroups, and without.
TEST_F(WgslSortTest, LinesInWorkgroupMemoryKeepTheOrderOfEqualOnes) {
  std::mt19937 random(41);
  struct Case {
    DType type;
    Extent n;
    bool descending;
    Extent first, count;
  };
  const Case cases[] = {{DType::f32, 1025, false, 0, 1025},
                        {DType::u32, 2048, true, 0, 2048},
                        {DType::i32, 3001, false, 7, 500},
                        {DType::f32, 4096, true, 4000, 96}};
  for (const Case& c : cases_to_run(cases, 1))
    for (const bool subgroups : {false, true}) {
      if (c.n > 2048 && !subgroups) continue;  // drivers of software adapters take seconds for a shader
      SCOPED_TRACE(fmt::format("{} {}{}", name_of(c.type), c.n, subgroups ? ", subgroups" : ""));
      const Extent lines = 3;
      std::vector<TestBuffer> buffers{{c.type, reference::Values(static_cast<std::size_t>(lines * c.n) + 3)},
                                      {c.type, reference::Values(static_cast<std::size_t>(lines * c.count))},
                                      {DType::i32, reference::Values(static_cast<std::size_t>(lines * c.count))}};
      for (double& x : buffers[0].values) {
        const std::uint32_t draw = static_cast<std::uint32_t>(random()), kind = draw % 16;
        x = c.type == DType::u32   ? static_cast<double>(kind == 0  ? 4294967295u
                                                         : kind < 8 ? draw
                                                                    : draw % 100)
            : c.type == DType::i32 ? static_cast<double>(static_cast<std::int32_t>(kind < 8 ? draw : draw % 100))
            : kind == 0            ? -0.0
            : kind == 1            ? std::numeric_limits<double>::infinity()
                                   : static_cast<float>(static_cast<std::int32_t>(draw % 10000) - 5000) / 64;
      }
      Target target = target_of(Device::open(0, {.cache_folder = {}})->info());
      target.unroll = true;
      if (!subgroups) target.subgroup_size = 0;
      const graph::SortAttributes a{-1, c.descending, c.first, c.count};
      const kernel::Kernel kernel = sort_kernel(c.type, lines, c.n, a, c.count);
      const Rendered rendered = render(kernel, 3, target);
      ASSERT_EQ(rendered.dispatches.size(), 1u);
      replay(rendered, kernel, buffers, 0);
    }
}

TEST_F(WgslSortTest, RowsAddUpTheirUpdatesInOrder) {
  std::mt19937 random(42);
  // Few updates of a place and many, down to one place for all, in blocks that end within a row and at its end.
  const std::pair<Extent, Extent> cases[] = {{256, 255}, {2000, 300}, {1025, 100000}, {2048, 1},
                                             {1000, 2},  {3001, 40},  {4096, 1}};
  for (const auto& [taken, extent] : cases_to_run(cases, 1)) {
    SCOPED_TRACE(fmt::format("{} to {} places", taken, extent));
    const Extent lines = 3;
    const Shape from{lines, taken}, to{lines, extent};
    TestBuffer indices{DType::i32, {}}, updates = random_buffer(random, DType::f32, lines * taken);
    for (Extent i = 0; i < lines * taken; ++i)
      indices.values.push_back(i % 50 == 7 ? -1 : static_cast<double>(random() % static_cast<unsigned>(extent + 2)));
    const std::vector<TestBuffer> buffers{indices, updates, {DType::f32, reference::Values(to.numel(), 7.0)}};
    const kernel::Kernel kernel =
        kernel::CallKernel{.name = "scatter",
                           .op = &graph::scatter_along_row(),
                           .reads = {{0, DType::i32, 0, lines * taken}, {1, DType::f32, 0, lines * taken}},
                           .shapes = {from, from},
                           .types = {DType::i32, DType::f32},
                           .out_types = {DType::f32},
                           .outs = {{2, DType::f32, 0, lines * extent}},
                           .out_shapes = {to},
                           .attributes = graph::words_of(graph::scatter_along_row().attributes,
                                                         graph::ScatterAlongAttributes{-1, extent})};
    Target target = target_of(Device::open(0, {.cache_folder = {}})->info());
    target.unroll = true;
    const Rendered rendered = render(kernel, 3, target);
    EXPECT_NE(rendered.dispatches.at(0).shader.text().find("words: array"), std::string::npos);
    replay(rendered, kernel, buffers, 1e-6);
  }
}

// Lines that no workgroup holds: many updates and places, few columns side by side, and places that meet several blocks of
// updates. Updates of the last place end with the line. And columns that are turned to rows.
TEST_F(WgslSortTest, LongLinesAddUpTheirUpdatesInOrder) {
  std::mt19937 random(44);
  const std::pair<Shape, Extent> cases[] = {
      {{2, 9000}, 5000}, {{2, 8300}, 3}, {{1, 600}, 600000}, {{2, 700, 3}, 20}, {{2, 300, 40}, 33}};
  for (const auto& [shape, extent] : cases_to_run(cases, 1)) {
    SCOPED_TRACE(fmt::format("[{}] to {} places", shape.to_string(), extent));
    const Extent inner = shape.rank() == 3 ? shape[2] : 1, count = shape.numel();
    const Shape to = inner == 1 ? Shape{shape[0], extent} : Shape{shape[0], extent, inner};
    TestBuffer indices{DType::i32, {}}, updates = random_buffer(random, DType::f32, count);
    for (Extent i = 0; i < count; ++i)
      indices.values.push_back(i % 50 == 7 ? -1 : static_cast<double>(random() % static_cast<unsigned>(extent + 2)));
    const std::vector<TestBuffer> buffers{indices, updates, {DType::f32, reference::Values(to.numel(), 7.0)}};
    const kernel::Kernel kernel = kernel::CallKernel{
        .name = "scatter",
        .op = &graph::scatter_along_row(),
        .reads = {{0, DType::i32, 0, count}, {1, DType::f32, 0, count}},
        .shapes = {shape, shape},
        .types = {DType::i32, DType::f32},
        .out_types = {DType::f32},
        .outs = {{2, DType::f32, 0, to.numel()}},
        .out_shapes = {to},
        .attributes = graph::words_of(graph::scatter_along_row().attributes, graph::ScatterAlongAttributes{1, extent})};
    const Rendered rendered = render(kernel, 3, target_of(Device::open(0, {.cache_folder = {}})->info()));
    EXPECT_GE(rendered.dispatches.size(), 4u);
    replay(rendered, kernel, buffers, 1e-4);
    EXPECT_EQ(results_of(rendered, buffers)[2], results_of(rendered, buffers)[2]);
  }
}

}  // namespace
}  // namespace weft::webgpu
#endif
