// Products of few rows, which become integers of 16 bits, with weights in blocks of integers.
#include <fmt/format.h>

#include "backend/webgpu/quantised_pack.hpp"
#include "backend/webgpu/render_support.hpp"
#include "tensor/block_format.hpp"

#if WEFT_HAS_WEBGPU
namespace weft::webgpu {
namespace {

constexpr Extent kColumns = 2048, kDepth = 1024;  // the smallest matrix for which rows are rounded

struct RoundedProduct {
  kernel::Plan plan;
  std::vector<TestBuffer> buffers;  // the row, the weights, the result
  std::vector<float> weights;       // as the blocks hold them
};

RoundedProduct rounded_product(BlockType type) {
  std::mt19937 random(61);
  std::normal_distribution<float> normal;
  RoundedProduct p;
  std::vector<float> weights(static_cast<std::size_t>(kColumns * kDepth));
  for (float& w : weights) w = normal(random);
  std::vector<std::byte> blocks(bytes_for(type, weights.size(), "test"));
  quantise(type, weights, blocks);
  p.weights.resize(weights.size());
  dequantise(type, blocks, p.weights);
  const std::vector<std::uint32_t> words = pack_quantised(type, blocks, kColumns, kDepth);
  TestBuffer row{DType::f32, {}};
  for (Extent i = 0; i < kDepth; ++i) row.values.push_back(normal(random));
  p.buffers = {row,
               {DType::u32, reference::Values(words.begin(), words.end())},
               {DType::f32, reference::Values(static_cast<std::size_t>(kColumns), 0.0)}};
  kernel::PackedMatmulKernel product{
      .name = "rounded", .m = 1, .n = kColumns, .k = kDepth, .block_type = type, .exact = false};
  product.a = {0, DType::f32, 0, kDepth};
  product.a_row = kDepth;
  product.weights = {1, DType::u32, 0, static_cast<Extent>(words.size())};
  kernel::LoopKernel& e = product.epilogue;
  e.name = "sum";
  e.outer = kColumns;
  e.steps = {kernel::Step{kernel::StepKind::accumulator}};
  e.outputs = {{2, DType::f32, 0, kColumns}};
  e.stores = {{0, 0, contiguous({1, kColumns})}};
  p.plan.kernels = {product};
  return p;
}

class RowsIntegers : public RenderTest {};

TEST_F(RowsIntegers, ProductsAreAsCloseAsSixteenBits) {
  for (const BlockType type : {BlockType::q4_k, BlockType::q8_0}) {
    SCOPED_TRACE(name_of(type));
    RoundedProduct p = rounded_product(type);
    p.buffers[0].values[5] = 300;  // alone decides the step of its block
    std::string source;
    const reference::Values got = run_on_device(*test_backend(), p.plan, p.buffers, &source)[2];
    if (source.find("dot4I8Packed") == std::string::npos) GTEST_SKIP() << "the adapter has no exact dots of integers";
    int shown = 0;
    for (Extent j = 0; j < kColumns && shown < 5; ++j) {
      double sum = 0, bound = 0;
      for (Extent block = 0; block < kDepth; block += 32) {
        double largest = 0, weights = 0;
        for (Extent i = block; i < block + 32; ++i) {
          const double x = p.buffers[0].values[static_cast<std::size_t>(i)],
                       w = p.weights[static_cast<std::size_t>(j * kDepth + i)];
          sum += x * w, weights += std::abs(w), largest = std::max(largest, std::abs(x));
          bound += 2e-6 * std::abs(x * w);
        }
        bound += largest / 65278 * weights;
      }
      if (std::abs(got[static_cast<std::size_t>(j)] - sum) <= bound) continue;
      ADD_FAILURE() << "column " << j << ": " << got[static_cast<std::size_t>(j)] << ", wanted " << sum << " within "
                    << bound;
      ++shown;
    }
  }
}

TEST_F(RowsIntegers, NanAndInfinityLeaveNoNumber) {
  for (const double bad : {std::nan(""), double{INFINITY}}) {
    RoundedProduct p = rounded_product(BlockType::q4_0);
    p.buffers[0].values[77] = bad;
    const reference::Values got = run_on_device(*test_backend(), p.plan, p.buffers)[2];
    for (const double value : got) ASSERT_FALSE(std::isfinite(value)) << bad;
  }
}

TEST_F(RowsIntegers, SmallAndLargeNumbersKeepTheirSize) {
  for (const double size : {1e-38, 1e-20, 1e30}) {
    RoundedProduct p = rounded_product(BlockType::q4_0);
    double sum = 0;
    for (std::size_t i = 0; i < p.buffers[0].values.size(); ++i) {
      p.buffers[0].values[i] = static_cast<float>(p.buffers[0].values[i] * size);
      sum += p.buffers[0].values[i] * p.weights[i];
    }
    const double got = run_on_device(*test_backend(), p.plan, p.buffers)[2][0];
    EXPECT_NEAR(got, sum, size < 1e-30 ? 1e-30 : std::abs(sum) * 0.01 + size * 0.01);
  }
}

}  // namespace
}  // namespace weft::webgpu
#endif
