// Updates against scalar references in double.
#include "weft/optim/optimizer.hpp"

#include "base/message_of.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <optional>

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>

#include "graph/node.hpp"
#include "weft/weft.hpp"

namespace weft::optim {
namespace {

constexpr int kSteps = 7;

// Sizes on both sides of the alignment of flat variables, and a scalar.
const Shape kShapes[] = {{8, 8}, {3}, {5, 7}, {64}, {}};

std::vector<float> numbers(Extent count, int seed) {
  std::vector<float> values;
  for (Extent i = 0; i < count; ++i)
    values.push_back(static_cast<float>(std::sin(0.7 * static_cast<double>(i) + seed)));
  return values;
}

std::vector<Variable> make_parameters() {
  std::vector<Variable> list;
  for (std::size_t i = 0; i < std::size(kShapes); ++i)
    list.emplace_back(tensor<float>(numbers(kShapes[i].numel(), static_cast<int>(i)), kShapes[i]),
                      "p" + std::to_string(i));
  return list;
}

std::vector<Tensor> gradients_of_step(int step, double scale = 1) {
  std::vector<Tensor> list;
  for (std::size_t i = 0; i < std::size(kShapes); ++i) {
    std::vector<float> values = numbers(kShapes[i].numel(), 100 * step + static_cast<int>(i));
    for (float& v : values) v = static_cast<float>(v * scale);
    list.push_back(tensor<float>(values, kShapes[i]));
  }
  return list;
}

// One element's rule: (parameter, gradient, decays, step from 1, its three state numbers) -> parameter.
using Rule = std::function<double(double, double, bool, int, double*)>;

struct Case {
  const char* name;
  std::function<std::unique_ptr<Optimizer>(const std::vector<Variable>&)> make;
  Rule rule;
};

Rule adam(double rate, double b1, double b2, double eps, double decay, bool decoupled) {
  return [=](double p, double g, bool decays, int t, double* s) {
    if (decays && !decoupled) g += decay * p;
    s[0] = b1 * s[0] + (1 - b1) * g;
    s[1] = b2 * s[1] + (1 - b2) * g * g;
    if (decays && decoupled) p *= 1 - rate * decay;
    return p - rate * (s[0] / (1 - std::pow(b1, t))) / (std::sqrt(s[1] / (1 - std::pow(b2, t))) + eps);
  };
}

Rule sgd(SgdOptions o) {
  return [=](double p, double g, bool decays, int t, double* s) {
    if (o.maximize) g = -g;
    if (decays) g += o.weight_decay * p;
    if (o.momentum != 0) {
      s[0] = t == 1 ? g : o.momentum * s[0] + (1 - o.dampening) * g;
      g = o.nesterov ? g + o.momentum * s[0] : s[0];
    }
    return p - o.learning_rate * g;
  };
}

Rule rmsprop(double rate, double alpha, double eps, double momentum) {
  return [=](double p, double g, bool, int, double* s) {
    s[0] = alpha * s[0] + (1 - alpha) * g * g;
    s[1] = alpha * s[1] + (1 - alpha) * g;
    s[2] = momentum * s[2] + g / (std::sqrt(s[0] - s[1] * s[1]) + eps);
    return p - rate * s[2];
  };
}

double adagrad(double p, double g, bool, int t, double* s) {
  s[0] = (t == 1 ? 0.5 : s[0]) + g * g;
  return p - 0.1 / (1 + (t - 1) * 0.2) * g / (std::sqrt(s[0]) + 1e-3);
}

double adadelta(double p, double g, bool, int, double* s) {
  s[0] = 0.8 * s[0] + 0.2 * g * g;
  const double d = std::sqrt(s[1] + 1e-3) / std::sqrt(s[0] + 1e-3) * g;
  s[1] = 0.8 * s[1] + 0.2 * d * d;
  return p - 0.5 * d;
}

double adamax(double p, double g, bool, int t, double* s) {
  s[0] = 0.9 * s[0] + 0.1 * g;
  s[1] = std::max(0.95 * s[1], std::abs(g) + 1e-3);
  return p - 0.1 / (1 - std::pow(0.9, t)) * s[0] / s[1];
}

double nadam(double p, double g, bool, int t, double* s) {
  const auto momentum = [](int n) { return 0.9 * (1 - 0.5 * std::pow(0.96, n * 0.05)); };
  double product = 1;
  for (int n = 1; n <= t; ++n) product *= momentum(n);
  s[0] = 0.9 * s[0] + 0.1 * g;
  s[1] = 0.95 * s[1] + 0.05 * g * g;
  const double later = momentum(t + 1), below = std::sqrt(s[1] / (1 - std::pow(0.95, t))) + 1e-3;
  return p - 0.1 * ((1 - momentum(t)) * g / (1 - product) + later * s[0] / (1 - product * later)) / below;
}

// Rectified from the sixth step on.
double radam(double p, double g, bool, int t, double* s) {
  constexpr double kBeta = 0.9, kLimit = 2 / (1 - kBeta) - 1;
  s[0] = 0.9 * s[0] + 0.1 * g;
  s[1] = kBeta * s[1] + (1 - kBeta) * g * g;
  const double power = std::pow(kBeta, t), r = kLimit - 2 * t * power / (1 - power),
               mean = s[0] / (1 - std::pow(0.9, t));
  if (r <= 5) return p - 0.1 * mean;
  const double rectified = std::sqrt((r - 4) * (r - 2) * kLimit / ((kLimit - 4) * (kLimit - 2) * r));
  return p - 0.1 * mean * rectified * std::sqrt(1 - power) / (std::sqrt(s[1]) + 1e-3);
}

double asgd(double p, double g, bool, int t, double*) {
  const double rate = 0.1 / std::pow(1 + 0.2 * 0.1 * (t - 1), 0.6);
  return p * (1 - 0.2 * rate) - rate * g;
}

double rprop(double p, double g, bool, int t, double* s) {
  const double agreement = g * s[0];
  s[1] = std::clamp((t == 1 ? 0.1 : s[1]) * (agreement > 0 ? 1.3 : agreement < 0 ? 0.4 : 1), 1e-2, 0.15);
  s[0] = agreement < 0 ? 0 : g;
  return p - (s[0] > 0 ? 1 : s[0] < 0 ? -1 : 0) * s[1];
}

double lion(double p, double g, bool decays, int, double* s) {
  const double direction = 0.8 * s[0] + 0.2 * g;
  s[0] = 0.9 * s[0] + 0.1 * g;
  if (decays) p *= 1 - 0.1 * 0.3;
  return p - 0.1 * (direction > 0 ? 1 : direction < 0 ? -1 : 0);
}

template <class O, class Options>
auto maker(Options options) {
  return [options](const std::vector<Variable>& list) -> std::unique_ptr<Optimizer> {
    return std::make_unique<O>(list, options);
  };
}

const SgdOptions kMomentum = {.learning_rate = 0.1, .momentum = 0.9};
const SgdOptions kDampened = {.learning_rate = 0.1, .momentum = 0.8, .dampening = 0.3, .weight_decay = 0.2};
const SgdOptions kNesterov = {
    .learning_rate = 0.05, .momentum = 0.9, .nesterov = true, .weight_decay = 0.1, .maximize = true};
const Case kCases[] = {
    {"plain SGD", maker<SGD>(SgdOptions{.learning_rate = 0.1}), sgd({.learning_rate = 0.1})},
    {"momentum", maker<SGD>(kMomentum), sgd(kMomentum)},
    {"dampening and L2", maker<SGD>(kDampened), sgd(kDampened)},
    {"Nesterov, maximised", maker<SGD>(kNesterov), sgd(kNesterov)},
    {"Adam", maker<Adam>(AdamOptions{.learning_rate = 0.01}), adam(0.01, 0.9, 0.999, 1e-8, 0, false)},
    {"Adam with L2",
     maker<Adam>(AdamOptions{.learning_rate = 0.01, .beta_1 = 0.8, .beta_2 = 0.95, .weight_decay = 0.3}),
     adam(0.01, 0.8, 0.95, 1e-8, 0.3, false)},
    {"AdamW", maker<AdamW>(AdamWOptions{.learning_rate = 0.02, .beta_2 = 0.99, .weight_decay = 0.1}),
     adam(0.02, 0.9, 0.99, 1e-8, 0.1, true)},
    {"RMSprop",
     maker<RMSprop>(
         RMSpropOptions{.learning_rate = 0.1, .alpha = 0.8, .epsilon = 0.1, .momentum = 0.5, .centered = true}),
     rmsprop(0.1, 0.8, 0.1, 0.5)},
    {"Adagrad",
     maker<Adagrad>(
         AdagradOptions{.learning_rate = 0.1, .rate_decay = 0.2, .initial_accumulator = 0.5, .epsilon = 1e-3}),
     adagrad},
    {"Adadelta", maker<Adadelta>(AdadeltaOptions{.learning_rate = 0.5, .rho = 0.8, .epsilon = 1e-3}), adadelta},
    {"Adamax", maker<Adamax>(AdamaxOptions{.learning_rate = 0.1, .beta_2 = 0.95, .epsilon = 1e-3}), adamax},
    {"NAdam", maker<NAdam>(NAdamOptions{.learning_rate = 0.1, .beta_2 = 0.95, .epsilon = 1e-3, .momentum_decay = 0.05}),
     nadam},
    {"RAdam", maker<RAdam>(RAdamOptions{.learning_rate = 0.1, .beta_2 = 0.9, .epsilon = 1e-3}), radam},
    {"ASGD", maker<ASGD>(ASGDOptions{.learning_rate = 0.1, .lambd = 0.2, .alpha = 0.6}), asgd},
    {"Rprop",
     maker<Rprop>(
         RpropOptions{.learning_rate = 0.1, .shrink = 0.4, .grow = 1.3, .least_step = 1e-2, .largest_step = 0.15}),
     rprop},
    {"Lion", maker<Lion>(LionOptions{.learning_rate = 0.1, .beta_1 = 0.8, .beta_2 = 0.9, .weight_decay = 0.3}), lion},
};

void expect_near(const std::vector<Variable>& parameters, const std::vector<std::vector<double>>& expected,
                 const char* name) {
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const std::vector<float> got = parameters[i].value().to_vector<float>();
    for (std::size_t j = 0; j < got.size(); ++j)
      ASSERT_NEAR(got[j], expected[i][j], 2e-6 * (1 + std::abs(expected[i][j])))
          << name << ", parameter " << i << ", element " << j;
  }
}

TEST(Optimizer, UpdatesMatchTheScalarReference) {
  for (const Case& c : kCases) {
    const std::vector<Variable> parameters = make_parameters();
    const auto optimizer = c.make(parameters);
    std::vector<std::vector<double>> expected;
    std::vector<std::vector<std::array<double, 3>>> state;
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const std::vector<float> begin = numbers(kShapes[i].numel(), static_cast<int>(i));
      expected.emplace_back(begin.begin(), begin.end());
      state.emplace_back(begin.size());
    }
    for (int t = 1; t <= kSteps; ++t) {
      optimizer->step(gradients_of_step(t));
      eval_pending();
      for (std::size_t i = 0; i < parameters.size(); ++i) {
        const std::vector<float> g = numbers(kShapes[i].numel(), 100 * t + static_cast<int>(i));
        for (std::size_t j = 0; j < g.size(); ++j)
          expected[i][j] = c.rule(expected[i][j], g[j], kShapes[i].rank() >= 2, t, state[i][j].data());
      }
    }
    expect_near(parameters, expected, c.name);
    EXPECT_EQ(optimizer->step_count(), kSteps);
  }
}

TEST(Optimizer, CompiledStepMatchesAndTakesTheRateAtRunTime) {
  const std::vector<Variable> eager = make_parameters(), compiled = make_parameters();
  AdamW a(eager, {.learning_rate = 0.5, .clip_norm = 1}), b(compiled, {.clip_norm = 1});
  auto step = weft::compile([&](Tensor scale, Tensor rate) {
    std::vector<Tensor> gradients;
    for (const Tensor& g : gradients_of_step(1)) gradients.push_back(g * scale);
    return b.step(gradients, rate);
  });
  for (int t = 1; t <= 4; ++t) {
    const double scale = 0.5 * t, rate = 0.1 / t;
    a.set_learning_rate(rate);
    const Tensor norm = a.step(gradients_of_step(1, scale));
    const Tensor compiled_norm = step(full({}, scale), full({}, rate));
    EXPECT_NEAR(norm.item<float>(), compiled_norm.item<float>(), 1e-4);
  }
  for (std::size_t i = 0; i < eager.size(); ++i) {
    const std::vector<float> x = eager[i].value().to_vector<float>(), y = compiled[i].value().to_vector<float>();
    for (std::size_t j = 0; j < x.size(); ++j) ASSERT_NEAR(x[j], y[j], 1e-5);
  }
  EXPECT_EQ(step.compiled().trace_count(), 1u);
  EXPECT_EQ(b.step_count(), 4);
}

TEST(Optimizer, DecayFilterChoosesByName) {
  const std::vector<Variable> parameters = make_parameters();
  AdamW optimizer(parameters, {.learning_rate = 0.1, .weight_decay = 0.5, .decay_filter = [](std::string_view name) {
                                 return name == "p1";
                               }});
  std::vector<Tensor> gradients;
  for (const Shape& shape : kShapes) gradients.push_back(zeros(shape));
  optimizer.step(gradients);
  const std::vector<float> decayed = parameters[1].value().to_vector<float>(),
                           kept = parameters[0].value().to_vector<float>();
  EXPECT_NEAR(decayed[0], numbers(3, 1)[0] * 0.95, 1e-6);
  EXPECT_EQ(kept, numbers(64, 0));
}

TEST(Clip, ScalesToTheLargestNorm) {
  const std::vector<Tensor> gradients = {tensor({3.f, 0.f}), tensor({4.f})};
  const Clipped clipped = clip_grad_norm(gradients, 1);
  EXPECT_FLOAT_EQ(clipped.norm.item<float>(), 5);
  EXPECT_NEAR(clipped.gradients[0].to_vector<float>()[0], 0.6, 1e-6);
  EXPECT_NEAR(clipped.gradients[1].item<float>(), 0.8, 1e-6);
  const Clipped small = clip_grad_norm(gradients, 10);
  EXPECT_EQ(small.gradients[1].item<float>(), 4);
  EXPECT_THROW(clip_grad_norm(gradients, 0), UsageError);
  const std::vector<Tensor> normalized = normalize_gradients(gradients);
  EXPECT_NEAR(normalized[0].to_vector<float>()[0], 1, 1e-6);
  EXPECT_NEAR(normalized[1].item<float>(), 1, 1e-6);
}

TEST(Clip, OptimizerClipsByTheNormOfAll) {
  const std::vector<Variable> parameters = {Variable(zeros({1, 1}), "a"), Variable(zeros({1}), "b")};
  SGD optimizer(parameters, {.learning_rate = 1, .clip_norm = 1});
  const Tensor norm = optimizer.step(std::vector<Tensor>{full({1, 1}, 3), full({1}, 4)});
  EXPECT_FLOAT_EQ(norm.item<float>(), 5);
  EXPECT_NEAR(parameters[0].value().item<float>(), -0.6, 1e-6);
  EXPECT_NEAR(parameters[1].value().item<float>(), -0.8, 1e-6);
}

TEST(Optimizer, StateGoesRoundBitForBit) {
  const std::vector<Variable> first = make_parameters();
  AdamW a(first, {.learning_rate = 0.1, .weight_decay = 0.1});
  for (int t = 1; t <= 3; ++t) a.step(gradients_of_step(t));
  const nn::StateDict state = a.state_dict();
  EXPECT_NE(nn::find(state, "exp_avg_sq.p4"), nullptr);

  std::vector<Variable> second;
  for (const Variable& v : first) second.emplace_back(tensor<float>(v.value().to_vector<float>(), v.shape()), v.name());
  AdamW b(second, {.learning_rate = 9, .weight_decay = 0.1});
  b.load_state_dict(state);
  EXPECT_EQ(b.state_dict(), state);
  for (int t = 4; t <= 6; ++t) {
    a.step(gradients_of_step(t));
    b.step(gradients_of_step(t));
  }
  for (std::size_t i = 0; i < first.size(); ++i)
    EXPECT_EQ(first[i].value().to_vector<float>(), second[i].value().to_vector<float>());

  nn::StateDict bad = state;
  bad.pop_back();
  EXPECT_THROW(b.load_state_dict(bad), UsageError);
}

// Files of earlier versions.
TEST(Optimizer, StateWithOlderNamesIsRead) {
  const std::pair<const char*, const char*> names[] = {
      {"exp_avg.", "moment_1."}, {"exp_avg_sq.", "moment_2."}, {"momentum_buffer.", "momentum."}};
  for (const char* rule : {"adamw", "sgd"}) {
    OptionValues options;
    if (rule == std::string_view("sgd")) options["momentum"] = 0.9;
    const std::vector<Variable> parameters = make_parameters();
    const auto optimizer = make_optimizer(rule, parameters, options);
    optimizer->step(gradients_of_step(1));
    const nn::StateDict state = optimizer->state_dict();
    nn::StateDict older = state;
    int renamed = 0;
    for (nn::NamedArray& entry : older)
      for (const auto& [now, before] : names)
        if (entry.name.starts_with(now))
          entry.name = before + entry.name.substr(std::string_view(now).size()), ++renamed;
    EXPECT_EQ(renamed, (rule == std::string_view("sgd") ? 1 : 2) * static_cast<int>(parameters.size()));
    const auto other = make_optimizer(rule, make_parameters(), options);
    other->load_state_dict(older);
    EXPECT_EQ(other->state_dict(), state) << rule;
  }
}

// Also of a compiled step that was traced before.
TEST(Optimizer, ResetForgetsTheMomentsAndKeepsTheParameters) {
  const std::vector<Variable> first = make_parameters();
  AdamW a(first, {.learning_rate = 0.1});
  const auto step = [](AdamW& optimizer) {
    return compile([&](const Tensor& scale) {
      std::vector<Tensor> gradients = gradients_of_step(1);
      for (Tensor& each : gradients) each = each * scale;
      return optimizer.step(gradients);
    });
  };
  const auto step_a = step(a);
  for (const float scale : {1.0f, -2.0f, 0.5f}) step_a(tensor(scale));
  std::vector<Variable> second;
  for (const Variable& v : first) second.emplace_back(tensor<float>(v.value().to_vector<float>(), v.shape()), v.name());
  a.reset();
  EXPECT_EQ(a.step_count(), 0);
  EXPECT_EQ(a.learning_rate(), static_cast<double>(0.1f));
  for (std::size_t i = 0; i < first.size(); ++i)
    EXPECT_EQ(first[i].value().to_vector<float>(), second[i].value().to_vector<float>());
  AdamW b(second, {.learning_rate = 0.1});
  const auto step_b = step(b);
  for (const float scale : {3.0f, -1.0f}) {
    step_a(tensor(scale));
    step_b(tensor(scale));
  }
  EXPECT_EQ(a.step_count(), 2);
  for (std::size_t i = 0; i < first.size(); ++i)
    EXPECT_EQ(first[i].value().to_vector<float>(), second[i].value().to_vector<float>());
}

// Each rule through the table and by its class, where PyTorch and papers are compared in Python (test_optim.py).
TEST(Optimizer, OptionsOfGroupsChange) {
  using test::message_of;
  const auto says = [](const std::string& message, std::string_view part) {
    EXPECT_NE(message.find(part), std::string::npos) << message;
  };
  const auto value = [](const Variable& v) { return v.value().to_vector<float>()[0]; };
  Variable a(zeros({2}), "a"), b(zeros({2}), "b");
  SGD optimizer({{std::vector<Variable>{a}, {.learning_rate = 0.5, .momentum = 0.5}},
                 {std::vector<Variable>{b}, {.learning_rate = 0.25, .momentum = 0.5}}});
  const std::vector<Tensor> g{ones({2}), ones({2})};
  optimizer.step(g);
  EXPECT_EQ(value(a), -0.5f);
  EXPECT_EQ(value(b), -0.25f);
  optimizer.set_group_learning_rate(1, 2.0);
  optimizer.set_group_option(0, "momentum", 0.0);
  optimizer.set_group_option(1, "learning_rate", 1.0);
  EXPECT_EQ(optimizer.group_learning_rate(1), 1.0);
  EXPECT_EQ(optimizer.group_count(), 2u);
  optimizer.step(g);
  EXPECT_EQ(value(a), -1.0f);         // without the momentum
  EXPECT_EQ(value(b), -1.75f);        // 1 * (0.5 + 1)
  optimizer.set_learning_rate(0.25);  // the ratio is 2 now
  EXPECT_EQ(optimizer.group_learning_rate(1), 0.5);
  optimizer.set_learning_rate(0);
  optimizer.set_learning_rate(1);
  EXPECT_EQ(optimizer.group_learning_rate(1), 2.0) << "a rate of 0 has no ratio, the one before stays";
  SGD other({{std::vector<Variable>{a}, {.momentum = 0.5}}, {std::vector<Variable>{b}, {.momentum = 0.5}}});
  nn::StateDict state = optimizer.state_dict();
  other.load_state_dict(state);
  EXPECT_EQ(other.group_learning_rate(1), 2.0);
  std::erase_if(state, [](const nn::NamedArray& each) { return each.name == "learning_rate.1"; });
  other.load_state_dict(state);  // as earlier versions wrote it
  EXPECT_EQ(other.group_learning_rate(1), 2.0);
  says(message_of<UsageError>([&] { optimizer.set_group_learning_rate(2, 1); }), "there is no group 2; there are 2");
  says(message_of<UsageError>([&] { optimizer.set_group_option(0, "momentum", -1.0); }), "at least 0");
  says(message_of<UsageError>([&] { optimizer.set_group_option(0, "beta", 1.0); }), "there is no option");
  SGD plain(std::vector<Variable>{a});
  says(message_of<UsageError>([&] { plain.set_group_option(0, "momentum", 0.5); }), "another state");
}

TEST(Optimizer, EveryRuleIsInTheTable) {
  std::vector<std::string> names;
  for (const RuleInfo& rule : rules()) {
    names.push_back(rule.name);
    EXPECT_EQ(&rule_named(rule.title), &rule);
    const std::vector<Variable> parameters = make_parameters();
    const auto optimizer = rule.make({{parameters, {{"clip_norm", 2.0}}}}, {});
    EXPECT_FLOAT_EQ(static_cast<float>(optimizer->learning_rate()),
                    static_cast<float>(std::get<double>(rule.options[0].standard)));
    optimizer->step(gradients_of_step(1));
    for (const std::size_t i : {std::size_t{0}, std::size_t{1}})
      EXPECT_NE(parameters[i].value().to_vector<float>(), numbers(kShapes[i].numel(), static_cast<int>(i)))
          << rule.name;
    std::uint64_t elements = 0;
    for (const Shape& shape : kShapes) elements += static_cast<std::uint64_t>(rule.state_numel("p", shape, {}, {}));
    EXPECT_EQ(optimizer->state_bytes(), elements * sizeof(float)) << rule.name;
  }
  EXPECT_EQ(names, (std::vector<std::string>{"sgd", "adam", "adamw", "rmsprop", "adagrad", "adadelta", "adamax",
                                             "nadam", "radam", "asgd", "rprop", "lion", "adafactor", "lamb", "muon"}));
}

TEST(Optimizer, AmsgradKeepsTheLargestMeanSquare) {
  const std::vector<Variable> p = {Variable(zeros({1}), "p")};
  Adam optimizer(p, {.learning_rate = 1, .beta_1 = 0, .beta_2 = 0, .epsilon = 1e-6, .amsgrad = true});
  optimizer.step(std::vector<Tensor>{full({1}, 4)});
  optimizer.step(std::vector<Tensor>{full({1}, 1)});  // over 4, and not over 1
  EXPECT_NEAR(p[0].value().to_vector<float>()[0], -1.25, 1e-5);
}

TEST(Optimizer, WrongOptionsByNameAreNamed) {
  using test::message_of;
  const auto refused = [](const char* rule, const OptionValues& options) {
    return message_of<UsageError>([&] { make_optimizer(rule, make_parameters(), options); });
  };
  EXPECT_EQ(refused("lbfg", {}).rfind("there is no optimizer \"lbfg\"; there are sgd, adam,", 0), 0u);
  EXPECT_NE(refused("lion", {{"epsilon", 1.0}}).find("Lion: there is no option \"epsilon\"; there are learning_rate"),
            std::string::npos);
  EXPECT_EQ(refused("adam", {{"amsgrad", 1.0}}), "Adam: the option \"amsgrad\" must be true or false");
  EXPECT_EQ(refused("adam", {{"beta_1", true}}), "Adam: the option \"beta_1\" must be a number");
  EXPECT_EQ(refused("muon", {{"iterations", 2.5}}), "Muon: the option \"iterations\" must be a whole number");
  EXPECT_EQ(refused("rmsprop", {{"alpha", 1.0}}), "RMSprop: alpha is 1; it must be in [0, 1)");
  EXPECT_EQ(refused("radam", {{"beta_2", 0.5}}).rfind("RAdam: beta_2 is 0.5", 0), 0u);
  EXPECT_NO_THROW(make_optimizer("muon", make_parameters(), {{"iterations", Extent{3}}, {"momentum", Extent{0}}}));
}

TEST(Optimizer, GroupsHaveOptionsOfTheirOwn) {
  const std::vector<Variable> p = {Variable(ones({2, 2}), "a"), Variable(ones({2, 2}), "b"), Variable(ones({2}), "c")};
  SGD optimizer({{std::vector<Variable>{p[0]}, {.learning_rate = 0.1, .weight_decay = 0.5}},
                 {std::vector<Variable>{p[1], p[2]}, {.learning_rate = 0.2, .maximize = true}}});
  const std::vector<Tensor> gradients = {ones({2, 2}), ones({2, 2}), ones({2})};
  const auto first = [&](std::size_t i) { return p[i].value().to_vector<float>()[0]; };
  optimizer.step(gradients);
  EXPECT_NEAR(first(0), 1 - 0.1 * 1.5, 1e-6);
  EXPECT_NEAR(first(1), 1.2, 1e-6);
  EXPECT_NEAR(first(2), 1.2, 1e-6);
  optimizer.step(gradients, full({}, 0.01));  // the second group's rate keeps its ratio
  EXPECT_NEAR(first(1), 1.22, 1e-6);
  EXPECT_THROW(SGD({{std::vector<Variable>{p[0]}, {.learning_rate = 0}}, {std::vector<Variable>{p[1]}, {}}}),
               UsageError);
  EXPECT_THROW(SGD({{std::vector<Variable>{p[0]}, {}}, {std::vector<Variable>{p[0]}, {}}}), UsageError);
}

TEST(Optimizer, WrongGradientsAreErrors) {
  const std::vector<Variable> parameters = make_parameters();
  AdamW optimizer(parameters);
  EXPECT_THROW(optimizer.step(std::vector<Tensor>{ones({1})}), UsageError);
  std::vector<Tensor> gradients = gradients_of_step(1);
  gradients[1] = ones({4});
  EXPECT_THROW(optimizer.step(gradients), ShapeError);
  EXPECT_THROW(optimizer.step(gradients_of_step(1), ones({1})), ShapeError);
  EXPECT_THROW(optimizer.set_learning_rate(-1), UsageError);
  EXPECT_THROW(SGD(std::vector<Variable>{}), UsageError);
  EXPECT_THROW(SGD(make_parameters(), {.nesterov = true}), UsageError);
  EXPECT_THROW(AdamW(make_parameters(), {.beta_2 = 1}), UsageError);
  EXPECT_THROW(AdamW(make_parameters(), {.beta_1 = -0.1}), UsageError);
}

TEST(Optimizer, WhatCannotTrainIsNamed) {
  using test::message_of;
  const Variable w(ones({3}), "w"), unnamed(ones({2}));
  const auto says = [](const std::string& message, const char* part) {
    EXPECT_NE(message.find(part), std::string::npos) << message;
  };
  says(message_of<UsageError>([&] { SGD(std::vector<Variable>{w, unnamed, w}); }), "are one Variable");
  says(message_of<UsageError>([&] {
         SGD(std::vector<Variable>{unnamed, unnamed});
       }),
       "\"parameter_0\" and \"parameter_1\" are one Variable");
  says(message_of<UsageError>([&] {
         SGD(std::vector<Variable>{w, Variable()});
       }),
       "\"parameter_1\" is a Variable without a value");
  says(message_of<DTypeError>([&] { SGD(std::vector<Variable>{Variable(ones({3}, DType::i32), "counts")}); }),
       "\"counts\" is i32");
  SGD sgd(std::vector<Variable>{w});
  says(message_of<DTypeError>([&] { sgd.step(std::vector<Tensor>{ones({3}, DType::f64)}); }),
       "gradient of \"w\" is f64");
  says(message_of<UsageError>([&] { sgd.step(std::vector<Tensor>{Tensor()}); }), "gradient of \"w\" has no value");
}

TEST(Optimizer, OptionsAreNumbersInTheirRanges) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN(), kInf = std::numeric_limits<double>::infinity();
  for (const double wrong : {kNan, kInf, -1.0}) {
    EXPECT_THROW(SGD(make_parameters(), {.momentum = wrong}), UsageError) << wrong;
    EXPECT_THROW(SGD(make_parameters(), {.weight_decay = wrong}), UsageError) << wrong;
    EXPECT_THROW(SGD(make_parameters(), {.clip_norm = wrong}), UsageError) << wrong;
    EXPECT_THROW(Adam(make_parameters(), {.epsilon = wrong}), UsageError) << wrong;
    EXPECT_THROW(AdamW(make_parameters(), {.weight_decay = wrong}), UsageError) << wrong;
    EXPECT_THROW(AdamW(make_parameters(), {.clip_norm = wrong}), UsageError) << wrong;
  }
  EXPECT_THROW(SGD(make_parameters(), {.momentum = 0.5, .dampening = kNan}), UsageError);
}

// As WGAN-GP trains: the mean is the gradient itself.
TEST(Optimizer, AdamWithoutMomentum) {
  Variable p(tensor({1.0f, -2.0f}), "p");
  Adam optimizer(std::vector<Variable>{p}, {.learning_rate = 0.1, .beta_1 = 0});
  const std::vector<Tensor> gradients{tensor({0.5f, -3.0f})};
  optimizer.step(gradients);
  const std::vector<float> values = p.value().to_vector<float>();
  EXPECT_NEAR(values[0], 0.9, 1e-5);
  EXPECT_NEAR(values[1], -1.9, 1e-5);
}

// First a part of a model, then all of it: the parameters that the first optimiser laid together are copied by the second.
TEST(Optimizer, RefusesAModuleWithAMemberThatWasNotAdded) {
  struct Forgetful : nn::Module {
    nn::Child<nn::Linear> hidden{this, "hidden", 3, 4};
    nn::Linear output{4, 2};
  };
  Forgetful model;
  EXPECT_NE(
      test::message_of<UsageError>([&] { SGD optimizer(model); }).find("a member weft::nn::Linear (Linear 4 -> 2)"),
      std::string::npos);
  EXPECT_NO_THROW(SGD(model.hidden));
}

TEST(Optimizer, OfF64HoldsItsNumbersInF64) {
  const Variable p(ones({2}, DType::f64), "p");
  SGD sgd(std::vector<Variable>{p}, {.learning_rate = 0.1});
  EXPECT_EQ(sgd.learning_rate(), 0.1);
  sgd.step(std::vector<Tensor>{ones({2}, DType::f64)});
  EXPECT_EQ(p.value().to_vector<double>(), std::vector<double>(2, 0.9));
}

TEST(Optimizer, OfAPartAndThenOfAll) {
  const auto run = [](bool part_first) {
    Variable a(tensor({1.0f, -2.0f}), "a"), b(tensor({3.0f}), "b");
    std::optional<Adam> part;
    if (part_first) part.emplace(std::vector<Variable>{b}, AdamOptions{.learning_rate = 0});
    SGD all(std::vector<Variable>{a, b}, {.learning_rate = 0.5, .momentum = 0.5});
    Adam again(std::vector<Variable>{a}, {.learning_rate = 0.1});
    for (int i = 0; i < 3; ++i) {
      all.step(std::vector<Tensor>{tensor({0.5f, 1.0f}), tensor({-1.0f})});
      again.step(std::vector<Tensor>{tensor({0.25f, -0.5f})});
      if (part) part->step(std::vector<Tensor>{tensor({1.0f})});
    }
    std::vector<float> values = a.value().to_vector<float>();
    values.push_back(b.value().item<float>());
    return values;
  };
  const std::vector<float> alone = run(false), after = run(true);
  ASSERT_EQ(alone.size(), 3u);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_FLOAT_EQ(alone[i], after[i]);
  EXPECT_NE(alone[0], 1.0f);
}

// Compiled forward graphs read the parameters that a compiled step updates and that a host writes by name; nothing is traced again.
TEST(Optimizer, ForwardsShareTheParametersOfACompiledStep) {
  manual_seed(2);
  nn::Sequential model;
  model.emplace<nn::Linear>(2, 8).then([](const Tensor& x) { return tanh(x); }).emplace<nn::Linear>(8, 1);
  AdamW optimizer(model, {.learning_rate = 0.05});
  auto step = weft::compile([&](const Tensor& x, const Tensor& y) {
    const Tensor loss = nn::mse(model(x), y);
    optimizer.step(grad(loss, optimizer.parameters()));
    return loss;
  });
  auto forward = weft::compile([&](const Tensor& x) { return model(x); });
  auto hidden =
      weft::compile([&](const Tensor& x) { return tanh(linear(x, model.parameters()[0], model.parameters()[1])); });
  const Tensor x = tensor({0.f, 0.f, 0.f, 1.f, 1.f, 0.f, 1.f, 1.f}, {4, 2}), y = tensor({0.f, 1.f, 1.f, 0.f}, {4, 1});
  const nn::StateDict first = model.state_dict();
  const auto before = forward(x).to_vector<float>();
  for (int i = 0; i < 20; ++i) {
    const float loss = step(x, y).item<float>();
    EXPECT_LE(nn::mse(forward(x), y).item<float>(), loss * 1.5f) << "the forward graph sees the update";
  }
  EXPECT_NE(forward(x).to_vector<float>(), before);
  const auto inner = hidden(x).to_vector<float>();
  model.load_state_dict(first);  // uploads by dotted names, into the same memory
  EXPECT_EQ(forward(x).to_vector<float>(), before);
  EXPECT_NE(hidden(x).to_vector<float>(), inner);
  const nn::NamedArray* bias = nn::find(first, "2.bias");
  ASSERT_NE(bias, nullptr);
  nn::NamedArray moved = *bias;
  const float one = 1;
  std::memcpy(moved.bytes.data(), &one, sizeof one);
  model.load_state_dict({moved}, false);  // one parameter alone
  float was = 0;
  std::memcpy(&was, bias->bytes.data(), sizeof was);
  EXPECT_NEAR(forward(x).to_vector<float>()[0], before[0] + one - was, 1e-6);
  step(x, y);
  EXPECT_EQ(forward.compiled().trace_count(), 1u);
  EXPECT_EQ(step.compiled().trace_count(), 1u);
}

TEST(Optimizer, TrainsAModule) {
  manual_seed(1);
  nn::Linear linear_layer(2, 1);
  SGD optimizer(linear_layer, {.learning_rate = 0.1});
  const Tensor x = tensor({0.f, 0.f, 0.f, 1.f, 1.f, 0.f, 1.f, 1.f}, {4, 2}),
               y = tensor({1.f, 3.f, 0.f, 2.f}, {4, 1});  // y = 1 - a + 2 b
  auto step = weft::compile([&](Tensor inputs, Tensor targets) {
    const Tensor loss = nn::mse(linear_layer(inputs), targets);
    optimizer.step(grad(loss, optimizer.parameters()));
    return loss;
  });
  float loss = 0;
  for (int i = 0; i < 500; ++i) loss = step(x, y).item<float>();
  EXPECT_LT(loss, 1e-6f);
  EXPECT_NEAR(linear_layer.weight().value().to_vector<float>()[1], 2, 1e-3);
}

TEST(Optimizer, KeepNothingOfEarlierStepsWhereTheLossIsReadBeforeTheUpdate) {
  manual_seed(1);
  nn::Linear model(3, 2);
  nn::LSTM lstm(2, 2);  // a composite call, with parts
  std::vector<Variable> all = model.parameters();
  for (const Variable& each : lstm.parameters()) all.push_back(each);
  optim::Adam optimizer(all, {.learning_rate = 0.05});
  const Tensor x = randn({4, 3}).eval();
  std::size_t most = 0, after_ten = 0;
  float first = 0, last = 0;
  for (int i = 0; i < 60; ++i) {
    const Tensor loss = mean(square(lstm(unsqueeze(tanh(model(x)), 1)).output - 0.5));
    last = loss.item<float>();
    if (i == 0) first = last;
    const Tensor norm = optimizer.step(grad(loss, optimizer.parameters()));
    EXPECT_GT(norm.item<float>(), 0);
    most = std::max(most, graph::live_node_count());
    if (i == 10) after_ten = most;
  }
  EXPECT_EQ(most, after_ten);
  EXPECT_LT(last, first * 0.5f);
}

}  // namespace
}  // namespace weft::optim
