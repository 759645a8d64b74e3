// Transforms of functions: each against a loop, a closed form, or PyTorch's torch.autograd.functional (the numbers named so).
#include "weft/transforms.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "autograd/batching.hpp"
#include "graph/op.hpp"
#include "graph/op_families.hpp"
#include "runtime/op_cases.hpp"
#include "weft/anomaly.hpp"
#include "weft/checkpoint.hpp"
#include "weft/compile.hpp"
#include "weft/custom_kernel.hpp"
#include "weft/elementwise.hpp"
#include "weft/gradcheck.hpp"
#include "weft/hooks.hpp"
#include "weft/in_place.hpp"
#include "weft/ops.hpp"
#include "weft/ops/linear_algebra.hpp"
#include "weft/ops/order.hpp"
#include "weft/ops/random.hpp"
#include "weft/ops/scans.hpp"

namespace weft::test {
namespace {

using runtime::numbers_of;

void expect_near(const Tensor& got, const std::vector<double>& wanted, double tolerance = 1e-6) {
  const std::vector<double> numbers = numbers_of(got);
  ASSERT_EQ(numbers.size(), wanted.size());
  for (std::size_t i = 0; i < wanted.size(); ++i) EXPECT_NEAR(numbers[i], wanted[i], tolerance) << "element " << i;
}

// An empty text, or the first difference.
std::string difference(const Tensor& got, const Tensor& wanted, double tolerance) {
  if (got.shape() != wanted.shape() || got.dtype() != wanted.dtype())
    return fmt::format("{} {} instead of {} {}", name_of(got.dtype()), got.shape().to_string(), name_of(wanted.dtype()),
                       wanted.shape().to_string());
  const std::vector<double> a = numbers_of(got), b = numbers_of(wanted);
  for (std::size_t i = 0; i < a.size(); ++i) {
    const bool same = a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i]));
    if (!same && !(std::abs(a[i] - b[i]) <= tolerance * (1 + std::abs(b[i]))))
      return fmt::format("element {} is {} instead of {}", i, a[i], b[i]);
  }
  return "";
}

template <class F>
std::string message_of(F f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// ---- vmap -----------------------------------------------------------------------------------------------------------------

constexpr Extent kExamples = 3;

struct Case {
  const graph::OpRow& row;
  graph::Tensors examples;  // of each input, [examples, ...]; undefined for one left out
  graph::CaseAttributes attributes;

  graph::Tensors apply(std::span<const Tensor> in, const std::vector<bool>& mapped) const {
    graph::Tensors inputs;
    std::size_t next = 0;
    for (std::size_t i = 0; i < examples.size(); ++i)
      inputs.push_back(!examples[i].defined() ? Tensor() : mapped[i] ? in[next++] : select(examples[i], 0, 0));
    return graph::apply(row, inputs, attributes);
  }
};

Case case_of(const graph::OpRow& row, const graph::OpCase& one, DType type) {
  Case made{row, {}, one.attributes};
  for (const Tensor& x : runtime::case_inputs(one.inputs, type)) {
    if (!x.defined()) {
      made.examples.emplace_back();
      continue;
    }
    std::vector<Tensor> list;
    for (const double factor : {1.0, 0.97, 1.03}) list.push_back(is_float(x.dtype()) ? x * factor : x);
    made.examples.push_back(stack(list, 0).eval());
  }
  return made;
}

// f over the mapped inputs at once, and one by one.
std::string compared(const Case& of, const std::vector<bool>& mapped, const TensorFunction& f, double tolerance) {
  std::vector<Tensor> given;
  for (std::size_t i = 0; i < mapped.size(); ++i)
    if (mapped[i]) given.push_back(of.examples[i]);
  const std::vector<Tensor> batch = vmap(f, given);
  std::vector<std::vector<Tensor>> loop(batch.size());
  for (Extent e = 0; e < kExamples; ++e) {
    std::vector<Tensor> one;
    for (const Tensor& x : given) one.push_back(select(x, 0, e));
    const std::vector<Tensor> results = f(one);
    for (std::size_t r = 0; r < results.size(); ++r) loop[r].push_back(results[r]);
  }
  for (std::size_t r = 0; r < batch.size(); ++r)
    if (const std::string text = difference(batch[r], stack(loop[r], 0), tolerance); !text.empty())
      return fmt::format("result {}: {}", r, text);
  return "";
}

// Ops whose size depends on values evaluate their input, and random numbers differ from call to call.
bool is_left_out(const graph::OpRow& row) {
  static const std::set<std::string> sized{"nonzero",           "unique",   "masked_select", "bincount",
                                           "histogram",         "histc",    "histogramdd",   "unique_consecutive",
                                           "repeat_interleave", "argwhere", "repeat_slices"};
  return sized.contains(row.name) || row.family == "random" || row.family == "optimizer" || row.family == "cache" ||
         row.family == "packed";
}

TEST(Vmap, EveryRowGivesWhatALoopGives) {
  std::set<std::string> compared_rows, refused;
  for (const graph::OpRow* row : graph::op_rows()) {
    if (is_left_out(*row)) continue;
    bool first = true;
    for (const graph::OpCase& one : row->cases) {
      const DType type = runtime::takes(*row, one.inputs, DType::f64) ? DType::f64 : DType::f32;
      const double tolerance = type == DType::f64 ? 1e-9 : 2e-4;
      const Case of = case_of(*row, one, type);
      std::vector<std::vector<bool>> modes(1);
      for (const Tensor& x : of.examples) modes[0].push_back(x.defined());
      for (std::size_t i = 0; first && i < of.examples.size() && of.examples.size() > 1; ++i) {
        if (!of.examples[i].defined()) continue;
        modes.emplace_back(of.examples.size(), false).at(i) = true;  // this input alone
      }
      first = false;
      if (std::none_of(modes[0].begin(), modes[0].end(), [](bool mapped) { return mapped; })) continue;
      for (const std::vector<bool>& mapped : modes) {
        SCOPED_TRACE(fmt::format("{}, {}, {} of {} inputs mapped", row->name, one.name,
                                 std::count(mapped.begin(), mapped.end(), true), mapped.size()));
        try {
          const auto f = [&](std::span<const Tensor> in) { return of.apply(in, mapped); };
          EXPECT_EQ(compared(of, mapped, f, tolerance), "");
          compared_rows.insert(row->name);
        } catch (const Error& error) {
          if (std::string(error.what()).find("given to vmap") != std::string::npos)
            refused.insert(row->name);
          else
            ADD_FAILURE() << error.what();
        }
      }
    }
  }
  EXPECT_GE(compared_rows.size(), 170u);
  EXPECT_EQ(fmt::format("{}", fmt::join(refused, " ")), "") << "these ask for elements; say so in is_left_out";
}

TEST(Vmap, GradientsOfEveryRowAreThoseOfALoop) {
  std::size_t count = 0;
  for (const graph::OpRow* row : graph::op_rows()) {
    if (is_left_out(*row) || !row->differentiable || row->cases.empty()) continue;
    const graph::OpCase& one = row->cases[0];
    if (!one.compares_gradients || !runtime::takes(*row, one.inputs, DType::f64)) continue;
    const Case of = case_of(*row, one, DType::f64);
    std::vector<bool> mapped;
    for (const Tensor& x : of.examples) mapped.push_back(x.defined() && is_float(x.dtype()));
    if (std::none_of(mapped.begin(), mapped.end(), [](bool m) { return m; })) continue;
    SCOPED_TRACE(row->name);
    const TensorFunction gradients = [&](std::span<const Tensor> in) {
      const Tensor y = of.apply(in, mapped)[0];
      if (!is_float(y.dtype())) return std::vector<Tensor>{y};
      return grad(y, in, runtime::tensor_of(runtime::random_numbers(y.numel(), 0.5, 1.5, 3), y.shape(), y.dtype()));
    };
    try {
      EXPECT_EQ(compared(of, mapped, gradients, 1e-8), "");
      ++count;
    } catch (const Error& error) {
      ADD_FAILURE() << error.what();
    }
  }
  EXPECT_GE(count, 150u);
}

TEST(Vmap, EachRowSaysHowItIsBatched) {
  for (const graph::OpRow* row : graph::op_rows())
    if (autograd::batching_of(*row) == autograd::Batching::looped) {
      EXPECT_TRUE(row->family == "random" || row->family == "optimizer" || row->family == "cache" ||
                  row->family == "packed" || row->family == "custom" || row->family == "generation" ||
                  row->family == "gradient")
          << row->name << " of " << row->family << " is computed example by example; give it a rule in batching.cpp";
    }
}

TEST(Vmap, AxesOfArgumentsAndResults) {
  const Tensor x = reshape(arange(24, DType::f64), {2, 3, 4}), y = reshape(arange(4, DType::f64), {4});
  const auto f = [](const Tensor& a, const Tensor& b) { return a * b; };
  const Tensor z = vmap(f, {.in_axes = {1, std::nullopt}, .out_axis = -1})(x, y);
  EXPECT_EQ(difference(z, permute(x * y, {0, 2, 1}), 0), "");
  const auto [sums, products] = vmap([](const Tensor& a) { return std::pair<Tensor, Tensor>(sum(a), a * 2.0); })(x);
  EXPECT_EQ(sums.shape(), (Shape{2}));
  EXPECT_EQ(products.shape(), x.shape());
}

TEST(Vmap, ComposesWithItselfAndWithGradients) {
  const Tensor x = reshape(arange(12, DType::f64), {2, 2, 3}) * 0.1;
  const auto f = [](const Tensor& v) { return sum(sin(v) * v); };
  const Tensor nested = vmap(vmap(grad(f)))(x);
  EXPECT_EQ(difference(nested, grad(sum(sin(x) * x), x), 1e-12), "");
  // Gradients of each example of a layer: a shared weight, a batch of inputs.
  const Tensor w = reshape(arange(6, DType::f64), {3, 2}) * 0.3, rows = reshape(arange(12, DType::f64), {4, 3});
  const auto loss = [](const Tensor& weight, const Tensor& row) { return sum(tanh(matmul(row, weight))); };
  const Tensor each = vmap(grad(loss), {.in_axes = {std::nullopt, 0}})(w, rows);
  std::vector<Tensor> loop;
  for (Extent i = 0; i < 4; ++i) loop.push_back(grad(loss)(w, rows[i]));
  EXPECT_EQ(difference(each, stack(loop, 0), 1e-12), "");
}

TEST(Vmap, ALinearLayerIsOneProduct) {
  const Tensor w = ones({3, 2}), rows = ones({64, 3});
  const std::string plan = explain(vmap([&](const Tensor& row) { return matmul(row, w); })(rows));
  EXPECT_NE(plan.find("[1 x 64x2x3]"), std::string::npos) << plan;
}

TEST(Vmap, InsideCompileAndOverACompiledFunction) {
  const Tensor x = reshape(arange(6, DType::f32), {2, 3});
  auto inner = compile([](const Tensor& v) { return sum(v * v); });
  auto outer = compile([&](const Tensor& v) { return vmap([](const Tensor& row) { return sum(row * row); })(v); });
  expect_near(outer(x), {5, 50});
}

TEST(Vmap, ACustomKernelRunsOnceAnExample) {
  const CustomKernel kernel = register_kernel({
      .name = "vmap_test_running_sum",
      .inputs = {"x"},
      .shape = [](const std::vector<ValueType>& in, const KernelAttributes&) { return in; },
      .cpu =
          [](const KernelArguments& k) {
            const auto x = k.input<float>(0);
            const auto y = k.output<float>();
            for (Extent i = 0; i < x.size(); ++i) y[i] = x[i] + (i ? y[i - 1] : 0);
          },
  });
  expect_near(vmap([&](const Tensor& row) { return kernel(row); })(reshape(arange(6, DType::f32), {2, 3})),
              {0, 1, 3, 3, 7, 12});
}

TEST(Vmap, RefusesWhatItCannotDo) {
  const Tensor x = ones({2, 3}), y = ones({4, 3});
  const auto id = [](const Tensor& a) { return a; };
  const auto two = [](const Tensor& a, const Tensor& b) { return a + b; };
  EXPECT_NE(message_of([&] { vmap(two)(x, y); }).find("different numbers of examples"), std::string::npos);
  EXPECT_NE(message_of([&] { vmap(id)(tensor(1.0f)); }).find("argument 0 has no axis 0"), std::string::npos);
  EXPECT_NE(message_of([&] { vmap(id, {.in_axes = {std::nullopt}})(x); }).find("no argument is mapped"),
            std::string::npos);
  EXPECT_NE(message_of([&] { vmap(id)(zeros({0, 2})); }).find("no examples"), std::string::npos);
  EXPECT_NE(message_of([&] { vmap(id, {.out_axis = 5})(x); }).find("no axis 5"), std::string::npos);
  EXPECT_NE(message_of([&] {
              vmap([](const Tensor& a) { return a * static_cast<double>(sum(a).item<float>()); })(x);
            }).find("given to vmap"),
            std::string::npos);
  Variable state(zeros({3}), "state");
  EXPECT_NE(message_of([&] {
              vmap([&](const Tensor& a) {
                state.assign(a);
                return a;
              })(x);
            }).find("assigns a value of one example to the Variable \"state\""),
            std::string::npos);
  expect_near(state.value(), {0, 0, 0});
}

// ---- Products with Jacobians ------------------------------------------------------------------------------------------------

TEST(Jvp, EveryRowAgreesWithTheGradient) {
  std::size_t count = 0;
  for (const graph::OpRow* row : graph::op_rows()) {
    if (is_left_out(*row) || !row->differentiable || row->cases.empty()) continue;
    const graph::OpCase& one = row->cases[0];
    if (!one.compares_gradients || !runtime::takes(*row, one.inputs, DType::f64)) continue;
    const graph::Tensors inputs = runtime::case_inputs(one.inputs, DType::f64);
    std::vector<Tensor> real, along;
    for (const Tensor& x : inputs)
      if (x.defined() && is_float(x.dtype())) {
        real.push_back(x);
        along.push_back(runtime::tensor_of(runtime::random_numbers(x.numel(), -1, 1, 31), x.shape(), x.dtype()));
      }
    if (real.empty()) continue;
    SCOPED_TRACE(row->name);
    const TensorFunction f = [&](std::span<const Tensor> in) {
      graph::Tensors all = inputs;
      std::size_t next = 0;
      for (Tensor& x : all)
        if (x.defined() && is_float(x.dtype())) x = in[next++];
      return std::vector<Tensor>{graph::apply(*row, all, one.attributes)[0]};
    };
    try {
      const Pushforward forward = jvp(f, real, along);
      if (!is_float(forward.results[0].dtype())) continue;
      const Pullback reverse = vjp(f, real);
      const Tensor& y = forward.results[0];
      const Tensor seed = runtime::tensor_of(runtime::random_numbers(y.numel(), -1, 1, 17), y.shape(), y.dtype());
      const std::vector<Tensor> gradients = reverse.gradients({seed});
      double by_forward = sum(cast(forward.tangents[0] * seed, DType::f64)).item<double>(), by_reverse = 0;
      for (std::size_t i = 0; i < real.size(); ++i)
        by_reverse += sum(cast(gradients[i] * along[i], DType::f64)).item<double>();
      EXPECT_NEAR(by_forward, by_reverse, 1e-8 * (1 + std::abs(by_reverse)));
      ++count;
    } catch (const Error& error) {
      ADD_FAILURE() << error.what();
    }
  }
  EXPECT_GE(count, 150u);
}

TEST(Jvp, OneTensorAndSeveral) {
  const Tensor x = tensor({0.5, -1.0}), v = tensor({1.0, 2.0});
  const auto [y, tangent] = jvp([](const Tensor& a) { return a * a * a; }, x, v);
  expect_near(y, {0.125, -1});
  expect_near(tangent, {0.75, 6});
  const Pushforward two = jvp(
      [](std::span<const Tensor> in) {
        return std::vector<Tensor>{in[0] * in[1], sum(in[1])};
      },
      std::vector<Tensor>{x, v}, std::vector<Tensor>{Tensor(), ones_like(v)});
  expect_near(two.tangents[0], {0.5, -1});
  expect_near(two.tangents[1], {2});
  const auto [z, second] =
      jvp([&](const Tensor& a) { return jvp([](const Tensor& b) { return b * b * b; }, a, v).second; }, x, v);
  expect_near(second, {3, -24});
}

TEST(Jvp, LeavesOnlyTheForwardPass) {
  const Tensor x = ones({100});
  const auto made = jvp([](const Tensor& a) { return sin(a) * a; }, x, ones({100}));
  const std::string plan = explain(made.second);
  EXPECT_NE(plan.find("1 kernels"), std::string::npos) << plan;
}

TEST(Vjp, PullsSeedsBackAndRefusesOthers) {
  const auto [y, pull] = vjp([](const Tensor& a) { return exp(a); }, tensor({0.0, 1.0}));
  expect_near(pull(tensor({2.0, 1.0})), {2, std::exp(1.0)});
  const Pullback made = vjp(
      [](std::span<const Tensor> in) {
        return std::vector<Tensor>{in[0] * 2.0, in[1]};
      },
      std::vector<Tensor>{tensor({1.0}), arange(2)});
  const std::vector<Tensor> gradients = made.gradients({tensor({3.0}), Tensor()});
  expect_near(gradients[0], {6});
  expect_near(gradients[1], {0, 0});
  EXPECT_NE(message_of([&] { made.gradients({tensor({3.0})}); }).find("1 seeds are given for 2 results"),
            std::string::npos);
  EXPECT_NE(message_of([&] { jvp([](const Tensor& a) { return a; }, arange(3), arange(3)); }).find("not a float"),
            std::string::npos);
  EXPECT_NE(message_of([&] { jvp([](const Tensor& a) { return a; }, ones({3}), ones({2})); }).find("shape differs"),
            std::string::npos);
}

// In the inner derivative the outer variable is a constant, although both have the same value.
TEST(Grad, InnerFunctionsDoNotSeeOuterVariables) {
  const Tensor x = tensor(3.0);
  const auto outer = [](const Tensor& a) {
    return a * grad([&](const Tensor& b) { return a * b; })(a);  // a * a
  };
  EXPECT_DOUBLE_EQ(outer(x).item<double>(), 9);
  EXPECT_DOUBLE_EQ(grad(outer)(x).item<double>(), 6);
  EXPECT_DOUBLE_EQ(grad(grad([](const Tensor& a) { return a * a * a; }))(x).item<double>(), 18);
}

// A perceptron: torch.autograd.functional.jacobian and hessian of PyTorch 1.13 on the same numbers.
TEST(Jacobian, OfAPerceptronIsThatOfPyTorch) {
  const Tensor x = tensor({0.1, -0.4, 0.7});
  const Tensor w = tensor({0.2, -0.5, 0.3, 0.8, 0.1, -0.6}, {2, 3}), u = tensor({1.0, -2.0, 0.5, 0.25}, {2, 2});
  const auto f = [&](const Tensor& a) { return matmul(u, tanh(matmul(w, a))); };
  const Tensor rows = jacobian(f, x), columns = jacobian(f, x, true);
  // torch.autograd.functional.jacobian(lambda a: u @ torch.tanh(w @ a), x)
  expect_near(rows,
              {-1.22236634139653, -0.591545976953754, 1.29284634257242, 0.25726012226485, -0.187217576856487,
               -0.00490929843612839},
              1e-12);
  EXPECT_EQ(difference(columns, rows, 1e-12), "");
  const auto g = [&](const Tensor& a) { return sum(f(a) * f(a)); };
  // torch.autograd.functional.hessian(lambda a: (f(a) ** 2).sum(), x)
  const Tensor second = hessian(g, x);
  expect_near(second,
              {1.25538379268793, 1.2855102108593, -1.90889833317878, 1.2855102108593, 0.339829216159921,
               -1.11768160654663, -1.90889833317878, -1.11768160654663, 2.18516173408347},
              1e-12);
  EXPECT_EQ(difference(second, transpose(second), 1e-12), "");
}

TEST(Jacobian, KeepsTheShapesOfBoth) {
  const Tensor x = ones({2, 3}, DType::f64);
  EXPECT_EQ(jacobian([](const Tensor& a) { return sum(a * a, {1}); }, x).shape(), (Shape{2, 2, 3}));
  EXPECT_EQ(jacobian([](const Tensor& a) { return sum(a); }, x).shape(), (Shape{2, 3}));
  EXPECT_EQ(hessian([](const Tensor& a) { return sum(a * a); }, x).shape(), (Shape{2, 3, 2, 3}));
  EXPECT_NE(message_of([&] { hessian([](const Tensor& a) { return a; }, x); }).find("more than one element"),
            std::string::npos);
  EXPECT_NE(message_of([&] { jacobian([](const Tensor& a) { return a; }, arange(2)); }).find("not a float"),
            std::string::npos);
}

// ---- Gradients of the user's own ----------------------------------------------------------------------------------------------

TEST(CustomGradient, ReplacesTheGradientToAnyOrder) {
  const TensorFunction f = custom_gradient(
      [](std::span<const Tensor> in) {
        return std::vector<Tensor>{in[0] * in[0], in[0] + in[1]};
      },
      [](const CustomGradient& g) {
        const Tensor first = g.gradients[0].defined() ? g.gradients[0] * g.inputs[0] * 10.0 : Tensor();
        return std::vector<Tensor>{first, g.gradients[1]};
      });
  const Tensor x = tensor({1.0, 2.0}), y = tensor({5.0, 6.0});
  const auto results = f(std::vector<Tensor>{x, y});
  expect_near(results[0], {1, 4});
  expect_near(results[1], {6, 8});
  const auto gradients = grad(sum(results[0]), {x, y});
  expect_near(gradients[0], {10, 20});
  expect_near(gradients[1], {0, 0});
  expect_near(grad(sum(gradients[0]), x), {10, 10});
  expect_near(grad(sum(results[1]), y), {1, 1});
  EXPECT_EQ(explain(results[0]).find("custom_gradient"), std::string::npos);
  // Over a batch, and inside a compiled function.
  const auto one = [&](const Tensor& v) { return sum(f(std::vector<Tensor>{v, v})[0]); };
  expect_near(vmap(grad(one))(stack({x, y}, 0)), {10, 20, 50, 60});
  expect_near(grad(sum(vmap(one)(stack({x, y}, 0))), x), {10, 20});
  const Tensor both = stack({x, y}, 0);
  expect_near(grad(sum(vmap(one)(both)), both), {10, 20, 50, 60});
  expect_near(compile([&](const Tensor& v) { return grad(one)(v); })(x), {10, 20});
}

TEST(CustomGradient, RefusesGradientsThatDoNotFit) {
  const auto with = [](std::vector<Tensor> gradients) {
    const TensorFunction f =
        custom_gradient([](std::span<const Tensor> in) { return std::vector<Tensor>{in[0] * 2.0}; },
                        [gradients](const CustomGradient&) { return gradients; });
    return message_of([&] {
      const Tensor x = tensor({1.0, 2.0});
      grad(sum(f(std::vector<Tensor>{x})[0]), x);
    });
  };
  EXPECT_NE(with({}).find("0 gradients for 1 inputs"), std::string::npos);
  EXPECT_NE(with({ones({3})}).find("gradient 0 has another shape than its input"), std::string::npos);
}

TEST(Hooks, SeeAndReplaceGradients) {
  Tensor x = tensor({1.0, 2.0});
  const Tensor given = x;
  std::vector<double> seen;
  register_hook(x, [&](const Tensor& g) {
    seen = numbers_of(g);
    return g * 2.0;
  });
  expect_near(grad(sum(x * x), given), {4, 8});
  EXPECT_EQ(seen, (std::vector<double>{2, 4}));

  Variable w(tensor({1.0, 2.0}), "w");
  int calls = 0;
  HookHandle handle = register_hook(w, [&](const Tensor& g) {
    ++calls;
    return clamp(g, -3, 3);
  });
  backward(sum(w.value() * w.value()));
  expect_near(w.grad(), {2, 3});
  backward(sum(w.value() * w.value()));
  expect_near(w.grad(), {4, 6});
  handle.remove();
  w.clear_grad();
  backward(sum(w.value() * w.value()));
  expect_near(w.grad(), {2, 4});
  EXPECT_EQ(calls, 2);
  register_hook(w, [](const Tensor&) { return ones({5}); });
  EXPECT_NE(message_of([&] { backward(sum(w.value())); }).find("a hook of the Variable \"w\" gave [5]"),
            std::string::npos);
  EXPECT_NE(message_of([&] { register_hook(w, {}); }).find("the hook is empty"), std::string::npos);
}

TEST(Hooks, NeedNotCaptureTheirVariable) {
  const auto token = std::make_shared<int>();
  WeakVariable gone, weak, kept;
  HookHandle handle;
  {
    Variable w(tensor({1.0, 2.0}), "w"), v(tensor({3.0}), "v"), captured(tensor({1.0}));
    gone = w, weak = v, kept = captured;
    EXPECT_EQ(gone.lock(), w);
    register_hook(w, [token](const Variable& of, const Tensor& g) { return g + 10.0 * of; });
    register_hook(w, [](const Tensor& of, const Tensor& g) { return g * of; });  // as a tensor
    register_hook(v, [weak](const Tensor& g) { return g * weak.lock(); });
    handle = register_hook(captured, [captured](const Tensor& g) { return g * captured; });
    backward(sum(w.value()) + sum(v.value()));
    expect_near(w.grad(), {11, 42});
    expect_near(v.grad(), {3});
    EXPECT_NE(message_of([&] { register_hook(w, VariableHook()); }).find("the hook is empty"), std::string::npos);
  }
  EXPECT_TRUE(gone.expired());
  EXPECT_FALSE(gone.lock().defined());
  EXPECT_TRUE(weak.expired());
  EXPECT_FALSE(kept.expired());  // a cycle, as of two shared_ptr
  handle.remove();
  EXPECT_TRUE(kept.expired());
  register_hook(Variable(tensor({1.0})),
                [](const Tensor& g) { return g; });  // clears what Variables that are gone left
  EXPECT_EQ(token.use_count(), 1);
  EXPECT_TRUE(WeakVariable().expired());
}

TEST(Hooks, OfTensorsGetTheTensor) {
  const auto scaled = [](const Tensor& x) {
    return sum(square(with_gradient_hook(x, [](const Tensor& at, const Tensor& g) { return g * at; })));
  };
  const Tensor x = tensor({1.0, 3.0});
  expect_near(grad(scaled(x), x), {2, 18});
  expect_near(grad(sum(grad(scaled(x), x)), x), {4, 24});  // 2 x, and 2 x x through the hook again
  expect_near(compile([&](Tensor at) { return grad(scaled(at), at); })(x), {2, 18});
  const Tensor rows = tensor({{1.0, 2.0}, {3.0, 4.0}});
  const auto gradient = [&](const Tensor& row) { return grad(scaled(row), row); };
  expect_near(vmap(gradient)(rows), {2, 8, 18, 32});
  const auto token = std::make_shared<int>();
  {
    Tensor hooked = x;
    register_hook(hooked, [token](const Tensor& at, const Tensor&) { return at * 0.0; });
    expect_near(grad(sum(hooked * hooked), x), {0, 0});
    EXPECT_GT(token.use_count(), 1);
  }
  EXPECT_EQ(token.use_count(), 1);
  Tensor empty = x;
  EXPECT_NE(message_of([&] { register_hook(empty, ValueHook()); }).find("the hook is empty"), std::string::npos);
}

TEST(EnableGrad, RecordsWithinNoGrad) {
  const Tensor x = tensor({2.0});
  const NoGrad off;
  expect_near(grad(sum(x * x), x), {0});
  {
    const EnableGrad on;
    EXPECT_TRUE(grad_enabled());
    expect_near(grad(sum(x * x), x), {4});
  }
  EXPECT_FALSE(grad_enabled());
}

TEST(InPlace, NamesRebindTheHandle) {
  Tensor x = tensor({-1.0f, 4.0f});
  const Tensor before = x;
  expect_near(sqrt_(relu_(x)), {0, 2});
  expect_near(before, {-1, 4});
  expect_near(add_(x, 1.0), {1, 3});
  expect_near(mul_(x, x), {1, 9});
  expect_near(clamp_(x, 2, 5), {2, 5});
  expect_near(copy_(x, tensor(7.0)), {7, 7});
  expect_near(zero_(x), {0, 0});
  Variable w(tensor({1.0f, 2.0f}));
  exp_(fill_(w, 0));
  expect_near(w.value(), {1, 1});
  EXPECT_NE(message_of([&] { add_(x, ones({3, 2})); }).find("another shape"), std::string::npos);
  Tensor i = arange(3);
  EXPECT_NE(message_of([&] { sin_(i); }).find("another dtype"), std::string::npos);
}

// ---- gradcheck ------------------------------------------------------------------------------------------------------------------

TEST(Gradcheck, AgreesAndFindsWrongGradients) {
  const Tensor x = tensor({0.3, -0.8, 1.2}), y = tensor({1.0, 2.0, 0.5});
  const TensorFunction right = [](std::span<const Tensor> in) {
    return std::vector<Tensor>{in[0] * exp(in[1]), sum(sin(in[0])), arange(2)};
  };
  const GradcheckReport report = gradcheck(right, {x, y}, {.second_order = true});
  EXPECT_TRUE(report) << report.message;
  EXPECT_LT(report.worst, 1e-4);
  const TensorFunction wrong =
      custom_gradient([](std::span<const Tensor> in) { return std::vector<Tensor>{in[0] * in[0]}; },
                      [](const CustomGradient& g) { return std::vector<Tensor>{g.gradients[0] * g.inputs[0] * 1.5}; });
  const GradcheckReport found = gradcheck(wrong, {x});
  EXPECT_FALSE(found);
  EXPECT_NE(found.message.find("result 0, element [0], with respect to input 0, element [0]: 0.6"), std::string::npos)
      << found.message;
  // Right to first order only.
  const TensorFunction bent = custom_gradient(
      [](std::span<const Tensor> in) { return std::vector<Tensor>{in[0] * in[0]}; },
      [](const CustomGradient& g) { return std::vector<Tensor>{g.gradients[0] * detach(g.inputs[0]) * 2.0}; });
  EXPECT_TRUE(gradcheck(bent, {x}, {.forward = true}));
  const GradcheckReport second = gradcheck(bent, {x}, {.second_order = true});
  EXPECT_NE(second.message.find("second order"), std::string::npos) << second.message;
  EXPECT_NE(message_of([&] {
              gradcheck(right, {cast(x, DType::f32), cast(y, DType::f32)});
            }).find("no input is f64"),
            std::string::npos);
}

// ---- Anomalies --------------------------------------------------------------------------------------------------------------------

int line_of_the_log = 0;
Tensor log_of_difference(const Tensor& a) {
  line_of_the_log = __LINE__ + 1;
  return log(a - 1.0);
}

TEST(Anomaly, NamesTheOpAndTheLineOfTheFirstNan) {
  const Tensor x = tensor({2.0f, 0.5f});
  EXPECT_TRUE(std::isnan(numbers_of(log_of_difference(x) * 2.0)[1]));
  const DetectAnomaly on;
  const std::string message = message_of([&] { numbers_of(exp(log_of_difference(x * 1.0)) * 2.0); });
  EXPECT_NE(message.find("log: made the first NaN, element 1"), std::string::npos) << message;
  EXPECT_NE(message.find(fmt::format("transforms_test.cpp:{}", line_of_the_log)), std::string::npos) << message;
  expect_near(sqrt(x * 2.0), {2, 1});  // nothing is wrong here
  const std::string given = message_of([&] { numbers_of(tensor({std::nanf("")}) + 1.0); });
  EXPECT_NE(given.find("a given value has a NaN"), std::string::npos) << given;
}

TEST(Anomaly, InAGradientGivesTheLineOfTheForwardOp) {
  const DetectAnomaly on;
  const Tensor x = tensor({0.0f, 1.0f});
  const int line = __LINE__ + 1;
  const Tensor y = sqrt(x);
  const Tensor g = grad(sum(y * zeros_like(y)), x);  // 0 / 0
  const std::string message = message_of([&] { numbers_of(g); });
  EXPECT_NE(message.find("part of a gradient"), std::string::npos) << message;
  EXPECT_NE(message.find(fmt::format("transforms_test.cpp:{}", line)), std::string::npos) << message;
}

TEST(Anomaly, InsideACompiledFunction) {
  auto f = compile([](const Tensor& a) { return sum(log_of_difference(a)); });
  const Tensor x = tensor({2.0f, 0.5f});
  EXPECT_TRUE(std::isnan(f(x).item<float>()));
  const DetectAnomaly on;
  EXPECT_NE(message_of([&] { f(x); }).find("log: made the first NaN"), std::string::npos);
  expect_near(f(tensor({2.0f, 3.0f})), {std::log(2.0)});
}

}  // namespace
}  // namespace weft::test
