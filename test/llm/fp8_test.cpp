// Models whose matrices are FP8: DeepSeek's, with experts and a matrix that is cut into keys and values, and Qwen3's, beside the
// same models in BF16, which holds every value because scales are powers of two.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <deque>

#include "base/half.hpp"
#include "io/gguf.hpp"
#include "io/quantised_folder.hpp"
#include "io/tensor_source.hpp"
#include "llm/convert.hpp"
#include "llm/transformers_cases.hpp"
#include "tensor/element.hpp"
#include "weft/llm.hpp"

namespace weft::llm::fp8_test {
namespace {

using test::TemporaryFolder;

constexpr Extent kSide = 20;  // of a block; no matrix of these models is made of whole ones

bool is_in_fp8(const std::string& name, const Shape& shape) {
  return shape.rank() == 2 && name.ends_with("proj.weight");
}

/// A folder in FP8, and one in BF16 with the same values. Norms and tables of both are F32.
void put_both(const test::TinyModel& model, const TemporaryFolder& fp8, const TemporaryFolder& bf16) {
  test::TinyModel described = model;
  described.config["quantization_config"] = {{"activation_scheme", "dynamic"},
                                             {"fmt", "e4m3"},
                                             {"quant_method", "fp8"},
                                             {"weight_block_size", {kSide, kSide}}};
  test::put(described, fp8);
  test::put(model, bf16);
  std::vector<io::TensorView> of_fp8, of_bf16;
  std::deque<std::vector<std::uint8_t>> codes;
  std::deque<std::vector<std::uint16_t>> halves;
  std::deque<std::vector<float>> scales;
  for (const auto& [name, tensor] : model.tensors) {
    const auto dense = io::TensorView{name, "F32", tensor.shape, std::as_bytes(std::span(tensor.values))};
    if (!is_in_fp8(name, tensor.shape)) {
      of_fp8.push_back(dense);
      of_bf16.push_back(dense);
      continue;
    }
    const Extent rows = tensor.shape[0], columns = tensor.shape[1], across = (columns + kSide - 1) / kSide,
                 down = (rows + kSide - 1) / kSide;
    auto& own_codes = codes.emplace_back();
    auto& own_halves = halves.emplace_back();
    auto& own_scales = scales.emplace_back();
    for (Extent tile = 0; tile < down * across; ++tile)
      own_scales.push_back(std::ldexp(1.0f, -9 + static_cast<int>(tile % 3)));
    for (Extent row = 0; row < rows; ++row)
      for (Extent column = 0; column < columns; ++column) {
        const float scale = own_scales[static_cast<std::size_t>(row / kSide * across + column / kSide)],
                    value = tensor.values[static_cast<std::size_t>(row * columns + column)];
        const std::uint32_t code = encode_storage(DType::fp8_e4m3, rounded_to(DType::fp8_e4m3, value / scale));
        own_codes.push_back(static_cast<std::uint8_t>(code));
        own_halves.push_back(bf16_from_f32(static_cast<float>(decode_storage(DType::fp8_e4m3, code)) * scale));
      }
    of_fp8.push_back({name, "F8_E4M3", tensor.shape, std::as_bytes(std::span(own_codes))});
    of_fp8.push_back({name + "_scale_inv", "F32", {down, across}, std::as_bytes(std::span(own_scales))});
    of_bf16.push_back({name, "BF16", tensor.shape, std::as_bytes(std::span(own_halves))});
  }
  ASSERT_GT(codes.size(), 10u);
  io::write_safetensors(fp8 / "model.safetensors", of_fp8);
  io::write_safetensors(bf16 / "model.safetensors", of_bf16);
}

std::vector<std::int32_t> some_text() {
  std::vector<std::int32_t> tokens;
  for (std::size_t i = 0; i < 30; ++i) tokens.push_back(static_cast<std::int32_t>((i * 7 + 3 * (i % 5)) % 48));
  return tokens;
}

double difference(const std::vector<float>& a, const std::vector<float>& b) {
  EXPECT_EQ(a.size(), b.size());
  double largest = 0;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i)
    largest = std::max(largest, std::abs(double{a[i]} - double{b[i]}));
  return largest;
}

TEST(Fp8Models, LogitsAreThoseOfTheModelInBf16) {
  const LoadOptions exact{.context = 64, .exact = true};
  for (const char* name : {"deepseek-v3", "deepseek-v2-groups", "qwen3", "qwen3-moe", "qwen2-moe"}) {
    SCOPED_TRACE(name);
    const TemporaryFolder fp8, bf16;
    const test::TinyModel model = test::transformers_case(name).model();
    put_both(model, fp8, bf16);
    const std::vector<float> wanted = load(bf16.path(), exact).forward(some_text());
    EXPECT_LT(difference(load(fp8.path(), exact).forward(some_text()), wanted), 2e-5);
    // FP8 has four digits of the weights, so the logits differ from those of the model before.
    const TemporaryFolder before;
    test::put(model, before);
    EXPECT_GT(difference(load(before.path(), exact).forward(some_text()), wanted), 1e-2);

    const io::TensorSource source = io::with_quantised_layers(io::TensorSource::open(fp8.path()));
    (void)convert_to_gguf(source, fp8 / "model.gguf");
    EXPECT_LT(difference(load(fp8 / "model.gguf", exact).forward(some_text()), wanted), 2e-5);
  }
}

}  // namespace
}  // namespace weft::llm::fp8_test
