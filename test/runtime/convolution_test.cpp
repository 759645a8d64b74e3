// Convolutions that are large enough for the ways that small ones, which the conformance tests run, do not take.
#include <gtest/gtest.h>

#include <cmath>

#include "weft/weft.hpp"

namespace weft {
namespace {

struct Case {
  const char* name;
  Shape x, weight;
  ConvolutionOptions options;
};

const Case kCases[] = {
    {"steps of 2", {2, 64, 32, 32}, {64, 64, 3, 3}, {.stride = 2, .padding = 1}},
    {"odd extents", {2, 64, 33, 31}, {64, 64, 3, 3}, {.stride = 2, .padding = 1}},
    {"steps of 3 along one axis", {2, 64, 34, 31}, {64, 64, 4, 3}, {.stride = {2, 3}, .padding = {0, 2}}},
    {"one element", {2, 256, 32, 32}, {256, 256, 1, 1}, {.stride = 2}},
    {"windows without an element of the image", {2, 64, 30, 30}, {128, 64, 2, 2}, {.stride = 2, .padding = 4}},
    {"groups", {2, 128, 32, 32}, {128, 64, 3, 3}, {.stride = 2, .padding = 1, .groups = 2}},
};

// A convolution is linear in x and in the weight, so both gradients give the same sum as the convolution.
TEST(Convolution, GradientsAreAdjoint) {
  for (const Case& c : kCases)
    for (const DType type : {DType::f64, DType::f32}) {
      SCOPED_TRACE(c.name);
      const Tensor x = cast(randn(c.x), type), weight = cast(randn(c.weight), type);
      const Tensor y = conv2d(x, weight, {}, c.options), g = cast(randn(y.shape()), type);
      const std::vector<Tensor> d = grad(y, {x, weight}, g);
      const auto dot = [](const Tensor& a, const Tensor& b) {
        return sum(cast(a, DType::f64) * cast(b, DType::f64)).item<double>();
      };
      const double value = dot(y, g), scale = std::sqrt(dot(y, y) * dot(g, g));
      const double tolerance = (type == DType::f64 ? 1e-14 : 1e-6) * scale;
      EXPECT_NEAR(dot(d[0], x), value, tolerance);
      EXPECT_NEAR(dot(d[1], weight), value, tolerance);
    }
}

// f64 has a product that packs windows; that of f32 reads them where they are.
TEST(Convolution, F32AgreesWithF64) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.name);
    const Tensor x = randn(c.x).eval(), weight = randn(c.weight).eval();
    const Tensor y = conv2d(x, weight, {}, c.options);
    const Tensor g = randn(y.shape()).eval();
    const Tensor wide_x = cast(x, DType::f64).eval(), wide_weight = cast(weight, DType::f64).eval();
    const Tensor wide_y = conv2d(wide_x, wide_weight, {}, c.options);
    const std::vector<Tensor> d = grad(y, {x, weight}, g);
    const std::vector<Tensor> wide = grad(wide_y, {wide_x, wide_weight}, cast(g, DType::f64));
    const auto off = [](const Tensor& a, const Tensor& b) {
      return (amax(abs(cast(a, DType::f64) - b)) / sqrt(mean(b * b))).item<double>();
    };
    EXPECT_LT(off(y, wide_y), 1e-5);
    EXPECT_LT(off(d[0], wide[0]), 1e-5);
    EXPECT_LT(off(d[1], wide[1]), 1e-5);
  }
}

// The turned kernel of a gradient is a matrix that all images share.
TEST(Convolution, TheTurnedKernelIsCopiedOnceForAllImages) {
  const Tensor x = randn({8, 32, 16, 16}).eval(), weight = randn({32, 32, 3, 3}).eval();
  const Tensor y = conv2d(x, weight, {}, {.padding = 1});
  auto d_x = compile([&](const Tensor& image, const Tensor& w, const Tensor& g) {
    return grad(conv2d(image, w, {}, {.padding = 1}), {image}, g)[0];
  });
  d_x(x, weight, randn(y.shape())).eval();
  EXPECT_LE(d_x.compiled().scratch_bytes(), sizeof(float) * static_cast<std::size_t>(weight.numel()) + 4096);
}

}  // namespace
}  // namespace weft
