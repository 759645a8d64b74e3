#include <gtest/gtest.h>

#include "weft/compile.hpp"
#include "weft/grad.hpp"
#include "weft/grid.hpp"
#include "weft/ops.hpp"

namespace weft::grid::systolic {
namespace {

std::vector<float> values(const Tensor& x) { return x.to_vector<float>(); }

Description plain() {
  Description d(1, 2, 2, 1);
  d.layers = {dense_layer(3, 4, Activation::tanh), rms_norm_layer(4), dense_layer(4, 4, Activation::tanh),
              residual_layer()};
  return d;
}

// Trap 18.
TEST(GridSystolic, NTicksThroughNLayersArePass) {
  const Network network(plain());
  const Tensor x = rand({2, 3}, -1, 1).eval();
  Systolic mesh(network);
  mesh.set_input(x);
  for (int tick = 1; tick <= 4; ++tick) {
    mesh.tick();
    for (int i = 0; i < 4; ++i) EXPECT_EQ(mesh.output(network.description().coordinate(i)).defined(), i < tick);
  }
  const std::vector<float> wanted = values(network(x));
  EXPECT_EQ(values(mesh.output()), wanted);
  mesh.ticks(3);
  EXPECT_EQ(values(mesh.output()), wanted);
  EXPECT_EQ(mesh.tick_count(), 7);
  mesh.reset();
  EXPECT_FALSE(mesh.output().defined());
}

// Trap: the input was written where the first layer's output goes, so that the first layer read itself in the next tick.
TEST(GridSystolic, TheInputHasASlotOfItsOwn) {
  const Network network(
      Description::chain({dense_layer(2, 2, Activation::linear), dense_layer(2, 2, Activation::linear)}));
  const Tensor w0 = network.layer(0).weights()[0], w1 = network.layer(1).weights()[0];
  const Tensor first = rand({1, 2}).eval(), second = rand({1, 2}).eval();
  Systolic mesh(network);
  mesh.set_input(first);
  mesh.tick();
  mesh.set_input(second);
  mesh.tick();
  // The second layer sees what the first one made of the first input, not the input itself.
  EXPECT_EQ(values(mesh.output()), values(linear(linear(first, w0), w1)));
  EXPECT_EQ(values(mesh.output({0, 0, 0, 0})), values(linear(second, w0)));
  mesh.tick();
  EXPECT_EQ(values(mesh.output({0, 0, 0, 0})), values(linear(second, w0)));
}

TEST(GridSystolic, GradientsThroughTicksAreThoseOfAPass) {
  Network network(plain());
  const Tensor x = rand({2, 3}, -1, 1).eval(), c = rand({2, 4}, -1, 1).eval();
  Systolic mesh(network, {.keeps_gradients = true});
  mesh.set_input(x);
  mesh.ticks(4);
  const std::vector<Variable> parameters = network.parameters();
  const std::vector<Tensor> through = grad(sum(mesh.output() * c), parameters),
                            wanted = grad(sum(network(x) * c), parameters);
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const std::vector<float> a = values(through[i]), b = values(wanted[i]);
    for (std::size_t j = 0; j < a.size(); ++j) EXPECT_NEAR(a[j], b[j], 1e-6) << i << " " << j;
  }
}

// A layer that reads itself: h_t = tanh(W (h_(t-1))), with the gradient of weights that all ticks share.
TEST(GridSystolic, LinksToLaterLayersAreRecurrent) {
  Description d = Description::chain({dense_layer(2, 2, Activation::tanh)});
  d.layers[0].link = Coordinate{0, 0, 0, 0};
  Network network(d);
  const Tensor start = rand({3, 2}, -1, 1).eval();
  Systolic mesh(network, {.keeps_gradients = true});
  mesh.tick();
  EXPECT_FALSE(mesh.output().defined());  // nothing has reached it
  mesh.set_output({0, 0, 0, 0}, start);
  mesh.ticks(3);
  const Variable w = network.parameters()[0];
  Tensor h = start;
  for (int i = 0; i < 3; ++i) h = tanh(linear(h, w));
  EXPECT_EQ(values(mesh.output()), values(h));
  EXPECT_EQ(values(grad(sum(mesh.output()), std::vector<Variable>{w})[0]),
            values(grad(sum(h), std::vector<Variable>{w})[0]));
}

TEST(GridSystolic, DisabledLayersPassOnWhatTheyRead) {
  Network network(plain());
  network.set_disabled({0, 0, 1, 0}, true);
  const Tensor x = rand({2, 3}, -1, 1).eval();
  Systolic mesh(network);
  mesh.set_input(x);
  mesh.ticks(4);
  EXPECT_EQ(values(mesh.output()), values(network(x)));
}

TEST(GridSystolic, TicksCanBeCompiled) {
  const Network network(plain());
  const Tensor x = rand({2, 3}, -1, 1).eval();
  auto f = compile([&](const Tensor& given) {
    Systolic mesh(network);
    mesh.set_input(given);
    mesh.ticks(4);
    return mesh.output();
  });
  const std::vector<float> got = values(f(x)), wanted = values(network(x));
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], wanted[i], 1e-6);
}

}  // namespace
}  // namespace weft::grid::systolic
