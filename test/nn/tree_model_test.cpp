// Models of component trees: keyed changes keep what was trained.
#include "weft/nn/tree_model.hpp"

#include <gtest/gtest.h>

#include <map>

#include "base/message_of.hpp"
#include "weft/compile.hpp"
#include "weft/nn/layers.hpp"
#include "weft/ops.hpp"
#include "weft/ops/random.hpp"

namespace weft::nn {
namespace {

Value tree_of(const char* json) { return Value::parse(json); }
std::map<std::string, std::vector<float>> state_of(const Module& model) {
  std::map<std::string, std::vector<float>> state;
  for (const NamedParameter& each : model.named_parameters())
    state[each.name] = each.variable.value().to_vector<float>();
  return state;
}
constexpr const char* kThree = R"({"type": "Sequential", "children": [
  {"type": "Linear", "props": {"key": "in", "inputs": 4, "outputs": 6}}, {"type": "Tanh"},
  {"type": "Residual", "props": {"key": "middle"}, "children": [{"type": "Linear", "props": {"inputs": 6, "outputs": 6}}, {"type": "Relu"}]},
  {"type": "Linear", "props": {"key": "out", "inputs": 6, "outputs": 2}}]})";

TEST(TreeModel, ComputesWhatItsLayersCompute) {
  manual_seed(3);
  const TreeModel model(tree_of(kThree));
  manual_seed(3);
  struct Plain : Module {
    Child<Linear> in{this, "in", 4, 6};
    struct Middle : Module {
      Child<Linear> inner{this, "0", 6, 6};
    };
    Child<Middle> middle{this, "middle"};
    Child<Linear> out{this, "out", 6, 2};
    Tensor operator()(const Tensor& x) const {
      const Tensor h = tanh(in(x));
      return out(h + relu(middle.inner(h)));
    }
  } plain;
  const Tensor x = rand({5, 4}, -1, 1).eval();
  EXPECT_EQ(model(x).to_vector<float>(), plain(x).to_vector<float>());
  EXPECT_EQ(state_of(model), state_of(plain)) << "names and initial values are those of modules";
  const TreeModel wide(tree_of(R"({"type": "Parallel", "props": {"combine": "concat"}, "children": [
    {"type": "Softmax"}, {"type": "Sequential"}]})"));
  EXPECT_EQ(wide(zeros({1, 2})).to_vector<float>(), (std::vector<float>{0.5, 0.5, 0, 0}));
}

TEST(TreeModel, AnEqualTreeMakesNothingNewAndTracesNothing) {
  TreeModel model(tree_of(kThree));
  int traced = 0;
  const auto run = compile([&](const Tensor& x) {
    ++traced;
    return model(x);
  });
  const Tensor x = rand({5, 4}, -1, 1).eval();
  const auto before = run(x).to_vector<float>();
  const auto variables = model.parameters();
  EXPECT_TRUE(model.render(tree_of(kThree)).empty());
  EXPECT_EQ(run(x).to_vector<float>(), before);
  EXPECT_EQ(traced, 1);
  for (std::size_t i = 0; i < variables.size(); ++i) EXPECT_EQ(model.parameters()[i].cell(), variables[i].cell());

  // A change is traced anew.
  EXPECT_EQ(model
                .render(tree_of(R"({"type": "Sequential", "children": [
    {"type": "Linear", "props": {"key": "in", "inputs": 4, "outputs": 6}},
    {"type": "Linear", "props": {"key": "out", "inputs": 6, "outputs": 2}}]})"))
                .size(),
            2u);
  EXPECT_NE(run(x).to_vector<float>(), before);
  EXPECT_EQ(traced, 2);
}

TEST(TreeModel, ChangesKeepTheParametersOfWhatStays) {
  manual_seed(5);
  TreeModel model(tree_of(kThree));
  model.eval();
  for (const Variable& each : model.parameters()) Variable(each).assign(each.value() + 1);  // as if trained
  const auto before = state_of(model);
  const Variable in = model.named_parameters()[0].variable;
  // Moved, put in, taken out, nested; `middle` has other props inside.
  const auto edits = model.render(tree_of(R"({"type": "Sequential", "children": [
    {"type": "LayerNorm", "props": {"width": 4}},
    {"type": "Residual", "props": {"key": "middle"}, "children": [{"type": "Linear", "props": {"inputs": 4, "outputs": 4}}]},
    {"type": "Linear", "props": {"key": "in", "inputs": 4, "outputs": 6}},
    {"type": "Linear", "props": {"key": "out", "inputs": 6, "outputs": 2}}]})"));
  EXPECT_FALSE(edits.empty());
  const auto after = state_of(model);
  EXPECT_EQ(after.at("in.weight"), before.at("in.weight"));
  EXPECT_EQ(after.at("out.bias"), before.at("out.bias"));
  EXPECT_EQ(after.at("middle.0.weight").size(), 16u) << "other props make another layer";
  EXPECT_TRUE(after.contains("0.weight")) << "the norm";
  EXPECT_FALSE(model.is_training());
  // The variable itself is the same, so that optimisers go on.
  bool found = false;
  for (const NamedParameter& each : model.named_parameters())
    found = found || (each.name == "in.weight" && each.variable.cell() == in.cell());
  EXPECT_TRUE(found);
  EXPECT_EQ(model(zeros({1, 4})).shape(), Shape({1, 2}));

  // Another key is another layer even with equal props; a new type below the same key too.
  const auto kept = state_of(model);
  model.render(tree_of(R"({"type": "Sequential", "children": [
    {"type": "Linear", "props": {"key": "first", "inputs": 4, "outputs": 6}},
    {"type": "Embedding", "props": {"key": "out", "rows": 6, "width": 2}}]})"));
  EXPECT_NE(state_of(model).at("first.weight"), kept.at("in.weight"));
  EXPECT_EQ(state_of(model).at("out.weight").size(), 12u);
}

TEST(TreeModel, RefusesAndStaysAsItWas) {
  TreeModel model(tree_of(kThree), 1000);
  const auto before = state_of(model);
  const Value element = model.element();
  for (const char* wrong :
       {R"({"type": "Dense"})", R"({"type": "Linear", "props": {"inputs": 4}})",
        R"({"type": "Linear", "props": {"inputs": 4, "outputs": 0}})",
        R"({"type": "Linear", "props": {"inputs": "4", "outputs": 1}})",
        R"({"type": "Linear", "props": {"inputs": 4, "outputs": 4, "bais": true}})",
        R"({"type": "Linear", "props": {"inputs": 4, "outputs": 1048577}})",
        R"({"type": "Linear", "props": {"inputs": 1048576, "outputs": 1048576}})",
        R"({"type": "Relu", "children": [{"type": "Relu"}]})", R"({"type": "Parallel"})",
        R"({"type": "Parallel", "props": {"combine": "mul"}, "children": [{"type": "Relu"}]})",
        R"({"type": "Sequential", "children": [{"type": "Relu", "props": {"key": "a.b"}}]})",
        R"({"type": "Sequential", "children": [{"type": "Relu", "props": {"key": "1"}}, {"type": "Relu"}]})",
        R"({"type": "Dropout", "props": {"p": 1}})"})
    EXPECT_THROW(model.render(tree_of(wrong)), UsageError) << wrong;
  EXPECT_EQ(
      test::message_of<UsageError>([&] {
        model.render(tree_of(R"({"type": "Sequential", "children": [{"type": "Linear", "props": {"inputs": 4}}]})"));
      }),
      "/children/0: Linear: needs the prop outputs");
  EXPECT_EQ(state_of(model), before);
  EXPECT_EQ(model.element(), element);
  EXPECT_EQ(model(zeros({1, 4})).shape(), Shape({1, 2}));
}

}  // namespace
}  // namespace weft::nn
