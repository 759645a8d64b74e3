// Tensors in the blocks of GGUF files: bytes in and out, casts, products, rows, and what refuses them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/message_of.hpp"
#include "runtime/noise.hpp"
#include "runtime/packed_matrix.hpp"
#include "weft/compile.hpp"
#include "weft/inference.hpp"
#include "weft/ops.hpp"

namespace weft::block_tensors_test {
namespace {

using test::message_of;
using test::noise;

std::vector<DType> block_types() {
  std::vector<DType> types;
  std::copy_if(std::begin(kAllDTypes), std::end(kAllDTypes), std::back_inserter(types), is_block);
  return types;
}

/// Bytes of which every value is possible in a file; scales may be NaN.
std::vector<std::byte> random_blocks(DType type, Extent count) {
  std::vector<std::byte> bytes(bytes_of(type, static_cast<std::size_t>(count)));
  std::uint64_t state = 7;
  for (std::byte& byte : bytes) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    byte = static_cast<std::byte>(state >> 56);
  }
  return bytes;
}

std::vector<std::byte> bytes_in(const Tensor& t) {
  std::vector<std::byte> bytes(bytes_of(t.dtype(), static_cast<std::size_t>(t.numel())));
  t.copy_to(bytes.data(), bytes.size());
  return bytes;
}

Tensor floats(const std::vector<float>& values, const Shape& shape) {
  return tensor<float>(std::span<const float>(values), shape);
}

/// Rounded by the table of formats, and the values of that.
std::vector<std::byte> rounded(DType type, const std::vector<float>& values) {
  std::vector<std::byte> blocks(bytes_of(type, values.size()));
  quantise(type, values, blocks);
  return blocks;
}
std::vector<float> values_of(DType type, const std::vector<std::byte>& blocks, std::size_t count) {
  std::vector<float> values(count);
  dequantise(type, blocks, values);
  return values;
}

TEST(BlockTensors, BytesComeBackBitForBit) {
  for (const DType type : block_types()) {
    const Extent block = element(type).block_elements;
    for (const Shape& shape : {Shape{1, block}, Shape{16, 2 * block}, Shape{37, 3 * block}, Shape{3 * block},
                               Shape{2, 9, block}, Shape{0, block}, Shape{5, 0}}) {
      const auto bytes = random_blocks(type, shape.numel());
      const Tensor t = tensor_from_bytes(bytes.data(), shape, type);
      EXPECT_EQ(t.dtype(), type);
      EXPECT_EQ(t.shape(), shape);
      EXPECT_EQ(bytes_in(t), bytes) << name_of(type) << " " << shape.to_string();
    }
  }
}

TEST(BlockTensors, PackedMatricesOfPlainTypesComeBackToo) {
  for (const DType type : {DType::f32, DType::f16, DType::bf16}) {
    const auto bytes = random_blocks(DType::q8_0, 32 * 40);  // any bytes
    const Shape shape{19, 13};
    const std::size_t size = bytes_of(type, static_cast<std::size_t>(shape.numel()));
    const Tensor t = pack_matrix(type, std::span(bytes).first(size), shape, kCpu);
    EXPECT_EQ(bytes_in(t), std::vector<std::byte>(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(size)))
        << name_of(type);
  }
}

TEST(BlockTensors, CastsRoundAndRestoreAsTheTableOfFormatsDoes) {
  for (const DType type : block_types()) {
    SCOPED_TRACE(name_of(type));
    const Extent k = 2 * element(type).block_elements;
    for (const Shape& shape : {Shape{21, k}, Shape{k}, Shape{2, 3, k}}) {
      const std::vector<float> values = noise(3, shape.numel());
      const std::vector<std::byte> blocks = rounded(type, values);
      const std::vector<float> wanted = values_of(type, blocks, values.size());
      const Tensor t = cast(floats(values, shape), type);
      EXPECT_EQ(t.shape(), shape);
      EXPECT_EQ(cast(t, DType::f32).to_vector<float>(), wanted);  // in one plan
      EXPECT_EQ(bytes_in(t), blocks);
      EXPECT_EQ(cast(tensor_from_bytes(blocks.data(), shape, type), DType::f32).to_vector<float>(), wanted);
    }
  }
  const Tensor q8 = cast(floats(noise(1, 256), {1, 256}), DType::q8_0);
  EXPECT_EQ(cast(q8, DType::q8_0).node(), q8.node());
  EXPECT_EQ(bytes_in(cast(q8, DType::q4_k)), rounded(DType::q4_k, cast(q8, DType::f32).to_vector<float>()));
  EXPECT_EQ(cast(q8, DType::f16).to_string(), cast(cast(q8, DType::f32), DType::f16).to_string());
  EXPECT_EQ(bytes_in(cast(cast(floats(noise(1, 32), {32}), DType::f16), DType::q4_0)),
            rounded(DType::q4_0, cast(cast(floats(noise(1, 32), {32}), DType::f16), DType::f32).to_vector<float>()));
}

TEST(BlockTensors, ProductsAndRowsAreThoseOfTheValues) {
  for (const DType type : block_types()) {
    SCOPED_TRACE(name_of(type));
    const Extent n = 35, k = 512;
    const Tensor weight = cast(floats(noise(1, n * k), {n, k}), type), dense = cast(weight, DType::f32);
    const Tensor bias = floats(noise(2, n), {n});
    for (const Extent rows : {1, 3, 40}) {
      const Tensor x = floats(noise(4, rows * k), {rows, k});
      const auto wanted = linear(cast(x, DType::f64), cast(dense, DType::f64)).to_vector<double>();
      const auto got = linear(x, weight).to_vector<float>(), with_bias = linear(x, weight, bias).to_vector<float>();
      const auto product = matmul(x, transpose(weight)).to_vector<float>();
      const auto fast = packed_linear(x, weight).to_vector<float>();
      const auto b = bias.to_vector<float>();
      for (std::size_t i = 0; i < wanted.size(); ++i) {
        ASSERT_NEAR(got[i], wanted[i], 3e-5) << i;
        ASSERT_NEAR(with_bias[i], wanted[i] + static_cast<double>(b[i % b.size()]), 3e-5) << i;
        ASSERT_NEAR(fast[i], wanted[i], 0.25) << i;
      }
      EXPECT_EQ(product, got);
    }
    const Tensor cube = linear(floats(noise(5, 6 * k), {2, 3, k}), weight);
    EXPECT_EQ(cube.shape(), (Shape{2, 3, n}));
    const Tensor at = tensor<std::int32_t>({3, 0, 34, 3}, {2, 2});
    EXPECT_EQ(embedding(weight, at).shape(), (Shape{2, 2, k}));
    EXPECT_EQ(embedding(weight, at).to_vector<float>(), embedding(dense, at).to_vector<float>());
    EXPECT_EQ(embedding(weight, cast(at, DType::i64)).to_vector<float>(), embedding(dense, at).to_vector<float>());
  }
}

TEST(BlockTensors, FunctionsTakeAndGiveThem) {
  const Extent n = 20, k = 64;
  const Tensor weight = cast(floats(noise(1, n * k), {n, k}), DType::q5_1).eval();
  const Tensor x = floats(noise(2, 3 * k), {3, k});
  auto product = compile([](Tensor a, Tensor w) { return linear(a, w) * 2.0; });
  for (int i = 0; i < 2; ++i)
    EXPECT_EQ(product(x, weight).to_vector<float>(), (linear(x, weight) * 2.0).to_vector<float>());
  auto holds = compile([&](Tensor a) { return linear(a, weight) + 1.0; });
  EXPECT_EQ(holds(x).to_vector<float>(), (linear(x, weight) + 1.0).to_vector<float>());
  auto rounds = compile([](Tensor a) { return cast(a * 3.0, DType::q8_0); });
  for (int i = 0; i < 2; ++i) EXPECT_EQ(bytes_in(rounds(x)), bytes_in(cast(x * 3.0, DType::q8_0)));
  // A rounded value between two kernels of one plan.
  auto through = compile([&](Tensor a) { return linear(a, cast(a * 1.0, DType::q8_0)); });
  EXPECT_EQ(through(x).to_vector<float>(), linear(x, cast(x * 1.0, DType::q8_0).eval()).to_vector<float>());

  Variable kept(weight, "kept", false);
  EXPECT_EQ(bytes_in(kept.value()), bytes_in(weight));
  kept.assign(cast(floats(noise(9, n * k), {n, k}), DType::q5_1));
  EXPECT_EQ(bytes_in(kept.value()), rounded(DType::q5_1, noise(9, n * k)));
  EXPECT_EQ(bytes_in(weight), rounded(DType::q5_1, noise(1, n * k)));
}

TEST(BlockTensors, AreShownByTheirValues) {
  std::vector<float> values(32, 0.0f);
  values[0] = -127, values[1] = 64;
  const std::string text = cast(floats(values, {1, 32}), DType::q8_0).to_string();
  EXPECT_EQ(text.substr(0, 32), "q8_0 [1, 32] [[-127, 64, 0, 0, 0");
}

TEST(BlockTensors, OtherOpsRefuseThemWithTheCure) {
  const Tensor w = cast(floats(noise(1, 4 * 32), {4, 32}), DType::q4_0).named("the weight"), x = zeros({2, 32});
  const auto refused = [&](auto f, std::string_view part) {
    const std::string message = message_of<DTypeError>(f);
    EXPECT_NE(message.find(part), std::string::npos) << message;
    EXPECT_NE(message.find("cast"), std::string::npos) << message;
  };
  refused([&] { (void)(w + x); }, "add");
  refused([&] { (void)reshape(w, {128}); }, "reshape");
  refused([&] { (void)narrow(w, 0, 0, 2); }, "slice");
  refused([&] { (void)sum(w); }, "q4_0");
  refused([&] { (void)concat(std::vector{w, w}, 0); }, "concat");
  refused([&] { (void)matmul(x, w); }, "transpose");
  refused([&] { (void)matmul(w, transpose(x)); }, "matmul");
  refused([&] { (void)transpose(w).eval(); }, "transposed");
  refused([&] { (void)(transpose(w) * 2.0); }, "q4_0");
  refused([&] { (void)zeros({2, 32}, DType::q4_0); }, "q4_0");
  refused([&] { (void)softmax(w); }, "the weight");
  refused([&] { (void)linear(cast(x, DType::f16), w); }, "x is not f32");
  refused([&] { (void)packed_linear(x, zeros({4, 32})); }, "not in blocks");
  const Tensor half = pack_matrix(DType::f16, std::vector<std::byte>(4 * 32 * 2), {4, 32}, kCpu);
  refused([&] { (void)(half + x); }, "add");
  EXPECT_THROW((void)cast(zeros({2, 33}), DType::q4_0), ShapeError);
  EXPECT_THROW((void)cast(zeros({}), DType::q4_0), ShapeError);
  EXPECT_THROW((void)tensor_from_bytes(nullptr, {2, 128}, DType::q4_k), ShapeError);
  EXPECT_NE(message_of<ShapeError>([&] {
              (void)cast(zeros({2, 33}), DType::q4_0);
            }).find("blocks of 32 (q4_0)"),
            std::string::npos);
  EXPECT_THROW((void)cast(full({32}, INFINITY), DType::q8_0).eval(), UsageError);
  EXPECT_THROW((void)w.to_vector<float>(), DTypeError);
  EXPECT_THROW((void)linear(zeros({2, 31}), w), ShapeError);
}

}  // namespace
}  // namespace weft::block_tensors_test
