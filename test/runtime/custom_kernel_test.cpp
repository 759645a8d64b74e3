// Ops of a program's own with kernels: one description, and they work as the others do.
#include <gtest/gtest.h>

#include "base/message_of.hpp"
#include "runtime/gradient_check.hpp"
#include "weft/compile.hpp"
#include "weft/custom_kernel.hpp"
#include "weft/error.hpp"

namespace weft::test {
namespace {

// Cumulative sums of rows [n, k], the last row of sums given beside them.
KernelDefinition running_totals(const std::string& name) {
  KernelDefinition definition;
  definition.name = name;
  definition.inputs = {"x"};
  definition.attributes = {{"factor", 1.0}};
  definition.shape = [](const std::vector<ValueType>& in, const KernelAttributes&) {
    if (in[0].shape.rank() != 2) throw ShapeError("running totals: x is not [n, k]");
    return std::vector<ValueType>{in[0], {in[0].dtype, {in[0].shape[1]}}};
  };
  definition.cpu = [](const KernelArguments& k) {
    const auto run = [&]<class T>(T) {
      const auto x = k.input<T>(0);
      const auto sums = k.output<T>(0), last = k.output<T>(1);
      const Extent n = k.input_shape(0)[0], columns = k.input_shape(0)[1];
      for (Extent c = 0; c < columns; ++c) {
        T sum = 0;
        for (Extent i = 0; i < n; ++i) {
          sum += x[i * columns + c] * static_cast<T>(k.attribute("factor"));
          sums[i * columns + c] = sum;
        }
        last[c] = sum;
      }
    };
    if (k.input_type(0) == DType::f64)
      run(double{});
    else
      run(float{});
  };
  definition.wgsl = R"(
    let columns = x_shape[1];
    if (index < columns) {
      var sum = 0f;
      for (var i = 0u; i < x_shape[0]; i++) {
        sum += x(i * columns + index) * factor;
        store0(i * columns + index, sum);
      }
      store1(index, sum);
    })";
  definition.workgroups = "x_1 / workgroup_size";
  definition.gradient = [](const KernelGradient& g) {
    Tensor from = zeros_like(g.inputs[0]);
    if (g.output_gradients[0].defined()) from = cumsum(g.output_gradients[0], 0, false, true);
    if (g.output_gradients[1].defined()) from = from + expand(unsqueeze(g.output_gradients[1], 0), from.shape());
    return std::vector<Tensor>{from * g.attributes.at("factor")};
  };
  return definition;
}

TEST(CustomKernel, WorksLikeAnyOtherOp) {
  const CustomKernel totals = register_kernel(running_totals("test_running_totals"));
  const Tensor x = tensor({1.0f, 10.0f, 2.0f, 20.0f, 3.0f, 30.0f}, {3, 2});
  EXPECT_EQ(totals(x).to_vector<float>(), (std::vector<float>{1, 10, 3, 30, 6, 60}));
  const std::vector<Tensor> both = totals.call({x}, {{"factor", 2}});
  EXPECT_EQ(both[1].to_vector<float>(), (std::vector<float>{12, 120}));
  EXPECT_EQ(op("test_running_totals", {x})[1].to_vector<float>(), (std::vector<float>{6, 60}));
  // In a graph with neighbours, under compile, and beside itself.
  auto step = compile([&](Tensor v) { return sum(totals(v * 2.0) + totals(transpose(transpose(v)))); });
  EXPECT_EQ(step(x).item<float>(), 3 * (1 + 10 + 3 + 30 + 6 + 60));
  EXPECT_NE(explain(totals(x)).find("test_running_totals"), std::string::npos);
}

TEST(CustomKernel, HasTheGradientThatItGives) {
  const CustomKernel totals = register_kernel(running_totals("test_totals_with_gradient"));
  GradientCheck check;
  std::mt19937_64 random(3);
  check("first result",
        [&](std::span<const Tensor> x) {
          return totals.call({x[0]}, {{"factor", 0.5}})[0];
        },
        {random_leaf({4, 3}, random)});
  check("both results",
        [&](std::span<const Tensor> x) {
          const auto y = totals.call({x[0] * x[0]});
          return sum(y[0]) + sum(y[1] * y[1]);
        },
        {random_leaf({4, 3}, random)});
}

TEST(CustomKernel, ReachesNoMemoryOutsideItsOperands) {
  KernelDefinition definition;
  definition.name = "test_out_of_bounds";
  definition.inputs = {"x"};
  definition.shape = [](const std::vector<ValueType>& in, const KernelAttributes&) { return in; };
  definition.cpu = [](const KernelArguments& k) { k.output<float>()[k.output_shape().numel()] = k.input<float>(0)[0]; };
  const CustomKernel outside = register_kernel(definition);
  EXPECT_NE(
      message_of<UsageError>([&] { outside(ones({3})).eval(); }).find("test_out_of_bounds: result 0: element 3 of 3"),
      std::string::npos);
  definition.name = "test_reads_before_the_first";
  definition.cpu = [](const KernelArguments& k) { k.output<float>()[0] = k.input<float>(0)[-1]; };
  EXPECT_NE(message_of<UsageError>([&] { register_kernel(definition)(ones({3})).eval(); }).find("x: element -1 of 3"),
            std::string::npos);
  definition.name = "test_wrong_dtype";
  definition.cpu = [](const KernelArguments& k) { k.output<std::int32_t>()[0] = 1; };
  EXPECT_NE(message_of<DTypeError>([&] { register_kernel(definition)(ones({3})).eval(); }).find("is f32, not i32"),
            std::string::npos);
}

TEST(CustomKernel, WhatCannotBeRegisteredIsRefused) {
  const auto message = [](auto change) {
    KernelDefinition definition = running_totals("test_refused");
    change(definition);
    return message_of<UsageError>([&] { register_kernel(definition); });
  };
  using D = KernelDefinition;
  EXPECT_NE(message([](D& d) { d.name = "softmax"; }).find("the name softmax is taken"), std::string::npos);
  EXPECT_NE(message([](D& d) { d.name = "no name"; }).find("not an identifier"), std::string::npos);
  EXPECT_NE(message([](D& d) { d.inputs = {}; }).find("at least one input"), std::string::npos);
  EXPECT_NE(message([](D& d) { d.inputs = {"x", "x"}; }).find("x is named twice"), std::string::npos);
  EXPECT_NE(message([](D& d) { d.shape = {}; }).find("it has no shape function"), std::string::npos);
  EXPECT_NE(message([](D& d) { d.cpu = {}, d.wgsl = ""; }).find("no kernel"), std::string::npos);
  EXPECT_NE(message([](D& d) { d.workgroups = "x_1 /"; }).find("x_1 /"), std::string::npos);
  EXPECT_NE(message([](D& d) { d.workgroup_size = 1000; }).find("1 to 256"), std::string::npos);
  KernelDefinition no_gradient = running_totals("test_no_gradient");
  no_gradient.gradient = {};
  const CustomKernel totals = register_kernel(no_gradient);
  const Tensor x = ones({2, 2});
  EXPECT_NE(message_of<UsageError>([&] { grad(sum(totals(x)), x); }).find("give register_kernel a gradient function"),
            std::string::npos);
  EXPECT_NE(message_of<ShapeError>([&] { totals(ones({2})); }).find("x is not [n, k]"), std::string::npos);
  EXPECT_NE(message_of<UsageError>([&] {
              totals.call({x}, {{"facto", 2}});
            }).find("unknown attribute"),
            std::string::npos);
}

}  // namespace
}  // namespace weft::test
