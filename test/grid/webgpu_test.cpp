// A few networks through WebGPU, on a software adapter, against the CPU.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "base/temporary_folder.hpp"
#include "webgpu_driver.hpp"
#include "weft/compile.hpp"
#include "weft/grad.hpp"
#include "weft/grid.hpp"
#include "weft/nn/losses.hpp"
#include "weft/ops.hpp"
#include "weft/optim.hpp"

namespace weft::grid::webgpu {
namespace {

class GridWebgpu : public testing::Test {
 protected:
  void SetUp() override {
    if (test::choose_driver().empty()) GTEST_SKIP() << "no software adapter";
    device_ = parse_device("webgpu:0");
    before_ = default_device();
  }
  void TearDown() override { set_default_device(before_); }

  /// f on both devices, with the same seed.
  template <class F>
  void expect_equal(F f, double tolerance) {
    set_default_device(kCpu);
    manual_seed(3);
    const std::vector<float> wanted = f();
    set_default_device(device_);
    manual_seed(3);
    const std::vector<float> got = f();
    ASSERT_EQ(got.size(), wanted.size());
    for (std::size_t i = 0; i < got.size(); ++i)
      EXPECT_NEAR(got[i], wanted[i], tolerance * (1 + std::fabs(wanted[i]))) << i;
  }

  Device device_ = kCpu, before_ = kCpu;
};

Description mixed() {
  return Description::chain(
      {mixture_layer({dense_layer(4, 4, Activation::gelu), sequential_layer({rms_norm_layer(4), residual_layer()})},
                     dense_layer(4, 2, Activation::linear)),
       kmeans_layer(4, 3, true), softmax_layer(SoftmaxKind::sparse), dense_layer(4, 2, Activation::linear)});
}

TEST_F(GridWebgpu, PassesAndGradientsAreThoseOfTheCpu) {
  expect_equal(
      [] {
        Network network(mixed());
        const Tensor x = rand({3, 4}, -1, 1);
        const Tensor loss = sum(square(network(x)));
        std::vector<float> all = {loss.item<float>()};
        for (const Tensor& g : grad(loss, network.parameters()))
          for (const float v : g.to_vector<float>()) all.push_back(v);
        return all;
      },
      1e-4);
}

TEST_F(GridWebgpu, TransformersTrain) {
  expect_equal(
      [] {
        Network network(transformer({.vocabulary = 5, .width = 8, .hidden = 8, .heads = 2, .blocks = 1}));
        optim::SGD optimizer(network, {.learning_rate = 0.1});
        auto step = compile([&](const Tensor& x, const Tensor& y) {
          const Tensor loss = nn::cross_entropy(network(x), y);
          optimizer.step(grad(loss, optimizer.parameters()));
          return loss;
        });
        const Tensor x = tensor<std::int32_t>({0, 1, 2, 3, 4, 0}, {2, 3}),
                     y = tensor<std::int32_t>({1, 2, 3, 4, 0, 1}, {2, 3});
        std::vector<float> losses;
        for (int i = 0; i < 5; ++i) losses.push_back(step(x, y).item<float>());
        return losses;
      },
      1e-3);
}

TEST_F(GridWebgpu, NumbersArePackedAsTheyAreRoundedThere) {
  set_default_device(device_);
  const Tensor w = rand({301}, -1, 1).eval();
  for (const DType type : kNumberTypes) {
    SCOPED_TRACE(name_of(type));
    const std::vector<float> once = quantised(w, type).to_vector<float>();
    EXPECT_EQ(unpack(pack(once, type)), once);
    EXPECT_EQ(quantised(tensor<float>(once), type).to_vector<float>(), once);
  }
}

TEST_F(GridWebgpu, CheckpointsComeBackBitForBit) {
  set_default_device(device_);
  const test::TemporaryFolder folder;
  Network network(mlp({5, 7, 3}));
  const Tensor x = rand({4, 5}, -1, 1).eval();
  for (const DType type : {DType::i8, DType::fp8_e4m3, DType::ternary}) {
    network.morph(type);
    save(network, folder / "network");
    EXPECT_EQ((*load(folder / "network"))(x).to_vector<float>(), network(x).to_vector<float>()) << name_of(type);
  }
}

TEST_F(GridWebgpu, TicksAndTargetsRun) {
  expect_equal(
      [] {
        Network network(mlp({3, 4, 2}, Activation::tanh));
        const Tensor x = rand({8, 3}, -1, 1), y = rand({8, 2}, -1, 1);
        Systolic mesh(network);
        mesh.set_input(x);
        mesh.ticks(2);
        TargetPropagation propagation(network, {.mode = TargetMode::gap, .learning_rate = 0.1});
        propagation.step(mesh, y);
        mesh.ticks(2);
        return mesh.output().to_vector<float>();
      },
      1e-4);
}

}  // namespace
}  // namespace weft::grid::webgpu
