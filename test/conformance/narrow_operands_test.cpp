// Products and attention that read operands of narrow types. Their values are those of the same graph on a device that reads
// f32 only, bit by bit: the numbers here are few, and no order of a sum rounds them.
#include <cstring>
#include <random>

#include "conformance/device_run.hpp"
#include "weft/grad.hpp"
#include "weft/ops.hpp"

namespace weft::test {
namespace {

constexpr DType kNarrow[] = {DType::f16,   DType::bf16, DType::fp8_e4m3, DType::fp8_e5m2, DType::fp4_e2m1, DType::int4,
                             DType::uint4, DType::int2, DType::uint2,    DType::ternary,  DType::binary};

class NarrowOperands : public Conformance {
 protected:
  Tensor leaf(DType type, const Shape& shape) {
    std::vector<double> values;
    for (Extent i = 0; i < shape.numel(); ++i) {
      const double quarters = std::uniform_int_distribution<int>(-12, 12)(random_) / 4.0;
      values.push_back(quarters);
    }
    return arguments_.make(shape, std::move(values), type);
  }
  static Tensor wide(const Tensor& x) { return cast(x, DType::f32); }
  /// Those of `few` that the device holds; on the CPU, where no shader is compiled for each, all types.
  std::vector<DType> types(std::initializer_list<DType> few) {
    std::vector<DType> held;
    for (const DType type : kNarrow)
      if (computes(type) && (is_cpu() || std::find(few.begin(), few.end(), type) != few.end())) held.push_back(type);
    return held;
  }
  bool reads(DType type) {
    const auto& types = backend().describe().product_reads;
    return std::find(types.begin(), types.end(), type) != types.end();
  }

  void expect_same_without(const std::vector<Tensor>& outputs) {
    compiler::Target without = target();
    without.product_reads.clear();
    without.attention_reads.clear();
    const Results narrow = run(outputs, arguments_), plain = run(outputs, arguments_, without);
    for (std::size_t o = 0; o < outputs.size(); ++o) {
      ASSERT_EQ(narrow[o].size(), plain[o].size());
      for (std::size_t i = 0; i < plain[o].size(); ++i)
        ASSERT_TRUE(std::memcmp(&narrow[o][i], &plain[o][i], sizeof(double)) == 0 ||
                    (std::isnan(narrow[o][i]) && std::isnan(plain[o][i])))
            << "output " << o << ", element " << i << ": " << narrow[o][i] << ", without " << plain[o][i];
    }
  }
  /// The same, and like the reference.
  void expect_product(const Tensor& y) {
    expect_same_without({y});
    expect_like_reference({y}, arguments_, 1e-5, 1e-5);
  }
  std::size_t kernels_of(const std::vector<Tensor>& outputs) {
    compiler::Request request;
    for (const Tensor& t : outputs) request.outputs.push_back(t.node());
    request.may_overwrite.assign(outputs.size(), nullptr);
    return compiler::compile(request, target(), {}).plan.kernels.size();
  }

  Arguments arguments_;
  std::mt19937_64 random_{17};
};

TEST_F(NarrowOperands, FewProductsOfEveryType) {
  for (const DType type : types({DType::f16, DType::int4})) {
    SCOPED_TRACE(name_of(type));
    const Tensor a = leaf(type, {5, 33}), b = leaf(type, {33, 19}), x = leaf(DType::f32, {3, 33});
    expect_product(matmul(wide(a), wide(b)));
    if (is_cpu()) expect_product(matmul(x, wide(b)) * 2.0);
  }
}

TEST_F(NarrowOperands, EveryTypeInEveryFormAndOddSize) {
  for (const DType type : types({DType::bf16, DType::fp8_e5m2, DType::int2})) {
    for (const auto& [m, k, n] : {std::array<Extent, 3>{17, 33, 9}, {1, 300, 65}, {64, 64, 64}})
      for (const bool left : {false, true})
        for (const bool right : {false, true}) {
          if (!is_cpu() && (left == right || m != 17)) continue;
          SCOPED_TRACE(fmt::format("{} {}x{}x{}{}{}", name_of(type), m, k, n, left ? ", left transposed" : "",
                                   right ? ", right transposed" : ""));
          const Tensor a = leaf(type, left ? Shape{k, m} : Shape{m, k}),
                       b = leaf(type, right ? Shape{n, k} : Shape{k, n});
          const Tensor x = left ? transpose(wide(a)) : wide(a), y = right ? wide(transpose(b)) : wide(b);
          expect_same_without({matmul(x, y)});
          if (reads(type) && m > 1) {
            EXPECT_EQ(kernels_of({matmul(x, y)}), 1u);
          }
        }
  }
}

TEST_F(NarrowOperands, TypesMeetInOneProduct) {
  for (const DType left : types({DType::fp8_e4m3}))
    for (const DType right : {DType::f32, DType::f16, DType::int4}) {
      if (!is_cpu() && right != DType::int4) continue;
      SCOPED_TRACE(fmt::format("{} {}", name_of(left), name_of(right)));
      const Tensor a = leaf(left, {18, 40}), b = leaf(right, {40, 21});
      expect_product(elementwise("relu", {matmul(wide(a), wide(b)) + wide(leaf(DType::f16, {21}))}));
      if (is_cpu()) expect_same_without({matmul(transpose(wide(b)), transpose(wide(a)))});
    }
}

TEST_F(NarrowOperands, ViewsOnBothSidesOfTheCast) {
  for (const DType type : types({DType::uint2})) {
    SCOPED_TRACE(name_of(type));
    const Tensor x = leaf(type, {4, 6, 40}), y = leaf(DType::f16, {40, 3}), row = leaf(type, {97});
    expect_product(matmul(permute(wide(slice(x, 2, 3, 34)), {1, 0, 2}), wide(slice(y, 0, 2, 33))));
    expect_product(matmul(slice(wide(x), 1, 1, 6, 2), wide(y)));
    expect_product(matmul(wide(x), expand(wide(unsqueeze(y, 0)), {4, 40, 3})));
    const Tensor heads = permute(reshape(wide(x), {4, 6, 2, 20}), {0, 2, 1, 3});
    expect_product(matmul(heads, transpose(heads)));
    for (const Extent begin : is_cpu() ? std::vector<Extent>{0, 1, 7, 17} : std::vector<Extent>{7})
      expect_product(matmul(wide(reshape(slice(row, 0, begin, begin + 80), {2, 40})), wide(y)));
    expect_product(matmul(flip(wide(slice(x, 0, 1, 2)), {2}), wide(y)));
  }
}

TEST_F(NarrowOperands, WindowsAndPads) {
  for (const DType type : types({DType::binary})) {
    SCOPED_TRACE(name_of(type));
    const Tensor image = leaf(type, {2, 3, 9, 11}), kernels = leaf(DType::bf16, {27, 8});
    const Tensor padded = pad(wide(image), {{0, 0}, {0, 0}, {1, 1}, {1, 1}});
    for (const Tensor& from : is_cpu() ? std::vector<Tensor>{padded, wide(image)} : std::vector<Tensor>{padded}) {
      const Tensor windows = permute(unfold(unfold(from, 2, 3), 3, 3), {0, 2, 3, 1, 4, 5});
      expect_product(matmul(reshape(windows, {-1, 27}), wide(kernels)));
    }
  }
}

TEST_F(NarrowOperands, PadsBeforeTheCast) {
  for (const DType type : types({DType::uint4})) {
    if (type == DType::binary) continue;  // which has no 0 to pad with
    SCOPED_TRACE(name_of(type));
    const Tensor row = leaf(type, {2, 40}), filter = leaf(DType::f16, {3, 5});
    const Tensor windows = unfold(wide(pad(row, {{0, 0}, {1, 1}})), 1, 3);
    expect_same_without({matmul(reshape(windows, {80, 3}), wide(filter))});
  }
}

TEST_F(NarrowOperands, LargeProducts) {
  const Tensor a = leaf(DType::f16, {130, 700}), b = leaf(DType::bf16, {700, 140}), c = leaf(DType::int4, {140, 700});
  expect_same_without({matmul(wide(a), wide(b))});
  if (!is_cpu()) return;
  expect_same_without({matmul(wide(a), transpose(wide(c)))});
  expect_same_without({matmul(transpose(wide(b)), transpose(wide(a)))});
}

TEST_F(NarrowOperands, HalvesFromEndToEnd) {
  for (const DType type : types({DType::f16})) {
    if (!is_float(type)) continue;
    const Tensor a = leaf(type, {12, 16}), b = leaf(type, {16, 8}), bias = leaf(type, {8});
    const Tensor y = matmul(matmul(a, b) + bias, transpose(b));
    expect_same_without({y});
    if (reads(type)) {
      EXPECT_EQ(kernels_of({y}), 2u);
    }
  }
}

TEST_F(NarrowOperands, GradientsOfHalves) {
  for (const DType type : types({DType::f16})) {
    if (!is_float(type)) continue;
    SCOPED_TRACE(name_of(type));
    const Tensor x = leaf(type, {6, 8}), w = leaf(type, {8, 4}), g = leaf(type, {6, 4});
    const Tensor inputs[] = {x, w};
    expect_same_without(grad(sum(cast(matmul(x, w) * g, DType::f32)), inputs));
    // d x = g w^T and d w = x^T g, rounded once.
    const std::vector<Tensor> back = grad(sum(cast(matmul(x, w) * g, DType::f32)), inputs);
    const Results got = run(back, arguments_);
    const std::vector<double>&vx = arguments_.of(x.node().get()), &vw = arguments_.of(w.node().get()),
          &vg = arguments_.of(g.node().get());
    for (std::size_t i = 0; i < 6; ++i)
      for (std::size_t k = 0; k < 8; ++k) {
        double sum = 0;
        for (std::size_t j = 0; j < 4; ++j) sum += vg[i * 4 + j] * vw[k * 4 + j];
        EXPECT_EQ(got[0][i * 8 + k], reference::to_type(sum, type));
      }
    for (std::size_t k = 0; k < 8; ++k)
      for (std::size_t j = 0; j < 4; ++j) {
        double sum = 0;
        for (std::size_t i = 0; i < 6; ++i) sum += vx[i * 8 + k] * vg[i * 4 + j];
        EXPECT_EQ(got[1][k * 4 + j], reference::to_type(sum, type));
      }
  }
}

TEST_F(NarrowOperands, NaNAndInfinityPass) {
  const double nan = std::nan(""), infinity = std::numeric_limits<double>::infinity();
  for (const DType type : types({DType::f16})) {
    if (!element(type).has_infinity) continue;
    SCOPED_TRACE(name_of(type));
    const Tensor x = arguments_.make({3, 3}, {1, infinity, 2, -infinity, 1, 0, nan, 2, 3}, type);
    const Tensor ones = arguments_.make({3, 2}, {1, 1, 1, 0, 1, 1}, type);
    expect_same_without({matmul(wide(x), wide(ones)), matmul(wide(transpose(ones)), wide(x))});
    expect_like_reference({matmul(wide(x), wide(ones))}, arguments_);
  }
}

TEST_F(NarrowOperands, Attention) {
  for (const DType type : types({DType::f16}))
    for (const auto& [queries, keys, width] : {std::array<Extent, 3>{6, 6, 8}, {1, 33, 16}, {70, 70, 24}}) {
      if (!is_cpu() && queries != 6) continue;
      SCOPED_TRACE(fmt::format("{} {} queries", name_of(type), queries));
      const Tensor q = leaf(type, {2, 2, queries, width}), k = leaf(type, {2, 2, keys, width}),
                   v = leaf(type, {2, 2, keys, width});
      const Tensor y = attention(wide(q), wide(k), wide(v));
      expect_same_without({y});
      expect_like_reference({y}, arguments_, 1e-4, 1e-5);
      // Heads after positions, as a model has them, and one value for keys and values.
      const Tensor rows = leaf(type, {2, keys, 2 * width});
      const Tensor both = permute(reshape(wide(rows), {2, keys, 2, width}), {0, 2, 1, 3});
      expect_same_without({attention(wide(q), both, both)});
    }
}

TEST_F(NarrowOperands, AttentionGoingBackward) {
  for (const DType type : types({DType::bf16})) {
    if (!is_float(type)) continue;  // gradients do not pass through casts to types of storage
    SCOPED_TRACE(name_of(type));
    const Shape shape{1, 2, 20, 8};
    const Tensor q = leaf(type, shape), k = leaf(type, shape), v = leaf(type, shape), g = leaf(type, shape);
    const Tensor inputs[] = {q, k, v};
    const std::vector<Tensor> gradients = grad(sum(cast(attention(q, k, v) * g, DType::f32)), inputs);
    // Subgroup matrices, where a GPU has them, add up in an order of their own.
    if (is_cpu()) expect_same_without(gradients);
    expect_like_reference(gradients, arguments_, 2e-2, 2e-3);
  }
}

}  // namespace
}  // namespace weft::test
