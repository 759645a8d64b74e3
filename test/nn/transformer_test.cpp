// Layers of transformers against PyTorch, whose numbers are those of TransformerEncoderLayer and TransformerDecoderLayer in f64
// with the same parameters.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "weft/weft.hpp"

namespace weft::nn::transformer_test {
namespace {

// Parameter k in the order of names has 0.5 sin(0.7 i + k).
void fill(const Module& module) {
  std::vector<NamedParameter> named = module.named_parameters();
  std::sort(named.begin(), named.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  for (std::size_t k = 0; k < named.size(); ++k) {
    std::vector<float> values(static_cast<std::size_t>(named[k].variable.numel()));
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = static_cast<float>(0.5 * std::sin(0.7 * static_cast<double>(i) + static_cast<double>(k)));
    named[k].variable.assign(tensor<float>(values, named[k].variable.shape()));
  }
}

Tensor numbers(const Shape& shape, double shift) {
  std::vector<float> values(static_cast<std::size_t>(shape.numel()));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<float>(std::sin(0.9 * static_cast<double>(i) + shift));
  return tensor<float>(values, shape);
}

void expect_near(const Tensor& y, const std::vector<float>& expected) {
  const std::vector<float> got = y.to_vector<float>();
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], 5e-6) << i;
}

// Query i sees keys up to i.
Tensor causal_mask(Extent n) { return tril(ones({n, n}, DType::boolean)); }

TEST(Transformer, EncoderLayerIsThatOfPyTorch) {
  TransformerEncoderLayer layer(4, 2, {.feed_forward = 6, .dropout = 0});
  fill(layer);
  expect_near(layer(numbers({2, 3, 4}, 1), causal_mask(3)),
              {-0.220425f, 0.810225f, 0.660048f, 0.249208f, 0.150526f, 0.727826f, 0.166068f, 0.280092f,
               -0.362983f, 0.90573f,  0.62624f,  0.300232f, 0.271132f, 0.504788f, 0.223972f, 0.271916f,
               -0.359617f, 0.995556f, 0.470805f, 0.327628f, 0.253253f, 0.446582f, 0.374156f, 0.243319f});
}

TEST(Transformer, DecoderLayerIsThatOfPyTorch) {
  TransformerDecoderLayer layer(
      4, 2, {.feed_forward = 6, .dropout = 0, .activation = TransformerActivation::gelu, .norm_first = true});
  fill(layer);
  expect_near(layer(numbers({1, 3, 4}, 1), numbers({1, 2, 4}, 2), causal_mask(3)),
              {-0.313045f, 2.293312f, -0.82356f, -0.118572f, -2.211611f, 0.595505f, -0.95015f, 1.238833f, -0.128318f,
               1.641815f, -1.745439f, -0.502949f});
}

TEST(Transformer, NamesAreThoseOfPyTorch) {
  std::vector<std::string> names;
  for (const NamedParameter& each : MultiheadAttention(8, 2).named_parameters()) names.push_back(each.name);
  std::sort(names.begin(), names.end());
  EXPECT_EQ(names, (std::vector<std::string>{"in_proj_bias", "in_proj_weight", "out_proj.bias", "out_proj.weight"}));
  EXPECT_EQ(TransformerDecoderLayer(8, 2, {.bias = false}).parameters().size(), 9u);
  EXPECT_EQ(MultiheadAttention(8, 2).describe(), "MultiheadAttention 8, 2 heads");
}

TEST(Transformer, TrainsInsideOfACompiledFunction) {
  manual_seed(1);
  TransformerEncoderLayer layer(8, 2, {.feed_forward = 16});
  const Tensor x = numbers({4, 5, 8}, 1), y = numbers({4, 5, 8}, 2);
  auto step = compile([&](Tensor input, Tensor wanted) {
    Tensor loss = mse(layer(input), wanted);
    std::vector<Variable> parameters = layer.parameters();
    const std::vector<Tensor> gradients = grad(loss, parameters);
    for (std::size_t i = 0; i < parameters.size(); ++i) parameters[i] -= 0.1 * gradients[i];
    return loss;
  });
  const float first = step(x, y).item<float>();
  float last = first;
  for (int i = 0; i < 60; ++i) last = step(x, y).item<float>();
  EXPECT_LT(last, first / 2);
}

TEST(Transformer, MistakesAreErrors) {
  EXPECT_THROW(MultiheadAttention(8, 3), ShapeError);
  EXPECT_THROW(MultiheadAttention(8, 2, {.dropout = 1}), UsageError);
  EXPECT_THROW(MultiheadAttention(8, 2)(ones({2, 3, 4})), ShapeError);
  EXPECT_THROW(MultiheadAttention(8, 2)(ones({3, 8})), ShapeError);
}

}  // namespace
}  // namespace weft::nn::transformer_test
