#include "weft/nn/module.hpp"
#include "base/message_of.hpp"

#include <gtest/gtest.h>

#include <filesystem>

#include "weft/nn.hpp"
#include "weft/ops.hpp"
#include "weft/weft.hpp"

namespace weft::nn {
namespace {

using test::message_of;

struct Pair : Module {
  Linear first{3, 4}, second{4, 2};
  Dropout dropout{0.5};
  Variable seen = buffer("seen", zeros({2}, DType::i32));
  Pair() {
    add("first", first);
    add("second", second);
    add("dropout", dropout);
  }
  Tensor operator()(const Tensor& x) const { return second(relu(first(x))); }
};

TEST(Module, NamesAreDottedAndInOrder) {
  Pair pair;
  std::vector<std::string> names;
  for (const NamedParameter& p : pair.named_parameters()) names.push_back(p.name);
  EXPECT_EQ(names, (std::vector<std::string>{"first.weight", "first.bias", "second.weight", "second.bias"}));
  EXPECT_EQ(pair.parameters()[2].name(), "second.weight");
  EXPECT_EQ(pair.named_buffers().at(0).name, "seen");
  EXPECT_EQ(pair.parameter_count(), 12 + 4 + 8 + 2);
  EXPECT_EQ(pair.second.path(), "second");
}

TEST(Module, MatricesDecayAndVectorsDoNot) {
  Pair pair;
  for (const NamedParameter& p : pair.named_parameters()) EXPECT_EQ(p.decay, p.variable.shape().rank() == 2) << p.name;
}

TEST(Module, ModeReachesChildren) {
  Pair pair;
  EXPECT_TRUE(pair.dropout.is_training());
  pair.eval();
  EXPECT_FALSE(pair.dropout.is_training());
  pair.train();
  EXPECT_TRUE(pair.dropout.is_training());
}

TEST(Module, AMemberThatWasNotAddedIsNamed) {
  struct Forgetful : Module {
    Child<Linear> hidden{this, "hidden", 3, 4};
    Linear output{4, 2};
    Tensor operator()(const Tensor& x) const { return output(hidden(x)); }
  };
  struct Outer : Module {
    Child<Forgetful> inner{this, "inner"};
  };
  struct ByHand : Module {
    Forgetful inner;
    ByHand() { add("inner", inner); }
  };
  const auto expect_named = [](const std::string& message) {
    EXPECT_NE(message.find("Forgetful"), std::string::npos) << message;
    EXPECT_NE(message.find(" has a member weft::nn::Linear (Linear 4 -> 2)"), std::string::npos) << message;
    EXPECT_NE(message.find("was not added"), std::string::npos) << message;
  };
  Forgetful forgetful;
  expect_named(message_of<UsageError>([&] { check_members(forgetful); }));
  expect_named(message_of<UsageError>([] { Outer outer; }));
  expect_named(message_of<UsageError>([] { Sequential().emplace<Forgetful>(); }));
  expect_named(message_of<UsageError>([] { ModuleList<Forgetful>().emplace(); }));
  ByHand by_hand;
  EXPECT_NE(message_of<UsageError>([&] { check_members(by_hand); }).find("was not added"), std::string::npos);

  struct Apart : Module {
    Child<Linear> hidden{this, "hidden", 3, 4};
    std::unique_ptr<Linear> teacher = std::make_unique<Linear>(3, 4);
  };
  Apart apart;
  Linear beside{3, 4};
  EXPECT_NO_THROW(check_members(apart));
  EXPECT_EQ(apart.parameters().size(), 2u);
}

TEST(Module, BadNamesAndTreesAreErrors) {
  struct Odd : Module {
    using Module::add;
    using Module::parameter;
  };
  Odd parent, child;
  Linear linear{1, 1};
  parent.add("child", child);
  EXPECT_THROW(parent.add("other", child), UsageError);
  EXPECT_THROW(parent.add("child", linear), UsageError);
  EXPECT_THROW(parent.add("", linear), UsageError);
  EXPECT_THROW(parent.add("a.b", linear), UsageError);
  EXPECT_THROW(child.add("loop", parent), UsageError);
  EXPECT_THROW(parent.parameter("child", {1}, Init::zeros()), UsageError);
  EXPECT_THROW(parent.parameter("p", {-1}, Init::zeros()), ShapeError);
}

TEST(Module, ChildAndParentMayDieInEitherOrder) {
  struct Open : Module {
    using Module::add;
  };
  Linear outlives{1, 1};
  {
    Open parent;
    parent.add("a", outlives);
    auto gone = std::make_unique<Linear>(1, 1);
    parent.add("b", *gone);
    gone.reset();
    EXPECT_EQ(parent.children().size(), 1u);
  }
  Open second;
  second.add("again", outlives);
  EXPECT_EQ(outlives.path(), "again");
}

TEST(Module, SameSeedSameWeightsWhateverElseThereIs) {
  manual_seed(5);
  Pair pair;
  struct Wrapped : Module {
    Linear extra{7, 7}, first{3, 4};
    Wrapped() {
      add("extra", extra);
      add("first", first);
    }
  } wrapped;
  EXPECT_EQ(pair.first.weight().value().to_vector<float>(), wrapped.first.weight().value().to_vector<float>());
  manual_seed(6);
  Pair other;
  EXPECT_NE(pair.first.weight().value().to_vector<float>(), other.first.weight().value().to_vector<float>());
  other.initialize(5);
  EXPECT_EQ(pair.first.weight().value().to_vector<float>(), other.first.weight().value().to_vector<float>());
}

TEST(Module, EqualParametersStayApart) {
  LayerNorm a{8}, b{8};
  const Tensor loss = sum(a(ones({2, 8})) * 2.0 + b(full({2, 8}, 3)));
  const std::vector<Variable> biases = {a.parameters()[1], b.parameters()[1]};
  const std::vector<Tensor> gradients = grad(loss, biases);
  EXPECT_EQ(gradients[0].to_vector<float>(), std::vector<float>(8, 4));
  EXPECT_EQ(gradients[1].to_vector<float>(), std::vector<float>(8, 2));
}

TEST(Module, StateGoesRound) {
  manual_seed(1);
  Pair a;
  a.seen.assign(tensor<std::int32_t>({4, 5}));
  const StateDict state = a.state_dict();
  EXPECT_EQ(state.size(), 5u);
  Pair b;
  b.load_state_dict(state);  // parameters that were never drawn
  EXPECT_EQ(b.state_dict(), state);
  Pair c;
  c.initialize(99);
  ASSERT_NE(c.state_dict(), state);
  c.load_state_dict(state);  // parameters that were
  EXPECT_EQ(c.state_dict(), state);

  const auto path = std::filesystem::temp_directory_path() / "weft_module_test.safetensors";
  a.save(path);
  Pair d;
  d.load(path);
  EXPECT_EQ(d.state_dict(), state);
  std::filesystem::remove(path);
}

TEST(Module, StateOfSlicesGoesRound) {
  manual_seed(1);
  Pair a;
  const StateDict state = a.state_dict();
  Pair b;
  b.initialize(2);
  flatten_together(b.parameters(), "flat");
  b.load_state_dict(state);
  EXPECT_EQ(b.state_dict(), state);
  // A part of the slices leaves the others alone.
  StateDict one = {state[2]};
  one[0].bytes.assign(one[0].bytes.size(), std::byte{0});
  b.load_state_dict(one, false);
  EXPECT_EQ(b.state_dict()[2].bytes, one[0].bytes);
  EXPECT_EQ(b.state_dict()[0], state[0]);
  EXPECT_EQ(b.state_dict()[3], state[3]);
}

TEST(Module, WrongStateNamesEverythingAndChangesNothing) {
  Pair a;
  const StateDict good = a.state_dict();
  StateDict bad = good;
  bad[0].name = "firts.weight";
  bad[2].shape = {4, 2};
  bad[4].dtype = DType::u32;
  const std::string message = message_of<UsageError>([&] { a.load_state_dict(bad); });
  for (const char* part : {"missing      first.weight  f32 [4, 3]", "unknown      firts.weight",
                           "second.weight  given f32 [4, 2], here f32 [2, 4]", "seen  given u32 [2], here i32 [2]"})
    EXPECT_NE(message.find(part), std::string::npos) << part << "\nin\n" << message;
  EXPECT_EQ(a.state_dict(), good);
  StateDict partial = {good[1]};
  EXPECT_THROW(a.load_state_dict(partial), UsageError);
  a.load_state_dict(partial, false);
}

// PyTorch's norms count their batches, and nothing here reads the number.
TEST(Module, TheNumberOfBatchesOfPyTorchIsIgnored) {
  BatchNorm norm(2);
  StateDict state = norm.state_dict();
  const std::int64_t count = 7;
  const auto bytes = std::as_bytes(std::span(&count, 1));
  state.push_back({"num_batches_tracked", DType::i64, {}, {bytes.begin(), bytes.end()}});
  EXPECT_NO_THROW(norm.load_state_dict(state));
  state.back().name = "other.num_batches_tracked";
  EXPECT_THROW(norm.load_state_dict(state), UsageError);
}

TEST(Module, FrozenParametersGetNoGradients) {
  Pair pair;
  pair.second.set_requires_grad(false);
  backward(sum(pair(ones({1, 3}))));
  EXPECT_TRUE(pair.first.weight().variable().grad().defined());
  EXPECT_FALSE(pair.second.weight().variable().grad().defined());
  pair.zero_grad();
  EXPECT_FALSE(pair.first.weight().variable().grad().defined());
}

TEST(Table, FoldsEqualNeighboursAndCountsAll) {
  const GPT gpt({.vocabulary = 83, .context = 64, .layers = 4, .heads = 4, .width = 128});
  const std::vector<TableRow> rows = table_of(gpt);
  Extent total = 0;
  const TableRow* up = nullptr;
  for (const TableRow& row : rows) {
    total += row.parameters;
    if (row.name == "blocks.0-3.mlp.up") up = &row;
  }
  EXPECT_EQ(total, gpt.parameter_count());
  ASSERT_NE(up, nullptr);
  EXPECT_EQ(up->repeats, 4);
  EXPECT_EQ(up->parameters, 4 * (128 * 512 + 512));
  EXPECT_EQ(up->layer, "Linear 128 -> 512");
  const std::string text = to_text(rows, 100);
  EXPECT_NE(text.find("264,192"), std::string::npos) << text;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = text.find('\n', begin);
    EXPECT_LE(end - begin, 100u);
    begin = end + 1;
  }
}

struct SelfNaming : Module {
  Child<Linear> hidden{this, "hidden", 3, 4}, output{this, "output", 4, 2};
  Tensor operator()(const Tensor& x) const { return output(relu(hidden(x))); }
};

TEST(Module, ChildrenAddThemselves) {
  const SelfNaming module;
  std::vector<std::string> names;
  for (const NamedParameter& parameter : module.named_parameters()) names.push_back(parameter.name);
  EXPECT_EQ(names, (std::vector<std::string>{"hidden.weight", "hidden.bias", "output.weight", "output.bias"}));
  EXPECT_EQ(module(ones({5, 3})).shape(), (Shape{5, 2}));
  struct Twice : Module {
    Child<Linear> a{this, "same", 1, 1}, b{this, "same", 1, 1};
  };
  EXPECT_THROW(Twice(), UsageError);
}

}  // namespace
}  // namespace weft::nn
