// Gradients are asked for by node: a value that the user holds must be found in the graph, whatever it is made of.
#include <gtest/gtest.h>

#include "weft/grad.hpp"
#include "weft/ops.hpp"

namespace weft {
namespace {

TEST(GradientIdentity, OfAConstant) {
  const Tensor x = full({2}, 3.0);
  EXPECT_EQ(grad(sum(x * x), x).to_vector<float>(), (std::vector<float>{6, 6}));
}

TEST(GradientIdentity, OfAViewThatAnotherViewLooksThrough) {
  const Tensor x = tensor({1.f, 2.f, 3.f, 4.f, 5.f, 6.f});
  const Tensor reshaped = reshape(x, {2, 3}), permuted = permute(reshaped, {1, 0});
  EXPECT_EQ(grad(sum(square(reshape(reshaped, {3, 2}))), reshaped).to_vector<float>(),
            (std::vector<float>{2, 4, 6, 8, 10, 12}));
  EXPECT_EQ(grad(sum(square(permute(permuted, {1, 0}))), permuted).to_vector<float>(),
            (std::vector<float>{2, 8, 4, 10, 6, 12}));
  const Tensor row = expand(reshape(tensor({1.f, 2.f}), {1, 1, 2}), {1, 3, 2});
  EXPECT_EQ(grad(sum(expand(row, {4, 3, 2})), row).to_vector<float>(), std::vector<float>(6, 4));
}

TEST(GradientIdentity, StopsAtADetachedConstant) {
  const Tensor x = full({}, 2.0);
  EXPECT_EQ(grad(x * detach(x), x).item<float>(), 2);
}

TEST(GradientIdentity, TellsEqualVariablesApart) {
  Variable a(zeros({2}), "a"), b(zeros({2}), "b");
  const std::vector<Variable> both{a, b};
  const auto gradients = grad(sum(a.value() * 2.0 + b.value() * 3.0), both);
  EXPECT_EQ(gradients[0].to_vector<float>(), std::vector<float>(2, 2));
  EXPECT_EQ(gradients[1].to_vector<float>(), std::vector<float>(2, 3));
}

}  // namespace
}  // namespace weft
