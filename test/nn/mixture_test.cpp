// Mixtures of experts against all experts on all rows. test/optim/mixture_training_test.cpp trains one.
#include "weft/nn/mixture.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/message_of.hpp"
#include "weft/weft.hpp"

namespace weft::nn {
namespace {

using test::message_of;

Tensor named(const Module& net, const std::string& name) {
  for (const NamedParameter& p : net.named_parameters())
    if (p.name == name) return p.variable.value();
  throw UsageError("no parameter " + name);
}

/// Each expert on each row, times its weight, or 0 where it was not chosen.
Tensor dense(const Mixture& net, const Tensor& x, Extent experts, Extent top_k) {
  const Tensor scores = matmul(x, transpose(named(net, "router.weight"), 0, 1));
  const auto best = topk(scores, top_k);
  const Tensor weights = softmax(best.values, -1);
  Tensor y = zeros_like(x);
  for (Extent e = 0; e < experts; ++e) {
    const auto of = [&](const char* name) { return transpose(select(named(net, name), 0, e), 0, 1); };
    const Tensor out = matmul(silu(matmul(x, of("gates"))) * matmul(x, of("ups")), of("downs"));
    const Tensor is_chosen = cast(eq(best.positions, full({}, static_cast<double>(e), DType::i32)), DType::f32);
    y = y + out * sum(weights * is_chosen, {1}, {.keepdims = true});
  }
  return y;
}

void expect_near(const Tensor& got, const Tensor& wanted, const std::string& what) {
  const auto a = got.to_vector<float>(), b = wanted.to_vector<float>();
  ASSERT_EQ(got.shape(), wanted.shape()) << what;
  for (std::size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], 2e-5 * (1 + std::abs(b[i]))) << what << " " << i;
}

TEST(Mixture, IsTheSumOfItsChosenExperts) {
  for (const Extent top_k : {1, 2, 5}) {
    manual_seed(3);
    Mixture net(6, 9, 5, {.top_k = top_k});
    const Tensor x = randn({23, 6}).eval();
    const Tensor y = net(x), wanted = dense(net, x, 5, top_k);
    expect_near(y, wanted, "output");
    std::vector<Tensor> leaves = {x};
    for (const Variable& v : net.parameters()) leaves.push_back(v.value());
    const Tensor weight = randn({23, 6}).eval();
    const auto got = grad(sum(y * weight), leaves), by_all = grad(sum(wanted * weight), leaves);
    for (std::size_t i = 0; i < leaves.size(); ++i) expect_near(got[i], by_all[i], "gradient " + std::to_string(i));
  }
}

TEST(Mixture, TakesAnyLeadingAxesAndNoRows) {
  Mixture net(4, 8, 3);
  const Tensor x = randn({2, 5, 4}).eval();
  expect_near(net(x), reshape(net(reshape(x, {10, 4})), {2, 5, 4}), "axes");
  EXPECT_EQ(net(zeros({0, 4})).shape(), (Shape{0, 4}));
}

TEST(Mixture, ThePlanDoesNotGrowWithTheExperts) {
  const auto kernels = [](Extent experts) {
    Mixture net(4, 8, experts);
    const std::string plan = explain(net(zeros({6, 4})));
    EXPECT_NE(plan.find("grouped_matmul"), std::string::npos);
    return std::count(plan.begin(), plan.end(), '\n');
  };
  EXPECT_EQ(kernels(4), kernels(64));
}

TEST(Mixture, BalanceLossIsOneWhereSharesAreEqual) {
  const Tensor even = tensor<float>({3, 0, 0, 3}, {2, 2}), one_sided = tensor<float>({50, 0, 50, 0}, {2, 2});
  EXPECT_NEAR(balance_loss(route(even, 1)).item<float>(), 1, 1e-6);
  EXPECT_NEAR(balance_loss(route(one_sided, 1)).item<float>(), 2, 1e-6);
  const Tensor scores = tensor<float>({1, 0, 0.5f, 0.25f}, {2, 2});
  const auto slope = grad(balance_loss(route(scores, 1)), scores).to_vector<float>();
  EXPECT_GT(slope[0], 0);  // away from the expert that has all rows
  EXPECT_LT(slope[1], 0);
}

TEST(Mixture, MistakesAreNamed) {
  EXPECT_NE(message_of<UsageError>([] { Mixture(4, 8, 3, {.top_k = 4}); }).find("top_k 4 of 3 experts"),
            std::string::npos);
  EXPECT_NE(message_of<ShapeError>([] { Mixture(0, 8, 3); }).find("each is at least 1"), std::string::npos);
  const Mixture net(4, 8, 3);
  EXPECT_NE(message_of<ShapeError>([&] { (void)net(zeros({2, 5})); }).find("not [..., 4]"), std::string::npos);
}

}  // namespace
}  // namespace weft::nn
