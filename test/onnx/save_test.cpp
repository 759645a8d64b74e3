// Models that Weft writes, read again by Weft: equal results. judge_test.py gives the same files to ONNX Runtime, from the
// folder that WEFT_TEST_ONNX_EXPORTS names.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>

#include "base/message_of.hpp"
#include "base/temporary_folder.hpp"
#include "weft/grad.hpp"
#include "weft/nn.hpp"
#include "weft/onnx.hpp"
#include "weft/ops.hpp"
#include "weft/ops/contraction.hpp"
#include "weft/ops/convolution.hpp"
#include "weft/ops/indexing.hpp"
#include "weft/ops/interpolation.hpp"
#include "weft/ops/layout.hpp"
#include "weft/ops/networks.hpp"
#include "weft/ops/normalization.hpp"
#include "weft/ops/order.hpp"
#include "weft/ops/pooling.hpp"
#include "weft/ops/random.hpp"
#include "weft/ops/recurrent.hpp"
#include "weft/ops/scans.hpp"

namespace weft::onnx::save_test {
namespace {

namespace fs = std::filesystem;
using test::message_of;
using test::TemporaryFolder;
using Tensors = std::span<const Tensor>;

// Random numbers that are drawn already.
Tensor drawn(const Shape& shape, double scale = 1) {
  const Tensor x = randn(shape) * scale;
  x.eval();
  return x;
}

class OnnxSave : public ::testing::Test {
 protected:
  OnnxSave() { manual_seed(7); }

  // Writes the model with its examples and results, reads it again and compares.
  void check(const std::string& name, const Function& function, const std::vector<Tensor>& examples,
             const SaveOptions& options = {}, double tolerance = 2e-5) {
    SCOPED_TRACE(name);
    const char* kept = std::getenv("WEFT_TEST_ONNX_EXPORTS");
    const fs::path folder = kept ? fs::path(kept) : temporary_.path();
    const fs::path path = folder / (name + ".onnx");
    save(path, function, examples, options);
    const Model model = load(path, kCpu);
    const std::vector<Tensor> wanted = function(examples), found = model(examples);
    ASSERT_EQ(wanted.size(), found.size());
    NamedTensors in, out;
    for (std::size_t i = 0; i < examples.size(); ++i) in[model.inputs()[i].name] = examples[i];
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      ASSERT_EQ(wanted[i].shape(), found[i].shape());
      ASSERT_EQ(wanted[i].dtype(), found[i].dtype());
      const auto x = cast(wanted[i], DType::f64).to_vector<double>(),
                 y = cast(found[i], DType::f64).to_vector<double>();
      for (std::size_t k = 0; k < x.size(); ++k) {
        if (std::isnan(x[k]) && std::isnan(y[k])) continue;
        ASSERT_NEAR(x[k], y[k], tolerance * (1 + std::abs(x[k]))) << "output " << i << ", element " << k;
      }
      if (wanted[i].dtype() != DType::bf16) out[model.outputs()[i].name] = wanted[i];  // .npz has no bf16
    }
    if (!kept) return;
    save_npz(folder / (name + ".inputs.npz"), in);
    save_npz(folder / (name + ".outputs.npz"), out);
  }
  const TemporaryFolder temporary_;
};

struct Mlp : nn::Module {
  nn::Child<nn::Linear> up{this, "up", 12, 32}, down{this, "down", 32, 5};
  nn::Child<nn::LayerNorm> norm{this, "norm", 32};
  Tensor operator()(const Tensor& x) const { return softmax(down(gelu(norm(up(x))))); }
};

TEST_F(OnnxSave, Mlp) {
  Mlp mlp;
  check("mlp", [&](Tensors x) { return std::vector<Tensor>{mlp(x[0])}; }, {drawn({3, 12})},
        {.inputs = {"features"}, .outputs = {"probabilities"}, .module = &mlp});
}

TEST_F(OnnxSave, ParametersKeepTheirNames) {
  Mlp mlp;
  const fs::path path = temporary_.path() / "named.onnx";
  save(path, [&](Tensors x) { return std::vector<Tensor>{mlp(x[0])}; }, {drawn({3, 12})}, {.module = &mlp});
  std::vector<std::string> names;
  for (const nn::NamedParameter& p : load(path, kCpu).named_parameters()) names.push_back(p.name);
  for (const char* wanted : {"up.weight", "up.bias", "down.weight", "norm.weight"})
    EXPECT_NE(std::find(names.begin(), names.end(), wanted), names.end()) << wanted;
}

TEST_F(OnnxSave, ConvolutionalNetwork) {
  const Tensor w1 = drawn({8, 3, 3, 3}, 0.3), b1 = drawn({8}), w2 = drawn({12, 4, 3, 3}, 0.3),
               w3 = drawn({12, 5, 4, 4}, 0.2);
  check("cnn",
        [&](Tensors x) {
          Tensor y = relu(conv2d(x[0], w1, b1, {.stride = 2, .padding = 1}));
          y = batch_norm(y, ones({8}), b1);
          y = max_pool2d(y, 2);
          y = conv2d(y, w2, {}, {.dilation = 2, .groups = 2, .same = true});
          const Tensor upward = conv_transpose2d(y, w3, {}, {.stride = 2, .padding = 1});
          return std::vector<Tensor>{upward, avg_pool2d(y, 2, {.padding = 1}), group_norm(y, 3),
                                     interpolate(y, {9, 11}, Interpolation::linear), local_response_norm(y, 3)};
        },
        {drawn({2, 3, 16, 16})});
}

TEST_F(OnnxSave, GptOfThreeBlocks) {
  nn::GPT gpt({.vocabulary = 50, .context = 16, .layers = 3, .heads = 3, .width = 24});
  gpt.eval();
  const Tensor tokens = tensor<std::int32_t>({1, 5, 2, 9, 30, 7, 8, 44, 3, 3}, {2, 5});
  check(
      "gpt", [&](Tensors x) { return std::vector<Tensor>{gpt(x[0])}; }, {tokens}, {.module = &gpt}, 1e-4);
}

TEST_F(OnnxSave, RecurrentLayers) {
  const RecurrentWeights l{drawn({24, 5}, 0.3), drawn({24, 6}, 0.3), drawn({24}), drawn({24})};
  const RecurrentWeights g{drawn({18, 5}, 0.3), drawn({18, 6}, 0.3), drawn({18}), drawn({18})};
  const Tensor h = zeros({3, 6});
  check("recurrent",
        [&](Tensors x) {
          const auto a = lstm(x[0], h, h, l), b = gru(x[0], h, g, true);
          return std::vector<Tensor>{a.output, a.h, a.c, b.output};
        },
        {drawn({7, 3, 5})});
}

TEST_F(OnnxSave, Attention) {
  const Tensor mask = drawn({6, 9});
  check("attention",
        [&](Tensors x) {
          return std::vector<Tensor>{attention(x[0], x[0], x[0]), scaled_dot_product_attention(x[0], x[1], x[1], mask),
                                     rope(x[0]), einsum("bhtd,bhsd->bths", {x[0], x[1]})};
        },
        {drawn({2, 4, 6, 8}), drawn({2, 4, 9, 8})});
}

TEST_F(OnnxSave, EveryKindOfNode) {
  check("kinds",
        [](Tensors in) {
          const Tensor &x = in[0], &i = in[1];
          return std::vector<Tensor>{slice(x, 1, 5, 0, -2),
                                     flip(x, Axes{0, 1}),
                                     pad(x, {{1, 0}, {2, 1}}),
                                     pad(gt(x, 0.0), {{1, 0}, {2, 1}}),
                                     unfold(x, 1, 3, 2),
                                     transpose(x),
                                     concat({x, x * 2.0}, 0),
                                     tril(x),
                                     cumsum(x, 1),
                                     roll(x, {2}, {1}),
                                     sort(x, 1, true).values,
                                     sort(x, 1).positions,
                                     topk(x, 2).values,
                                     argmax(x, 0),
                                     any(gt(x, 1.0), Axes{1}),
                                     all(gt(x, -9.0)),
                                     count_nonzero(i),
                                     var(x, Axes{1}),
                                     logsumexp(x, Axes{0}),
                                     prod(x, Axes{1}),
                                     index_select(x, 1, tensor<std::int32_t>({0, 5, 2, 2})),
                                     one_hot(i, 4),
                                     gather(x, 1, expand(unsqueeze(i, 1), {4, 3})),
                                     where(gt(x, 0.0), x, 0.5 - x),
                                     max_pool1d(unsqueeze(x, 0), 3)};
        },
        {drawn({4, 6}), tensor<std::int32_t>({3, 0, 1, 2})});
}

TEST_F(OnnxSave, ElementwiseOps) {
  std::vector<Tensor (*)(const Tensor&, Where)> ops{
      abs,  exp,        log,    sqrt,  rsqrt,   sin,   cos,      tan,   asin,   acos,      atan,
      sinh, cosh,       tanh,   asinh, atanh,   erf,   erfc,     floor, ceil,   round,     trunc,
      sign, reciprocal, square, relu,  sigmoid, silu,  softsign, mish,  gelu,   gelu_tanh, hardswish,
      selu, expm1,      log1p,  exp2,  log2,    log10, frac,     sinc,  lgamma, logit};
  check(
      "elementwise",
      [&](Tensors in) {
        std::vector<Tensor> out;
        for (const auto op : ops) out.push_back(op(in[0], Where::current()));
        const Tensor &x = in[0], &y = in[1];
        for (const Tensor& t : {x + y, x - y, x * y, x / y, pow(x, y), maximum(x, y), atan2(y, x), hypot(x, y),
                                remainder(y, x), fmod(y, x), floor_divide(y, x), logaddexp(x, y), xlogy(x, y),
                                copysign(x, y), clamp(y, -0.5, 0.5), lerp(x, y, 0.25)})
          out.push_back(t);
        return out;
      },
      {drawn({5, 7}, 0.05) + 0.5, drawn({7})}, {}, 2e-4);
}

TEST_F(OnnxSave, OtherTypes) {
  check(
      "types",
      [](Tensors in) {
        const Tensor &i = in[0], &b = in[1], &h = in[2], &d = in[3];
        return std::vector<Tensor>{i + i,
                                   floor_divide(i, tensor<std::int32_t>(3)),
                                   i & 6.0,
                                   !b,
                                   b | gt(i, 0.0),
                                   sum(b),
                                   h * 2.0 + 1.0,
                                   mean(h),
                                   d * d,
                                   matmul(d, transpose(d)),
                                   cast(d, DType::i64),
                                   cast(i, DType::i64) * 7,
                                   cast(h, DType::bf16),
                                   where(b, i, 0.0),
                                   -i,
                                   abs(i)};
      },
      {tensor<std::int32_t>({-5, 0, 7, 9, -1, 3}, {2, 3}),
       tensor<bool>({true, false, true, false, false, true}, {2, 3}), cast(drawn({2, 3}), DType::f16),
       cast(drawn({2, 3}), DType::f64)},
      {}, 1e-3);
}

TEST_F(OnnxSave, GradientsAreGraphsToo) {
  Mlp mlp;
  check("gradient",
        [&](Tensors x) {
          const Tensor loss = mean(square(mlp(x[0]))), slope = grad(loss, x[0]);
          return std::vector<Tensor>{loss, slope};
        },
        {drawn({3, 12})}, {.module = &mlp});
}

TEST_F(OnnxSave, RefusesWhatOnnxLacks) {
  const fs::path path = temporary_.path() / "bad.onnx";
  const Tensor x = drawn({4});
  const auto saving = [&](const Function& f, const SaveOptions& options = {}) {
    return message_of<UsageError>([&] { save(path, f, {x}, options); });
  };
  EXPECT_NE(saving([](Tensors in) { return std::vector<Tensor>{dropout(in[0], 0.5)}; }).find("random draws"),
            std::string::npos);
  EXPECT_NE(saving([](Tensors) { return std::vector<Tensor>{}; }).find("gives no tensors"), std::string::npos);
  EXPECT_NE(saving([](Tensors in) { return std::vector<Tensor>{in[0]}; }, {.inputs = {"a", "b"}})
                .find("2 names for 1 inputs"),
            std::string::npos);
  EXPECT_NE(
      saving([](Tensors in) { return std::vector<Tensor>{in[0]}; }, {.inputs = {"a"}, .outputs = {"a"}}).find("taken"),
      std::string::npos);
  EXPECT_FALSE(fs::exists(path));
}

}  // namespace
}  // namespace weft::onnx::save_test
