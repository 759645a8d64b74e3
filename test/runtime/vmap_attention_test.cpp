// vmap of attention with masks: the batch rule against a loop over examples, forward and backward.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "runtime/op_cases.hpp"
#include "weft/weft.hpp"

namespace weft::test::vmap_attention {
namespace {

constexpr Extent kExamples = 3, kBatch = 2, kHeads = 4, kKeyHeads = 2, kQueries = 5, kKeys = 6, kWidth = 8;

Tensor draw(const Shape& shape, std::uint32_t seed, DType type) {
  return runtime::tensor_of(runtime::random_numbers(shape.numel(), -1, 1, seed), shape, type);
}

Shape with_examples(const Shape& shape) {
  Shape all{kExamples};
  for (const Extent e : shape) all.push_back(e);
  return all;
}

double largest_difference(const Tensor& a, const Tensor& b) {
  if (a.shape() != b.shape()) return INFINITY;
  return amax(abs(cast(a, DType::f64) - cast(b, DType::f64))).item<double>();
}

struct MaskCase {
  Shape shape;
  bool is_mapped, of_bools;
};

void compare_with_loop(const MaskCase& c, DType type, double tolerance) {
  SCOPED_TRACE(c.shape.to_string() + (c.is_mapped ? " mapped" : " shared") + (c.of_bools ? " bools" : " values"));
  const Tensor q = draw({kExamples, kBatch, kHeads, kQueries, kWidth}, 1, type),
               k = draw({kExamples, kBatch, kKeyHeads, kKeys, kWidth}, 2, type),
               v = draw({kExamples, kBatch, kKeyHeads, kKeys, kWidth}, 3, type);
  Tensor mask = draw(c.is_mapped ? with_examples(c.shape) : c.shape, 4, type);
  if (c.of_bools) mask = mask > -0.6;
  const auto attend = [&](const Tensor& q1, const Tensor& k1, const Tensor& v1, const Tensor& mask1) {
    return attention(q1, k1, v1, {.causal = false, .mask = mask1});
  };
  const auto gradients = [&](std::span<const Tensor> in) {
    const Tensor y = attend(in[0], in[1], in[2], in[3]);
    const Tensor weight = draw(y.shape(), 5, type);
    std::vector<Tensor> to{in[0], in[1], in[2]};
    if (!c.of_bools) to.push_back(in[3]);
    std::vector<Tensor> results = grad(sum(y * weight), to);
    results.push_back(y);
    return results;
  };
  VmapOptions options{.in_axes = {0, 0, 0, c.is_mapped ? std::optional<int>(0) : std::nullopt}};
  const std::vector<Tensor> given{q, k, v, mask};
  const std::vector<Tensor> found = vmap(TensorFunction(gradients), std::span<const Tensor>(given), options);
  for (Extent e = 0; e < kExamples; ++e) {
    const std::vector<Tensor> one{select(q, 0, e), select(k, 0, e), select(v, 0, e),
                                  c.is_mapped ? select(mask, 0, e) : mask};
    const std::vector<Tensor> wanted = gradients(one);
    ASSERT_EQ(found.size(), wanted.size());
    for (std::size_t i = 0; i < wanted.size(); ++i)
      EXPECT_LE(largest_difference(select(found[i], 0, e), wanted[i]), tolerance)
          << "example " << e << ", result " << i;
  }
}

TEST(VmapAttention, MasksOfEveryShapeAreThoseOfALoop) {
  const Shape shapes[] = {{kQueries, kKeys},
                          {1, 1, 1, kKeys},
                          {1, kHeads, kQueries, kKeys},
                          {kBatch, 1, 1, kKeys},
                          {kBatch, 1, kQueries, kKeys},
                          {kBatch, kHeads, kQueries, kKeys}};
  for (const Shape& shape : shapes)
    for (const bool is_mapped : {true, false})
      for (const bool of_bools : {true, false}) {
        compare_with_loop({shape, is_mapped, of_bools}, DType::f32, 2e-5);
        compare_with_loop({shape, is_mapped, of_bools}, DType::f64, 1e-12);
      }
}

}  // namespace
}  // namespace weft::test::vmap_attention
