// Models made by hand: how they run, and what is refused.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <new>
#include <random>

#include "base/file.hpp"
#include "base/message_of.hpp"
#include "base/mutations.hpp"
#include "base/temporary_folder.hpp"
#include "graph/node.hpp"
#include "onnx/wire.hpp"
#include "weft/compile.hpp"
#include "weft/grad.hpp"
#include "weft/onnx.hpp"
#include "weft/ops.hpp"

namespace weft::onnx::load_test {
namespace {

namespace fs = std::filesystem;
using test::message_of;
using test::TemporaryFolder;

// ---- Files, message by message -------------------------------------------------------------------------------------------

struct TensorParts {
  std::string name;
  std::vector<std::int64_t> dims;
  std::int64_t type = 1;
  std::string raw;
  std::vector<std::pair<std::string, std::string>> external = {};
};
WireWriter message_of_tensor(const TensorParts& t) {
  WireWriter w;
  for (const std::int64_t d : t.dims) w.integer(1, d);
  w.integer(2, t.type);
  w.text(8, t.name);
  if (!t.raw.empty()) w.text(9, t.raw);
  for (const auto& [key, value] : t.external) {
    WireWriter entry;
    entry.text(1, key);
    entry.text(2, value);
    w.message(13, entry);
  }
  if (!t.external.empty()) w.number(14, 1);
  return w;
}
std::string floats(const std::vector<float>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * 4};
}
std::string longs(const std::vector<std::int64_t>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * 8};
}

struct NodeParts {
  std::string type;
  std::vector<std::string> inputs, outputs;
  std::vector<WireWriter> attributes = {};
  std::string domain = {};
};
WireWriter attribute(std::string_view name, std::int64_t value) {
  WireWriter w;
  w.text(1, name);
  w.integer(3, value);
  w.number(20, 2);
  return w;
}
WireWriter attribute(std::string_view name, const WireWriter& graph) {
  WireWriter w;
  w.text(1, name);
  w.message(6, graph);
  w.number(20, 5);
  return w;
}
WireWriter attribute(std::string_view name, const std::vector<std::string>& words) {
  WireWriter w;
  w.text(1, name);
  for (const std::string& word : words) w.text(9, word);
  w.number(20, 8);
  return w;
}
WireWriter attribute(std::string_view name, const std::vector<float>& numbers) {
  WireWriter w;
  w.text(1, name);
  w.text(7, floats(numbers));
  w.number(20, 6);
  return w;
}
WireWriter message_of_node(const NodeParts& n) {
  WireWriter w;
  for (const auto& i : n.inputs) w.text(1, i);
  for (const auto& o : n.outputs) w.text(2, o);
  w.text(4, n.type);
  for (const auto& a : n.attributes) w.message(5, a);
  if (!n.domain.empty()) w.text(7, n.domain);
  return w;
}
// A dimension is a number, or a name.
struct PortParts {
  std::string name;
  std::int64_t type = 1;
  std::vector<std::string> dims = {};
};
WireWriter message_of_port(const PortParts& p) {
  WireWriter shape, tensor, type, port;
  for (const std::string& d : p.dims) {
    WireWriter dim;
    if (!d.empty() && std::isdigit(static_cast<unsigned char>(d[0])))
      dim.integer(1, std::stoll(d));
    else
      dim.text(2, d);
    shape.message(1, dim);
  }
  tensor.integer(1, p.type);
  tensor.message(2, shape);
  type.message(1, tensor);
  port.text(1, p.name);
  port.message(2, type);
  return port;
}
struct GraphParts {
  std::vector<NodeParts> nodes;
  std::vector<PortParts> inputs, outputs;
  std::vector<TensorParts> tensors = {};
};
WireWriter message_of_graph(const GraphParts& g) {
  WireWriter w;
  for (const auto& n : g.nodes) w.message(1, message_of_node(n));
  w.text(2, "graph");
  for (const auto& t : g.tensors) w.message(5, message_of_tensor(t));
  for (const auto& i : g.inputs) w.message(11, message_of_port(i));
  for (const auto& o : g.outputs) w.message(12, message_of_port(o));
  return w;
}
std::string model_of(const WireWriter& graph, std::int64_t opset = 17, const std::vector<WireWriter>& functions = {}) {
  WireWriter model;
  model.integer(1, 8);
  model.message(7, graph);
  for (const auto& [domain, version] : {std::pair<std::string, std::int64_t>("", opset), {"own", 1}}) {
    WireWriter id;
    id.text(1, domain);
    id.integer(2, version);
    model.message(8, id);
  }
  for (const WireWriter& f : functions) model.message(25, f);
  return model.bytes();
}
std::string model_of(const GraphParts& graph, std::int64_t opset = 17) {
  return model_of(message_of_graph(graph), opset);
}

// y = relu(x W + b), with x [batch, 3].
GraphParts layer() {
  return {.nodes = {{"MatMul", {"x", "w"}, {"p"}}, {"Add", {"p", "b"}, {"s"}}, {"Relu", {"s"}, {"y"}}},
          .inputs = {{"x", 1, {"batch", "3"}}},
          .outputs = {{"y", 1, {"batch", "2"}}},
          .tensors = {{"w", {3, 2}, 1, floats({1, 2, 3, 4, 5, 6})}, {"b", {2}, 1, floats({-1, 1})}}};
}

class OnnxLoad : public ::testing::Test {
 protected:
  Model loaded(const std::string& bytes) const { return load(folder_.put("model.onnx", bytes), kCpu); }
  template <class E>
  std::string refusal(const std::string& bytes) const {
    return message_of<E>([&] { (void)loaded(bytes); });
  }
  // What happens with the model at this input.
  template <class E>
  std::string run_refusal(const std::string& bytes, const std::vector<Tensor>& inputs) const {
    return message_of<E>([&] { eval(loaded(bytes)(inputs)); });
  }
  const TemporaryFolder folder_;
};
#define EXPECT_SAYS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

// ---- Runs ----------------------------------------------------------------------------------------------------------------

TEST_F(OnnxLoad, RunsByOrderAndByName) {
  const Model model = loaded(model_of(layer()));
  const Tensor x = tensor({{1.0f, 0.0f, 0.0f}, {0.0f, -1.0f, 0.0f}});
  EXPECT_EQ(model({x})[0].to_vector<float>(), (std::vector<float>{0, 3, 0, 0}));
  EXPECT_EQ(model.run({{"x", x}}).at("y").to_vector<float>(), (std::vector<float>{0, 3, 0, 0}));
  EXPECT_EQ(model.inputs()[0].to_string(), "f32 [batch, 3]");
  EXPECT_SAYS(model.describe(), "MatMul");
}

TEST_F(OnnxLoad, TrainsInsideOfACompiledFunction) {
  const Model model = loaded(model_of(layer()));
  std::vector<Variable> parameters = model.parameters();
  ASSERT_EQ(parameters.size(), 2u);
  const Tensor x = tensor({{1.0f, 2.0f, 1.0f}}), wanted = tensor({{3.0f, 4.0f}});
  auto step = compile([&](const Tensor& in) {
    const Tensor loss = mean(square(model({in})[0] - wanted));
    const std::vector<Tensor> slopes = grad(loss, parameters);
    for (std::size_t i = 0; i < slopes.size(); ++i) parameters[i] -= slopes[i] * 0.02;
    return loss;
  });
  const float first = step(x).item<float>();
  float last = 0;
  for (int i = 0; i < 60; ++i) last = step(x).item<float>();
  EXPECT_GT(first, 10);
  EXPECT_LT(last, 1e-3);
}

TEST_F(OnnxLoad, ShapesAreFoldedInsideOfACompiledFunction) {
  // y = reshape(x, concat(shape(x)[0:1], [-1]))
  const GraphParts graph{
      .nodes = {{"Shape", {"x"}, {"s"}},
                {"Gather", {"s", "zero"}, {"n"}, {attribute("axis", 0)}},
                {"Unsqueeze", {"n", "axis"}, {"row"}},
                {"Concat", {"row", "rest"}, {"to"}, {attribute("axis", 0)}},
                {"Reshape", {"x", "to"}, {"y"}}},
      .inputs = {{"x", 1, {"n", "2", "3"}}},
      .outputs = {{"y", 1, {"n", "6"}}},
      .tensors = {{"zero", {}, 7, longs({0})}, {"axis", {1}, 7, longs({0})}, {"rest", {1}, 7, longs({-1})}}};
  const Model model = loaded(model_of(graph));
  auto run = compile([&](const Tensor& x) { return model({x})[0]; });
  EXPECT_EQ(run(zeros({4, 2, 3})).shape(), Shape({4, 6}));
  EXPECT_EQ(run(zeros({5, 2, 3})).shape(), Shape({5, 6}));
}

TEST_F(OnnxLoad, ShapesAreKnownWhateverTheDefaultDeviceIs) {
  // y = reshape(x, [size(x) / shape(x)[0], shape(x)[0]])
  const GraphParts graph{.nodes = {{"Shape", {"x"}, {"s"}, {attribute("end", 1)}},
                                   {"Size", {"x"}, {"all"}},
                                   {"Div", {"all", "s"}, {"n"}},
                                   {"Concat", {"n", "s"}, {"to"}, {attribute("axis", 0)}},
                                   {"Reshape", {"x", "to"}, {"y"}}},
                         .inputs = {{"x", 1, {"n", "6"}}},
                         .outputs = {{"y", 1, {"6", "n"}}}};
  const Model model = loaded(model_of(graph));
  const Tensor x = zeros({4, 6}, DType::f32, kCpu);
  const Device before = default_device();
  set_default_device({Device::Kind::trace, 0});  // which holds no elements
  std::string error;
  Shape shape;
  try {
    shape = model({x})[0].shape();
  } catch (const Error& e) {
    error = e.what();
  }
  set_default_device(before);
  EXPECT_EQ(shape, Shape({6, 4})) << error;
}

TEST_F(OnnxLoad, ElementsOfArgumentsAreNotKnownInsideOfACompiledFunction) {
  const GraphParts graph{.nodes = {{"Reshape", {"x", "to"}, {"y"}}},
                         .inputs = {{"x", 1, {"6"}}, {"to", 7, {"2"}}},
                         .outputs = {{"y", 1, {"a", "b"}}}};
  const Model model = loaded(model_of(graph));
  const Tensor to = tensor<std::int64_t>({2, 3});
  EXPECT_EQ(model({zeros({6}), to})[0].shape(), Shape({2, 3}));  // where nothing is compiled they are
  auto run = compile([&](const Tensor& x, const Tensor& shape) { return model({x, shape})[0]; });
  EXPECT_SAYS(message_of<UsageError>([&] { run(zeros({6}), to); }),
              "depends on an argument of a function being compiled");
}

// y = h + h[places where h is positive] with h = relu(x w): reading the places computes h, and y is made of that h.
TEST_F(OnnxLoad, WhatIsComputedForAReadIsKeptForLaterNodes) {
  const GraphParts graph{.nodes = {{"MatMul", {"x", "w"}, {"p"}},
                                   {"Relu", {"p"}, {"h"}},
                                   {"Greater", {"h", "zero"}, {"is"}},
                                   {"NonZero", {"is"}, {"places"}},
                                   {"Transpose", {"places"}, {"rows"}},
                                   {"GatherND", {"h", "rows"}, {"found"}},
                                   {"ReduceSum", {"found"}, {"total"}, {attribute("keepdims", 0)}},
                                   {"Add", {"h", "total"}, {"y"}}},
                         .inputs = {{"x", 1, {"2", "2"}}},
                         .outputs = {{"y", 1, {"2", "2"}}},
                         .tensors = {{"w", {2, 2}, 1, floats({1, 0, 0, -1})}, {"zero", {}, 1, floats({0})}}};
  const Model model = loaded(model_of(graph));
  const Tensor y = model({tensor({{1.0f, 2.0f}, {3.0f, -4.0f}})})[0];
  const std::vector<graph::NodeRef> roots{y.node()};
  int kept = 0;
  for (const graph::Node* node : graph::topological_order(roots))
    kept += node->name == "relu" && node->storage.get() != nullptr;
  EXPECT_EQ(kept, 1);
  EXPECT_EQ(y.to_vector<float>(), (std::vector<float>{9, 8, 11, 12}));
}

GraphParts branch(std::string_view type) {
  return {.nodes = {{std::string(type), {"x"}, {"z"}}}, .inputs = {}, .outputs = {{"z"}}};
}
TEST_F(OnnxLoad, FollowsIfAndLoop) {
  const GraphParts choice{.nodes = {{"If",
                                     {"c"},
                                     {"y"},
                                     {attribute("then_branch", message_of_graph(branch("Neg"))),
                                      attribute("else_branch", message_of_graph(branch("Abs")))}}},
                          .inputs = {{"x", 1, {"2"}}, {"c", 9, {}}},
                          .outputs = {{"y", 1, {"2"}}}};
  const Model model = loaded(model_of(choice));
  const Tensor x = tensor({-1.0f, 2.0f});
  EXPECT_EQ(model({x, tensor(true)})[0].to_vector<float>(), (std::vector<float>{1, -2}));
  EXPECT_EQ(model({x, tensor(false)})[0].to_vector<float>(), (std::vector<float>{1, 2}));
  // x doubles n times.
  const GraphParts body{.nodes = {{"Add", {"v", "v"}, {"next"}}, {"Identity", {"go"}, {"on"}}},
                        .inputs = {{"i", 7}, {"go", 9}, {"v", 1}},
                        .outputs = {{"on", 9}, {"next", 1}}};
  const GraphParts loop{.nodes = {{"Loop", {"n", "", "x"}, {"y"}, {attribute("body", message_of_graph(body))}}},
                        .inputs = {{"x", 1, {"2"}}, {"n", 7, {}}},
                        .outputs = {{"y", 1, {"2"}}}};
  EXPECT_EQ(loaded(model_of(loop))({x, tensor<std::int64_t>(3)})[0].to_vector<float>(), (std::vector<float>{-8, 16}));
  EXPECT_SAYS(run_refusal<UsageError>(model_of(loop), {x, tensor<std::int64_t>(1'000'000)}), "more than 65536 steps");
}

TEST_F(OnnxLoad, ALoopWithoutStepsHasEmptyScanOutputs) {
  const GraphParts body{.nodes = {{"Add", {"v", "v"}, {"next"}},
                                  {"Identity", {"go"}, {"on"}},
                                  {"Concat", {"v", "v"}, {"pair"}, {attribute("axis", 0)}}},
                        .inputs = {{"i", 7}, {"go", 9}, {"v", 1}},
                        .outputs = {{"on", 9}, {"next", 1}, {"pair", 1}}};
  const GraphParts loop{
      .nodes = {{"Loop", {"n", "", "x"}, {"y", "pairs"}, {attribute("body", message_of_graph(body))}}},
      .inputs = {{"x", 1, {"2"}}, {"n", 7, {}}},
      .outputs = {{"y", 1, {"2"}}, {"pairs", 1, {"n", "4"}}}};
  const Model model = loaded(model_of(loop));
  const Tensor x = tensor({-1.0f, 2.0f});
  EXPECT_EQ(model({x, tensor<std::int64_t>(2)})[1].shape(), (Shape{2, 4}));
  const std::vector<Tensor> none = model({x, tensor<std::int64_t>(0)});
  EXPECT_EQ(none[0].to_vector<float>(), (std::vector<float>{-1, 2}));
  EXPECT_EQ(none[1].shape(), (Shape{0, 4}));
}

// As ONNX says, and ONNX Runtime does: numbers go in order to the activations that have them.
TEST_F(OnnxLoad, ActivationsOfRecurrentNetworksTakeTheirNumbersInOrder) {
  // Gates 0, so h' = (1 - s(0)) f(0 + x) with the state 0: half of f(x).
  const auto made = [&](const std::string& second, const std::vector<float>& alphas, const std::vector<float>& betas) {
    const GraphParts graph{
        .nodes = {{"GRU",
                   {"x", "w", "r"},
                   {"", "h"},
                   {attribute("hidden_size", 1), attribute("activations", std::vector<std::string>{"Sigmoid", second}),
                    attribute("activation_alpha", alphas), attribute("activation_beta", betas)}}},
        .inputs = {{"x", 1, {"1", "1", "1"}}},
        .outputs = {{"h", 1, {"1", "1", "1"}}},
        .tensors = {{"w", {1, 3, 1}, 1, floats({0, 0, 1})}, {"r", {1, 3, 1}, 1, floats({0, 0, 0})}}};
    return loaded(model_of(graph))({tensor({-2.0f}, {1, 1, 1})})[0].item<float>();
  };
  EXPECT_FLOAT_EQ(made("LeakyRelu", {0.25f}, {}), 0.5f * -0.5f);
  EXPECT_FLOAT_EQ(made("LeakyRelu", {}, {}), 0.5f * -0.02f);
  EXPECT_FLOAT_EQ(made("Affine", {3}, {1}), 0.5f * -5);
  EXPECT_FLOAT_EQ(made("ScaledTanh", {2}, {0.5f}), std::tanh(-1.0f));
  EXPECT_FLOAT_EQ(made("HardSigmoid", {0.1f}, {0.6f}), 0.5f * 0.4f);
  EXPECT_FLOAT_EQ(made("Elu", {2}, {}), std::exp(-2.0f) - 1);
  EXPECT_FLOAT_EQ(made("ThresholdedRelu", {-3}, {}), -1);
}

// y = x + (q - zero) scale, for stored integers of 4 or 2 bits.
TEST_F(OnnxLoad, ReadsWeightsOfAFewBits) {
  GraphParts graph{.nodes = {{"DequantizeLinear", {"q", "scale", "zero"}, {"w"}, {attribute("axis", 0)}},
                             {"Add", {"x", "w"}, {"y"}}},
                   .inputs = {{"x", 1, {"3"}}},
                   .outputs = {{"y", 1, {"3"}}},
                   // The second number of a byte is in its upper bits.
                   .tensors = {{"q", {3}, 22, std::string("\x9f\x07", 2)},
                               {"scale", {3}, 1, floats({1, 2, 3})},
                               {"zero", {3}, 22, std::string("\x01\x02", 2)}}};
  const Tensor x = zeros({3});
  EXPECT_EQ(loaded(model_of(graph, 21))({x})[0].to_vector<float>(), (std::vector<float>{-2, -14, 15}));
  graph.tensors[0].type = graph.tensors[2].type = 21;
  EXPECT_EQ(loaded(model_of(graph, 21))({x})[0].to_vector<float>(), (std::vector<float>{14, 18, 15}));
  graph.tensors[0] = {"q", {3}, 26, std::string("\x1e", 1)};  // 2, 3, 1 of two bits: -2, -1, 1
  graph.tensors[2] = {"zero", {3}, 26, std::string("\x00", 1)};
  EXPECT_EQ(loaded(model_of(graph, 25))({x})[0].to_vector<float>(), (std::vector<float>{-2, -2, 3}));
  graph.tensors[0].raw = std::string(2, 0);
  EXPECT_SAYS(refusal<FileError>(model_of(graph, 25)), "needs 1 bytes, and the file has 2");

  // Results of 4 bits would need their limits.
  graph.nodes = {{"QuantizeLinear", {"x", "scale", "zero"}, {"y"}, {attribute("axis", 0)}}};
  graph.tensors = {{"scale", {3}, 1, floats({1, 2, 3})}, {"zero", {3}, 22, std::string(2, 0)}};
  EXPECT_SAYS(run_refusal<DTypeError>(model_of(graph, 21), {x}), "it makes elements of INT4");
}

// Converters to f16 put casts of inputs at the end of the file, and ONNX Runtime reads that.
TEST_F(OnnxLoad, PutsNodesInOrder) {
  GraphParts graph = layer();
  std::reverse(graph.nodes.begin(), graph.nodes.end());
  const Tensor x = tensor({{1.0f, 0.0f, -1.0f}});
  EXPECT_EQ(loaded(model_of(graph))({x})[0].to_vector<float>(), loaded(model_of(layer()))({x})[0].to_vector<float>());

  // A branch reads what a later node makes, and has a name of its own that the node around it has too.
  const GraphParts inner{.nodes = {{"Add", {"x", "late"}, {"y"}}}, .inputs = {}, .outputs = {{"y"}}};
  const GraphParts outer{.nodes = {{"If",
                                    {"is"},
                                    {"y"},
                                    {attribute("then_branch", message_of_graph(inner)),
                                     attribute("else_branch", message_of_graph(branch("Neg")))}},
                                   {"Relu", {"x"}, {"late"}}},
                         .inputs = {{"x", 1, {"2"}}},
                         .outputs = {{"y", 1, {"2"}}},
                         .tensors = {{"is", {}, 9, std::string(1, 1)}}};
  EXPECT_EQ(loaded(model_of(outer))({tensor({-1.0f, 2.0f})})[0].to_vector<float>(), (std::vector<float>{-1, 4}));
}

// sklearn-onnx ends classifiers with a list of maps; Weft gives the table of scores.
TEST_F(OnnxLoad, GivesScoresForMapsAndRefusesBrokenTrees) {
  const auto whole = [](std::string_view name, const std::vector<std::int64_t>& values) {
    WireWriter w;
    w.text(1, name);
    for (const std::int64_t v : values) w.integer(8, v);
    w.number(20, 7);
    return w;
  };
  GraphParts graph{.nodes = {{"ZipMap", {"x"}, {"y"}, {whole("classlabels_int64s", {4, 7})}, "ai.onnx.ml"}},
                   .inputs = {{"x", 1, {"n", "2"}}},
                   .outputs = {{"y", 1, {"n", "2"}}}};
  const Tensor x = tensor({{0.25f, 0.75f}});
  EXPECT_EQ(loaded(model_of(graph))({x})[0].to_vector<float>(), (std::vector<float>{0.25f, 0.75f}));

  // A tree of a node and two leaves: x[feature] <= 0.5 gives 1, else 2.
  const auto tree = [&](std::int64_t feature, const std::vector<std::int64_t>& yes, std::int64_t leaf) {
    graph.nodes = {
        {"TreeEnsembleRegressor",
         {"x"},
         {"y"},
         {whole("nodes_treeids", {0, 0, 0}), whole("nodes_nodeids", {0, 1, 2}),
          whole("nodes_featureids", {feature, 0, 0}), whole("nodes_truenodeids", yes),
          whole("nodes_falsenodeids", {2, 0, 0}), whole("target_treeids", {0, 0}), whole("target_nodeids", {1, leaf}),
          whole("target_ids", {0, 0}), attribute("nodes_values", std::vector<float>{0.5f, 0, 0}),
          attribute("target_weights", std::vector<float>{1, 2}),
          attribute("nodes_modes", std::vector<std::string>{"BRANCH_LEQ", "LEAF", "LEAF"})},
         "ai.onnx.ml"}};
    return model_of(graph);
  };
  EXPECT_EQ(loaded(tree(1, {1, 0, 0}, 2))({x})[0].to_vector<float>(), (std::vector<float>{2}));
  EXPECT_EQ(loaded(tree(0, {1, 0, 0}, 2))({x})[0].to_vector<float>(), (std::vector<float>{1}));
  EXPECT_SAYS(run_refusal<ShapeError>(tree(2, {1, 0, 0}, 2), {x}), "x has no feature 2");
  EXPECT_SAYS(run_refusal<UsageError>(tree(0, {0, 0, 0}, 2), {x}), "cycle");
  EXPECT_SAYS(run_refusal<UsageError>(tree(0, {5, 0, 0}, 2), {x}), "tree 0 has no node 5");
  EXPECT_SAYS(run_refusal<UsageError>(tree(0, {1, 0, 0}, 3), {x}), "tree 0 has no node 3");
}

TEST_F(OnnxLoad, InlinesFunctionsOfTheFile) {
  WireWriter function;
  function.text(1, "Double");
  function.text(4, "a");
  function.text(5, "b");
  function.message(7, message_of_node({"Add", {"a", "a"}, {"b"}}));
  function.text(10, "own");
  const GraphParts graph{.nodes = {{"Double", {"x"}, {"t"}, {}, "own"}, {"Double", {"t"}, {"y"}, {}, "own"}},
                         .inputs = {{"x", 1, {"1"}}},
                         .outputs = {{"y", 1, {"1"}}}};
  EXPECT_EQ(loaded(model_of(message_of_graph(graph), 17, {function}))({tensor({3.0f})})[0].item<float>(), 12);
  // A function that uses itself.
  WireWriter endless;
  endless.text(1, "Double");
  endless.text(4, "a");
  endless.text(5, "b");
  endless.message(7, message_of_node({"Double", {"a"}, {"b"}, {}, "own"}));
  endless.text(10, "own");
  EXPECT_SAYS(refusal<UsageError>(model_of(message_of_graph(graph), 17, {endless})), "own.Double");
}

TEST_F(OnnxLoad, ReadsExternalData) {
  folder_.put("weights.bin", "1234" + floats({1, 2, 3, 4, 5, 6}));
  GraphParts graph = layer();
  graph.tensors[0] = {"w", {3, 2}, 1, "", {{"location", "weights.bin"}, {"offset", "4"}, {"length", "24"}}};
  EXPECT_EQ(loaded(model_of(graph))({tensor({{1.0f, 0.0f, 0.0f}})})[0].to_vector<float>(), (std::vector<float>{0, 3}));
  const auto with = [&](const std::string& location, const std::string& offset, const std::string& length) {
    graph.tensors[0].external = {{"location", location}, {"offset", offset}, {"length", length}};
    return refusal<FileError>(model_of(graph));
  };
  EXPECT_SAYS(with("../weights.bin", "4", "24"), "leaves the folder");
  EXPECT_SAYS(with("a/../../weights.bin", "4", "24"), "leaves the folder");
  EXPECT_SAYS(with("/etc/hostname", "0", "24"), "not relative");
  EXPECT_SAYS(with("", "0", "24"), "no location");
  EXPECT_SAYS(with("gone.bin", "0", "24"), "cannot be opened");
  EXPECT_SAYS(with("weights.bin", "5", "24"), "beyond the end");
  EXPECT_SAYS(with("weights.bin", "99999999999999", "24"), "beyond the end");
  EXPECT_SAYS(with("weights.bin", "4", "20"), "needs 24 bytes");
  EXPECT_SAYS(with("weights.bin", "-4", "24"), "not a size");
  EXPECT_SAYS(with("weights.bin", "4", "1e9"), "not a size");
  const TemporaryFolder outside;
  outside.put("secret.bin", floats({1, 2, 3, 4, 5, 6}));
  fs::create_symlink(outside / "secret.bin", folder_ / "link.bin");
  EXPECT_SAYS(with("link.bin", "0", "24"), "through a link");
  fs::create_directory(folder_ / "sub");
  EXPECT_NE(with("sub", "0", "24"), "no error");
}

// The address space holds the file, the tensor, and not a second copy of the weight.
TEST_F(OnnxLoad, CopiesWeightsOnce) {
  constexpr std::size_t size = std::size_t{256} << 20;
  const fs::path data = folder_.put("weights.bin", "");
  fs::resize_file(data, size);  // takes no room on the disk
  const GraphParts graph{
      .nodes = {{"Gather", {"w", "x"}, {"y"}}},
      .inputs = {{"x", 7, {"1"}}},
      .outputs = {{"y", 1, {"1"}}},
      .tensors = {{"w", {static_cast<std::int64_t>(size / 4)}, 1, "", {{"location", "weights.bin"}}}}};
  const std::string bytes = model_of(graph);
  (void)loaded(model_of(layer()));  // starts what the session needs
  const test::MemoryLimit limit(2 * size + size / 2);
  EXPECT_EQ(loaded(bytes)({tensor<std::int64_t>({5})})[0].item<float>(), 0);
}

TEST_F(OnnxLoad, ChecksInputs) {
  const Model model = loaded(model_of(layer()));
  EXPECT_SAYS(message_of<UsageError>([&] { model(std::vector<Tensor>{}); }), "0 inputs are given; it takes 1");
  EXPECT_SAYS(message_of<ShapeError>([&] { model({zeros({2, 4})}); }), "another shape");
  EXPECT_SAYS(message_of<ShapeError>([&] { model({zeros({3})}); }), "another number of axes");
  EXPECT_SAYS(message_of<DTypeError>([&] { model({zeros({2, 3}, DType::f64)}); }), "another dtype");
  EXPECT_SAYS(message_of<UsageError>([&] { model.run({}); }), "input \"x\" is missing");
  EXPECT_SAYS(message_of<UsageError>([&] {
                model.run({{"x", zeros({2, 3})}, {"xx", zeros({1})}});
              }),
              "no input \"xx\"");
}

TEST_F(OnnxLoad, TheMeanOfNothingIsThatOfOnnxRuntime) {
  const GraphParts mean = {
      .nodes = {{"ReduceMean", {"x"}, {"y"}}}, .inputs = {{"x", 1, {"2", "n"}}}, .outputs = {{"y", 1, {"1", "1"}}}};
  EXPECT_EQ(loaded(model_of(mean))({zeros({2, 0})})[0].to_vector<float>(), std::vector<float>{0});
  EXPECT_EQ(loaded(model_of(mean))({ones({2, 3})})[0].to_vector<float>(), std::vector<float>{1});
}

// ---- Refusals --------------------------------------------------------------------------------------------------------------

TEST_F(OnnxLoad, RefusesGraphsThatDoNotHoldTogether) {
  const auto with = [&](auto change) {
    GraphParts graph = layer();
    change(graph);
    return refusal<FileError>(model_of(graph));
  };
  EXPECT_SAYS(with([](GraphParts& g) { g.nodes[0].inputs[1] = "v"; }), "nothing makes its input \"v\"");
  EXPECT_SAYS(with([](GraphParts& g) { g.nodes[0].inputs[0] = "y"; }), "form a cycle");
  EXPECT_SAYS(with([](GraphParts& g) { g.nodes[1].outputs[0] = "p"; }), "made twice");
  EXPECT_SAYS(with([](GraphParts& g) { g.outputs[0].name = "q"; }), "nothing makes the output \"q\"");
  EXPECT_SAYS(with([](GraphParts& g) { g.tensors[1].name = "w"; }), "two initialisers");
  EXPECT_SAYS(with([](GraphParts& g) { g.inputs.push_back(g.inputs[0]); }), "two inputs");
  EXPECT_SAYS(with([](GraphParts& g) { g.inputs[0].name = ""; }), "has no name");
}

TEST_F(OnnxLoad, RefusesElementsThatDoNotFit) {
  const auto with = [&](std::vector<std::int64_t> dims, std::int64_t type, std::string raw) {
    GraphParts graph = layer();
    graph.tensors[0] = {"w", std::move(dims), type, std::move(raw)};
    return message_of<Error>([&] { (void)loaded(model_of(graph)); });
  };
  EXPECT_SAYS(with({3, 3}, 1, floats({1, 2, 3, 4, 5, 6})), "needs 36 bytes, and the file has 24");
  EXPECT_SAYS(with({-3, -2}, 1, floats({1, 2, 3, 4, 5, 6})), "extent -3 of shape [-3, -2] is negative");
  EXPECT_SAYS(with({INT64_MAX, 2}, 1, "aaaa"), "overflows 64 bits");
  EXPECT_SAYS(with({INT64_MAX / 2, 2}, 1, "aaaa"), "overflows 64 bits");
  EXPECT_SAYS(with({0, INT64_MAX, INT64_MAX}, 1, ""), "overflows 64 bits");
  EXPECT_SAYS(with({1LL << 40}, 1, "aaaa"), "needs 4398046511104 bytes");
  EXPECT_SAYS(with({1LL << 40}, 1, ""), "needs 4398046511104 bytes, and the file has 0");
  EXPECT_SAYS(with({2}, 8, "ab"), "elements of STRING");
  EXPECT_SAYS(with({2}, 14, "0123456789abcdef"), "elements of COMPLEX64");
  EXPECT_SAYS(with({2}, 99, "ab"), "elements of type 99");
  EXPECT_SAYS(with({2}, 0, "ab"), "elements of UNDEFINED");
  EXPECT_SAYS(with(std::vector<std::int64_t>(65, 1), 1, floats({1})), "more than 16 axes");
}

TEST_F(OnnxLoad, NamesEveryOperatorThatIsMissing) {
  GraphParts graph = layer();
  graph.nodes.push_back({"Foo", {"y"}, {"f"}});
  graph.nodes.push_back({"Foo", {"f"}, {"g"}});
  graph.nodes.push_back({"Bar", {"g"}, {"h"}, {}, "com.example"});
  graph.nodes.push_back({"StringNormalizer", {"h"}, {"i"}});
  EXPECT_SAYS(refusal<UsageError>(model_of(graph)), "Foo (2 uses), StringNormalizer (1 use), com.example.Bar (1 use)");
}

TEST_F(OnnxLoad, RefusesOtherOpsetsAndOtherFiles) {
  EXPECT_SAYS(refusal<UsageError>(model_of(layer(), 29)), "opset 29; Weft reads 1 to 28");
  EXPECT_SAYS(refusal<UsageError>(model_of(layer(), 0)), "opset 0");
  EXPECT_SAYS(refusal<UsageError>(model_of(layer(), -1)), "opset -1");
  EXPECT_SAYS(refusal<FileError>(""), "there is no graph");
  EXPECT_SAYS(refusal<FileError>("GGUF\x03\x00\x00\x00"), "model");
  EXPECT_SAYS(refusal<FileError>(std::string(64, '\xff')), "more than 64 bits");
  EXPECT_SAYS(refusal<FileError>("\x3a\xff\xff\xff\xff\x0f"), "of which only 0 are there");
  EXPECT_SAYS(refusal<FileError>("\x08"), "truncated");
  EXPECT_SAYS(refusal<FileError>("\x0b"), "unknown form 3");
  EXPECT_SAYS(message_of<FileError>([&] { (void)load(folder_ / "none.onnx"); }), "none.onnx");
}

TEST_F(OnnxLoad, RefusesDeepNestingAndTooManyMessages) {
  WireWriter graph = message_of_graph(branch("Neg"));
  for (int i = 0; i < 40; ++i) {
    GraphParts outer{
        .nodes = {{"If", {"x"}, {"z"}, {attribute("then_branch", graph)}}}, .inputs = {}, .outputs = {{"z"}}};
    graph = message_of_graph(outer);
  }
  EXPECT_SAYS(refusal<FileError>(model_of(graph)), "nested more than 16 deep");
  WireWriter many;
  std::string nodes;
  for (int i = 0; i < 2'100'000; ++i) nodes += std::string("\x0a\x00", 2);  // empty nodes
  many.text(7, nodes);
  EXPECT_SAYS(refusal<FileError>(many.bytes()), "more than 2000000 messages");
}

TEST_F(OnnxLoad, RefusesHugeResultsOfSmallNodes) {
  const auto run = [&](const std::string& type, std::vector<std::int64_t> numbers) {
    const auto count = static_cast<std::int64_t>(numbers.size());
    std::vector<std::string> inputs{"n"};
    if (type != "ConstantOfShape") inputs = {"x", "n"};
    const GraphParts graph{.nodes = {{type, inputs, {"y"}}},
                           .inputs = {{"x", 1, {"1"}}},
                           .outputs = {{"y"}},
                           .tensors = {{"n", {count}, 7, longs(numbers)}}};
    return run_refusal<ShapeError>(model_of(graph), {zeros({1})});
  };
  EXPECT_SAYS(run("ConstantOfShape", {1LL << 20, 1LL << 20}), "too large");
  EXPECT_SAYS(run("ConstantOfShape", {INT64_MAX, INT64_MAX}), "overflows");
  EXPECT_SAYS(run("ConstantOfShape", {-1}), "negative");
  EXPECT_SAYS(run("Expand", {1LL << 20, 1LL << 20}), "too large");
  EXPECT_SAYS(run("Tile", {1LL << 40}), "too large");
  EXPECT_SAYS(run("Pad", {1LL << 40, 0}), "too large");
  EXPECT_SAYS(run("Pad", {-5, 0}), "cut more than there is");
}

// Every truncation and flipped bit ends in an error of Weft or in a model that runs, within little memory.
TEST_F(OnnxLoad, SurvivesMutations) {
  GraphParts graph = layer();
  graph.nodes.push_back({"If",
                         {"c"},
                         {"z"},
                         {attribute("then_branch", message_of_graph(branch("Neg"))),
                          attribute("else_branch", message_of_graph(branch("Abs")))}});
  graph.tensors.push_back({"c", {}, 9, "\x01"});
  graph.nodes.push_back({"Softmax", {"y"}, {"soft"}, {attribute("axis", 1)}});
  graph.nodes.push_back({"Slice", {"soft", "from", "to"}, {"part"}});
  graph.tensors.push_back({"from", {1}, 7, longs({0})});
  graph.tensors.push_back({"to", {1}, 7, longs({1})});
  graph.outputs.push_back({"part", 1, {"a", "b"}});
  const std::string good = model_of(graph);
  const Tensor x = ones({2, 3});
  ASSERT_EQ(loaded(good)({x}).size(), 2u);
  const test::MemoryLimit limit(std::size_t{512} << 20);
  test::for_each_mutation(good, good.size(), 400, [&](const std::string& bytes, const std::string& what) {
    SCOPED_TRACE(what);
    try {
      eval(loaded(bytes)({x}));
    } catch (const Error&) {  // InternalError too would be one: check
    } catch (const std::exception& other) {
      ADD_FAILURE() << other.what();
    }
  });
}

// Random graphs of fields: forms, lengths and nesting that no writer makes.
TEST_F(OnnxLoad, SurvivesRandomMessages) {
  std::mt19937 draw(11);
  const auto number = [&](unsigned n) { return static_cast<unsigned>(draw() % n); };
  const std::uint32_t fields[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 13, 14, 20, 21, 25};
  std::function<WireWriter(int)> message = [&](int depth) {
    WireWriter w;
    for (unsigned i = number(7); i-- > 0;) {
      const std::uint32_t field = fields[number(std::size(fields))];
      switch (number(depth > 0 ? 4 : 3)) {
        case 0:
          w.integer(field, number(3) ? static_cast<std::int64_t>(number(20))
                                     : static_cast<std::int64_t>(draw()) << number(33));
          break;
        case 1: w.text(field, std::string(number(12), static_cast<char>(number(256)))); break;
        case 2: w.text(field, number(2) ? "x" : "Relu"); break;
        default: w.message(field, message(depth - 1)); break;
      }
    }
    return w;
  };
  const test::MemoryLimit limit(std::size_t{512} << 20);
  const int count = test::every_mutation() ? 200'000 : 2'000;
  for (int i = 0; i < count; ++i) {
    WireWriter model;
    WireWriter id;
    id.text(1, "");
    id.integer(2, 17);
    model.message(8, id);
    model.message(7, message(5));
    try {
      (void)loaded(model.bytes());
    } catch (const Error&) {
    }
  }
}

}  // namespace
}  // namespace weft::onnx::load_test
