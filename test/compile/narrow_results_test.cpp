// Attention that writes its results in a narrow type, and products that are turned around: which kernels are left, and that
// the values stay the same.
#include "compile/narrow_results.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "compile/evaluate_plan.hpp"
#include "compile/plan_check.hpp"
#include "tensor/element.hpp"
#include "weft/grad.hpp"
#include "weft/ops.hpp"

namespace weft::test {
namespace {

class NarrowResults : public testing::Test {
 protected:
  NarrowResults() {
    target_.product_reads = target_.attention_reads = {DType::f16, DType::bf16};
    target_.attention_writes = {DType::f16, DType::bf16};
    target_.prefers_separate_buffers = true;
  }

  Tensor leaf(DType type, const Shape& shape) {
    std::vector<double> values;
    for (Extent i = 0; i < shape.numel(); ++i)
      values.push_back(rounded_to(type, std::uniform_real_distribution<double>(-2, 2)(random_)));
    return arguments_.make(shape, std::move(values), type);
  }

  compiler::Compiled compiled(const std::vector<Tensor>& outputs, const compiler::Settings& settings = {}) {
    compiler::Request request;
    for (const Tensor& t : outputs) request.outputs.push_back(t.node());
    request.may_overwrite.assign(outputs.size(), nullptr);
    compiler::Compiled result = compiler::compile(request, target_, settings);
    // Gradients of attention are interleaved in one tensor, so their ranges overlap although their elements do not.
    if (const std::string broken = broken_promise(result, target_); !broken.ends_with("writes overlapping ranges")) {
      EXPECT_EQ(broken, "") << kernel::to_string(result.plan);
    }
    return result;
  }

  template <class Form>
  static std::vector<const Form*> kernels_of(const compiler::Compiled& c) {
    std::vector<const Form*> found;
    for (const kernel::Kernel& k : c.plan.kernels)
      if (const auto* form = std::get_if<Form>(&k)) found.push_back(form);
    return found;
  }

  void expect_near(const std::vector<Tensor>& outputs, const std::string& rule, double most) {
    const auto on = run_plan(compiled(outputs), outputs, arguments_);
    const auto off = run_plan(compiled(outputs, {.disabled_rewrites = {rule}}), outputs, arguments_);
    for (std::size_t o = 0; o < outputs.size(); ++o) {
      ASSERT_EQ(on[o].size(), off[o].size());
      for (std::size_t i = 0; i < on[o].size(); ++i)
        ASSERT_LE(std::abs(on[o][i] - off[o][i]), most) << "output " << o << ", element " << i;
    }
  }

  compiler::Target target_ = reference_target();
  Arguments arguments_;
  std::mt19937_64 random_{29};
};

TEST_F(NarrowResults, AttentionOfHalvesIsOneKernel) {
  for (const DType type : {DType::f16, DType::bf16}) {
    const Tensor q = leaf(type, {2, 3, 9, 8}), k = leaf(type, {2, 3, 9, 8}), v = leaf(type, {2, 3, 9, 8});
    const Tensor w = leaf(type, {24, 5});
    const Tensor joined = reshape(permute(attention(q, k, v), {0, 2, 1, 3}), {2, 9, 24});
    const std::vector<Tensor> outputs = {matmul(joined, w)};
    const compiler::Compiled c = compiled(outputs);
    EXPECT_EQ(c.plan.kernels.size(), 2u) << kernel::to_string(c.plan);
    ASSERT_EQ(kernels_of<kernel::AttentionKernel>(c).size(), 1u);
    EXPECT_EQ(kernels_of<kernel::AttentionKernel>(c)[0]->o.operand.type, type);
    EXPECT_EQ(kernels_of<kernel::AttentionKernel>(c)[0]->logsumexp.type, DType::f32);
    expect_near(outputs, "narrow_results", 0);
  }
}

TEST_F(NarrowResults, GradientsGoIntoOneTensorOfHalves) {
  const Tensor x = leaf(DType::f16, {2, 9, 48}), g = leaf(DType::f16, {2, 9, 16});
  const Tensor parts = permute(reshape(x, {2, 9, 3, 2, 8}), {2, 0, 3, 1, 4});
  const Tensor y = attention(select(parts, 0, 0), select(parts, 0, 1), select(parts, 0, 2));
  const Tensor joined = reshape(permute(y, {0, 2, 1, 3}), {2, 9, 16});
  const Tensor inputs[] = {x};
  std::vector<Tensor> back = grad(sum(cast(joined * g, DType::f32)), inputs);
  back.push_back(matmul(joined, leaf(DType::f16, {16, 3})));  // reads the forward result, as a model does
  const compiler::Compiled c = compiled(back);
  const auto attentions = kernels_of<kernel::AttentionKernel>(c);
  ASSERT_EQ(attentions.size(), 2u) << kernel::to_string(c.plan);
  EXPECT_EQ(attentions[0]->o.operand.type, DType::f16);
  EXPECT_EQ(attentions[1]->o.operand.type, DType::f16);
  for (const auto* result : {&attentions[1]->d_q, &attentions[1]->d_k, &attentions[1]->d_v}) {
    EXPECT_EQ(result->operand.type, DType::f16);
    EXPECT_EQ(result->row_stride, 48) << "in its place among the three";
  }
  expect_near(back, "narrow_results", 0.02);  // delta is of the rounded result
}

TEST_F(NarrowResults, OtherReadersKeepTheWideResult) {
  const Tensor q = leaf(DType::f32, {1, 2, 7, 8});
  const Tensor y = attention(q, q, q);
  const std::vector<Tensor> outputs = {cast(y, DType::f16), y * 2.0};
  const compiler::Compiled c = compiled(outputs);
  EXPECT_EQ(kernels_of<kernel::AttentionKernel>(c).at(0)->o.operand.type, DType::f32);
  expect_near(outputs, "narrow_results", 0);
}

TEST_F(NarrowResults, ProductsThatAreReadTransposedAreTurned) {
  const Tensor a = leaf(DType::f32, {6, 9}), b = leaf(DType::f32, {9, 5});
  const std::vector<Tensor> once = {transpose(matmul(a, b)) * 2.0};
  const auto product = [&](const std::vector<Tensor>& outputs) {
    const compiler::Compiled c = compiled(outputs);
    EXPECT_EQ(kernels_of<kernel::MatmulKernel>(c).size(), 1u);
    return *kernels_of<kernel::MatmulKernel>(c).at(0);
  };
  EXPECT_EQ(product(once).m, 5);
  EXPECT_EQ(product(once).n, 6);
  expect_near(once, "turned_products", 0);
  const Tensor both = matmul(a, b);
  EXPECT_EQ(product({transpose(both) * 2.0, both + 1.0}).m, 6) << "also read as it is";
  target_.prefers_separate_buffers = false;
  EXPECT_EQ(product(once).m, 6) << "not on this device";
}

}  // namespace
}  // namespace weft::test
