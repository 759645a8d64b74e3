// Gradients are asked for by node: a value that the user holds must be found in the graph, whatever it is made of.
#include <gtest/gtest.h>

#include "graph/node.hpp"
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

// As in `print(loss.item()); loss.backward()`: computing the loss also computes the Variables that it was made of.
TEST(GradientIdentity, OfAVariableThatWasComputedAfterItWasRead) {
  Variable w(tensor({1.0f, 2.0f}), "w");
  for (int step = 0; step < 3; ++step) {
    const std::vector<float> value = w.value().to_vector<float>();
    if (step > 0) w.assign(w.value() * 2.0);  // pending when the loss reads it
    w.clear_grad();
    const float factor = step > 0 ? 2 : 1;
    const Tensor loss = sum(square(w.value()));
    EXPECT_EQ(loss.item<float>(), factor * factor * (value[0] * value[0] + value[1] * value[1]));
    backward(loss);
    ASSERT_TRUE(w.grad().defined());
    EXPECT_EQ(w.grad().to_vector<float>(), (std::vector<float>{2 * factor * value[0], 2 * factor * value[1]}));
    EXPECT_EQ(grad(loss, w).to_vector<float>(), w.grad().to_vector<float>());
  }
  // A value that was read before, and a graph that was made after it was computed.
  Variable v(tensor({3.0f}), "v");
  const Tensor read = v.value();
  v.value().eval();
  EXPECT_EQ(grad(sum(square(v.value())), read).to_vector<float>(), std::vector<float>{6});
  // Read on both sides of the computation, and to second order.
  Variable x(full({}, 3.0), "x");
  const Tensor cube = x.value() * x.value() * x.value();
  const Tensor slope = grad(cube, x);
  EXPECT_EQ(slope.item<float>(), 27);
  EXPECT_EQ(grad(cube + x.value(), x).item<float>(), 28);
  EXPECT_EQ(grad(slope, x).item<float>(), 18);
}

// Variables of an optimiser are slices of one.
TEST(GradientIdentity, OfSlicesThatWereComputedAfterTheyWereRead) {
  Variable a(tensor({1.0f, 2.0f}), "a"), b(tensor({3.0f}), "b");
  const std::vector<Variable> both{a, b};
  const Variable whole = flatten_together(both, "whole");
  for (int step = 0; step < 3; ++step) {
    const Tensor loss = sum(square(reshape(a.value(), {2, 1}))) + 5.0 * sum(b.value());
    const float before = loss.item<float>();
    EXPECT_GT(before, 0);
    const std::vector<Tensor> gradients = grad(loss, both);
    EXPECT_EQ(gradients[1].to_vector<float>(), std::vector<float>{5});
    a.assign(a.value() - 0.25 * gradients[0]);
    EXPECT_EQ((a.value() * 2.0f).to_vector<float>(), (std::vector<float>{1.0f / (1 << step), 2.0f / (1 << step)}));
    a.assign(a.value() * 1.0);
  }
}

TEST(GradientIdentity, OfTheValueBeforeAnAssignmentIsNotThatAfterIt) {
  Variable w(full({}, 2.0), "w");
  const Tensor loss = square(w.value());
  EXPECT_EQ(loss.item<float>(), 4);
  w.assign(w.value() * 3.0);
  EXPECT_EQ(grad(loss, w).item<float>(), 0);
  EXPECT_EQ(grad(square(w.value()), w).item<float>(), 12);
  eval_pending();
  EXPECT_EQ(grad(loss, w).item<float>(), 0);
}

TEST(GradientIdentity, ADetachedValueThatWasComputedKeepsNothingAlive) {
  Tensor state = ones({16});
  const auto step = [&] { state = detach((state * 0.5 + 1.0).eval()); };
  for (int i = 0; i < 3; ++i) step();
  const std::size_t live = graph::live_node_count();
  for (int i = 0; i < 50; ++i) step();
  EXPECT_EQ(graph::live_node_count(), live);
  EXPECT_FLOAT_EQ(state.to_vector<float>()[0], 2);
  Variable w(full({16}, 3.0), "w");
  const Tensor y = (w.value() * state).eval();
  EXPECT_EQ(grad(sum(y * detach(y)), w).to_vector<float>(), std::vector<float>(16, 12)) << "through one factor only";
}

}  // namespace
}  // namespace weft
