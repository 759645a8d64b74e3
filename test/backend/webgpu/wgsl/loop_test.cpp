// Loop kernels on the device against the reference: hand-written ones for each mode, and random ones.
#include "backend/webgpu/wgsl/loop.hpp"

#include <fmt/format.h>

#include <limits>

#include "backend/webgpu/render.hpp"
#include "backend/webgpu/render_support.hpp"
#include "backend/webgpu/wgsl/index.hpp"
#include "backend/webgpu/wgsl/loop_support.hpp"

#if WEFT_HAS_WEBGPU
namespace weft::webgpu {
namespace {

using kernel::Level;
using kernel::LoopKernel;
using kernel::Step;
using kernel::StepKind;
using kernel::View;
using scalar::Op;
using scalar::Reduction;

const double kInf = std::numeric_limits<double>::infinity();

using Builder = LoopBuilder;
using WgslLoopTest = RenderTest;

TEST_F(WgslLoopTest, ElementwiseOfAwkwardSizesLeavesItsNeighboursAlone) {
  std::mt19937 random(1);
  for (Extent n : {0, 1, 2, 3, 4, 5, 255, 256, 257, 1023, 1024, 1025, 4096}) {
    for (Extent guard : {0, 64, 3}) {
      SCOPED_TRACE(fmt::format("{} elements, guard {}", n, guard));
      Builder b(n);
      const int x = b.load(Level::outer, random_buffer(random, DType::f32, n), contiguous({n}), guard);
      const int y = b.load(Level::outer, random_buffer(random, DType::f32, n), contiguous({n}), 0);
      b.store(b.map(Op::add, DType::f32, b.map(Op::mul, DType::f32, x, y), x), DType::f32, guard);
      b.check();
    }
  }
}

TEST_F(WgslLoopTest, ElementwiseBeyondTheWorkgroupsOfOneDimension) {
  // One element a thread, and more than 65,535 workgroups of 256: the bool keeps the reference's vector small enough.
  const Extent n = Extent{65'536} * 256 + 1001;
  LoopKernel loop;
  loop.name = "long";
  loop.outer = n;
  Step index{StepKind::index, DType::i32, Level::outer};
  index.view = contiguous({n});
  Step is_last{StepKind::map, DType::boolean, Level::outer};
  Step last{StepKind::constant, DType::i32, Level::outer};
  last.value = static_cast<double>(n - 1);
  is_last.op = Op::eq;
  is_last.a = 0;
  is_last.b = 1;
  loop.steps = {index, last, is_last};
  loop.outputs = {{0, DType::i32, 0, n}};
  loop.stores = {{0, 0, contiguous({n})}};
  const auto rendered = render(kernel::Kernel(loop), 1, {{.storage_buffers = 8, .workgroups_per_dimension = 1000}, 0});
  EXPECT_GT(rendered.dispatches.at(0).workgroups, 1000u);
  kernel::Plan plan;
  plan.kernels.emplace_back(loop);
  const auto got =
      run_on_device(*test_backend(), plan, {{DType::i32, reference::Values(static_cast<std::size_t>(n), -1.0)}});
  for (Extent i = 0; i < n; ++i) ASSERT_EQ(got[0][static_cast<std::size_t>(i)], static_cast<double>(i));
}

TEST_F(WgslLoopTest, ViewsBroadcastPermuteFlipSliceAndPad) {
  std::mt19937 random(2);
  const Extent a = 6, c = 5, d = 8;
  Builder b(a * c * d);
  const View whole = contiguous({a, c, d});
  const int x = b.load(Level::outer, random_buffer(random, DType::f32, a * c * d), whole);
  const int row = b.load(Level::outer, random_buffer(random, DType::f32, d), {{a, c, d}, {0, 0, 1}, 0, {}});
  const int column = b.load(Level::outer, random_buffer(random, DType::f32, a * c), {{a, c, d}, {c, 1, 0}, 0, {}});
  const int permuted =
      b.load(Level::outer, random_buffer(random, DType::f32, a * c * d), {{a, c, d}, {1, a * d, a}, 0, {}});
  const int flipped =
      b.load(Level::outer, random_buffer(random, DType::f32, a * c * d), {{a, c, d}, {c * d, d, -1}, d - 1, {}});
  const int sliced = b.load(Level::outer, random_buffer(random, DType::f32, 200 * a), {{a, c, d}, {200, 20, 2}, 3, {}});
  const int padded = b.load(Level::outer, random_buffer(random, DType::f32, a * c * d),
                            {{a, c, d}, {c * d, d, 1}, -2, {{0, a}, {1, 4}, {2, 7}}});
  int sum = x;
  for (int other : {row, column, permuted, flipped, sliced, padded}) sum = b.map(Op::add, DType::f32, sum, other);
  b.store(sum);
  b.store(x, DType::f32, {{a, c, d}, {1, a * d, a}, 0, {}}, a * c * d);  // transposed on the way out
  b.store(row, DType::f32, {{a, c, d}, {c * d, d, 1}, 0, {{1, 3}, {0, 5}, {3, 8}}}, a * c * d, 4);  // a part only
  b.check();
}

// Neighbours of the operand are far apart in the result, with an axis between them or without.
TEST_F(WgslLoopTest, TurnedOperandsAreReadInBlocks) {
  std::mt19937 random(14);
  const std::vector<View> views = {{{96, 64}, {1, 96}, 0, {}},
                                   {{2, 64, 3, 32}, {64 * 3 * 32, 1, 64, 64 * 3}, 0, {}},
                                   {{64, 96}, {1, 64}, 0, {{0, 64}, {5, 90}}},
                                   {{90, 72}, {1, 90}, 0, {}},  // blocks at the edges are partly empty
                                   {{75, 61}, {1, 75}, 0, {}},
                                   {{64, 65}, {1, 64}, 0, {}},
                                   {{40, 31}, {1, 40}, 0, {{2, 40}, {0, 30}}},
                                   {{3, 45, 2, 50}, {45 * 2 * 50, 1, 45, 45 * 2}, 0, {}}};
  for (const DType type : {DType::f32, DType::f16})
    for (const View& view : views) {
      Extent count = 1;
      for (const Extent extent : view.extents) count *= extent;
      Builder b(count);
      const int turned = b.load(Level::outer, random_buffer(random, type, count), view);
      const int straight = b.load(Level::outer, random_buffer(random, DType::f32, count), {{count}, {1}, 0, {}});
      b.loop.steps[static_cast<std::size_t>(turned)].type = DType::f32;
      const int other = b.load(Level::outer, random_buffer(random, DType::f32, count), view);
      b.store(b.map(Op::add, DType::f32, b.map(Op::mul, DType::f32, turned, other), straight), DType::f32,
              {{count}, {1}, 0, {}}, count, 3);
      b.check();
      // Rows whose length is not a multiple of four are turned in workgroup memory.
      const std::string text =
          render(kernel::Kernel(b.loop), static_cast<int>(b.buffers.size()), {}).dispatches.at(0).shader.text();
      EXPECT_EQ(text.find("turned1[") != std::string::npos, view.extents.back() % 4 != 0) << text;
    }
}

TEST_F(WgslLoopTest, BoolsAndIntegersKeepTheirMemoryForm) {
  std::mt19937 random(3);
  for (Extent n : {64, 37}) {
    Builder b(n);
    const int p = b.load(Level::outer, random_buffer(random, DType::boolean, n), contiguous({n}));
    const int i = b.load(Level::outer, random_buffer(random, DType::i32, n), contiguous({n}));
    const int u = b.load(Level::outer, random_buffer(random, DType::u32, n), contiguous({n}));
    b.store(b.map(Op::logical_not, DType::boolean, p), DType::boolean);
    b.store(b.map(Op::select, DType::i32, p, i, u), DType::i32);
    b.store(b.map(Op::add, DType::f32, i, p), DType::f32);
    b.store(u, DType::u32);
    b.check();
  }
}

TEST_F(WgslLoopTest, NanAndInfinityPassThroughEveryMode) {
  const double nan = std::nan("");
  for (Extent inner : {4, 6, 700}) {
    TestBuffer x{DType::f32, reference::Values(static_cast<std::size_t>(5 * inner), 1.0)};
    x.values[2] = nan;
    x.values[static_cast<std::size_t>(inner)] = kInf;
    x.values[static_cast<std::size_t>(2 * inner + 1)] = -kInf;
    x.values[static_cast<std::size_t>(3 * inner + 3)] = kInf;
    x.values[static_cast<std::size_t>(3 * inner + 2)] = -kInf;
    Builder b(5, inner);
    const int v = b.load(Level::inner, x, contiguous({5 * inner}));
    for (Reduction reduction : {Reduction::sum, Reduction::max, Reduction::min}) b.store(b.reduce(reduction, v));
    for (Reduction reduction : {Reduction::argmax, Reduction::argmin})
      b.store(b.reduce(reduction, v, DType::i32), DType::i32);
    b.store(b.map(Op::max, DType::f32, v, b.constant(0)));
    b.check();
  }
}

TEST_F(WgslLoopTest, GatherClampsAndReadsZeroOutside) {
  std::mt19937 random(4);
  const Extent rows = 7, columns = 12, tokens = 10;
  for (DType index_type : {DType::i32, DType::u32}) {
    TestBuffer indices{index_type, {0, 6, 3, 7, -1, 2, 2, 100, 5, -2147483648.0}};
    if (index_type == DType::u32) indices.values = {0, 6, 3, 7, 4294967295.0, 2, 2, 100, 5, 8};
    Builder b(tokens * columns);
    const int index = b.load(Level::outer, indices, {{tokens, columns}, {1, 0}, 0, {}});
    b.loop.inputs.push_back(b.operand(random_buffer(random, DType::f32, rows * columns)));
    Step gather{StepKind::gather, DType::f32, Level::outer};
    gather.operand = 1;
    gather.a = index;
    gather.axis_stride = columns;
    gather.axis_extent = rows;
    gather.view = {{tokens, columns}, {0, 1}, 0, {}};
    b.store(b.step(gather));
    b.check(0);
  }
}

// Rows of a gather that fit go through workgroup memory: whole and odd rows, runs in parts, rows with gaps, several gathers.
TEST_F(WgslLoopTest, GathersWithinRowsPickFromACopy) {
  std::mt19937 random(24);
  struct Case {
    Extent rows, extent, run, gap;
    DType type, index_type;
  };
  for (const Case& c : {Case{16, 512, 512, 0, DType::f32, DType::i32}, Case{17, 1000, 300, 0, DType::f32, DType::u32},
                        Case{20, 613, 401, 5, DType::i32, DType::i32}, Case{16, 640, 9001, 3, DType::u32, DType::i32},
                        Case{16, 8192, 2052, 0, DType::f32, DType::i32}}) {
    const Extent total = c.rows * c.run, pitch = c.extent + c.gap;
    Builder b(total);
    std::vector<int> picked;
    b.loop.inputs.push_back(b.operand(random_buffer(random, c.type, c.rows * pitch), 3));
    for (int gathers = 0; gathers < 2; ++gathers) {
      TestBuffer indices{c.index_type, {}};
      for (Extent i = 0; i < (gathers == 0 ? total : c.run); ++i)
        indices.values.push_back(i % 97 == 5   ? c.index_type == DType::i32 ? -1 : 4294967295.0
                                 : i % 89 == 3 ? static_cast<double>(c.extent)
                                               : static_cast<double>(random() % static_cast<unsigned>(c.extent)));
      Step gather{StepKind::gather, c.type, Level::outer};
      gather.a = b.load(Level::outer, indices, {{c.rows, c.run}, {gathers == 0 ? c.run : 0, 1}, 0, {}});
      gather.operand = 0;
      gather.axis_stride = 1;
      gather.axis_extent = c.extent;
      gather.view = {{c.rows, c.run}, {pitch, 0}, 0, {}};
      picked.push_back(b.step(gather));
    }
    b.store(b.map(Op::add, c.type, picked[0], picked[1]), c.type, {{total}, {1}, 0, {}}, total, 3);
    b.check(0);
    Target target;
    target.limits.workgroup_bytes = 32768;
    target.profile.compute_units = 16;
    const Rendered rendered = webgpu::render(kernel::Kernel(b.loop), static_cast<int>(b.buffers.size()), target);
    EXPECT_NE(rendered.dispatches.at(0).shader.text().find("row[select(0u"), std::string::npos);
  }
}

// Large gathers of columns take strips of them: whole and odd strips, lines of several groups, two gathers.
TEST_F(WgslLoopTest, GathersAlongColumnsTakeStripsOfThem) {
  std::mt19937 random(25);
  struct Case {
    Extent outer, extent, taken, inner;
  };
  for (const Case& c : {Case{1, 2800, 2700, 400}, Case{2, 3001, 1300, 411}, Case{3, 9000, 1400, 256}}) {
    SCOPED_TRACE(fmt::format("{} x {} of {} x {}", c.outer, c.taken, c.extent, c.inner));
    const Extent total = c.outer * c.taken * c.inner, source = c.outer * c.extent * c.inner;
    Builder b(total);
    TestBuffer indices{DType::i32, {}}, numbers{DType::i32, {}};
    for (Extent i = 0; i < total; ++i)
      indices.values.push_back(i % 97 == 5   ? -1
                               : i % 89 == 3 ? static_cast<double>(c.extent)
                                             : static_cast<double>(random() % static_cast<unsigned>(c.extent)));
    for (Extent i = 0; i < source; ++i) numbers.values.push_back(static_cast<double>(random() >> 1));
    const int index = b.load(Level::outer, indices, contiguous({total}));
    b.loop.inputs.push_back(b.operand(numbers, 3));
    Step gather{StepKind::gather, DType::i32, Level::outer};
    gather.operand = 1;
    gather.axis_stride = c.inner;
    gather.axis_extent = c.extent;
    gather.view = {{c.outer, c.taken, c.inner}, {c.extent * c.inner, 0, 1}, 0, {}};
    gather.a = index;
    const int first = b.step(gather);
    gather.a = b.map(Op::div, DType::i32, index, b.constant(2, DType::i32));
    b.store(b.map(Op::sub, DType::i32, first, b.step(gather)), DType::i32, contiguous({total}), total, 3);
    b.check(0);
    const std::string text =
        render(kernel::Kernel(b.loop), static_cast<int>(b.buffers.size()), {}).dispatches.at(0).shader.text();
    const Extent strip = c.extent > 8192 ? 64 : 128, neighbours = c.inner % 4 == 0 ? 4 : 1;
    EXPECT_NE(text.find(fmt::format("* {}u + (item & {}u) * {}u)", strip, strip / neighbours - 1, neighbours)),
              std::string::npos)
        << text;
  }
}

// One gather of columns that fit workgroup memory: they become rows, with gaps between lines, and what follows the picks is fused.
TEST_F(WgslLoopTest, GathersAlongShortColumnsPickWithinRows) {
  std::mt19937 random(26);
  struct Case {
    Extent outer, extent, taken, inner, gap;
  };
  for (const Case& c : {Case{1, 3000, 2700, 400, 0}, Case{3, 8192, 2051, 179, 8}}) {
    SCOPED_TRACE(fmt::format("{} x {} of {} x {}", c.outer, c.taken, c.extent, c.inner));
    const Extent total = c.outer * c.taken * c.inner, pitch = c.inner + c.gap, source = c.outer * c.extent * pitch;
    Builder b(total);
    TestBuffer indices{DType::i32, {}};
    for (Extent i = 0; i < total; ++i)
      indices.values.push_back(i % 97 == 5   ? -1
                               : i % 89 == 3 ? static_cast<double>(c.extent)
                                             : static_cast<double>(random() % static_cast<unsigned>(c.extent)));
    Step gather{StepKind::gather, DType::f32, Level::outer};
    gather.a = b.load(Level::outer, indices, contiguous({total}), 2);
    b.loop.inputs.push_back(b.operand(random_buffer(random, DType::f32, source), 3));
    gather.operand = 1;
    gather.axis_stride = pitch;
    gather.axis_extent = c.extent;
    gather.view = {{c.outer, c.taken, c.inner}, {c.extent * pitch, 0, 1}, 0, {}};
    b.store(b.map(Op::add, DType::f32, b.step(gather), b.constant(2)), DType::f32, contiguous({total}), total, 3);
    b.check(0);
    const Target target{.limits = {.workgroup_bytes = 32768}};
    const Rendered rendered = render(kernel::Kernel(b.loop), static_cast<int>(b.buffers.size()), target);
    ASSERT_EQ(rendered.dispatches.size(), 4u);
    EXPECT_NE(rendered.dispatches[2].shader.text().find("row[select(0u"), std::string::npos);
    EXPECT_NE(rendered.dispatches[3].shader.text().find("turned0["), std::string::npos);
  }
}

TEST_F(WgslLoopTest, SoftmaxAndLayerNormForEveryLengthOfRow) {
  std::mt19937 random(5);
  for (Extent inner : {2, 7, 8, 65, 384, 1000, 1024, 20000}) {
    const Extent outer = inner > 4000 ? 3 : 37;
    SCOPED_TRACE(fmt::format("{} x {}", outer, inner));
    const View rows = contiguous({outer, inner});
    {
      Builder b(outer, inner);
      const int x = b.load(Level::inner, random_buffer(random, DType::f32, outer * inner), rows, 8);
      const int top = b.reduce(Reduction::max, x);
      const int e = b.map(Op::exp, DType::f32, b.map(Op::sub, DType::f32, x, top));
      b.store(b.map(Op::div, DType::f32, e, b.reduce(Reduction::sum, e)), DType::f32, 8);
      b.store(b.reduce(Reduction::argmax, x, DType::i32), DType::i32);
      b.check();
    }
    Builder b(outer, inner);
    const int x = b.load(Level::inner, random_buffer(random, DType::f32, outer * inner), rows);
    const int gain = b.load(Level::inner, random_buffer(random, DType::f32, inner), {{outer, inner}, {0, 1}, 0, {}});
    const int scale = b.constant(1.0 / static_cast<double>(inner));
    const int mean = b.map(Op::mul, DType::f32, b.reduce(Reduction::sum, x), scale);
    const int centered = b.map(Op::sub, DType::f32, x, mean);
    const int variance =
        b.map(Op::mul, DType::f32, b.reduce(Reduction::sum, b.map(Op::mul, DType::f32, centered, centered)), scale);
    const int r = b.map(Op::rsqrt, DType::f32, b.map(Op::add, DType::f32, variance, b.constant(1e-5)));
    b.store(b.map(Op::mul, DType::f32, b.map(Op::mul, DType::f32, centered, r), gain));
    b.store(mean);
    b.store(r);
    b.check(1e-4);
  }
}

TEST_F(WgslLoopTest, ColumnReductionsOfEveryShape) {
  std::mt19937 random(6);
  struct Case {
    Extent outer, inner;
  };
  for (const Case c : {Case{4, 2}, {384, 4097}, {3, 50}, {30, 999}, {1028, 17}}) {
    SCOPED_TRACE(fmt::format("{} columns of {}", c.outer, c.inner));
    const View columns{{c.outer, c.inner}, {1, c.outer}, 0, {}};
    Builder b(c.outer, c.inner);
    const int x = b.load(Level::inner, random_buffer(random, DType::f32, c.outer * c.inner), columns);
    b.store(b.reduce(Reduction::sum, x), DType::f32, 5);
    b.store(b.reduce(Reduction::argmin, x, DType::i32), DType::i32);
    b.store(b.map(Op::mul, DType::f32, b.reduce(Reduction::max, x), b.constant(2)));
    b.check(1e-4);
    Builder softmax(c.outer, c.inner);
    const int y = softmax.load(Level::inner, random_buffer(random, DType::f32, c.outer * c.inner), columns);
    const int e =
        softmax.map(Op::exp, DType::f32, softmax.map(Op::sub, DType::f32, y, softmax.reduce(Reduction::max, y)));
    softmax.store(softmax.map(Op::div, DType::f32, e, softmax.reduce(Reduction::sum, e)), DType::f32, columns,
                  c.outer * c.inner);
    softmax.check();
  }
}

// Software adapters do not choose strips by themselves.
TEST_F(WgslLoopTest, SumsOfManyColumnsReadStrips) {
  std::mt19937 random(7);
  const Target target{
      {.binding_bytes = 1u << 28, .storage_buffers = 8, .workgroup_bytes = 16384, .workgroup_invocations = 256}};
  const Extent outer = 400, inner = 600;
  Builder b(outer, inner);
  const int x =
      b.load(Level::inner, random_buffer(random, DType::f32, outer * inner), {{outer, inner}, {1, outer}, 0, {}});
  b.store(b.reduce(Reduction::sum, x), DType::f32, 5);
  b.store(b.reduce(Reduction::argmin, x, DType::i32), DType::i32);
  const Rendered rendered = render(kernel::Kernel(b.loop), static_cast<int>(b.buffers.size()), target);
  ASSERT_EQ(rendered.dispatches.size(), 2u);
  EXPECT_NE(rendered.dispatches[0].shader.text().find("(thread & 31u)"), std::string::npos);
  replay(rendered, kernel::Kernel(b.loop), b.buffers, 1e-4);
}

TEST_F(WgslLoopTest, LongReductionsAreSplitAndRepeatBitForBit) {
  std::mt19937 random(8);
  const Extent n = 300'001;
  for (Extent inner : {n, Extent{300'000}}) {
    Builder b(1, inner);
    const int x = b.load(Level::inner, random_buffer(random, DType::f32, inner), contiguous({inner}));
    b.store(b.reduce(Reduction::sum, b.map(Op::mul, DType::f32, x, x)));
    b.store(b.map(Op::sqrt, DType::f32, b.reduce(Reduction::sum, b.map(Op::abs, DType::f32, x))));
    b.store(b.reduce(Reduction::argmax, x, DType::i32), DType::i32);
    b.store(b.reduce(Reduction::max, b.map(Op::gt, DType::boolean, x, b.constant(100)), DType::boolean),
            DType::boolean);
    kernel::Plan plan;
    plan.kernels.emplace_back(b.loop);
    std::vector<reference::Values> wanted;
    for (const TestBuffer& buffer : b.buffers) wanted.push_back(buffer.values);
    reference::run(plan, wanted);
    const auto first = run_on_device(*test_backend(), plan, b.buffers),
               second = run_on_device(*test_backend(), plan, b.buffers);
    EXPECT_EQ(first, second);
    EXPECT_NEAR(first[1][0], wanted[1][0], 1e-5 * wanted[1][0]);
    EXPECT_NEAR(first[2][0], wanted[2][0], 1e-5 * wanted[2][0]);
    EXPECT_EQ(first[3][0], wanted[3][0]);
    EXPECT_EQ(first[4][0], wanted[4][0]);
    EXPECT_EQ(render(kernel::Kernel(b.loop), 5, {{.storage_buffers = 10}, 32}).dispatches.size(), 2u);
  }
}

TEST_F(WgslLoopTest, ReductionsOverNothingAndOverOne) {
  std::mt19937 random(9);
  for (DType type : {DType::f32, DType::i32, DType::u32, DType::boolean})
    for (Extent inner : {0, 1}) {
      Builder b(6, inner);
      const int x = b.load(Level::inner, random_buffer(random, type, 6 * inner), contiguous({6, inner}));
      for (Reduction reduction : {Reduction::sum, Reduction::prod, Reduction::max, Reduction::min})
        b.store(b.reduce(reduction, x, type), type);
      if (inner > 0) b.store(b.reduce(Reduction::argmin, x, DType::i32), DType::i32);
      b.check();
    }
}

TEST_F(WgslLoopTest, IntegerAndBoolReductions) {
  std::mt19937 random(10);
  for (DType type : {DType::i32, DType::u32, DType::boolean})
    for (const bool columns : {false, true}) {
      const Extent outer = 8, inner = 300;
      const TestBuffer data = random_buffer(random, type, outer * inner);
      for (const bool positions : {false, true}) {
        Builder b(outer, inner);
        const int x =
            b.load(Level::inner, data, columns ? View{{outer, inner}, {1, outer}, 0, {}} : contiguous({outer, inner}));
        if (positions) {
          for (Reduction reduction : {Reduction::argmax, Reduction::argmin})
            b.store(b.reduce(reduction, x, DType::i32), DType::i32);
        } else {
          for (Reduction reduction : {Reduction::sum, Reduction::prod, Reduction::max, Reduction::min})
            b.store(b.reduce(reduction, x, type), type);
        }
        b.check(0);
      }
    }
}

TEST_F(WgslLoopTest, UpdatesInPlaceReadEachOldValueFirst) {
  std::mt19937 random(11);
  for (Extent inner : {1, 12, 40, 9001}) {
    const Extent outer = 9;
    Builder b(outer, inner);
    const View all = contiguous({outer * inner});
    const int x = b.load(Level::inner, random_buffer(random, DType::f32, outer * inner), all, 64);
    const int old = b.load(Level::outer, random_buffer(random, DType::f32, outer), contiguous({outer}), 64);
    const int sum = b.reduce(Reduction::sum, x);
    const int changed = b.map(Op::sub, DType::f32, x, b.map(Op::mul, DType::f32, sum, b.constant(0.01)));
    const int again = b.map(Op::add, DType::f32, b.reduce(Reduction::max, b.map(Op::mul, DType::f32, changed, x)), old);
    b.loop.outputs = b.loop.inputs;
    b.loop.stores = {{b.map(Op::add, DType::f32, changed, old), 0, all}, {again, 1, contiguous({outer})}};
    b.check(1e-4);
  }
}

TEST_F(WgslLoopTest, ValuesOfBothLevelsWithoutReductions) {
  std::mt19937 random(12);
  for (Extent inner : {5, 8}) {
    const Extent outer = 33;
    Builder b(outer, inner);
    const int r = b.load(Level::outer, random_buffer(random, DType::f32, outer), contiguous({outer}));
    const int x = b.load(Level::inner, random_buffer(random, DType::f32, outer * inner), contiguous({outer, inner}));
    const int scaled = b.map(Op::mul, DType::f32, r, b.constant(3));
    b.store(b.map(Op::add, DType::f32, x, scaled));
    b.store(scaled);
    b.check();
  }
}

/// A random kernel: loads through random views, a chain of maps, perhaps reductions, stores at both levels.
Builder random_kernel(std::mt19937& random) {
  const auto pick = [&](Extent n) { return static_cast<Extent>(random() % static_cast<unsigned>(n)); };
  const Extent inner_choices[] = {1, 2, 3, 4, 8, 12, 31, 64, 100, 257};
  const Extent outer_a = 1 + pick(6), outer_b = 1 + pick(9), inner = inner_choices[pick(10)];
  Builder b(outer_a * outer_b, inner);
  const auto random_view = [&](Level level, Extent& count) {
    View view{{outer_a, outer_b}, {}, 0, {}};
    if (level == Level::inner) view.extents.push_back(inner);
    if (level == Level::inner && inner % 4 == 0 && pick(3) == 0) {  // the inner space split in two
      view.extents.back() = inner / 4;
      view.extents.push_back(4);
    }
    std::vector<std::size_t> order(view.extents.size());
    for (std::size_t d = 0; d < order.size(); ++d) order[d] = d;
    if (pick(3) == 0) std::shuffle(order.begin(), order.end(), random);
    view.strides.assign(order.size(), 0);
    count = 1;
    for (std::size_t d = order.size(); d-- > 0;) {
      const std::size_t at = order[d];
      if (pick(5) == 0) continue;  // broadcast
      view.strides[at] = count;
      count *= view.extents[at];
      if (pick(6) == 0) count += pick(5);
    }
    if (pick(5) == 0) {
      const std::size_t flipped = static_cast<std::size_t>(pick(static_cast<Extent>(order.size())));
      view.offset += view.strides[flipped] * (view.extents[flipped] - 1);
      view.strides[flipped] = -view.strides[flipped];
    }
    if (pick(5) == 0)
      for (std::size_t d = 0; d < order.size(); ++d) view.bounds.push_back({pick(2), view.extents[d] - pick(2)});
    const Extent shift = pick(4) == 0 ? pick(7) : 0;
    view.offset += shift;
    count += shift;
    return view;
  };
  std::vector<int> values;
  const Extent loads = 1 + pick(4);
  for (Extent i = 0; i < loads; ++i) {
    const Level level = pick(3) == 0 ? Level::outer : Level::inner;
    Extent count = 0;
    View view = random_view(level, count);
    values.push_back(
        b.load(level, random_buffer(random, pick(6) == 0 ? DType::i32 : DType::f32, count), view, pick(2) * 4));
  }
  const Op ops[] = {Op::add, Op::sub, Op::mul, Op::min, Op::max, Op::abs, Op::neg, Op::tanh, Op::floor, Op::select};
  const Extent length = 3 + pick(8);
  for (Extent i = 0; i < length; ++i) {
    const auto any = [&] { return values[static_cast<std::size_t>(pick(static_cast<Extent>(values.size())))]; };
    const int a = any();
    if (pick(3) == 0 && b.loop.steps[static_cast<std::size_t>(a)].level == Level::inner) {
      const Reduction reductions[] = {Reduction::sum, Reduction::max, Reduction::min};
      values.push_back(b.map(Op::tanh, DType::f32,
                             b.reduce(reductions[pick(3)], a, b.loop.steps[static_cast<std::size_t>(a)].type)));
      continue;
    }
    const Op op = ops[pick(10)];
    const int arity = scalar::arity(op);
    values.push_back(b.map(op, DType::f32, a, arity > 1 ? any() : -1, arity > 2 ? any() : -1));
  }
  const Extent stores = 1 + pick(3);
  for (Extent i = 0; i < stores && i < static_cast<Extent>(values.size()); ++i) {
    const int value = values[values.size() - 1 - static_cast<std::size_t>(i)];
    b.store(value, DType::f32, pick(3));
  }
  return b;
}

TEST_F(WgslLoopTest, RandomKernelsAgreeWithTheReference) {
  const char* seed_text = std::getenv("WEFT_TEST_SEED");
  const unsigned seed = seed_text ? static_cast<unsigned>(std::atoi(seed_text)) : 1;
  const char* count_text = std::getenv("WEFT_TEST_COUNT");
  const int count = count_text ? std::atoi(count_text) : 40;
  for (int i = 0; i < count; ++i) {
    SCOPED_TRACE(fmt::format("WEFT_TEST_SEED={}, kernel {}", seed, i));
    std::mt19937 random(seed * 1000003u + static_cast<unsigned>(i));
    random_kernel(random).check(2e-4);
    if (HasFailure()) return;
  }
}

const Target kTarget{{.storage_buffers = 8, .workgroup_bytes = 16384, .workgroup_invocations = 256}, 32};

TEST(WgslLoopTextTest, EqualLayersHaveEqualText) {
  const auto text_at = [](Extent offset) {
    Builder b(1024);
    const int x = b.load(Level::outer, {DType::f32, reference::Values(1024)}, contiguous({1024}));
    b.store(b.map(Op::exp, DType::f32, x));
    b.loop.inputs[0].offset = offset;
    b.loop.name = fmt::format("layer {}", offset);
    return render(kernel::Kernel(b.loop), 2, kTarget).dispatches.at(0).shader.text();
  };
  EXPECT_EQ(text_at(0), text_at(64 * 1000));
  EXPECT_NE(text_at(0), text_at(1));
}

// A shader of four elements a thread has the text of each. That of a long function is written for one.
TEST_F(WgslLoopTest, LongFunctionsAreWrittenOnce) {
  std::mt19937 random(71);
  const auto kernel_of = [&](int functions, bool reduces) {
    Builder b(16, reduces ? 32 : 1);
    const Extent n = reduces ? 512 : 16;
    int x = b.load(reduces ? Level::inner : Level::outer, random_buffer(random, DType::f32, n), contiguous({n}));
    for (int i = 0; i < functions; ++i) x = b.map(Op::sin, DType::f32, b.map(Op::add, DType::f32, x, x));
    b.store(reduces ? b.reduce(Reduction::sum, x) : x);
    return b;
  };
  const auto sines_of = [](const Builder& b) {
    const std::string text =
        render(kernel::Kernel(b.loop), static_cast<int>(b.buffers.size()), kTarget).dispatches.at(0).shader.text();
    int count = 0;
    for (std::size_t at = 0; (at = text.find("= sin_f32(", at)) != std::string::npos; ++at) ++count;
    return count;
  };
  for (const bool reduces : {false, true}) {
    EXPECT_EQ(sines_of(kernel_of(3, reduces)) % 12, 0);
    EXPECT_GT(sines_of(kernel_of(3, reduces)), 0);
    const int written = sines_of(kernel_of(40, reduces));
    EXPECT_GE(written, 40);
    EXPECT_LE(written, reduces ? 80 : 40);  // a reduction may have its items in a loop and behind it
    kernel_of(40, reduces).check(1e-2);
  }
}

TEST(WgslLoopTextTest, TooManyBuffersIsAnErrorThatNamesTheKernelAndTheLimit) {
  Builder b(16);
  int sum = -1;
  for (int i = 0; i < 9; ++i) {
    const int x = b.load(Level::outer, {DType::f32, reference::Values(16)}, contiguous({16}));
    sum = i == 0 ? x : b.map(Op::add, DType::f32, sum, x);
  }
  b.store(sum);
  try {
    render(kernel::Kernel(b.loop), 10, kTarget);
    FAIL();
  } catch (const InternalError& error) {
    EXPECT_NE(
        std::string(error.what()).find("kernel test uses 10 buffer ranges, and a shader of this device has at most 8"),
        std::string::npos)
        << error.what();
  }
  // Ranges of one buffer join when there are too many.
  for (std::size_t i = 0; i < b.loop.inputs.size(); ++i)
    b.loop.inputs[i] = {0, DType::f32, static_cast<Extent>(i) * 64, 16};
  EXPECT_EQ(render(kernel::Kernel(b.loop), 10, kTarget).dispatches.at(0).bindings.size(), 2u);
}

TEST(WgslIndexTest, MergesWhatIsContiguousAndSplitsAtTheAxes) {
  const Space row{{{"r", 6}, {"j", 8}}, 1};
  EXPECT_EQ(Index(contiguous({2, 3, 8}), row).offset(0), "r * 8u + j");
  EXPECT_EQ(Index(contiguous({48}), row).offset(4), "r * 8u + j + 4u");
  EXPECT_EQ(Index({{2, 3, 8}, {0, 8, 1}, 0, {}}, row).offset(0), "(r % 3u) * 8u + j");
  EXPECT_TRUE(Index(contiguous({48}), row).is_vector(0));
  EXPECT_FALSE(Index(contiguous({48}), row).is_vector(2));
  const Index padded({{6, 8}, {8, 1}, 0, {{0, 6}, {4, 8}}}, row);
  EXPECT_EQ(padded.guard(), "j >= 4u");
  EXPECT_TRUE(padded.is_vector(0));
  const Index crossing({{4, 12}, {12, 1}, 1, {{0, 4}, {0, 12}}}, row);
  EXPECT_EQ(crossing.offset(0), "(r * 8u + j) + 1u");
}

}  // namespace
}  // namespace weft::webgpu
#endif
