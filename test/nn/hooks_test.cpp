// Hooks on modules: order, replacement, gradients, removal, and what refuses them.
#include <gtest/gtest.h>

#include "base/message_of.hpp"
#include "weft/weft.hpp"

namespace weft::nn {
namespace {

using test::message_of;
using Numbers = std::vector<float>;

struct Twice : Module {
  Child<Linear> inner{this, "inner", 2, 2, LinearOptions{.bias = false, .weight_init = Init::constant(1)}};
  Tensor operator()(const Tensor& x) const {
    return with_hooks(x, [&](const Tensor& y) { return inner(y) * 2.0; });
  }
};

TEST(ModuleHooks, RunInOrderAndReplace) {
  Twice net;
  std::string log;
  register_forward_pre_hook(net, [&](const Module&, const Tensor& x) {
    log += "a";
    return x + 1.0;
  });
  register_forward_pre_hook(net, [&](const Module&, const Tensor&) {
    log += "b";
    return Tensor();
  });
  register_forward_hook(net.inner, [&](const Module& m, const Tensor& x, const Tensor& y) {
    log += m.path();
    EXPECT_EQ(x.to_vector<float>(), (Numbers{2, 3}));
    return y + 10.0;
  });
  register_forward_hook(net, [&](const Module&, const Tensor&, const Tensor& y) {
    log += "c";
    return -y;
  });
  EXPECT_EQ(net(tensor({1.0f, 2.0f}, {1, 2})).to_vector<float>(), (Numbers{-30, -30}));
  EXPECT_EQ(log, "abinnerc");
}

TEST(ModuleHooks, GradientsPassThem) {
  Twice net;
  std::vector<Numbers> seen;
  const auto keep = [&](const Module&, const Tensor& g) {
    seen.push_back(g.to_vector<float>());
    return Tensor();
  };
  register_output_gradient_hook(net, keep);
  register_output_gradient_hook(net, [&](const Module&, const Tensor& g) { return g * 3.0; });
  register_input_gradient_hook(net, keep);
  const Tensor x = tensor({1.0f, 2.0f}, {1, 2});
  const Tensor dx = grad(sum(net(x)), x);
  EXPECT_EQ(dx.to_vector<float>(), (Numbers{12, 12}));  // 2 outputs * 2 * 3
  EXPECT_EQ(seen, (std::vector<Numbers>{{1, 1}, {12, 12}}));
}

TEST(ModuleHooks, LeaveWhenRemoved) {
  Linear net(2, 2);
  int calls = 0;
  ModuleHookHandle first = register_forward_pre_hook(net, [&](const Module&, const Tensor&) {
    ++calls;
    return Tensor();
  });
  ModuleHookHandle second = register_forward_hook(net, [&](const Module&, const Tensor&, const Tensor&) {
    first.remove();
    calls += 10;
    return Tensor();
  });
  (void)net(zeros({1, 2}));
  (void)net(zeros({1, 2}));
  EXPECT_EQ(calls, 21);
  second.remove();
  second.remove();
  (void)net(zeros({1, 2}));
  EXPECT_EQ(calls, 21);
}

TEST(ModuleHooks, OfAModuleThatIsGoneDoNotRun) {
  auto net = std::make_unique<Linear>(2, 2);
  bool called = false;
  ModuleHookHandle handle = register_output_gradient_hook(*net, [&](const Module&, const Tensor&) {
    called = true;
    return Tensor();
  });
  const Tensor x = zeros({1, 2}), y = sum((*net)(x));
  net.reset();
  (void)grad(y, x);
  EXPECT_FALSE(called);
  handle.remove();
}

TEST(ModuleHooks, OfAllLayersRun) {
  Sequential net;
  net.emplace<Linear>(4, 4).emplace<LayerNorm>(4).emplace<RMSNorm>(4).emplace<Dropout>(0.1).emplace<Mixture>(4, 8, 2);
  std::vector<std::string> names;
  for (const auto& [name, module] : net.children())
    register_forward_hook(const_cast<Module&>(*module), [&](const Module& m, const Tensor&, const Tensor&) {
      names.push_back(m.path());
      return Tensor();
    });
  (void)net(zeros({3, 4}));
  EXPECT_EQ(names, (std::vector<std::string>{"0", "1", "2", "3", "4"}));
}

TEST(ModuleHooks, InCompiledFunctionsAreTraced) {
  Linear net(2, 1, {.bias = false, .weight_init = Init::constant(1)});
  int calls = 0;
  register_forward_hook(net, [&](const Module&, const Tensor&, const Tensor& y) {
    ++calls;
    return y * 5.0;
  });
  auto step = compile([&](Tensor x) { return net(x); });
  for (int i = 0; i < 3; ++i) EXPECT_EQ(step(tensor({1.0f, 2.0f}, {1, 2})).to_vector<float>(), Numbers{15});
  EXPECT_EQ(calls, 1);
}

TEST(ModuleHooks, MistakesAreNamed) {
  Linear net(2, 2);
  LSTM recurrent(2, 2);
  EXPECT_NE(message_of<UsageError>([&] { register_forward_hook(net, {}); }).find("the hook is empty"),
            std::string::npos);
  EXPECT_NE(message_of<UsageError>([&] {
              register_forward_pre_hook(recurrent, [](const Module&, const Tensor&) { return Tensor(); });
            }).find("returns several tensors and runs no hooks"),
            std::string::npos);
}

}  // namespace
}  // namespace weft::nn
