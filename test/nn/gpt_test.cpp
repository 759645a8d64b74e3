#include "weft/nn/gpt.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "weft/weft.hpp"

namespace weft::nn {
namespace {

constexpr GptConfig kTiny = {.vocabulary = 11, .context = 8, .layers = 2, .heads = 2, .width = 16};

TEST(Gpt, ParameterCounts) {
  // GPT-2's published 124 M: 124,439,808 with the head tied.
  EXPECT_EQ(GPT({.vocabulary = 50257, .context = 1024, .layers = 12, .heads = 12, .width = 768}).parameter_count(),
            124'439'808);
  const Extent C = 16,
               tied = 11 * C + 8 * C +
                      2 * (2 * 2 * C + (3 * C * C + 3 * C) + (C * C + C) + (4 * C * C + 4 * C) + (4 * C * C + C)) +
                      2 * C;
  EXPECT_EQ(GPT(kTiny).parameter_count(), tied);
  GptConfig loose = kTiny;
  loose.tied = false;
  EXPECT_EQ(GPT(loose).parameter_count(), tied + 11 * C);
}

TEST(Gpt, LogitsAreOfTheShapeAndCausal) {
  manual_seed(2);
  GPT gpt(kTiny);
  gpt.eval();
  const Tensor a = gpt(tensor<std::int32_t>({1, 2, 3, 4}, {1, 4})), b = gpt(tensor<std::int32_t>({1, 2, 9, 9}, {1, 4}));
  EXPECT_EQ(a.shape(), (Shape{1, 4, 11}));
  const std::vector<float> x = a.to_vector<float>(), y = b.to_vector<float>();
  for (int i = 0; i < 22; ++i) EXPECT_EQ(x[i], y[i]) << "a later token reached position " << i / 11;
  EXPECT_NE(std::vector(x.begin() + 22, x.end()), std::vector(y.begin() + 22, y.end()));
}

TEST(Gpt, BeginsNearTheUniformLoss) {
  manual_seed(4);
  GPT gpt(kTiny);
  const Tensor tokens = tensor<std::int32_t>({1, 2, 3, 4, 5, 6, 7, 8}, {1, 8}),
               targets = tensor<std::int32_t>({2, 3, 4, 5, 6, 7, 8, 9}, {1, 8});
  EXPECT_NEAR(cross_entropy(gpt(tokens), targets).item<float>(), std::log(11.0), 0.35);
}

TEST(Gpt, LossIsTheSameWithMoreClasses) {
  for (const bool tied : {true, false}) {
    GptConfig config = kTiny;
    config.tied = tied;
    manual_seed(4);
    GPT gpt(config);
    gpt.initialize(3);
    const Tensor tokens = tensor<std::int32_t>({1, 2, 3, 4, 5, 6, 7, 8}, {1, 8}),
                 targets = tensor<std::int32_t>({2, 3, -100, 5, 6, 10, 8, 0}, {1, 8});
    for (const DType type : {DType::f32, DType::bf16, DType::f16}) {
      const Autocast scope(type);
      std::vector<Tensor> parameters;
      for (const NamedParameter& p : gpt.named_parameters()) parameters.push_back(p.variable);
      const Tensor own = gpt.loss(tokens, targets), plain = cross_entropy(gpt(tokens), targets);
      EXPECT_NEAR(own.item<float>(), plain.item<float>(), type == DType::f32 ? 0 : 1e-4) << name_of(type);
      const std::vector<Tensor> a = grad(own, parameters), b = grad(plain, parameters);
      for (std::size_t i = 0; i < a.size(); ++i) {
        EXPECT_EQ(a[i].shape(), b[i].shape());
        const std::vector<float> x = a[i].to_vector<float>(), y = b[i].to_vector<float>();
        for (std::size_t e = 0; e < x.size(); ++e)
          ASSERT_NEAR(x[e], y[e], type == DType::f32 ? 0 : 4e-3) << name_of(type) << ", parameter " << i << ", " << e;
      }
    }
  }
}

TEST(Gpt, InitialDeviations) {
  manual_seed(1);
  GPT gpt({.vocabulary = 83, .context = 64, .layers = 4, .heads = 4, .width = 128, .init_deviation = 0.02});
  for (const NamedParameter& p : gpt.named_parameters()) {
    double squares = 0;
    for (const float v : p.variable.value().to_vector<float>()) squares += static_cast<double>(v) * v;
    const double deviation = std::sqrt(squares / static_cast<double>(p.variable.numel()));
    const bool residual = p.name.ends_with("output.weight") || p.name.ends_with("down.weight");
    const bool norm = p.name.find("norm") != std::string::npos;
    const double expected = p.name.ends_with("bias") ? 0 : norm ? 1 : residual ? 0.02 / std::sqrt(8.0) : 0.02;
    EXPECT_NEAR(deviation, expected, 0.03 * expected) << p.name;
  }
  EXPECT_DOUBLE_EQ(GptConfig{.width = 768}.deviation(), 0.02);
  EXPECT_DOUBLE_EQ(GptConfig{.width = 192}.deviation(), 0.04);
}

TEST(Gpt, GradientOfEveryParameterMatchesDifferences) {
  manual_seed(6);
  GPT gpt(kTiny);
  const Tensor tokens = tensor<std::int32_t>({1, 2, 3, 4, 5, 6, 7, 8}, {2, 4}),
               targets = tensor<std::int32_t>({2, 3, 4, 5, 6, 7, 8, 9}, {2, 4});
  auto loss = [&] { return cross_entropy(gpt(tokens), targets); };
  const std::vector<NamedParameter> parameters = gpt.named_parameters();
  const std::vector<Tensor> gradients = grad(loss(), gpt.parameters());
  const NoGrad no_grad;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    Variable p = parameters[i].variable;
    // Along the gradient itself, where the slope is the gradient's norm and f32 differences are clearest.
    const std::vector<float> g = gradients[i].to_vector<float>(), before = p.value().to_vector<float>();
    double norm = 0;
    for (const float v : g) norm += static_cast<double>(v) * v;
    norm = std::sqrt(norm);
    if (norm < 1e-4) continue;  // biases of keys: softmax does not see them
    auto moved = [&](double length) {
      std::vector<float> next = before;
      for (std::size_t j = 0; j < next.size(); ++j) next[j] += static_cast<float>(length * g[j] / norm);
      p.assign(tensor<float>(next, p.shape()));
      return static_cast<double>(loss().item<float>());
    };
    const double step = 2e-2, slope = (moved(step) - moved(-step)) / (2 * step);
    p.assign(tensor<float>(before, p.shape()));
    EXPECT_NEAR(slope, norm, 0.02 * norm + 2e-4) << parameters[i].name;
  }
}

TEST(Gpt, GradientsAreTheSameWhenParametersAreSlices) {
  GPT own(kTiny), sliced(kTiny);
  own.initialize(6);
  sliced.initialize(6);
  flatten_together(sliced.parameters(), "flat");
  const Tensor tokens = tensor<std::int32_t>({1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3, 4, 5, 6, 7, 8}, {2, 8});
  const std::vector<Tensor> expected = grad(cross_entropy(own(tokens), tokens), own.parameters()),
                            given = grad(cross_entropy(sliced(tokens), tokens), sliced.parameters());
  for (std::size_t i = 0; i < given.size(); ++i) {
    const std::vector<float> x = expected[i].to_vector<float>(), y = given[i].to_vector<float>();
    for (std::size_t j = 0; j < x.size(); ++j) ASSERT_NEAR(x[j], y[j], 1e-6) << own.parameters()[i].name();
  }
}

struct BadConfig {
  const char* name;
  GptConfig config;
};
const BadConfig kBad[] = {
    {"no layers", {.layers = 0}},
    {"heads do not divide", {.heads = 3, .width = 128}},
    {"negative context", {.context = -1}},
    {"dropout 1", {.dropout = 1}},
    {"not a number", {.init_deviation = NAN}},
};

TEST(Gpt, BadConfigurationsAndTokensAreErrors) {
  for (const BadConfig& c : kBad) EXPECT_THROW(GPT{c.config}, UsageError) << c.name;
  GPT gpt(kTiny);
  EXPECT_THROW(gpt(zeros({1, 9}, DType::i32)), ShapeError);
  EXPECT_THROW(gpt(zeros({4}, DType::i32)), ShapeError);
  EXPECT_THROW(gpt(zeros({1, 4})), DTypeError);
}

}  // namespace
}  // namespace weft::nn
