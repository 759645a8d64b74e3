// Products with packed weights on subgroup matrices: scaled rows of A, weights of f16 and of blocks, edges, splits, epilogues.
#include <fmt/format.h>

#include "backend/webgpu/quantised_pack.hpp"
#include "backend/webgpu/wgsl/matrix_support.hpp"
#include "backend/webgpu/wgsl/quantised.hpp"
#include "backend/webgpu/wgsl/quantised/halved_product.hpp"
#include "tensor/block_format.hpp"

#if WEFT_HAS_WEBGPU
namespace weft::webgpu {
namespace {

struct PackedProduct {
  kernel::PackedMatmulKernel kernel;
  std::vector<TestBuffer> buffers;
  std::vector<float> weights;  // as the blocks hold them
};

PackedProduct packed_product(std::mt19937& random, BlockType type, Extent m, Extent n, Extent k) {
  PackedProduct p;
  std::normal_distribution<float> normal;
  std::vector<float> weights(static_cast<std::size_t>(n * k));
  for (float& w : weights) w = normal(random);
  std::vector<std::byte> blocks(bytes_for(type, static_cast<std::uint64_t>(n * k), "test"));
  quantise(type, weights, blocks);
  p.weights.resize(weights.size());
  dequantise(type, blocks, p.weights);
  const std::vector<std::uint32_t> words = pack_quantised(type, blocks, n, k);
  p.buffers.push_back(random_buffer(random, DType::f32, m * k));
  p.buffers.push_back({DType::u32, reference::Values(words.begin(), words.end())});
  p.buffers.push_back(random_buffer(random, DType::f32, n));
  p.buffers.push_back({DType::f32, reference::Values(static_cast<std::size_t>(m * n), 0.0)});
  p.kernel = {.name = "packed", .m = m, .n = n, .k = k, .block_type = type, .exact = false};
  p.kernel.a = {0, DType::f32, 0, m * k};
  p.kernel.a_row = k;
  p.kernel.weights = {1, DType::u32, 0, static_cast<Extent>(words.size())};
  kernel::LoopKernel& e = p.kernel.epilogue;
  e.name = "bias";
  e.outer = m * n;
  e.inputs = {{2, DType::f32, 0, n}};
  kernel::Step sum{kernel::StepKind::accumulator}, bias{kernel::StepKind::load}, both{kernel::StepKind::map};
  bias.operand = 0;
  bias.view = {{m, n}, {0, 1}, 0, {}};
  both.op = scalar::Op::add;
  both.a = 0, both.b = 1;
  e.steps = {sum, bias, both};
  e.outputs = {{3, DType::f32, 0, m * n}};
  e.stores = {{2, 0, contiguous({m, n})}};
  return p;
}

using WgslPackedMatricesTest = RenderTest;

TEST_F(WgslPackedMatricesTest, RowsAreScaledAndWeightsAreHalves) {
  std::mt19937 random(41);
  struct Form {
    BlockType type;
    Extent m, n, k;
  };
  for (const Form& form :
       {Form{BlockType::f16, 40, 36, 96}, Form{BlockType::q4_1, 33, 40, 96}, Form{BlockType::q4_k, 20, 72, 256}}) {
    // Software adapters take many seconds for the shader of a form.
    if (!has_real_matrices() && form.type != BlockType::q4_1) continue;
    SCOPED_TRACE(fmt::format("{} {} x {} x {}", name_of(form.type), form.m, form.n, form.k));
    PackedProduct p = packed_product(random, form.type, form.m, form.n, form.k);
    // Rows far beyond the range of f16, up and down.
    for (std::size_t i = 0; i < p.buffers[0].values.size(); ++i) {
      const auto row = static_cast<Extent>(i) / form.k;
      p.buffers[0].values[i] = static_cast<float>(std::ldexp(p.buffers[0].values[i], row % 3 == 0   ? 24
                                                                                     : row % 3 == 1 ? -30
                                                                                                    : 0));
    }
    Rendered rendered;
    Scratch scratch(static_cast<int>(p.buffers.size()), rendered);
    ASSERT_TRUE(render_on_halves(p.kernel, running_matrix_gpu(), scratch, rendered));
    const std::vector<double> got = results_of(rendered, p.buffers, has_real_matrices() ? nullptr : emulated)[3];
    int shown = 0;
    for (Extent i = 0; i < form.m; ++i)
      for (Extent j = 0; j < form.n && shown < 5; ++j) {
        double sum = 0, sizes = 0, row = 0;
        for (Extent k = 0; k < form.k; ++k) {
          const double a = p.buffers[0].values[static_cast<std::size_t>(i * form.k + k)],
                       w = p.weights[static_cast<std::size_t>(j * form.k + k)];
          sum += a * w, sizes += std::abs(a * w), row = std::max(row, std::abs(a));
        }
        const double bias = p.buffers[2].values[static_cast<std::size_t>(j)];
        const double bound = 0x1p-10 * sizes + 0x1p-20 * (std::abs(bias) + row);
        const double value = got[static_cast<std::size_t>(i * form.n + j)];
        if (std::abs(value - sum - bias) <= bound) continue;
        ADD_FAILURE() << "[" << i << ", " << j << "]: " << value << ", wanted " << sum + bias << " within " << bound;
        ++shown;
      }
  }
}

// A gated unit: the second product times the first.
struct GatedUnit {
  PackedProduct first, second;
  std::vector<TestBuffer> buffers;  // those of the first, the weights of the second, its result
};

GatedUnit gated_unit(std::mt19937& random, BlockType type, Extent m, Extent n, Extent k) {
  GatedUnit unit{packed_product(random, type, m, n, k), packed_product(random, type, m, n, k), {}};
  unit.buffers = unit.first.buffers;
  unit.buffers.push_back(unit.second.buffers[1]);
  unit.buffers.push_back(unit.second.buffers[3]);
  kernel::PackedMatmulKernel& second = unit.second.kernel;
  second.weights.buffer = 4;
  kernel::LoopKernel& e = second.epilogue;
  e.inputs = {{3, DType::f32, 0, m * n}};
  e.steps[1].view = contiguous({m, n});
  e.steps[2].op = scalar::Op::mul;
  e.outputs = {{5, DType::f32, 0, m * n}};
  return unit;
}

TEST_F(WgslPackedMatricesTest, AGatedUnitIsOneProduct) {
  std::mt19937 random(44);
  for (const auto& [type, keeps_first] : {std::pair(BlockType::f16, true), std::pair(BlockType::q4_1, false)}) {
    if (!has_real_matrices() && !keeps_first) continue;  // the shader takes long to compile
    SCOPED_TRACE(name_of(type));
    const Extent m = 40, n = 192, k = 192;
    GatedUnit unit = gated_unit(random, type, m, n, k);
    Rendered rendered;
    Scratch scratch(static_cast<int>(unit.buffers.size()), rendered);
    ASSERT_TRUE(render_packed_pair(unit.first.kernel, unit.second.kernel, keeps_first, running_matrix_gpu(), scratch,
                                   rendered));
    EXPECT_EQ(rendered.dispatches.back().name, "packed + packed.matrices");
    const auto results = results_of(rendered, unit.buffers, has_real_matrices() ? nullptr : emulated);
    double worst = 0;
    for (Extent i = 0; i < m; ++i)
      for (Extent j = 0; j < n; ++j) {
        double first = unit.buffers[2].values[static_cast<std::size_t>(j)], second = 0;
        for (Extent e = 0; e < k; ++e) {
          const double a = unit.buffers[0].values[static_cast<std::size_t>(i * k + e)];
          first += a * unit.first.weights[static_cast<std::size_t>(j * k + e)];
          second += a * unit.second.weights[static_cast<std::size_t>(j * k + e)];
        }
        const auto at = static_cast<std::size_t>(i * n + j);
        worst = std::max(worst, std::abs(results[5][at] - first * second) / (1 + std::abs(first) + std::abs(second)));
        if (keeps_first) worst = std::max(worst, std::abs(results[3][at] - first) / (1 + std::abs(first)));
      }
    EXPECT_LE(worst, 0.05) << "sums of " << k << " products of halves";
    if (!keeps_first) {
      EXPECT_EQ(results[3], unit.buffers[3].values) << "nothing reads the first product";
    }
  }
}

/// A product whose row i is of row i / 2 of A, with the matrix of an expert; every ninth row has none. Buffer `of_rows` has them.
void give_experts(PackedProduct& p, Extent experts, Extent n, std::size_t of_rows) {
  p.kernel.n = n;
  p.kernel.experts = {{static_cast<int>(of_rows), DType::i32, 0, p.kernel.m}, experts, 2};
  kernel::LoopKernel& e = p.kernel.epilogue;
  e.outer = p.kernel.m * n;
  e.steps[1].view = {{p.kernel.m, n}, {0, 1}, 0, {}};
  e.outputs[0].count = p.kernel.m * n;
  e.stores[0].view = contiguous({p.kernel.m, n});
}

TEST_F(WgslPackedMatricesTest, RowsOfExpertsBeginTilesOfTheirOwn) {
  std::mt19937 random(46);
  for (const BlockType type :
       {BlockType::q4_1, BlockType::f16, BlockType::q5_0, BlockType::q8_0, BlockType::q3_k, BlockType::q4_k,
        BlockType::q5_k, BlockType::q6_k, BlockType::iq4_xs, BlockType::mxfp4}) {
    // Software adapters take seconds for each shader.
    if (!has_real_matrices() && type != BlockType::q4_1 && type != BlockType::q6_k) continue;
    for (const bool on_matrices : {true, false}) {
      if (!has_real_matrices() && !on_matrices && type != BlockType::q4_1) continue;
      SCOPED_TRACE(fmt::format("{} {}", name_of(type), on_matrices));
      const Extent m = 60, n = 48, k = block_format(type).block_elements == 256 ? 256 : 96, experts = 5;
      PackedProduct p = packed_product(random, type, m, experts * n, k);
      give_experts(p, experts, n, p.buffers.size());
      reference::Values of_row;
      for (Extent i = 0; i < m; ++i) of_row.push_back(i % 9 == 4 ? -1 : static_cast<double>((i * i + i / 7) % 4));
      p.buffers.push_back({DType::i32, of_row});
      p.buffers[3].values.assign(static_cast<std::size_t>(m * n), 7.0);
      p.kernel.exact = !on_matrices;
      Rendered rendered;
      Scratch scratch(static_cast<int>(p.buffers.size()), rendered);
      Target target = running_matrix_gpu();
      if (!on_matrices) target.limits.binding_bytes = static_cast<std::uint64_t>(2 * n * k * 4);  // two experts at once
      render(p.kernel, target, scratch, rendered);
      EXPECT_EQ(rendered.dispatches[0].name, "packed.order");
      if (!on_matrices) {
        EXPECT_EQ(std::ranges::count(rendered.dispatches, std::string("packed.unpack"), &RenderedDispatch::name), 3);
      }
      const std::vector<double> got = results_of(rendered, p.buffers, has_real_matrices() ? nullptr : emulated)[3];
      double worst = 0;
      for (Extent i = 0; i < m; ++i)
        for (Extent j = 0; j < n; ++j) {
          const auto expert = static_cast<Extent>(of_row[static_cast<std::size_t>(i)]);
          double wanted = p.buffers[2].values[static_cast<std::size_t>(j)];
          for (Extent e = 0; expert >= 0 && e < k; ++e)
            wanted += p.buffers[0].values[static_cast<std::size_t>(i / 2 * k + e)] *
                      p.weights[static_cast<std::size_t>((expert * n + j) * k + e)];
          worst = std::max(worst, std::abs(got[static_cast<std::size_t>(i * n + j)] - wanted));
        }
      EXPECT_LE(worst, on_matrices ? 0.1 : 1e-4);
    }
  }
}

TEST_F(WgslPackedMatricesTest, AGatedUnitOfExpertsIsOneProduct) {
  std::mt19937 random(47);
  const Extent m = 60, n = 192, k = 192, experts = 3;
  for (const BlockType type : {BlockType::f16, BlockType::q4_1}) {
    if (!has_real_matrices() && type == BlockType::f16) continue;
    GatedUnit unit = gated_unit(random, type, m, experts * n, k);
    for (PackedProduct* p : {&unit.first, &unit.second}) give_experts(*p, experts, n, unit.buffers.size());
    unit.second.kernel.epilogue.inputs[0].count = m * n;
    unit.second.kernel.epilogue.steps[1].view = contiguous({m, n});
    reference::Values of_row;
    for (Extent i = 0; i < m; ++i) of_row.push_back(i % 9 == 4 ? 90 : static_cast<double>(i * i % 3));
    unit.buffers.push_back({DType::i32, of_row});
    Rendered rendered;
    Scratch scratch(static_cast<int>(unit.buffers.size()), rendered);
    ASSERT_TRUE(
        render_packed_pair(unit.first.kernel, unit.second.kernel, false, running_matrix_gpu(), scratch, rendered));
    EXPECT_EQ(rendered.dispatches.back().name, "packed + packed.matrices");
    const auto results = results_of(rendered, unit.buffers, has_real_matrices() ? nullptr : emulated);
    double worst = 0;
    for (Extent i = 0; i < m; ++i)
      for (Extent j = 0; j < n; ++j) {
        const double number = of_row[static_cast<std::size_t>(i)];
        double first = unit.buffers[2].values[static_cast<std::size_t>(j)], second = 0;
        for (Extent e = 0; number < experts && e < k; ++e) {
          const double a = unit.buffers[0].values[static_cast<std::size_t>(i / 2 * k + e)];
          const auto at = static_cast<std::size_t>((static_cast<Extent>(number) * n + j) * k + e);
          first += a * unit.first.weights[at];
          second += a * unit.second.weights[at];
        }
        const double got = results[5][static_cast<std::size_t>(i * n + j)];
        worst = std::max(worst, std::abs(got - first * second) / (1 + std::abs(first) + std::abs(second)));
      }
    EXPECT_LE(worst, 0.05) << name_of(type);
  }
}

TEST_F(WgslPackedMatricesTest, WhatIsNoGatedUnitStaysTwoProducts) {
  std::mt19937 random(45);
  const auto is_pair = [&](auto change) {
    GatedUnit unit = gated_unit(random, BlockType::f16, 40, 192, 192);
    change(unit);
    Rendered rendered;
    Scratch scratch(static_cast<int>(unit.buffers.size()), rendered);
    return render_packed_pair(unit.first.kernel, unit.second.kernel, true, matrix_gpu(), scratch, rendered);
  };
  EXPECT_TRUE(is_pair([](GatedUnit&) {}));
  EXPECT_FALSE(is_pair([](GatedUnit& u) { u.second.kernel.exact = true; })) << "not rounded";
  EXPECT_FALSE(is_pair([](GatedUnit& u) { u.second.kernel.a.buffer = 5; })) << "other rows";
  EXPECT_FALSE(is_pair([](GatedUnit& u) {
    u.second.kernel.epilogue.steps[1].view = {{40, 192}, {0, 1}, 0, {}};
  })) << "one row for all";
  EXPECT_FALSE(is_pair([](GatedUnit& u) { u.second.kernel.epilogue.inputs[0].buffer = 0; })) << "the first is not read";
  EXPECT_FALSE(is_pair([](GatedUnit& u) { u.first.kernel.n = u.second.kernel.n = 200; })) << "no whole tiles";
}

// Rows of weights of bf16 far outside of the range of f16.
TEST_F(WgslPackedMatricesTest, WeightsOfBf16AreScaledRowByRow) {
  std::mt19937 random(48);
  const Extent m = 40, n = 40, k = 72;
  PackedProduct p = packed_product(random, BlockType::bf16, m, n, k);
  std::vector<std::byte> blocks;
  for (std::size_t i = 0; i < p.weights.size(); ++i) {
    const auto row = static_cast<Extent>(i) / k;
    p.weights[i] = std::ldexp(p.weights[i], row % 3 == 0 ? 60 : row % 3 == 1 ? -70 : 0);
  }
  blocks.resize(bytes_for(BlockType::bf16, static_cast<std::uint64_t>(n * k), "test"));
  quantise(BlockType::bf16, p.weights, blocks);
  const std::vector<std::uint32_t> words = pack_quantised(BlockType::bf16, blocks, n, k);
  p.buffers[1] = {DType::u32, reference::Values(words.begin(), words.end())};
  std::fill(p.buffers[2].values.begin(), p.buffers[2].values.end(), 0.0);
  Rendered rendered;
  Scratch scratch(static_cast<int>(p.buffers.size()), rendered);
  ASSERT_TRUE(render_on_halves(p.kernel, running_matrix_gpu(), scratch, rendered));
  const std::vector<double> got = results_of(rendered, p.buffers, has_real_matrices() ? nullptr : emulated)[3];
  double worst = 0;
  for (Extent i = 0; i < m; ++i)
    for (Extent j = 0; j < n; ++j) {
      double sum = 0, sizes = 0;
      for (Extent e = 0; e < k; ++e) {
        const double product = p.buffers[0].values[static_cast<std::size_t>(i * k + e)] *
                               static_cast<double>(p.weights[static_cast<std::size_t>(j * k + e)]);
        sum += product, sizes += std::abs(product);
      }
      worst = std::max(worst, std::abs(got[static_cast<std::size_t>(i * n + j)] - sum) / sizes);
    }
  EXPECT_LE(worst, 0x1p-10);
}

TEST_F(WgslPackedMatricesTest, ExactProductsAndWideTypesStayInF32) {
  std::mt19937 random(42);
  PackedProduct p = packed_product(random, BlockType::q8_0, 40, 40, 64);
  Rendered rendered;
  Scratch scratch(static_cast<int>(p.buffers.size()), rendered);
  const Target target = running_matrix_gpu();
  p.kernel.exact = true;
  EXPECT_FALSE(render_on_halves(p.kernel, target, scratch, rendered));
  p.kernel.exact = false;
  EXPECT_FALSE(render_on_halves(p.kernel, kLargeGpu, scratch, rendered)) << "no matrices";
  p.kernel.block_type = BlockType::f32;
  EXPECT_FALSE(render_on_halves(p.kernel, target, scratch, rendered));
  EXPECT_TRUE(rendered.dispatches.empty() && rendered.scratch_bytes.empty());
}

}  // namespace
}  // namespace weft::webgpu
#endif
