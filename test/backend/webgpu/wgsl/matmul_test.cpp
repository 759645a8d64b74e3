// Matrix products on the device against the reference: every tile, layout, edge and split, with epilogues.
#include "backend/webgpu/wgsl/matmul.hpp"

#include <fmt/format.h>

#include "backend/webgpu/render.hpp"
#include "backend/webgpu/render_support.hpp"
#include "backend/webgpu/wgsl/matmul_support.hpp"

#if WEFT_HAS_WEBGPU
namespace weft::webgpu {
namespace {

using kernel::MatmulKernel;

void check(const Product& p) {
  kernel::Plan plan;
  plan.kernels.emplace_back(p.kernel);
  expect_same(plan, p.buffers, 1e-4);
}

const Target kLargeGpuRolled{kLargeGpu.limits, 32,
                             false};  // for lavapipe, which takes seconds to compile unrolled text
const Target kSmallGpu{
    {.storage_buffers = 8, .workgroup_bytes = 16384, .workgroup_invocations = 256}, 0, true, {.compute_units = 16}};

/// Runs the product with a given tile and split.
void check_choice(const Product& p, TileChoice choice, const Target& target) {
  Rendered rendered;
  Scratch scratch(static_cast<int>(p.buffers.size()), rendered);
  render(p.kernel, target, scratch, rendered, choice);
  EXPECT_EQ(rendered.dispatches.size(), choice.split > 1 ? 2u : 1u);
  replay(rendered, p.kernel, p.buffers, 1e-4);
}

using WgslMatmulTest = RenderTest;

TEST_F(WgslMatmulTest, AllLayoutsAndSizes) {
  std::mt19937 random(1);
  struct Case {
    Extent batch, m, n, k;
  };
  for (const Case c : {Case{1, 1, 1, 1},
                       {1, 5, 7, 3},
                       {2, 33, 65, 17},
                       {1, 64, 64, 64},
                       {3, 16, 20, 24},
                       {1, 3, 100, 50},
                       {1, 100, 2, 50},
                       {0, 3, 3, 3},
                       {1, 0, 4, 4},
                       {2, 6, 8, 0}})
    for (const char* layout : {"nn", "nt", "tn", "tt"}) {
      SCOPED_TRACE(fmt::format("{} {}x{}x{}x{}", layout, c.batch, c.m, c.n, c.k));
      check(product(random, layout, c.batch, c.m, c.n, c.k));
    }
}

TEST_F(WgslMatmulTest, UnalignedRowsAndOffsets) {
  std::mt19937 random(2);
  for (const char* layout : {"nn", "nt", "tn"}) {
    check(product(random, layout, 2, 40, 44, 36, DType::f32, 1));
    Product p = product(random, layout, 1, 40, 44, 36);
    for (kernel::Operand* operand : {&p.kernel.a, &p.kernel.b}) {
      TestBuffer& buffer = p.buffers[static_cast<std::size_t>(operand->buffer)];
      buffer.values.insert(buffer.values.begin(), 3, 99.0);
      operand->offset = 3;
    }
    check(p);
  }
}

TEST_F(WgslMatmulTest, EpiloguesReadBroadcastAndStoreTwice) {
  std::mt19937 random(3);
  for (const auto& [m, n] : {std::pair<Extent, Extent>{32, 64}, {37, 9}, {2, 16}}) {
    Product p = product(random, "nn", 2, m, n, 24);
    add_epilogue(p, random);
    check(p);
  }
}

TEST_F(WgslMatmulTest, EveryTileAndSplit) {
  std::mt19937 random(4);
  for (int tile = 0; tile < static_cast<int>(tiles().size()); ++tile) {
    const Tile& t = tiles()[static_cast<std::size_t>(tile)];
    SCOPED_TRACE(t.name);
    Product exact = product(random, tile % 2 ? "nt" : "tn", 1, t.rows, t.columns, 48);
    check_choice(exact, {tile, tile % 3 == 0 ? 3 : 1}, kLargeGpuRolled);
    Product edges = product(random, "nn", 2, t.rows + 9, 30, 41);
    add_epilogue(edges, random);
    check_choice(edges, {tile, tile % 3 == 1 ? 2 : 1}, kLargeGpuRolled);
  }
}

TEST_F(WgslMatmulTest, UnrolledTextReadsAheadOverEveryStep) {
  std::mt19937 random(9);
  const int smallest = static_cast<int>(tiles().size()) - 1;
  check_choice(product(random, "nn", 1, 40, 30, 75), {smallest, 3}, kLargeGpu);
}

TEST_F(WgslMatmulTest, IntegersMultiplyExactly) {
  std::mt19937 random(5);
  check(product(random, "nn", 2, 9, 11, 13, DType::i32));
  check(product(random, "nt", 1, 8, 12, 16, DType::u32));
}

constexpr DType kNarrow[] = {DType::f16,   DType::bf16, DType::fp8_e4m3, DType::fp8_e5m2, DType::fp4_e2m1, DType::int4,
                             DType::uint4, DType::int2, DType::uint2,    DType::ternary,  DType::binary};

/// An operand as it would be in f32.
Product widened(Product p, kernel::Operand MatmulKernel::*which) {
  kernel::Operand& operand = p.kernel.*which;
  p.buffers[static_cast<std::size_t>(operand.buffer)].type = DType::f32;
  operand.type = DType::f32;
  return p;
}

std::vector<reference::Values> computed(const Product& p) {
  kernel::Plan plan;
  plan.kernels.emplace_back(p.kernel);
  return run_on_device(*test_backend(), plan, p.buffers);
}

TEST_F(WgslMatmulTest, NarrowOperandsGiveTheBitsOfTheirNumbersInF32) {
  std::mt19937 random(11);
  int turn = 0;
  for (const DType type : kNarrow)
    for (const char* layout : {"nn", "nt", "tn", "tt"}) {
      if (type != DType::f16 && turn++ % 4 != static_cast<int>(type) % 4) continue;  // one layout each
      SCOPED_TRACE(fmt::format("{} {}", name_of(type), layout));
      // By fours, one by one, and as a reduction.
      for (const auto& [m, n, k] : {std::array<Extent, 3>{40, 24, 32}, {33, 13, 19}, {2, 16, 24}}) {
        const Product p = product(random, layout, 2, m, n, k, type);
        check(p);
        if (m == 2) continue;
        // With one operand in f32 no device multiplies on matrices.
        const Product one = widened(p, m == 40 ? &MatmulKernel::b : &MatmulKernel::a);
        const Product none = widened(one, m == 40 ? &MatmulKernel::a : &MatmulKernel::b);
        EXPECT_EQ(computed(one)[2], computed(none)[2]);
      }
    }
}

TEST_F(WgslMatmulTest, NarrowOperandsOfTwoTypesWithEpilogue) {
  std::mt19937 random(12);
  Product p = product(random, "nt", 1, 36, 44, 28, DType::f16);
  p.kernel.b.type = DType::bf16;
  p.buffers[1] = random_buffer(random, DType::bf16, p.kernel.b.count);
  add_epilogue(p, random);
  p.kernel.epilogue.outputs[1].type = DType::f16;  // stored across: one element a time
  p.buffers.back().type = DType::f16;
  kernel::Plan plan;
  plan.kernels.emplace_back(p.kernel);
  expect_same(plan, p.buffers, 1e-3);
  p.kernel.b.type = DType::f32;
  p.buffers[1] = random_buffer(random, DType::f32, p.kernel.b.count);
  plan.kernels = {p.kernel};
  expect_same(plan, p.buffers, 1e-3);
}

TEST_F(WgslMatmulTest, ExactHalvesAreConvertedByTheDevice) {
  std::mt19937 random(13);
  for (const bool exact : {false, true}) {
    Target target = kLargeGpuRolled;
    target.tested.exact_halves = exact;
    for (const Extent k : {48, 41}) {
      const Product p = product(random, "nt", 1, 40, 36, k, DType::f16);
      Rendered rendered;
      Scratch scratch(static_cast<int>(p.buffers.size()), rendered);
      render(p.kernel, target, scratch, rendered);
      EXPECT_EQ(rendered.dispatches[0].shader.text().find("unpack2x16float") != std::string::npos, exact);
      replay(rendered, p.kernel, p.buffers, 1e-4);
    }
  }
}

TEST_F(WgslMatmulTest, NarrowWindowsReadZerosBesideTheirEdges) {
  std::mt19937 random(14);
  const Extent m = 37, channels = 4, taps = 3;
  for (const DType type : {DType::f16, DType::bf16, DType::int4, DType::fp8_e4m3})
    for (const Extent n : {20, 3}) {  // in tiles, and as a reduction
      SCOPED_TRACE(name_of(type));
      Product p = product(random, "nn", 1, m, n, channels * taps, type);
      p.buffers[0] = random_buffer(random, type, channels * m);
      p.kernel.a.count = channels * m;
      // A[i, (c, t)] = x[c, i + t - 1], which is 0 outside of the row.
      p.kernel.a_view = {
          .at = {.batch = {{1}, {0}, -1, {}}, .rows = {{m}, {1}, 0, {}}, .columns = {{channels, taps}, {m, 1}, 0, {}}},
          .edges = {{.value = {.batch = {{1}, {0}, 0, {}},
                               .rows = {{m}, {1}, 0, {}},
                               .columns = {{channels, taps}, {0, 1}, 0, {}}},
                     .lo = 1,
                     .hi = m + 1}}};
      check(p);
    }
}

TEST_F(WgslMatmulTest, BatchesBroadcastByView) {
  std::mt19937 random(6);
  Product p = product(random, "nn", 6, 12, 16, 8);
  p.kernel.a_view.at.batch = {{2, 3}, {12 * 8, 0}, 0, {}};
  p.kernel.b_view.at.batch = {{2, 3}, {0, 8 * 16}, 0, {}};
  check(p);
}

TEST(WgslMatmulChoiceTest, FollowsTheShape) {
  const auto name = [](const TileChoice& choice) {
    return std::string(tiles()[static_cast<std::size_t>(choice.tile)].name);
  };
  const TileChoice square = choose_tile(1, 4096, 4096, 4096, kLargeGpu);
  EXPECT_EQ(name(square), "128x64x16");
  EXPECT_EQ(square.split, 1);
  const TileChoice weight_gradient = choose_tile(1, 384, 1152, 16384, kLargeGpu);
  EXPECT_GE(weight_gradient.split, 4);
  const TileChoice little = choose_tile(1, 64, 64, 64, kLargeGpu);
  EXPECT_EQ(little.split, 1);
  for (Extent m : {5, 64, 1000})
    EXPECT_LE(tiles()[static_cast<std::size_t>(choose_tile(1, m, 100, 100, kSmallGpu).tile)].workgroup_bytes(), 16384);
}

TEST(WgslMatmulChoiceTest, NoTileFitsIsAnError) {
  EXPECT_THROW(choose_tile(1, 64, 64, 64,
                           {{.workgroup_bytes = 512, .workgroup_invocations = 256}, 0, true, {.compute_units = 16}}),
               DeviceError);
}

TEST(WgslMatmulChoiceTest, SmallOrIntegerProductsAreReductions) {
  std::mt19937 random(7);
  const auto dispatches = [&](const Product& p) { return render(kernel::Kernel(p.kernel), 3, kLargeGpu).dispatches; };
  EXPECT_EQ(dispatches(product(random, "nt", 1, 1, 512, 256)).at(0).shader.text().find("shared_a"), std::string::npos);
  EXPECT_NE(dispatches(product(random, "nt", 1, 32, 512, 256)).at(0).shader.text().find("shared_a"), std::string::npos);
}

}  // namespace
}  // namespace weft::webgpu
#endif
