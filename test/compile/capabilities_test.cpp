// What the compiler makes of a device that lacks kernels: the same values from primitives, or an error with the cure.
#include <gtest/gtest.h>

#include <cmath>

#include "compile/evaluate_plan.hpp"
#include "graph/cache.hpp"
#include "graph/packed.hpp"
#include "weft/error.hpp"
#include "weft/inference.hpp"
#include "weft/ops.hpp"

namespace weft::test {
namespace {

std::vector<double> wave(Extent count, double step) {
  std::vector<double> values;
  for (Extent i = 0; i < count; ++i) values.push_back(std::sin(step * static_cast<double>(i)));
  return values;
}

template <class Form>
int count_kernels(const Tensor& output, const compiler::Target& target) {
  const compiler::Compiled compiled = compiler::compile({{output.node()}, {nullptr}}, target, {});
  return static_cast<int>(std::count_if(compiled.plan.kernels.begin(), compiled.plan.kernels.end(),
                                        [](const auto& k) { return std::holds_alternative<Form>(k); }));
}

struct Attended {
  Arguments arguments;
  Tensor y;
  Attended() {
    const Shape shape{1, 2, 6, 4};  // [batch, heads, positions, channels]
    y = attention(arguments.make(shape, wave(48, 0.3)), arguments.make(shape, wave(48, 0.7)),
                  arguments.make(shape, wave(48, 1.1)), true);
  }
};

void expect_near(const std::vector<double>& a, const std::vector<double>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], 1e-6) << "element " << i;
}

TEST(Capabilities, WithoutAttentionThereAreProductsAndASoftmax) {
  const Attended a;
  const compiler::Target whole = reference_target();
  compiler::Target parts = whole;
  parts.has_kernel = nullptr;
  EXPECT_EQ(count_kernels<kernel::AttentionKernel>(a.y, whole), 1);
  EXPECT_EQ(count_kernels<kernel::AttentionKernel>(a.y, parts), 0);
  EXPECT_EQ(count_kernels<kernel::MatmulKernel>(a.y, parts), 2);
  expect_near(evaluate({a.y}, a.arguments, {}, parts)[0], evaluate({a.y}, a.arguments, {}, whole)[0]);
}

TEST(Capabilities, AttentionIsOneKernelWhereTheDeviceHasOneForItsWidth) {
  const Attended a;
  const auto kernels = [&](auto change) {
    compiler::Target target = reference_target();
    change(target);
    return count_kernels<kernel::AttentionKernel>(a.y, target);
  };
  EXPECT_EQ(kernels([](auto& t) { t.has_kernel = [](const graph::Call& c) { return graph::fits_tiles(c, 3); }; }), 0);
  EXPECT_EQ(kernels([](auto& t) { t.has_kernel = [](const graph::Call& c) { return graph::fits_tiles(c, 4); }; }), 1);
}

struct Cached {
  Arguments arguments;
  Tensor written, attended;
  explicit Cached(CacheType type) {
    const Tensor cache = arguments.make({6, 4}, std::vector<double>(6 * 4), graph::dtype_of_cache(type));
    const Tensor rows = arguments.make({2, 4}, wave(8, 0.9)), at = arguments.make({2}, {1, 0}, DType::i32);
    written = write_rows(cache, rows, at, type);
    const Tensor q = arguments.make({1, 2, 4}, wave(8, 0.4)), first = arguments.make({1}, {0}, DType::i32),
                 length = arguments.make({1}, {2}, DType::i32);
    attended = cache_attention(q, written, written, first, length, 1, {.type = type});
  }
};

TEST(Capabilities, WithoutRoutinesThereArePrimitives) {
  const Cached c(CacheType::f32);
  compiler::Target some = reference_target();
  some.has_kernel = [](const graph::Call& call) { return &call.row() == &graph::write_rows_row(); };
  EXPECT_EQ(count_kernels<kernel::CallKernel>(c.attended, some), 1);
  EXPECT_EQ(count_kernels<kernel::CallKernel>(c.attended, reference_target()), 0);
  // Rows 0 and 1 are the second and the first that were written, and the rest stays.
  const std::vector<double> rows = wave(8, 0.9), written = evaluate({c.written}, c.arguments)[0];
  for (std::size_t e = 0; e < written.size(); ++e)
    EXPECT_NEAR(written[e], e < 4 ? rows[4 + e] : e < 8 ? rows[e - 4] : 0, 1e-7) << e;
  // Head h sees the two rows, weighted by exp(q_h row / 2).
  const std::vector<double> q = wave(8, 0.4), attended = evaluate({c.attended}, c.arguments)[0];
  for (std::size_t h = 0; h < 2; ++h) {
    double score[2] = {0, 0};
    for (std::size_t j = 0; j < 2; ++j)
      for (std::size_t e = 0; e < 4; ++e) score[j] += q[4 * h + e] * written[4 * j + e] / 2;
    const double second = 1 / (1 + std::exp(score[0] - score[1]));
    for (std::size_t e = 0; e < 4; ++e)
      EXPECT_NEAR(attended[4 * h + e], (1 - second) * written[e] + second * written[4 + e], 1e-6);
  }
}

std::string error_of(const Tensor& output, const compiler::Target& target) {
  try {
    compiler::compile({{output.node()}, {nullptr}}, target, {});
    return "";
  } catch (const DeviceError& error) {
    return error.what();
  }
}

TEST(Capabilities, WhatHasNoPrimitivesIsAnErrorWithACure) {
  const Cached c(CacheType::f16);
  EXPECT_NE(error_of(c.written, reference_target())
                .find("reference has no kernel for it, and it has no form in other ops; use the CPU"),
            std::string::npos);
  Arguments arguments;
  const Tensor x = arguments.make({1, 1, 32}, wave(32, 1)),
               weights = arguments.make_packed({1, 32}, wave(9, 1), DType::q8_0);
  const Tensor product =
      graph::call(graph::packed_matmul_row(), {x, weights, Tensor()}, graph::PackedMatmul{true}, Where::current());
  EXPECT_NE(error_of(product, reference_target()).find("load the weights as f32, or use the CPU"), std::string::npos);
  compiler::Target packed = reference_target();
  packed.has_kernel = [](const graph::Call& call) { return &call.row() == &graph::packed_matmul_row(); };
  EXPECT_EQ(error_of(product, packed), "");
}

}  // namespace
}  // namespace weft::test
