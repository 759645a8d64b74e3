// compile: traces, replays, updates in place, and what a traced function may not do.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <functional>

#include "base/message_of.hpp"
#include "graph/node.hpp"
#include "runtime/evaluate.hpp"
#include "weft/anomaly.hpp"
#include "weft/compile.hpp"
#include "weft/custom_op.hpp"
#include "weft/grad.hpp"
#include "weft/ops.hpp"

namespace weft {
namespace {

using test::message_of;

using Floats = std::vector<float>;

TEST(Compiled, ReplaysWithNewArguments) {
  int traced = 0;
  auto f = compile([&](Tensor x, Tensor y) {
    ++traced;
    return elementwise("tanh", {x}) * 2.0 + y;
  });
  const Tensor y = tensor<float>({1, 2, 3});
  for (int i = 0; i < 4; ++i) {
    const float v = 0.25f * static_cast<float>(i);
    const Tensor x = tensor<float>({v, v, v});
    const Floats expected = (elementwise("tanh", {x}) * 2.0 + y).to_vector<float>();
    EXPECT_EQ(f(x, y).to_vector<float>(), expected);
    EXPECT_EQ(f(full({3}, v), y).to_vector<float>(), expected);
    EXPECT_EQ(f(x + 0.0, y).to_vector<float>(), expected);
  }
  EXPECT_EQ(traced, 1);
  EXPECT_EQ(f.compiled().trace_count(), 1u);
  EXPECT_EQ(f.compiled().kernel_count(), 1u);
}

TEST(Compiled, TracesAgainForNewShapesAndKeepsAsManyAsEagerPlans) {
  const compiler::Settings defaults;
  compile_settings().fusion = false;  // quicker to compile
  Compiled f([](std::span<const Tensor> x) { return std::vector<Tensor>{x[0] + 1.0}; });
  auto call = [&](Extent n) { return f(std::vector<Tensor>{ones({n})})[0].numel(); };
  for (Extent n = 1; n <= 256; ++n) EXPECT_EQ(call(n), n);
  for (Extent n = 1; n <= 256; ++n) EXPECT_EQ(call(n), n);
  EXPECT_EQ(f.trace_count(), 256u);
  EXPECT_EQ(call(257), 257);
  EXPECT_EQ(f.trace_count(), 257u);
  EXPECT_EQ(call(1), 1);  // the one not used for longest was dropped
  EXPECT_EQ(f.trace_count(), 258u);
  EXPECT_EQ(call(257), 257);
  EXPECT_EQ(f.trace_count(), 258u);
  EXPECT_EQ(f(std::vector<Tensor>{ones({2}, DType::f64)})[0].dtype(), DType::f64);
  EXPECT_EQ(f.trace_count(), 259u);
  compile_settings().fusion = defaults.fusion;
}

TEST(Compiled, GivesWhatTheFunctionGives) {
  auto pair = compile([](const Tensor& x) { return std::pair(x + 1.0, sum(x)); });
  const auto [more, total] = pair(tensor<float>({1, 2}));
  EXPECT_EQ(more.to_vector<float>(), (Floats{2, 3}));
  EXPECT_EQ(total.item<float>(), 3);
  auto three = compile([](const Tensor& x, const Tensor& y) { return std::tuple(x * y, x - y, x + y); });
  EXPECT_EQ(std::get<2>(three(full({}, 2), full({}, 5))).item<float>(), 7);
  auto list = compile([](const Tensor& x) { return std::vector<Tensor>{x, x * 2.0, x * 3.0}; });
  EXPECT_EQ(list(full({}, 2)).at(2).item<float>(), 6);
  auto array = compile([](const Tensor& x) { return std::array<Tensor, 2>{x, x * 2.0}; });
  EXPECT_EQ(array(full({}, 2))[1].item<float>(), 4);
  Variable count(full({}, 0), "count", false);
  auto nothing = compile([&](const Tensor& by) { count.assign(count.value() + by); });
  nothing(full({}, 3));
  nothing(full({}, 4));
  EXPECT_EQ(count.value().item<float>(), 7);
  auto variable = compile([&](const Tensor&) { return count; });
  EXPECT_EQ(variable(full({}, 3)).item<float>(), 7);
}

TEST(Compiled, MayBeAMember) {
  struct Model {
    Variable w{tensor<float>({2}), "w"};
    std::function<Tensor(const Tensor&)> forward = compile([this](const Tensor& x) { return sum(x * w.value()); });
  };
  Model model;
  EXPECT_EQ(model.forward(tensor<float>({1, 2})).item<float>(), 6);
  model.w.assign(tensor<float>({3}));
  EXPECT_EQ(model.forward(tensor<float>({1, 2})).item<float>(), 9);
  auto first = compile([](const Tensor& x) { return x * 2.0; });
  first(full({}, 1));
  auto moved = std::move(first);  // with the trace
  EXPECT_EQ(moved(full({}, 4)).item<float>(), 8);
  EXPECT_EQ(moved.compiled().trace_count(), 1u);
}

TEST(Compiled, GradientsStayWhereTheyAreWhileOthersAreRead) {
  std::vector<Variable> many;
  for (int i = 0; i < 40; ++i) many.emplace_back(full({}, i), "v");
  auto f = compile([&](const Tensor& x) {
    backward(many[0].value() * x);
    const Tensor& gradient = many[0].grad();
    Tensor total = x;
    for (Variable& v : many) total = total + v.value();
    return total + gradient;
  });
  EXPECT_EQ(f(full({}, 2)).item<float>(), 780 + 4);
}

TEST(Compiled, LeavesGradientsAndAssignmentsInTheTrace) {
  Variable w(tensor<float>({2}), "w");
  w.set_grad(tensor<float>({5}));
  auto step = compile([&](const Tensor& x) {
    w.clear_grad();
    backward(sum(w.value() * x));
    w.assign(w.value() - w.grad());
    return w.value() * 1.0;
  });
  EXPECT_EQ(step(tensor<float>({3})).item<float>(), -1);
  EXPECT_EQ(w.grad().item<float>(), 5);
  EXPECT_EQ(w.value().item<float>(), -1);
  EXPECT_EQ(step(tensor<float>({3})).item<float>(), -4);
}

TEST(Compiled, NumbersAsArgumentsNeverCompileAgain) {
  Variable w(tensor<float>({1, 1}), "w");
  auto step = compile([&](Tensor x, Tensor rate) {
    const Tensor loss = sum(w.value() * x);
    w.assign(w.value() - grad(loss, w.value()) * rate);
    return loss;
  });
  const Tensor x = tensor<float>({1, 2});
  step(x, full({}, 0.5));
  const std::size_t plans = runtime::compiled_plan_count();
  for (int i = 1; i < 20; ++i) step(x, full({}, 0.5 / i));
  EXPECT_EQ(step.compiled().trace_count(), 1u);
  EXPECT_EQ(runtime::compiled_plan_count(), plans);
  float expected = 1;
  for (int i = 1; i < 20; ++i) expected -= static_cast<float>(0.5 / i);
  EXPECT_NEAR(w.value().to_vector<float>()[0], expected - 0.5f, 1e-4);
}

TEST(Compiled, UpdatesStateInPlaceAndLeavesHeldValuesAlone) {
  Variable v(tensor<float>({1, 2}), "v");
  auto step = compile([&](Tensor x) {
    v.assign(v.value() + x);
    return sum(v.value());
  });
  const Tensor one = tensor<float>({1, 1});
  EXPECT_EQ(step(one).item<float>(), 5);
  EXPECT_NE(step.compiled().explain().find("0.000 MB scratch"), std::string::npos) << step.compiled().explain();
  const Tensor held = v.value();
  const Tensor lazy = held * 10.0;
  EXPECT_EQ(step(one).item<float>(), 7);
  EXPECT_EQ(held.to_vector<float>(), (Floats{2, 3}));
  EXPECT_EQ(lazy.to_vector<float>(), (Floats{20, 30}));
  EXPECT_EQ(v.value().to_vector<float>(), (Floats{3, 4}));
  // The old value as an argument of the step that overwrites it.
  EXPECT_EQ(step(v.value()).item<float>(), 14);
  EXPECT_EQ(v.value().to_vector<float>(), (Floats{6, 8}));
  EXPECT_EQ(held.to_vector<float>(), (Floats{2, 3}));
  // Updates from outside of the function are seen by it.
  v.assign(zeros({2}));
  EXPECT_EQ(step(one).item<float>(), 2);
}

TEST(Compiled, ResultsThatAreStateStayWhatTheyWere) {
  Variable v(tensor<float>({1}), "v");
  Compiled step([&](std::span<const Tensor> x) {
    const Tensor before = v.value();
    v.assign(before * 2.0);
    return std::vector<Tensor>{before, v.value(), v.value(), x[0]};
  });
  const Tensor argument = tensor<float>({7});
  const auto first = step(std::vector<Tensor>{argument});
  const auto second = step(std::vector<Tensor>{argument});
  EXPECT_EQ(first[0].item<float>(), 1);
  EXPECT_EQ(first[1].item<float>(), 2);
  EXPECT_EQ(first[2].item<float>(), 2);
  EXPECT_EQ(first[3].item<float>(), 7);
  EXPECT_EQ(second[0].item<float>(), 2);
  EXPECT_EQ(second[1].item<float>(), 4);
  EXPECT_EQ(v.value().item<float>(), 4);
}

TEST(Compiled, StateThatIsExchanged) {
  Variable a(tensor<float>({1, 2}), "a"), b(tensor<float>({3, 4}), "b");
  Compiled exchange([&](std::span<const Tensor>) {
    const Tensor old = a.value();
    a.assign(b.value());
    b.assign(old);
    return std::vector<Tensor>{};
  });
  for (int i = 0; i < 3; ++i) exchange({});
  EXPECT_EQ(a.value().to_vector<float>(), (Floats{3, 4}));
  EXPECT_EQ(b.value().to_vector<float>(), (Floats{1, 2}));
  Compiled same([&](std::span<const Tensor>) {
    a.assign(b.value() * 2.0);
    b.assign(a.value());
    return std::vector<Tensor>{};
  });
  same({});
  same({});
  EXPECT_EQ(a.value().to_vector<float>(), (Floats{4, 8}));
  EXPECT_EQ(b.value().to_vector<float>(), (Floats{4, 8}));
  a.assign(a.value() + 1.0);
  EXPECT_EQ(b.value().to_vector<float>(), (Floats{4, 8}));
}

TEST(Compiled, AnErrorInTheFunctionLeavesVariablesAsTheyWere) {
  Variable v(tensor<float>({1, 2}), "v");
  bool fails = true;
  auto step = compile([&](Tensor x) {
    v.assign(v.value() + x);
    backward(sum(v.value() * x));
    if (fails) return matmul(x, ones({5, 5}));
    return sum(v.value());
  });
  const Tensor x = tensor<float>({1, 1});
  EXPECT_THROW(step(x), ShapeError);
  EXPECT_TRUE(graph::pending_cells().empty());
  EXPECT_FALSE(v.grad().defined());
  EXPECT_EQ(v.value().to_vector<float>(), (Floats{1, 2}));
  fails = false;
  EXPECT_EQ(step(x).item<float>(), 5);
  EXPECT_FALSE(v.grad().defined());  // made of arguments: it means nothing outside
}

TEST(Compiled, CompiledFunctionsInsideOfOthersArePartOfThem) {
  Variable count(full({}, 0), "count", false);
  auto inner = compile([&](Tensor x) {
    count.assign(count.value() + 1.0);
    return x * x;
  });
  auto outer = compile([&](Tensor x) { return inner(x) + inner(x * 2.0); });
  EXPECT_EQ(outer(tensor<float>({3})).item<float>(), 45);
  EXPECT_EQ(outer(tensor<float>({1})).item<float>(), 5);
  EXPECT_EQ(count.value().item<float>(), 4);
  EXPECT_EQ(inner(tensor<float>({4})).item<float>(), 16);
  EXPECT_EQ(count.value().item<float>(), 5);
}

TEST(Compiled, ValuesCannotBeAskedForInside) {
  auto f = compile([](Tensor x) { return x * static_cast<double>(sum(x).item<float>()); });
  const Tensor x = tensor<float>({1, 2});
  EXPECT_NE(message_of<UsageError>([&] { f(x); }).find("asked for inside a function that is being compiled"),
            std::string::npos);
  Tensor leaked;
  auto g = compile([&](Tensor t) {
    leaked = t * 2.0;
    return leaked + 1.0;
  });
  EXPECT_EQ(g(x).to_vector<float>(), (Floats{3, 5}));
  EXPECT_NE(message_of<UsageError>([&] {
              leaked.to_vector<float>();
            }).find("depends on an argument of a function that was compiled"),
            std::string::npos);
  Variable inside;
  auto h = compile([&](Tensor t) {
    inside = Variable(t * 2.0, "inside");
    return inside.value();
  });
  EXPECT_NE(message_of<UsageError>([&] { h(x); }).find("variable \"inside\" was made inside the function"),
            std::string::npos);
  auto nothing = compile([](Tensor) { return Tensor(); });
  EXPECT_NE(message_of<UsageError>([&] { nothing(x); }).find("gave a tensor without a value"), std::string::npos);
  EXPECT_THROW(nothing.compiled().explain(), UsageError);
  auto unused = compile([](Tensor t) { return t; });
  EXPECT_NE(message_of<UsageError>([&] { unused.compiled(); }).find("call the function once"), std::string::npos);
  EXPECT_NE(message_of<UsageError>([&] { unused(Tensor()); }).find("used before it was given a value"),
            std::string::npos);
}

TEST(Compiled, ResultsThatDoNotDependOnArguments) {
  const Tensor held = tensor<float>({5, 6});
  Compiled f([&](std::span<const Tensor>) { return std::vector<Tensor>{held, full({2}, 3), held * 2.0, zeros({0})}; });
  const auto results = f(std::vector<Tensor>{tensor<float>({1})});
  EXPECT_EQ(results[0].to_vector<float>(), (Floats{5, 6}));
  EXPECT_EQ(results[1].to_vector<float>(), (Floats{3, 3}));
  EXPECT_EQ(results[2].to_vector<float>(), (Floats{10, 12}));
  EXPECT_TRUE(results[3].to_vector<float>().empty());
}

TEST(Compiled, EmptyArgumentsAndProfiles) {
  auto f = compile([](Tensor x) { return sum(x, {0}) + 1.0; });
  EXPECT_EQ(f(zeros({0, 2})).to_vector<float>(), (Floats{1, 1}));
  const std::vector<Tensor> arguments{ones({64, 2}) + 0.0};
  EXPECT_FALSE(f.compiled().profile(arguments).empty());
  EXPECT_EQ(f(arguments[0]).to_vector<float>(), (Floats{65, 65}));
}

TEST(Plans, AreKeptByStructure) {
  auto value = [](const Floats& values) { return tensor<float>(values); };
  auto compute = [](const Tensor& x, const Tensor& y) {
    return sum(elementwise("exp", {x * y}) + x, {0}).item<float>();
  };
  compute(value({1, 2}), value({3, 4}));
  const std::size_t plans = runtime::compiled_plan_count();
  for (int i = 0; i < 5; ++i) compute(value({1, static_cast<float>(i)}), value({3, 4}));
  EXPECT_EQ(runtime::compiled_plan_count(), plans);
  compute(value({1, 2, 3}), value({3, 4, 5}));
  EXPECT_EQ(runtime::compiled_plan_count(), plans + 1);
  const Tensor x = value({1, 2});
  EXPECT_NE(compute(x, x), compute(x, value({2, 1})));  // one leaf twice is another structure than two leaves
  EXPECT_EQ(runtime::compiled_plan_count(), plans + 2);
}

// The same nodes may be asked for in different ways: what is a step on the way here is a result there.
TEST(Plans, TellWhichNodesAreAskedFor) {
  const auto results_of = [](const std::vector<bool>& wanted) {
    const Tensor x = tensor<float>({1, 2, 3});
    const Tensor a = elementwise("exp2", {x}), b = a * 3.0;
    std::vector<Tensor> asked;
    if (wanted[0]) asked.push_back(a);
    if (wanted[1]) asked.push_back(b);
    eval(asked);
    return std::pair(wanted[0] ? a.to_vector<float>() : Floats{}, wanted[1] ? b.to_vector<float>() : Floats{});
  };
  const Floats a{2, 4, 8}, b{6, 12, 24};
  EXPECT_EQ(results_of({true, true}), std::pair(a, b));
  EXPECT_EQ(results_of({false, true}), std::pair(Floats{}, b));
  EXPECT_EQ(results_of({true, false}), std::pair(a, Floats{}));
  EXPECT_EQ(results_of({true, true}), std::pair(a, b));
}

TEST(Plans, TellShapesApart) {
  const Tensor x = tensor({0.0f, 1.0f, 2.0f, 3.0f, 4.0f, 5.0f});
  EXPECT_EQ(sum(reshape(x, {2, 3}), 0).to_vector<float>(), (std::vector<float>{3, 5, 7}));
  EXPECT_EQ(sum(reshape(x, {3, 2}), 0).to_vector<float>(), (std::vector<float>{6, 9}));
  EXPECT_EQ(sum(expand(x, {4, 6})).item<float>(), 60);
  EXPECT_EQ(sum(expand(x, {2, 6})).item<float>(), 30);
}

TEST(Compiled, MayCallItself) {
  std::function<Tensor(const Tensor&)> sums;  // of neighbours, until one element is left
  int calls = 0;
  auto compiled = compile([&](const Tensor& x) {
    ++calls;
    return x.dim(0) == 1 ? x : sums(slice(x, 0, 0, x.dim(0) - 1) + slice(x, 0, 1, x.dim(0)));
  });
  sums = compiled;
  for (int twice = 0; twice < 2; ++twice)
    EXPECT_EQ(compiled(tensor({1.0f, 2.0f, 3.0f, 4.0f}, {4})).to_vector<float>(), std::vector<float>{20});
  EXPECT_EQ(calls, 4) << "one trace of four calls";
  const DetectAnomaly op_by_op;
  EXPECT_EQ(compiled(tensor({1.0f, 2.0f, 3.0f}, {3})).to_vector<float>(), std::vector<float>{8});
}

TEST(Compiled, RefusesToCallItselfWithoutEnd) {
  std::function<Tensor(const Tensor&)> again, other;
  again = compile([&](const Tensor& x) { return again(x + 1.0f); });
  for (int twice = 0; twice < 2; ++twice)
    EXPECT_NE(message_of<UsageError>([&] { again(ones({2})); }).find("call themselves or each other 200 deep"),
              std::string::npos);
  again = compile([&](const Tensor& x) { return other(x); });
  other = compile([&](const Tensor& x) { return again(x); });
  EXPECT_NE(message_of<UsageError>([&] { other(ones({2})); }).find("200 deep"), std::string::npos);
  again = compile([](const Tensor& x) { return x + 1.0f; });
  EXPECT_EQ(other(ones({1})).item<float>(), 2) << "what was refused leaves nothing behind";
}

TEST(Plans, AreCompiledAgainWhereRewritesAreOff) {
  const auto compute = [] { return (tensor<float>({1, 2, 3}) * 1.0 + 2.0).to_vector<float>(); };
  const Floats wanted = compute();
  const std::size_t plans = runtime::compiled_plan_count();
  compile_settings().disabled_rewrites = {"fold_constants"};
  EXPECT_EQ(compute(), wanted);
  EXPECT_EQ(runtime::compiled_plan_count(), plans + 1);
  compile_settings().disabled_rewrites = {"fold_constants", "identity_map"};
  EXPECT_EQ(compute(), wanted);
  EXPECT_EQ(runtime::compiled_plan_count(), plans + 2);
  compile_settings().disabled_rewrites.clear();
  EXPECT_EQ(compute(), wanted);
  EXPECT_EQ(runtime::compiled_plan_count(), plans + 2);
}

TEST(Plans, FollowTheSettings) {
  const Tensor x = tensor<float>({1, 2, 3, 4}, {2, 2});
  auto kernels = [&] {
    const std::string text = explain(softmax(x * 2.0 + 1.0, 1));
    return std::atoi(text.substr(text.rfind('\n', text.size() - 2) + 1).c_str());
  };
  const int fused = kernels();
  compile_settings().fusion = false;
  const int apart = kernels();
  compile_settings().fusion = true;
  EXPECT_EQ(fused, 1);
  EXPECT_GT(apart, 3);
  EXPECT_EQ(explain(x), "the value is in memory; nothing would run\n");
}

TEST(Plans, KnowThePrecisionOfProducts) {
  const auto product = [] {
    return matmul(tensor<float>({1, 2, 3, 4}, {2, 2}) * 1.0000001, tensor<float>({5, 6, 7, 8}, {2, 2}));
  };
  const Floats wanted = product().to_vector<float>();
  EXPECT_EQ(explain(product()).find("precision"), std::string::npos);
  const std::size_t plans = runtime::compiled_plan_count();
  for (const ProductPrecision precision : {ProductPrecision::high, ProductPrecision::medium}) {
    compile_settings().products = precision;
    EXPECT_NE(explain(product()).find(std::string(name_of(precision)) + " precision"), std::string::npos);
    EXPECT_EQ(product().to_vector<float>(), wanted) << "the CPU is exact";
  }
  compile_settings().products = ProductPrecision::exact;
  EXPECT_EQ(product().to_vector<float>(), wanted);
  EXPECT_GE(runtime::compiled_plan_count(), plans + 2);
  EXPECT_EQ(product_precision_of("medium"), ProductPrecision::medium);
  EXPECT_EQ(product_precision_of("tf32"), std::nullopt);
}

TEST(CustomOps, WorkWhereTheRowsDo) {
  const CustomOp op =
      register_op({.name = "runtime_test_mish", .inputs = {"x"}, .forward = "x * tanh(log(1 + exp(x)))"});
  const Tensor x = tensor<float>({-1, 0, 2});
  auto expected = [](double v) { return v * std::tanh(std::log1p(std::exp(v))); };
  const Floats y = op(x).to_vector<float>();
  for (std::size_t i = 0; i < 3; ++i) EXPECT_NEAR(y[i], expected(x.to_vector<float>()[i]), 1e-6);
  auto step = compile([&](Tensor t) { return grad(sum(op(t * 2.0) + 1.0), t); });
  const Floats g = step(x).to_vector<float>();
  EXPECT_EQ(step.compiled().kernel_count(), 1u);
  for (std::size_t i = 0; i < 3; ++i) {
    const double v = 2 * x.to_vector<float>()[i], h = 1e-4;
    EXPECT_NEAR(g[i], (expected(v + h) - expected(v - h)) / h, 1e-3);
  }
  const CustomOp scaled = register_op(
      {.name = "runtime_test_scaled", .inputs = {"x", "y"}, .forward = "x + y * scale", .attributes = {{"scale", 2}}});
  EXPECT_EQ(scaled(x, ones({3})).to_vector<float>(), (Floats{1, 2, 4}));
  EXPECT_EQ(scaled.call({x, ones({3})}, {10}).to_vector<float>(), (Floats{9, 10, 12}));
  EXPECT_THROW(register_op({.name = "sin", .inputs = {"x"}, .forward = "x"}), UsageError);
  EXPECT_THROW(register_op({.name = "runtime_test_bad", .inputs = {"x"}, .forward = "x +"}), UsageError);
}

TEST(Compiled, RunsWithoutItsPlan) {
  Compiled doubled([](std::span<const Tensor> a) { return std::vector<Tensor>{sum(a[0] * 2.0)}; });
  const Tensor arguments[] = {tensor<float>({1, 2, 3})};
  {
    const runtime::WithoutPlans lean;
    doubled.prepare(arguments);
  }
  EXPECT_EQ(doubled(arguments)[0].item<float>(), 12);
  EXPECT_EQ(doubled.kernel_count(), 1u);
  EXPECT_EQ(doubled.explain(), "1 kernels, whose plan was not kept\n");
  EXPECT_NE(doubled.explain(true), doubled.explain());
  EXPECT_NE(doubled.profile(arguments).find("all 1 kernels"), std::string::npos);
}

}  // namespace
}  // namespace weft
