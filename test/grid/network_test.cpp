#include <gtest/gtest.h>

#include <cmath>

#include "weft/compile.hpp"
#include "weft/grad.hpp"
#include "weft/grid.hpp"
#include "weft/nn/losses.hpp"
#include "weft/nn/table.hpp"
#include "weft/ops.hpp"
#include "weft/optim.hpp"

namespace weft::grid::networks {
namespace {

std::vector<float> values(const Tensor& x) { return x.to_vector<float>(); }
std::unique_ptr<Network> network_of(std::vector<Layer> layers) {
  return std::make_unique<Network>(Description::chain(std::move(layers)));
}
void expect_near(const std::vector<float>& got, const std::vector<float>& wanted, double tolerance = 1e-5) {
  ASSERT_EQ(got.size(), wanted.size());
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], wanted[i], tolerance) << i;
}
/// The central difference of the loss when one element of a parameter moves.
double difference(Network& network, const std::function<Tensor()>& loss, const std::string& name, std::size_t element) {
  const nn::StateDict before = network.state_dict();
  const auto moved = [&](float by) {
    nn::StateDict state = before;
    for (nn::NamedArray& array : state)
      if (array.name == name) reinterpret_cast<float*>(array.bytes.data())[element] += by;
    network.load_state_dict(state);
    return loss().item<float>();
  };
  const float h = 1e-2f;
  const double result = (static_cast<double>(moved(h)) - static_cast<double>(moved(-h))) / (2 * h);
  network.load_state_dict(before);
  return result;
}

TEST(GridNetwork, IsAModuleWithNamesByPlace) {
  Description d(1, 2, 1, 2);
  d.at({0, 0, 0, 0}) = dense_layer(3, 4);
  d.at({0, 1, 0, 1}) = mixture_layer({dense_layer(4, 2), sequential_layer({dense_layer(4, 2)})}, dense_layer(4, 2));
  const Network network(d);
  std::vector<std::string> names;
  for (const auto& p : network.named_parameters()) names.push_back(p.name);
  EXPECT_EQ(names, (std::vector<std::string>{"z0y0x0l0.weight", "z0y1x0l1.0.weight", "z0y1x0l1.1.0.weight",
                                             "z0y1x0l1.gate.weight"}));
  EXPECT_NE(nn::to_text(nn::table_of(network)).find("dense inputs 3 outputs 4, relu"), std::string::npos);
  EXPECT_EQ(network(zeros({5, 3})).shape(), (Shape{5, 2}));
}

TEST(GridNetwork, DisabledLayersPassTheirInputOn) {
  auto network = network_of({dense_layer(3, 3), dense_layer(3, 3), residual_layer()});
  const Tensor x = rand({2, 3}, -1, 1).eval();
  const auto weight = [&](std::size_t i) { return network->layer(i).weights()[0]; };
  const Tensor first = relu(linear(x, weight(0)));
  expect_near(values((*network)(x)), values(first + relu(linear(first, weight(1)))));
  // The residual layer's skip is then what the first layer read.
  network->set_disabled({0, 0, 0, 1}, true);
  expect_near(values((*network)(x)), values(x + first));
  network->set_disabled({0, 0, 0, 0}, true);
  expect_near(values((*network)(x)), values(x));
}

TEST(GridNetwork, ResidualAddsWhatTheLayerBeforeRead) {
  const auto network =
      network_of({sequential_layer({dense_layer(3, 3), residual_layer(), dense_layer(3, 2), residual_layer()})});
  const Tensor x = rand({2, 3}, -1, 1).eval();
  const auto& inside = network->layer(0).inside();
  const Tensor first = x + relu(linear(x, inside[0]->weights()[0]));
  expect_near(values((*network)(x)), values(relu(linear(first, inside[2]->weights()[0]))));  // shapes differ: no skip
}

TEST(GridNetwork, ParallelLayersCombineTheirChildren) {
  const Tensor x = rand({4, 3}, -1, 1).eval();
  for (const Combine combine : {Combine::concat, Combine::add, Combine::average, Combine::filter}) {
    SCOPED_TRACE(name_of(combine));
    Layer layer = parallel_layer({dense_layer(3, 2, Activation::tanh), dense_layer(3, 2, Activation::linear)}, combine);
    if (combine == Combine::filter) layer.gate.push_back(dense_layer(3, 2, Activation::linear));
    const auto network = network_of({layer});
    const auto& inside = network->layer(0).inside();
    const Tensor a = tanh(linear(x, inside[0]->weights()[0])), b = linear(x, inside[1]->weights()[0]);
    Tensor wanted;
    switch (combine) {
      case Combine::concat: wanted = concat({a, b}, -1); break;
      case Combine::add: wanted = a + b; break;
      case Combine::average: wanted = (a + b) * 0.5; break;
      case Combine::filter: {
        const Tensor shares = softmax(linear(x, network->layer(0).gate()->weights()[0]), -1);
        wanted = a * narrow(shares, 1, 0, 1) + b * narrow(shares, 1, 1, 1);
      }
    }
    expect_near(values((*network)(x)), values(wanted));
  }
}

// Traps: the shape is lost, and children of unequal sizes are out of bounds.
TEST(GridNetwork, ParallelLayersKeepShapesAndRefuseUnequalOnes) {
  const auto both = network_of({parallel_layer({cnn_layer(2, {.channels = 1, .filters = 2, .padding = 1}),
                                                cnn_layer(2, {.channels = 1, .filters = 2, .padding = 1})},
                                               Combine::add)});
  EXPECT_EQ((*both)(zeros({3, 1, 4, 5})).shape(), (Shape{3, 2, 4, 5}));
  const auto unequal = network_of({parallel_layer({cnn_layer(2, {.channels = 1, .filters = 2, .padding = 1}),
                                                   cnn_layer(2, {.channels = 1, .filters = 3, .padding = 1})},
                                                  Combine::average)});
  try {
    (void)(*unequal)(zeros({3, 1, 4, 5}));
    FAIL();
  } catch (const ShapeError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("child 1 gives [3, 3, 4, 5]"), std::string::npos) << text;
    EXPECT_NE(text.find("running layer 0,0,0,0 (parallel)"), std::string::npos) << text;
  }
}

// Trap: the gate gets no gradient, and those of the children are not weighted by it.
TEST(GridNetwork, TheGateOfAMixtureGetsItsGradient) {
  auto network = network_of({mixture_layer({dense_layer(3, 2, Activation::tanh), dense_layer(3, 2, Activation::tanh)},
                                           dense_layer(3, 2, Activation::linear))});
  const Tensor x = rand({4, 3}, -1, 1).eval(), direction = rand({4, 2}, -1, 1).eval();
  const auto loss = [&] { return sum((*network)(x)*direction); };
  const auto parameters = network->named_parameters();
  const std::vector<Tensor> gradients = grad(loss(), network->parameters());
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const std::vector<float> g = values(gradients[i]);
    double norm = 0;
    for (std::size_t j = 0; j < g.size(); ++j) {
      EXPECT_NEAR(g[j], difference(*network, loss, parameters[i].name, j), 2e-3) << parameters[i].name << " " << j;
      norm += g[j] * g[j];
    }
    EXPECT_GT(norm, 1e-4) << parameters[i].name;
  }
}

TEST(GridNetwork, ChildrenWithLinksShareParameters) {
  Description d(1, 1, 1, 2);
  d.layers[0] = dense_layer(3, 3, Activation::tanh);
  d.layers[1] = sequential_layer({link_layer({0, 0, 0, 0}), link_layer({0, 0, 0, 0})});
  Network network(d);
  EXPECT_EQ(network.parameter_count(), 9);
  const Tensor x = rand({2, 3}, -1, 1).eval(), w = network.layer(0).weights()[0];
  const auto f = [&](const Tensor& v) { return tanh(linear(v, w)); };
  expect_near(values(network(x)), values(f(f(f(x)))));
  const auto loss = [&] { return sum(network(x)); };
  const std::vector<float> g = values(grad(loss(), network.parameters())[0]);
  for (std::size_t i = 0; i < 9; ++i) EXPECT_NEAR(g[i], difference(network, loss, "z0y0x0l0.weight", i), 5e-3);
}

TEST(GridNetwork, LayersWithLinksReadEarlierLayers) {
  Description d = Description::chain({dense_layer(2, 2), dense_layer(2, 3), dense_layer(2, 1, Activation::linear)});
  d.layers[2].link = Coordinate{0, 0, 0, 0};
  const Network network(d);
  const Tensor x = ones({1, 2});
  expect_near(values(network(x)),
              values(linear(relu(linear(x, network.layer(0).weights()[0])), network.layer(2).weights()[0])));
  d.layers[0].link = Coordinate{0, 0, 0, 2};
  EXPECT_THROW((void)Network(d)(x), UsageError);
}

// Trap: visited in blocks of cells, a grid of more than four rows or columns has another order.
TEST(GridNetwork, LargeGridsRunInTheOrderOfTheirIndex) {
  Description d(1, 6, 5, 1);
  for (Layer& layer : d.layers) layer = dense_layer(2, 2, Activation::tanh);
  const Network network(d);
  Tensor wanted = rand({1, 2}, -1, 1).eval();
  const Tensor x = wanted;
  for (std::size_t i = 0; i < d.layers.size(); ++i) wanted = tanh(linear(wanted, network.layer(i).weights()[0]));
  expect_near(values(network(x)), values(wanted), 1e-6);
}

TEST(GridNetwork, APassGivesWhatEveryLayerMade) {
  auto network =
      network_of({dense_layer(3, 4, Activation::tanh), sequential_layer({dense_layer(4, 2), softmax_layer()})});
  const Tensor x = rand({2, 3}, -1, 1).eval();
  const Pass pass = network->pass(x);
  std::vector<std::string> paths;
  for (const LayerPass& layer : pass.layers) paths.push_back(layer.path);
  EXPECT_EQ(paths, (std::vector<std::string>{"0,0,0,0", "0,0,0,1/0", "0,0,0,1/1", "0,0,0,1"}));
  expect_near(values(pass.layers[0].after), values(tanh(pass.layers[0].before)));
  expect_near(values(pass.layers[0].before), values(linear(x, network->layer(0).weights()[0])));
  EXPECT_EQ(values(pass.layers[1].input), values(pass.layers[0].after));
  EXPECT_EQ(values(pass.output), values((*network)(x)));
  auto compiled = compile([&](const Tensor& given) { return network->pass(given).layers[0].before; });
  expect_near(values(compiled(x)), values(pass.layers[0].before), 1e-6);
}

TEST(GridNetwork, CompiledFunctionsFollowChanges) {
  auto network = network_of({dense_layer(3, 3, Activation::linear)});
  auto f = compile([&](const Tensor& given) { return (*network)(given); });
  const Tensor x = rand({2, 3}, -1, 1).eval();
  const auto follows = [&] { expect_near(values(f(x)), values((*network)(x)), 1e-6); };
  follows();
  const std::vector<float> exact = values(f(x));
  network->morph(DType::binary);
  follows();
  EXPECT_NE(values(f(x)), exact);
  network->morph(DType::f32);
  follows();
  EXPECT_EQ(values(f(x)), exact);
  network->set_activation({0, 0, 0, 0}, Activation::relu);
  follows();
  network->set_disabled({0, 0, 0, 0}, true);
  EXPECT_EQ(values(f(x)), values(x));
}

// Trap 17: children lists were shared between clones.
TEST(GridNetwork, ClonesHaveParametersOfTheirOwn) {
  auto network =
      network_of({mixture_layer({dense_layer(2, 2), sequential_layer({dense_layer(2, 2)})}, dense_layer(2, 2))});
  const Tensor x = rand({3, 2}, -1, 1).eval();
  const nn::StateDict before = network->state_dict();
  auto copy = network->clone();
  EXPECT_EQ(copy->description(), network->description());
  EXPECT_EQ(values((*copy)(x)), values((*network)(x)));
  optim::SGD optimizer(*copy, {.learning_rate = 0.5});
  optimizer.step(grad(sum(square((*copy)(x)-1.0)), optimizer.parameters()));
  eval_pending();
  EXPECT_EQ(network->state_dict(), before);
  for (std::size_t i = 0; i < before.size(); ++i) EXPECT_NE(copy->state_dict()[i], before[i]) << before[i].name;
}

Tensor loss_of(const Network& network, const Tensor& x, const Tensor& y) { return nn::mse(network(x), y); }

TEST(GridNetwork, TrainsInEveryNumberType) {
  const Tensor x = rand({64, 4}, -1, 1).eval();
  const Tensor y = (narrow(x, 1, 0, 1) - narrow(x, 1, 1, 1) * narrow(x, 1, 2, 1)).eval();
  for (const DType type : kNumberTypes) {
    manual_seed(3);
    Network network(mlp({4, 16, 1}, Activation::tanh));
    network.morph(type);
    optim::Adam optimizer(network, {.learning_rate = 0.02});
    auto step = compile([&](const Tensor& inputs, const Tensor& wanted) {
      const Tensor loss = loss_of(network, inputs, wanted);
      optimizer.step(grad(loss, optimizer.parameters()));
      return loss;
    });
    const float first = step(x, y).item<float>();
    float last = first;
    for (int i = 0; i < 120; ++i) last = step(x, y).item<float>();
    EXPECT_LT(last, 0.6f * first) << name_of(type);
  }
}

TEST(GridNetwork, FreshLayersStayAsTheyAre) {
  Description d(1, 1, 1, 3);
  d.layers[1] = rms_norm_layer(2);
  Network network(d);
  network.morph(DType::i8);
  EXPECT_TRUE(is_fresh(network.description().layers[0]));
  EXPECT_EQ(network.description().layers[0], d.layers[0]);
  EXPECT_EQ(from_value(to_value(network.description())), network.description());
  EXPECT_THROW(network.set_disabled({0, 0, 0, 0}, false), UsageError);
  EXPECT_THROW(network.set_activation({0, 0, 0, 1}, Activation::relu), UsageError);
}

TEST(GridNetwork, MemoryCountsBits) {
  auto network = network_of({dense_layer(10, 10), rms_norm_layer(10)});
  EXPECT_EQ(network->memory().parameters, 110u);
  EXPECT_EQ(network->memory().master_bytes, 440u);
  EXPECT_EQ(network->memory().packed_bytes, 440u);
  network->morph({0, 0, 0, 0}, DType::binary);
  EXPECT_EQ(network->memory().packed_bytes, 13u + 4u + 40u);
  network->morph(DType::int4);
  EXPECT_EQ(network->memory().packed_bytes, 50u + 4u + 5u + 4u);
  EXPECT_THROW(network->morph(DType::q4_0), UsageError);
  EXPECT_THROW(network->morph({0, 0, 0, 2}, DType::i8), UsageError);
}

TEST(GridNetwork, TransformersAndConvolutionsTrain) {
  manual_seed(1);
  Network language(transformer({.vocabulary = 6, .width = 8, .hidden = 16, .heads = 2, .key_heads = 1, .blocks = 2}));
  const Tensor ids = tensor<std::int32_t>({0, 1, 2, 3, 4, 5, 0, 1, 2, 3}, {2, 5}),
               next = tensor<std::int32_t>({1, 2, 3, 4, 5, 0, 1, 2, 3, 4}, {2, 5});
  optim::Adam optimizer(language, {.learning_rate = 0.02});
  auto step = compile([&](const Tensor& x, const Tensor& y) {
    const Tensor loss = nn::cross_entropy(language(x), y);
    optimizer.step(grad(loss, optimizer.parameters()));
    return loss;
  });
  float loss = 9;
  for (int i = 0; i < 60; ++i) loss = step(ids, next).item<float>();
  EXPECT_LT(loss, 0.1f);  // attention has gradients

  Network images(cnn({.channels = 1, .height = 9, .width = 8, .filters = {2, 3}, .classes = 4}));
  EXPECT_EQ(images(zeros({5, 1, 9, 8})).shape(), (Shape{5, 4}));
  Network any(random({.layers_per_cell = 12, .width = 8, .seed = 2}));
  EXPECT_EQ(any(rand({3, 8})).dim(0), 3);
}

}  // namespace
}  // namespace weft::grid::networks
