// Variables: assignment, slices of shared state, gradients left by backward, and values held across updates.
#include <gtest/gtest.h>

#include "base/message_of.hpp"
#include "graph/node.hpp"
#include "weft/compile.hpp"
#include "weft/grad.hpp"
#include "weft/ops.hpp"

namespace weft {
namespace {

using test::message_of;

using Floats = std::vector<float>;

TEST(Variable, ReadsItsNewestValue) {
  Variable v(tensor<float>({1, 2}), "v");
  EXPECT_EQ(v.value().to_vector<float>(), (Floats{1, 2}));
  v.assign(v + Tensor(v));
  EXPECT_EQ(v.value().to_vector<float>(), (Floats{2, 4}));
  const Variable same = v;
  v.assign(v.value() * 10.0);
  EXPECT_EQ(same.value().to_vector<float>(), (Floats{20, 40}));
  EXPECT_TRUE(same == v);
}

TEST(Variable, AskingForAnythingRunsPendingUpdates) {
  Variable v(tensor<float>({1}), "v"), w(tensor<float>({5}), "w");
  v.assign(v.value() + 1.0);
  w.assign(v.value() * w.value());
  EXPECT_FALSE(graph::pending_cells().empty());
  (void)tensor<float>({3}).eval();
  EXPECT_TRUE(graph::pending_cells().empty());
  v.assign(v.value() + 1.0);
  EXPECT_EQ(full({}, 1).item<float>(), 1);  // a constant needs no kernel, and still
  EXPECT_TRUE(graph::pending_cells().empty());
  EXPECT_EQ(w.value().item<float>(), 10);
  EXPECT_EQ(v.value().item<float>(), 3);
}

TEST(Variable, HoldersOfAnOldValueKeepIt) {
  Variable v(tensor<float>({1, 2}), "v");
  const Tensor old = v.value();
  v.assign(v.value() * 3.0);
  const Tensor lazy = v.value() + 1.0;
  v.assign(zeros({2}));
  eval_pending();
  EXPECT_EQ(old.to_vector<float>(), (Floats{1, 2}));
  EXPECT_EQ(lazy.to_vector<float>(), (Floats{4, 7}));
  EXPECT_EQ(v.value().to_vector<float>(), (Floats{0, 0}));
}

TEST(Variable, AssigningTheValueItHasDropsWhatIsPending) {
  Variable v(tensor<float>({1, 2}), "v");
  const Tensor old = v.value().eval();
  v.assign(v.value() + 1.0);
  v.assign(old);
  EXPECT_EQ(v.value().to_vector<float>(), (Floats{1, 2}));
  eval_pending();
  EXPECT_EQ(v.value().to_vector<float>(), (Floats{1, 2}));
}

TEST(Variable, AssignmentsOfNumbersNeedNoNewPlans) {
  Variable rate(full({}, 0.1), "rate", false);
  eval_pending();
  for (int i = 1; i <= 5; ++i) {
    rate.assign(full({}, 0.1 * i));
    eval_pending();
    EXPECT_FLOAT_EQ(rate.value().item<float>(), 0.1f * static_cast<float>(i));
  }
}

TEST(Variable, AssignChecksWhatItGets) {
  Variable v(tensor<float>({1, 2}), "bias");
  const std::string shape = message_of<ShapeError>([&] { v.assign(zeros({3})); });
  EXPECT_NE(shape.find("assign to variable \"bias\": the shapes differ\n  variable  f32 [2]"), std::string::npos)
      << shape;
  EXPECT_NE(shape.find("variable_test.cpp"), std::string::npos) << shape;
  EXPECT_NE(message_of<DTypeError>([&] { v.assign(zeros({2}, DType::i32)); }).find("the dtypes differ; cast the value"),
            std::string::npos);
  EXPECT_NE(message_of<DeviceError>([&] {
              v.assign(zeros({2}, DType::f32, {Device::Kind::trace, 0}));
            }).find("move the value with .to(device)"),
            std::string::npos);
  EXPECT_NE(message_of<UsageError>([] { Variable().value(); }).find("variable: used before it was given a value"),
            std::string::npos);
  EXPECT_EQ(message_of<UsageError>([] { Variable(Tensor(), "w"); }), "variable w: the initial tensor has no value");
}

TEST(Variable, AGradientFitsItsVariable) {
  Variable w(ones({3}), "w");
  EXPECT_THROW(w.set_grad(ones({7})), ShapeError);
  EXPECT_THROW(w.set_grad(ones({3}, DType::f64)), DTypeError);
  EXPECT_FALSE(w.grad().defined());
  w.set_grad(ones({3}));
  EXPECT_TRUE(w.grad().defined());
  w.set_grad(Tensor());
  EXPECT_FALSE(w.grad().defined());
}

TEST(Variable, EqualInitialValuesStayApart) {
  const Tensor same = tensor<float>({1, 1});
  Variable a(same, "a"), b(same, "b"), c(zeros({2}), "c"), d(zeros({2}), "d");
  const Tensor y = sum(a.value() * 2.0 + b.value() * 3.0 + c.value() * 4.0 + d.value() * 5.0);
  const Variable list[] = {a, b, c, d};
  const auto g = grad(y, list);
  for (int i = 0; i < 4; ++i)
    EXPECT_EQ(g[static_cast<std::size_t>(i)].to_vector<float>(), Floats(2, static_cast<float>(i + 2)));
  a.assign(a.value() + 1.0);
  EXPECT_EQ(b.value().to_vector<float>(), (Floats{1, 1}));
  EXPECT_EQ(same.to_vector<float>(), (Floats{1, 1}));
}

TEST(Variable, SlicesOfSharedState) {
  Variable a(tensor<float>({1, 2, 3, 4}, {2, 2}), "a"), b(tensor<float>({5}), "b"), c(tensor<float>({6, 7}), "c");
  const Variable parts[] = {a, b, c};
  Variable flat = flatten_together(parts, "all");
  EXPECT_EQ(flat.value().to_vector<float>(), (Floats{1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(a.value().to_vector<float>(), (Floats{1, 2, 3, 4}));
  EXPECT_EQ(a.shape(), (Shape{2, 2}));
  b.assign(b.value() * 10.0);
  EXPECT_EQ(flat.value().to_vector<float>(), (Floats{1, 2, 3, 4, 50, 6, 7}));
  flat.assign(flat.value() + 1.0);
  c.assign(zeros({2}));
  a.assign(transpose(a.value()));
  EXPECT_EQ(a.value().to_vector<float>(), (Floats{2, 4, 3, 5}));
  EXPECT_EQ(flat.value().to_vector<float>(), (Floats{2, 4, 3, 5, 51, 0, 0}));
  EXPECT_TRUE(flatten_together(parts, "again") == flat);
  const Variable some[] = {a, c};
  EXPECT_NE(message_of<UsageError>([&] { flatten_together(some, "some"); }).find("\"a\" already is a slice of \"all\""),
            std::string::npos);
  const Variable mixed[] = {Variable(zeros({1}), "f"), Variable(zeros({1}, DType::f64), "d")};
  EXPECT_NE(message_of<UsageError>([&] {
              flatten_together(mixed, "mixed");
            }).find("\"d\" has another dtype or device than \"f\""),
            std::string::npos);
  EXPECT_THROW(flatten_together({}, "none"), UsageError);
}

TEST(Variable, BackwardAddsUp) {
  Variable w(tensor<float>({1, 2}), "w"), still(tensor<float>({3, 4}), "still", false),
      unused(tensor<float>({1}), "unused");
  EXPECT_FALSE(w.grad().defined());
  auto loss = [&] { return sum(w.value() * w.value() * still.value()); };
  backward(loss());
  EXPECT_EQ(w.grad().to_vector<float>(), (Floats{6, 16}));
  EXPECT_FALSE(still.grad().defined());
  EXPECT_FALSE(unused.grad().defined());
  backward(loss());
  EXPECT_EQ(w.grad().to_vector<float>(), (Floats{12, 32}));
  w.clear_grad();
  EXPECT_FALSE(w.grad().defined());
  backward(w.value() * 2.0, tensor<float>({10, 100}));
  EXPECT_EQ(w.grad().to_vector<float>(), (Floats{20, 200}));
  EXPECT_THROW(backward(w.value()), UsageError);
  EXPECT_THROW(backward(Tensor()), UsageError);
}

TEST(Variable, BackwardThroughSlicesOfSharedState) {
  Variable a(tensor<float>({1, 2}), "a"), b(tensor<float>({3}), "b");
  const Variable parts[] = {a, b};
  Variable flat = flatten_together(parts, "ab");
  backward(sum(a.value() * a.value()) * sum(b.value()));
  EXPECT_EQ(a.grad().to_vector<float>(), (Floats{6, 12}));
  EXPECT_EQ(b.grad().to_vector<float>(), (Floats{5}));
}

TEST(Gradients, StopWhereTheyAreTold) {
  const Tensor x = tensor<float>({1, 2, 3}), y = tensor<float>({4, 5, 6});
  EXPECT_EQ(grad(sum(x * x), y).to_vector<float>(), (Floats{0, 0, 0}));
  EXPECT_EQ(grad(sum(detach(x) * x), x).to_vector<float>(), (Floats{1, 2, 3}));
  Tensor inside;
  {
    NoGrad no_grad;
    EXPECT_FALSE(grad_enabled());
    inside = x * x;
  }
  EXPECT_TRUE(grad_enabled());
  EXPECT_EQ(grad(sum(inside * x), x).to_vector<float>(), (Floats{1, 4, 9}));
  // A detached value may itself be asked for.
  const Tensor z = detach(x * 2.0);
  EXPECT_EQ(grad(sum(z * z * x), z).to_vector<float>(), (Floats{4, 16, 36}));
  // Through integers and comparisons nothing flows.
  EXPECT_EQ(grad(sum(cast(cast(x, DType::i32), DType::f32) * x), x).to_vector<float>(), (Floats{1, 2, 3}));
  EXPECT_EQ(grad(sum(elementwise("where", {x > y, x, x * y})), x).to_vector<float>(), (Floats{4, 5, 6}));
  // A value asked for beside one that is made of it.
  const Tensor both[] = {x, x * 3.0};
  const auto g = grad(sum(both[1] * both[1]), both);
  EXPECT_EQ(g[0].to_vector<float>(), (Floats{18, 36, 54}));
  EXPECT_EQ(g[1].to_vector<float>(), (Floats{6, 12, 18}));
  EXPECT_EQ(grad(sum(x), x).to_vector<float>(), (Floats{1, 1, 1}));
}

TEST(Gradients, FunctionsOfFunctions) {
  auto f = [](const Tensor& v) { return sum(v * v * v); };
  const Tensor x = tensor<double>({1.0, 2.0});
  EXPECT_EQ(grad(f)(x).to_vector<double>(), (std::vector<double>{3, 12}));
  auto slope = [&](const Tensor& v) { return sum(grad(f)(v)); };
  EXPECT_EQ(grad(slope)(x).to_vector<double>(), (std::vector<double>{6, 12}));
  auto third = [&](const Tensor& v) { return sum(grad(slope)(v)); };
  EXPECT_EQ(grad(third)(x).to_vector<double>(), (std::vector<double>{6, 6}));
  const auto [value, gradient] = value_and_grad(f)(x);
  EXPECT_EQ(value.item<double>(), 9);
  EXPECT_EQ(gradient.to_vector<double>(), (std::vector<double>{3, 12}));
}

}  // namespace
}  // namespace weft
