// Small programs as users write them: what a PyTorch user tries first, each in a few lines.
#include <gtest/gtest.h>

#include <filesystem>

#include "base/temporary_folder.hpp"
#include "weft/io.hpp"
#include "weft/weft.hpp"

namespace weft {
namespace {

float share_right(const Tensor& logits, const Tensor& labels) {
  return mean(cast(eq(argmax(logits, -1), labels), DType::f32)).item<float>();
}

TEST(Programs, LogisticRegressionStepByStep) {
  manual_seed(1);
  const Tensor x = randn({200, 3}), y = cast(x[{kAll, 0}] + 2.0 * x[{kAll, 1}] > 0.3, DType::f32);
  Variable w(zeros({3})), b(zeros({}));
  Tensor total = tensor(0.0f);
  for (int i = 0; i < 300; ++i) {
    const Tensor loss = nn::binary_cross_entropy(matmul(x, w) + b, y);
    backward(loss);
    w -= 1.0 * w.grad();
    b -= 1.0 * b.grad();
    w.clear_grad(), b.clear_grad();
    total += detach(loss);
  }
  EXPECT_LT(total.item<float>(), 300 * 0.4);
  EXPECT_GT(mean(cast(eq(matmul(x, w) + b > 0.0, y > 0.5), DType::f32)).item<float>(), 0.97f);
}

TEST(Programs, APerceptronOnDigitsFromAnNpzFile) {
  manual_seed(2);
  const test::TemporaryFolder folder;
  const Tensor digits = remainder(arange(640), 10), prototypes = randn({10, 64});
  save_npz(folder / "digits.npz",
           {{"images", prototypes[digits] + 0.5 * randn({640, 64})}, {"labels", cast(digits, DType::i64)}});

  auto data = load_npz(folder / "digits.npz");
  const Tensor images = data.at("images"), labels = cast(data.at("labels"), DType::i32), order = randperm(640);
  nn::Sequential net;
  net.emplace<nn::Linear>(64, 32).then([](const Tensor& h) { return relu(h); }).emplace<nn::Linear>(32, 10);
  optim::AdamW optimizer(net, {.learning_rate = 0.01});
  auto step = compile([&](Tensor x, Tensor y) {
    const Tensor loss = nn::cross_entropy(net(x), y);
    optimizer.step(grad(loss, optimizer.parameters()));
    return loss;
  });
  for (int i = 0; i < 60; ++i) {
    const Tensor rows = order[Slice{i % 10 * 64, i % 10 * 64 + 64}];
    step(images[rows], labels[rows]);
  }
  EXPECT_GT(share_right(net(images), labels), 0.97f);
}

TEST(Programs, AConvolutionalNetworkTellsBarsApart) {
  struct Net : nn::Module {
    nn::Child<nn::Conv2d> convolution{this, "convolution", 1, 8, 3, nn::ConvOptions{{.padding = 1}}};
    nn::Child<nn::BatchNorm> norm{this, "norm", 8};
    nn::Child<nn::Linear> output{this, "output", 8 * 16, 2};
    Tensor operator()(const Tensor& x) const { return output(flatten(max_pool2d(relu(norm(convolution(x))), {2}), 1)); }
  };
  manual_seed(3);
  const Tensor bars = stack({pad(ones({8, 1}), {{0, 0}, {3, 4}}), pad(ones({1, 8}), {{3, 4}, {0, 0}})}, 0);
  const Tensor labels = remainder(arange(64), 2), x = unsqueeze(bars[labels], 1) + 0.3 * randn({64, 1, 8, 8});
  Net net;
  optim::SGD optimizer(net, {.learning_rate = 0.05, .momentum = 0.9});
  auto step = compile([&](Tensor images, Tensor wanted) {
    const Tensor loss = nn::cross_entropy(net(images), wanted);
    optimizer.step(grad(loss, optimizer.parameters()));
    return loss;
  });
  for (int i = 0; i < 30; ++i) step(x, labels);
  net.eval();
  EXPECT_EQ(share_right(net(x), labels), 1.0f);
}

TEST(Programs, AGruRemembersTheFirstStep) {
  manual_seed(4);
  nn::GRU gru(1, 16);
  nn::Linear output(16, 2);
  std::vector<Variable> parameters = gru.parameters();
  for (const Variable& v : output.parameters()) parameters.push_back(v);
  optim::AdamW optimizer(parameters, {.learning_rate = 0.02});
  const Tensor x = randn({12, 64, 1}), labels = cast(reshape(x[0], {64}) > 0.0, DType::i32);
  const auto logits = [&](const Tensor& sequence) { return output(gru(sequence).output[-1]); };
  auto step = compile([&](Tensor sequence, Tensor wanted) {
    const Tensor loss = nn::cross_entropy(logits(sequence), wanted);
    optimizer.step(grad(loss, optimizer.parameters()));
    return loss;
  });
  for (int i = 0; i < 150; ++i) step(x, labels);
  EXPECT_GT(share_right(logits(x), labels), 0.95f);
}

TEST(Programs, ACriticWithAGradientPenalty) {
  manual_seed(5);
  nn::Sequential critic;
  critic.emplace<nn::Linear>(2, 32).then([](const Tensor& h) { return tanh(h); }).emplace<nn::Linear>(32, 1);
  optim::Adam optimizer(critic, {.learning_rate = 0.01, .beta_1 = 0, .beta_2 = 0.9});
  auto step = compile([&](Tensor real, Tensor fake, Tensor mix) {
    const Tensor between = mix * real + (1.0 - mix) * fake;
    const Tensor slope = sqrt(sum(square(grad(sum(critic(between)), between)), 1) + 1e-12);
    const Tensor penalty = mean(square(slope - 1.0));
    const Tensor loss = mean(critic(fake)) - mean(critic(real)) + 10.0 * penalty;
    optimizer.step(grad(loss, optimizer.parameters()));
    return penalty;
  });
  float penalty = 1;
  for (int i = 0; i < 200; ++i) penalty = step(randn({64, 2}) + 3.0, randn({64, 2}), rand({64, 1})).item<float>();
  EXPECT_LT(penalty, 0.2f);
}

TEST(Programs, QLearningWithBatchesOfEverySize) {
  manual_seed(6);
  nn::Sequential values;
  values.emplace<nn::Linear>(2, 16).then([](const Tensor& h) { return relu(h); }).emplace<nn::Linear>(16, 2);
  optim::AdamW optimizer(values, {.learning_rate = 0.02});
  auto step = compile([&](Tensor states, Tensor actions, Tensor rewards) {
    const Tensor chosen = reshape(take_along_axis(values(states), unsqueeze(actions, 1), 1), rewards.shape());
    const Tensor loss = nn::huber(chosen, rewards);
    optimizer.step(grad(loss, optimizer.parameters()));
    return loss;
  });
  for (int i = 0; i < 240; ++i) {
    const Extent n = 16 + i % 48;
    const Tensor states = randn({n, 2}), actions = randint(0, 2, {n});
    step(states, actions, states[{kAll, 0}] * (2.0 * cast(actions, DType::f32) - 1.0));
  }
  const Tensor states = randn({100, 2});  // the second action pays where the first coordinate is positive
  EXPECT_GT(share_right(values(states), cast(states[{kAll, 0}] > 0.0, DType::i32)), 0.9f);
}

TEST(Programs, AHeadFirstAndThenTheWholeNetwork) {
  manual_seed(7);
  nn::Sequential body;
  body.emplace<nn::Linear>(4, 16).then([](const Tensor& h) { return tanh(h); });
  nn::Linear head(16, 1);
  const Tensor x = randn({128, 4}), y = sum(x * x, 1, {.keepdims = true});
  const auto loss_of = [&] { return nn::mse(head(body(x)), y); };
  const float before = loss_of().item<float>();
  optim::AdamW of_head(head, {.learning_rate = 0.05});
  for (int i = 0; i < 30; ++i) of_head.step(grad(loss_of(), of_head.parameters()));
  const float between = loss_of().item<float>();
  std::vector<Variable> all = head.parameters();
  for (const Variable& v : body.parameters()) all.push_back(v);
  optim::AdamW of_all(all, {.learning_rate = 0.02});
  for (int i = 0; i < 100; ++i) of_all.step(grad(loss_of(), of_all.parameters()));
  EXPECT_LT(between, before);
  EXPECT_LT(loss_of().item<float>(), 0.5f * between);
}

TEST(Programs, NewtonsMethodInF64) {
  Tensor x = tensor(2.0);  // x^4 - 3x^2 + 2 has a minimum at sqrt(1.5)
  for (int i = 0; i < 8; ++i) {
    const Tensor y = pow(x, 4.0) - 3.0 * x * x + 2.0, slope = grad(y, x), curvature = grad(slope, x);
    x = (x - slope / curvature).eval();
  }
  EXPECT_NEAR(x.item<double>(), std::sqrt(1.5), 1e-12);
}

}  // namespace
}  // namespace weft
