// Products on subgroup matrices: the whole text but for the matrices themselves, on a device that emulates those.
#include <fmt/format.h>

#include <array>

#include "backend/webgpu/render_support.hpp"
#include "backend/webgpu/wgsl/matmul.hpp"
#include "backend/webgpu/wgsl/matmul_support.hpp"
#include "backend/webgpu/wgsl/matrix_support.hpp"

#if WEFT_HAS_WEBGPU
namespace weft::webgpu {
namespace {

void check_on_matrices(const Product& p, const MatrixTile& tile, int split) {
  Rendered rendered;
  Scratch scratch(static_cast<int>(p.buffers.size()), rendered);
  const Target target = matrix_gpu();
  render_on_matrices(p.kernel, tile, split, target, scratch, rendered);
  EXPECT_EQ(rendered.dispatches.size(), split > 1 ? 2u : 1u);
  EXPECT_TRUE(rendered.dispatches[0].shader.matrices);
  replay(rendered, p.kernel, p.buffers, 1e-4, has_real_matrices() ? nullptr : emulated);
}

using WgslMatricesTest = RenderTest;

TEST_F(WgslMatricesTest, EveryTileLayoutAndEdge) {
  std::mt19937 random(21);
  const char* layouts[] = {"nn", "nt", "tn", "tt"};
  int turn = 0;
  // The emulation takes long, so that it gets small tiles of each kind; numbers are rows, columns, depth, those of a
  // subgroup, buffers, chunks, steps ahead, steps a turn.
  constexpr MatrixTile kSmall[] = {{"early", 32, 32, 16, 16, 16, 2, 32, 32, 2, 4, false},
                                   {"late", 32, 32, 16, 16, 16, 2, 32, 32, 1, 4, true},
                                   {"single", 32, 64, 32, 16, 32, 1, 32, 32, 1, 1, false}};
  const Limits limits = kLargeGpu.limits;
  for (const MatrixTile& tile : has_real_matrices() ? matrix_tiles() : std::span<const MatrixTile>(kSmall))
    for (const char* layout : layouts) {
      if (!fits(tile, layout[0] == 'n', layout[1] == 't', limits)) continue;
      if (!has_real_matrices() && turn++ % 2 == 1) continue;
      SCOPED_TRACE(fmt::format("{} {}", tile.name, layout));
      switch (has_real_matrices() ? turn++ % 4 : turn / 2 % 4) {
        case 0:  // whole tiles
          check_on_matrices(product(random, layout, 1, tile.rows, tile.columns, 128, DType::f16), tile, 1);
          break;
        case 1:  // by eights, with edges, in two parts
          check_on_matrices(product(random, layout, 2, tile.rows + 8, 24, 296, DType::f16), tile, 2);
          break;
        case 2:  // one by one
          check_on_matrices(product(random, layout, 1, 37, 41, 83, DType::f16), tile, 1);
          break;
        default: {  // by fours, and with an epilogue
          Product p = product(random, layout, 2, 36, 44, 60, DType::f16);
          add_epilogue(p, random);
          check_on_matrices(p, tile, 1);
        }
      }
    }
}

TEST_F(WgslMatricesTest, SizesAroundEveryEdge) {
  if (!has_real_matrices()) GTEST_SKIP() << "the emulation is slow";
  std::mt19937 random(26);
  const Extent sizes[] = {5, 8, 15, 16, 17, 31, 33, 40, 63, 64, 65, 100, 127, 128, 129, 136, 191, 200};
  const auto size = [&] { return sizes[random() % std::size(sizes)]; };
  for (int i = 0; i < 60; ++i) {
    const std::string layout = std::array{"nn", "nt", "tn", "tt"}[static_cast<std::size_t>(i % 4)];
    const Extent m = size(), n = size(), k = i % 7 == 0 ? random() % 4 + 1 : size();
    SCOPED_TRACE(fmt::format("{} {} {} {}", layout, m, n, k));
    const Product p = product(random, layout, 1 + i % 2, m, n, k, DType::f16);
    const auto chosen = choose_matrix_tile(p.kernel, matrix_gpu());
    ASSERT_TRUE(chosen);
    const MatrixTile* tile = &matrix_tiles()[random() % matrix_tiles().size()];
    if (!fits(*tile, layout[0] == 'n', layout[1] == 't', kLargeGpu.limits))
      tile = &matrix_tiles()[static_cast<std::size_t>(chosen->tile)];
    check_on_matrices(p, *tile, 1);
  }
}

TEST_F(WgslMatricesTest, TypesThatF16Holds) {
  std::mt19937 random(22);
  const MatrixTile& small = matrix_tiles()[matrix_tiles().size() - 1];
  for (const DType type : {DType::int4, DType::fp8_e5m2, DType::ternary})
    for (const Extent n : {40, 37}) {
      Product p = product(random, "nt", 1, 24, n, 48, DType::f16);
      p.kernel.b.type = type;
      p.buffers[1] = random_buffer(random, type, p.kernel.b.count);
      EXPECT_TRUE(suits_matrices(p.kernel));
      check_on_matrices(p, small, 1);
    }
}

TEST_F(WgslMatricesTest, AnOperandThatTheEpilogueReadsToo) {
  std::mt19937 random(23);
  Product p = product(random, "nn", 1, 32, 48, 48, DType::f16);
  kernel::LoopKernel& e = p.kernel.epilogue;
  e.inputs.push_back(p.kernel.a);
  kernel::Step load{kernel::StepKind::load};
  load.operand = 0;
  load.view = contiguous({1, 32, 48});
  e.steps.push_back(load);
  kernel::Step add{kernel::StepKind::map};
  add.op = scalar::Op::add;
  add.a = 0;
  add.b = 1;
  e.steps.push_back(add);
  e.stores[0].value = 2;
  check_on_matrices(p, matrix_tiles()[matrix_tiles().size() - 1], 1);
}

TEST(WgslMatricesChoiceTest, OnlyHalvesOnADeviceWithMatrices) {
  std::mt19937 random(24);
  const Target with = matrix_gpu();
  Target untested = with;
  untested.tested.matrices = false;
  Product p = product(random, "nn", 1, 64, 64, 64, DType::f16);
  EXPECT_TRUE(choose_matrix_tile(p.kernel, with));
  EXPECT_FALSE(choose_matrix_tile(p.kernel, untested));
  EXPECT_FALSE(choose_matrix_tile(p.kernel, kLargeGpu));
  for (const DType type : {DType::f32, DType::bf16}) {
    p.kernel.b.type = type;
    EXPECT_FALSE(choose_matrix_tile(p.kernel, with)) << name_of(type);
  }
  p.kernel.a.type = p.kernel.b.type = DType::int4;
  EXPECT_FALSE(choose_matrix_tile(p.kernel, with)) << "nothing is f16";
}

TEST(WgslMatricesChoiceTest, FollowsLayoutAndSize) {
  std::mt19937 random(25);
  const auto chosen = [&](const char* layout, Extent m, Extent n, Extent k) {
    Product p = product(random, layout, 1, 8, 8, 8, DType::f16);
    p.kernel.m = m, p.kernel.n = n, p.kernel.k = k;
    const auto line = [](kernel::MatrixView& view, bool transposed, Extent rows, Extent columns) {
      view = kernel::matrix_view({{1}, {0}, 0, {}}, rows, transposed ? 1 : columns, columns, transposed ? rows : 1);
    };
    line(p.kernel.a_view, layout[0] == 't', m, k);
    line(p.kernel.b_view, layout[1] == 't', k, n);
    return choose_matrix_tile(p.kernel, matrix_gpu()).value();
  };
  const auto name = [](const TileChoice& choice) {
    return std::string(matrix_tiles()[static_cast<std::size_t>(choice.tile)].name);
  };
  EXPECT_EQ(name(chosen("tn", 4096, 4096, 4096)), "128x128x16 in two buffers");
  EXPECT_EQ(name(chosen("nn", 4096, 4096, 4096)), "128x256x16 in two buffers");
  EXPECT_EQ(name(chosen("nt", 4096, 4096, 4096)), "128x128x64");
  EXPECT_GE(chosen("tn", 384, 1152, 16384).split, 4);
  EXPECT_EQ(chosen("nn", 64, 64, 64).split, 1);
}

}  // namespace
}  // namespace weft::webgpu
#endif
