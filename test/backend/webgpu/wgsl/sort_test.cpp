// Sorts of lines in workgroup memory, as GPUs get them.
#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <random>

#include "backend/webgpu/render.hpp"
#include "backend/webgpu/render_support.hpp"
#include "graph/order.hpp"

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

}  // namespace
}  // namespace weft::webgpu
#endif
