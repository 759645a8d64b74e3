// What evaluated values keep of how they were made: nothing, unless a gradient may be wanted.
#include <gtest/gtest.h>

#include "graph/history.hpp"
#include "graph/node.hpp"
#include "weft/grad.hpp"
#include "weft/ops.hpp"
#include "weft/transforms.hpp"

namespace weft {
namespace {

using Floats = std::vector<float>;

template <class F>
std::string message_of_usage_error(const F& f) {
  try {
    f();
  } catch (const UsageError& error) {
    return error.what();
  }
  return "no error";
}

TEST(History, OfALoopIsLetGo) {
  const Tensor x = tensor({1.0f, 2.0f});
  Tensor t = zeros({2});
  std::size_t most = 0;
  for (int i = 0; i < 10'000; ++i) {
    t = (t + x).eval();
    most = std::max(most, graph::live_node_count());
  }
  EXPECT_LT(most, 32u);
  EXPECT_LT(t.node()->past->size_with_pasts(), 16u);
  EXPECT_EQ(t.to_vector<float>(), (Floats{10'000, 20'000}));
}

TEST(History, OfALoopOverNewTensorsAndSeveralStatesIsLetGo) {
  Tensor mean = zeros({4}), square_mean = zeros({4});
  std::size_t most = 0;
  for (int i = 0; i < 1000; ++i) {
    const Tensor batch = tensor(Floats(4, static_cast<float>(i % 2)));
    mean = mean * 0.5 + batch * 0.5;
    square_mean = square_mean * 0.5 + square(batch) * 0.5 + mean * 0.0;
    eval(mean, square_mean);
    most = std::max(most, graph::live_node_count());
  }
  EXPECT_LT(most, 64u);
}

TEST(History, OfAFunctionalTrainingLoopIsLetGo) {
  const Tensor x = tensor({1.0f, 2.0f, 3.0f});
  Tensor w = zeros({3});
  const auto step = value_and_grad([&](const Tensor& w) { return sum(square(w - x)); });
  std::size_t most = 0;
  for (int i = 0; i < 200; ++i) {
    const auto [loss, gradient] = step(w);
    w = (w - 0.25 * gradient).eval();
    most = std::max(most, graph::live_node_count());
  }
  EXPECT_LT(most, 64u);
  EXPECT_EQ(w.to_vector<float>(), (Floats{1, 2, 3}));
}

// Every state is held, so each keeps the living values that it was made from, but not all those of its predecessors.
TEST(History, OfHeldStatesIsShort) {
  const Tensor x = tensor({1.0f});
  std::vector<Tensor> states{zeros({1})};
  for (int i = 0; i < 20'000; ++i) states.push_back((states.back() + x).eval());
  EXPECT_LT(graph::live_node_count(), 20'100u);
  EXPECT_LT(states.back().node()->past->size(), 8u);
  EXPECT_NE(message_of_usage_error([&] { (void)grad(sum(states.back()), states[1]); }).find("let go"),
            std::string::npos);
  states.erase(states.begin() + 1, states.end() - 1);
  states.push_back((states.back() + x).eval());
  EXPECT_NE(message_of_usage_error([&] { (void)grad(sum(states.back()), x); }).find("let go"), std::string::npos);
}

// Values that are only looked at keep their inputs; others that are made of them must not walk all of these each time.
TEST(History, BesideALongOneIsWalkedOnce) {
  const Tensor x = tensor({1.0f});
  Tensor t = zeros({1}), last;
  for (int i = 0; i < 2000; ++i) {
    t = t + x;
    EXPECT_EQ(t.item<float>(), i + 1);
    last = (t * 2.0).eval();
    ASSERT_LT(last.node()->past->size(), 16u);
  }
  EXPECT_EQ(grad(sum(t), x).item<float>(), 2000) << "t has let go of nothing";
  const auto refused = [&] {
    return message_of_usage_error([&] { (void)grad(sum(last), x); }).find("let go") != std::string::npos;
  };
  EXPECT_TRUE(refused());
  t = t.eval();
  EXPECT_LT(graph::live_node_count(), 32u);
  EXPECT_TRUE(refused()) << "through values that are gone";
}

TEST(History, StaysWhereAVariableRequiresAGradient) {
  Variable w(tensor({3.0f}), "w"), frozen(tensor({2.0f}), "frozen", false);
  const Tensor y = (w.value() * frozen.value()).eval();
  const Tensor z = square(y).eval();
  EXPECT_EQ(grad(z, w).to_vector<float>(), Floats{24});
  backward(sum(z));
  EXPECT_EQ(w.grad().to_vector<float>(), Floats{24});
  const std::size_t live = graph::live_node_count();
  {
    const NoGrad none;
    Tensor state = w.value();
    for (int i = 0; i < 100; ++i) state = (state * w.value()).eval();
    EXPECT_LT(graph::live_node_count(), live + 8);
  }
  Tensor state = frozen.value();
  for (int i = 0; i < 100; ++i) state = (state * 0.5 + frozen.value()).eval();
  EXPECT_LT(graph::live_node_count(), live + 8);
  frozen.set_requires_grad(true);
  EXPECT_EQ(grad(square(frozen.value()).eval(), frozen).to_vector<float>(), Floats{4});
}

// A loop may look at its loss, and at gradients, between the gradient and the update. No turn keeps the one before.
TEST(History, OfATrainingLoopThatLooksAtItsLossIsLetGo) {
  for (const bool looks_at_gradients : {false, true}) {
    Variable w(tensor({0.0f, 0.0f}), "w"), unused(zeros({2}), "unused");
    const Tensor x = tensor({1.0f, 2.0f});
    std::size_t most = 0;
    for (int i = 0; i < 200; ++i) {
      const Tensor loss = sum(square(w - x));
      backward(loss);
      EXPECT_GE(loss.item<float>(), 0);
      if (looks_at_gradients) {
        EXPECT_EQ(w.grad().to_vector<float>().size(), 2u);
      }
      w -= 0.25 * w.grad();
      w.clear_grad();
      most = std::max(most, graph::live_node_count());
    }
    EXPECT_LT(most, 64u);
    EXPECT_EQ(w.value().to_vector<float>(), (Floats{1, 2}));
  }
}

TEST(History, StaysForGradientsOfWhatAnUpdateWasMadeOf) {
  Variable w(tensor({3.0f}), "w");
  const Tensor x = tensor({2.0f});
  w.assign(w + 1.0);
  const Tensor loss = square(w * x);  // of a pending value
  EXPECT_EQ(loss.item<float>(), 64);
  const Tensor gradient = grad(loss, w);
  EXPECT_EQ(gradient.item<float>(), 32);
  w.assign(w - gradient);
  EXPECT_EQ(w.value().item<float>(), -28);
  EXPECT_EQ(grad(loss, x).item<float>(), 64) << "the loss keeps what it was made from";
  EXPECT_EQ(grad(gradient, x).item<float>(), 32);
}

TEST(History, StaysWhenElementsAreLookedAt) {
  const Tensor x = tensor({3.0f});
  const Tensor y = square(x), z = square(y);
  EXPECT_EQ(y.item<float>(), 9);
  EXPECT_NE(z.to_string().find("81"), std::string::npos);
  EXPECT_EQ(grad(z, x).to_vector<float>(), Floats{108});
}

TEST(History, GradientsToWhatWasLetGoAreRefused) {
  const Tensor x = tensor({3.0f});
  const Tensor y = square(x).named("y");
  y.eval();
  EXPECT_EQ(y.label(), "y");
  const std::string message = message_of_usage_error([&] { (void)grad(sum(x * y), x); });
  for (const char* part : {"grad: ", "eval", "f32 [1]", "\"y\"", "detach", "KeepHistory", "history_test.cpp"})
    EXPECT_NE(message.find(part), std::string::npos) << message;
  EXPECT_EQ(grad(sum(x * detach(y)), x).to_vector<float>(), Floats{9});
  EXPECT_EQ(grad(sum(x * y), y).to_vector<float>(), Floats{3});
  // Values that have nothing to do with it are not refused.
  const Tensor w = tensor({2.0f});
  EXPECT_EQ(grad(sum(w * y), w).to_vector<float>(), Floats{9});
  const Tensor late = exp(tensor({0.0f}));
  EXPECT_EQ(grad(sum(late * y), late).to_vector<float>(), Floats{9});
}

TEST(History, GradientsToAnEvaluatedValueFindItsEarlierUses) {
  const Tensor x = tensor({3.0f});
  const Tensor y = square(x);
  const Tensor copy = y, early = square(y);
  y.eval();
  EXPECT_EQ(grad(early, y).to_vector<float>(), Floats{18});
  EXPECT_EQ(grad(early, x).to_vector<float>(), Floats{108}) << "early was made before y let go";
  EXPECT_EQ(grad(early + y, copy).to_vector<float>(), Floats{19});
  copy.eval();
  EXPECT_EQ(copy.node(), y.node());
}

TEST(History, StaysWhileAFunctionIsTransformed) {
  const auto f = [](const Tensor& x) { return square(square(x).eval()).eval(); };
  const Tensor x = tensor({2.0f});
  EXPECT_EQ(grad([&](Tensor v) { return sum(f(v)); })(x).to_vector<float>(), Floats{32});
  EXPECT_EQ(jacobian(f, x).to_vector<float>(), Floats{32});
  const Tensor y = [&] {
    const KeepHistory keep;
    return f(x);
  }();
  EXPECT_EQ(grad(y, x).to_vector<float>(), Floats{32});
}

TEST(History, OfIntegersIsLetGo) {
  Tensor t = full({3}, 0, DType::i32);
  for (int i = 0; i < 100; ++i) t = (t + 1).eval();
  EXPECT_LT(graph::live_node_count(), 16u);
  EXPECT_EQ(t.to_vector<std::int32_t>(), (std::vector<std::int32_t>{100, 100, 100}));
}

}  // namespace
}  // namespace weft
