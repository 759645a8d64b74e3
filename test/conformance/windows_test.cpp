// Convolutions as windows and a product: no window is copied, and values and gradients are those of the definition.
#include <random>

#include "conformance/device_run.hpp"
#include "weft/grad.hpp"
#include "weft/ops.hpp"
#include "weft/ops/convolution.hpp"

namespace weft::test {
namespace {

struct Convolution {
  Extent n, c, h, w, out, size, step = 1, dilation = 1, pad = 0;
  Extent extent(Extent of) const { return (of + 2 * pad - (size - 1) * dilation - 1) / step + 1; }
  Shape x_shape() const { return {n, c, h, w}; }
  Shape weight_shape() const { return {out, c, size, size}; }
  Shape y_shape() const { return {n, out, extent(h), extent(w)}; }
  std::string text() const {
    return fmt::format("[{}, {}, {}, {}] to {} channels, {}x{}, step {}, dilation {}, pad {}", n, c, h, w, out, size,
                       size, step, dilation, pad);
  }

  /// [n, c, oh, ow, kh, kw]
  Tensor windows(const Tensor& x) const {
    const Tensor padded = weft::pad(x, {{0, 0}, {0, 0}, {pad, pad}, {pad, pad}});
    return unfold(unfold(padded, 2, size, step, dilation), 3, size, step, dilation);
  }
  /// Windows are rows of one product.
  Tensor by_rows(const Tensor& x, const Tensor& weight) const {
    const Tensor rows = reshape(permute(windows(x), {0, 2, 3, 1, 4, 5}), {-1, c * size * size});
    const Tensor y = matmul(rows, transpose(reshape(weight, {out, -1})));
    return permute(reshape(y, {n, extent(h), extent(w), out}), {0, 3, 1, 2});
  }
  /// Windows are columns of a product for each image.
  Tensor by_columns(const Tensor& x, const Tensor& weight) const {
    const Tensor columns = reshape(permute(windows(x), {0, 1, 4, 5, 2, 3}), {n, c * size * size, -1});
    return reshape(matmul(reshape(weight, {1, out, -1}), columns), y_shape());
  }

  using Values = std::vector<double>;
  /// Calls each(x index, weight index, y index) for all products of the sum; -1 in a pad.
  template <class Each>
  void for_each(Each each) const {
    const Extent oh = extent(h), ow = extent(w);
    for (Extent y = 0; y < n * out * oh * ow; ++y) {
      const Extent b = y / (out * oh * ow), o = y / (oh * ow) % out, i = y / ow % oh, j = y % ow;
      for (Extent k = 0; k < c * size * size; ++k) {
        const Extent at_h = i * step + k / size % size * dilation - pad, at_w = j * step + k % size * dilation - pad;
        if (at_h < 0 || at_h >= h || at_w < 0 || at_w >= w) continue;
        each(static_cast<std::size_t>(((b * c + k / (size * size)) * h + at_h) * w + at_w),
             static_cast<std::size_t>(o * c * size * size + k), static_cast<std::size_t>(y));
      }
    }
  }
};

class Windows : public Conformance {
 protected:
  std::vector<double> noise(const Shape& shape, DType type) {
    std::vector<double> values;
    for (Extent i = 0; i < shape.numel(); ++i) {
      const double v = std::uniform_real_distribution<double>(-2, 2)(random_);
      values.push_back(reference::to_type(is_float(type) ? v : std::round(v), type));
    }
    return values;
  }

  std::vector<std::string> kernel_names(const std::vector<Tensor>& outputs) {
    compiler::Request request;
    for (const Tensor& t : outputs) request.outputs.push_back(t.node());
    std::vector<std::string> names;
    for (const kernel::Kernel& k : compiler::compile(request, target(), {}).plan.kernels)
      names.push_back(std::visit([](const auto& kernel) { return kernel.name; }, k));
    return names;
  }

  /// The convolution and its gradients against their definition. No operand of their products is copied.
  template <class Make>
  void expect_right(const Convolution& conv, DType type, Make make) {
    SCOPED_TRACE(conv.text());
    Arguments arguments;
    const auto xs = noise(conv.x_shape(), type), ws = noise(conv.weight_shape(), type),
               gs = noise(conv.y_shape(), type);
    const Tensor x = arguments.make(conv.x_shape(), xs, type), w = arguments.make(conv.weight_shape(), ws, type),
                 g = arguments.make(conv.y_shape(), gs, type);
    std::vector<Tensor> outputs{make(x, w)};
    if (is_float(type)) {
      const Tensor inputs[] = {x, w};
      for (const Tensor& gradient : grad(outputs[0], inputs, g)) outputs.push_back(gradient);
    }
    std::vector<double> y(gs.size(), 0.0), d_x(xs.size(), 0.0), d_w(ws.size(), 0.0);
    conv.for_each([&](std::size_t i, std::size_t k, std::size_t o) {
      y[o] += xs[i] * ws[k];
      d_x[i] += gs[o] * ws[k];
      d_w[k] += gs[o] * xs[i];
    });
    const Results actual = run(outputs, arguments);
    expect_close(actual[0], y, 1e-4, 1e-5, "y");
    if (outputs.size() > 1) {
      expect_close(actual[1], d_x, 1e-4, 1e-5, "gradient of x");
      expect_close(actual[2], d_w, 1e-4, 1e-5, "gradient of the weights");
    }
    // The product comes first: x, and for the gradients what flows back in runs of some length, are read where they are.
    const bool has_runs = conv.extent(conv.h) * conv.extent(conv.w) >= 16;
    for (std::size_t o = 0; o < (has_runs ? outputs.size() : 1); ++o)
      EXPECT_TRUE(kernel_names({outputs[o]})[0].starts_with("matmul")) << "output " << o;
  }
  void expect_rows_right(const Convolution& conv, DType type = DType::f32) {
    expect_right(conv, type, [&](const Tensor& x, const Tensor& w) { return conv.by_rows(x, w); });
  }
  void expect_columns_right(const Convolution& conv, DType type = DType::f32) {
    expect_right(conv, type, [&](const Tensor& x, const Tensor& w) { return conv.by_columns(x, w); });
  }
  void expect_both_right(const Convolution& conv, DType type = DType::f32) {
    expect_rows_right(conv, type);
    expect_columns_right(conv, type);
  }

  std::mt19937_64 random_{23};
};

TEST_F(Windows, ConvolutionsReadTheirWindowsWithoutACopy) {
  // Software adapters take seconds for each shader: a form each.
  expect_rows_right({.n = 2, .c = 3, .h = 9, .w = 11, .out = 8, .size = 3, .pad = 1});
  expect_columns_right({.n = 2, .c = 2, .h = 9, .w = 12, .out = 6, .size = 3, .step = 2, .pad = 1});
}

TEST_F(Windows, ConvolutionsOfEveryShape) {
  if (!is_cpu()) GTEST_SKIP() << "software adapters take seconds for each shader";
  for (const Extent pad : {0, 1, 2})
    for (const Extent step : {1, 2, 3})
      for (const Extent dilation : {1, 2}) {
        expect_both_right(
            {.n = 3, .c = 5, .h = 10, .w = 9, .out = 7, .size = 3, .step = step, .dilation = dilation, .pad = pad});
        expect_both_right(
            {.n = 1, .c = 1, .h = 7, .w = 40, .out = 2, .size = 2, .step = step, .dilation = dilation, .pad = pad});
      }
  expect_both_right({.n = 2, .c = 3, .h = 32, .w = 32, .out = 16, .size = 8, .step = 8});   // patches
  expect_both_right({.n = 4, .c = 16, .h = 28, .w = 28, .out = 33, .size = 3, .pad = 1});   // several tasks
  expect_both_right({.n = 1, .c = 64, .h = 14, .w = 14, .out = 130, .size = 3, .pad = 1});  // several blocks of k
  expect_both_right({.n = 2, .c = 3, .h = 8, .w = 9, .out = 4, .size = 3, .pad = 1}, DType::f64);
  expect_both_right({.n = 2, .c = 3, .h = 8, .w = 9, .out = 4, .size = 3, .pad = 1}, DType::i32);
}

// The weights of the gradient of x are reversed, with channels and results exchanged.
TEST_F(Windows, GradientsReadTurnedWeights) {
  if (!is_cpu()) GTEST_SKIP() << "other devices copy the weights";
  for (const Convolution& conv : {Convolution{.n = 3, .c = 37, .h = 13, .w = 12, .out = 40, .size = 3, .pad = 1},
                                  {.n = 2, .c = 32, .h = 9, .w = 17, .out = 20, .size = 5, .dilation = 2, .pad = 3},
                                  {.n = 1, .c = 5, .h = 7, .w = 6, .out = 3, .size = 2},
                                  {.n = 5, .c = 70, .h = 21, .w = 18, .out = 24, .size = 3, .step = 2, .pad = 1},
                                  Convolution{.n = 9, .c = 40, .h = 29, .w = 29, .out = 45, .size = 1, .step = 3}}) {
    SCOPED_TRACE(conv.text());
    Arguments arguments;
    const auto xs = noise(conv.x_shape(), DType::f32), ws = noise(conv.weight_shape(), DType::f32),
               gs = noise(conv.y_shape(), DType::f32);
    const Tensor x = arguments.make(conv.x_shape(), xs), w = arguments.make(conv.weight_shape(), ws);
    const Tensor y =
        conv2d(x, w, {}, ConvolutionOptions{.stride = conv.step, .padding = conv.pad, .dilation = conv.dilation});
    const Tensor d_x = grad(y, {x}, arguments.make(conv.y_shape(), gs))[0];
    std::vector<double> expected(xs.size(), 0.0);
    conv.for_each([&](std::size_t i, std::size_t k, std::size_t o) { expected[i] += gs[o] * ws[k]; });
    expect_close(run({d_x}, arguments)[0], expected, 1e-4, 2e-5, "gradient of x");
    EXPECT_EQ(kernel_names({d_x}).size(), 1u);
  }
}

TEST_F(Windows, FewResultsAndIntegers) {
  expect_rows_right({.n = 1, .c = 2, .h = 6, .w = 5, .out = 3, .size = 3, .pad = 1});
  expect_columns_right({.n = 1, .c = 2, .h = 6, .w = 5, .out = 3, .size = 3, .step = 2, .pad = 1}, DType::i32);
}

TEST_F(Windows, BothOperandsAndComputedValues) {
  Arguments arguments;
  std::vector<double> values = noise({40, 3}, DType::f32);
  const Tensor x = arguments.make({40, 3}, values);
  const Tensor windows = reshape(unfold(tanh(x), 0, 6), {35, 18});  // [window, channel, element]
  const std::vector<Tensor> outputs{matmul(windows, transpose(windows)), matmul(transpose(windows), windows * 1.0)};
  expect_like_reference(outputs, arguments, 1e-4, 1e-5);
  // tanh(x) is in memory, and its windows are read there: only the product's operand that is computed is made of them.
  const std::vector<std::string> names = kernel_names({outputs[0]});
  EXPECT_EQ(names, (std::vector<std::string>{"tanh", "matmul.copy"}));
}

}  // namespace
}  // namespace weft::test
