// Tensor operations of the catalogue as elements of workflows.
#include <gtest/gtest.h>

#include "weft/catalogue.hpp"
#include "weft/ops.hpp"
#include "weft/workflow.hpp"

namespace weft::workflow {
namespace {

Value members(std::initializer_list<ValueObject::Member> list) { return Value::object(list); }

struct TensorWorkflowTest : testing::Test {
  std::shared_ptr<operations::Registry> registry = std::make_shared<operations::Registry>();
  operations::Catalogue catalogue{registry};
  operations::Exchange exchange{registry};
  RunOptions owner{.call = {.identity = registry->owner()}};
};

// One step of gradient descent for y = x w, as a sequential.
Element training_step() {
  return with_output(
      sequential(
          {named("error",
                 sequential({operation("tensor.matmul", members({{"a", "$.batch.x"}, {"b", "$.before.w"}})),
                             operation("tensor.sub", members({{"x", "$.previous.result"}, {"y", "$.batch.y"}}))})),
           parallel({sequential({operation("tensor.square", members({{"x", "$.error.result"}})),
                                 named("loss", operation("tensor.mean", members({{"x", "$.previous.result"}})))}),
                     sequential({operation("tensor.transpose", members({{"x", "$.batch.x"}})),
                                 named("gradient", operation("tensor.matmul", members({{"a", "$.previous.result"},
                                                                                       {"b", "$.error.result"}})))})}),
           named("update",
                 operation("tensor.sub", members({{"x", "$.before.w"}, {"y", "$.gradient.result"}, {"alpha", 0.1}})))}),
      members({{"w", "$.update.result"}, {"loss", "$.loss.result"}}));
}

TEST_F(TensorWorkflowTest, AnEpochIsAMapOverBatches) {
  Element epoch = map("$.input.batches", "batch", training_step());
  epoch.initial = members({{"w", "$.input.w"}});
  const Template training{.tree = epoch};
  EXPECT_EQ(to_string(check(training, *registry)), "");
  Value::Array batches;
  Tensor w = zeros({2, 1});
  std::vector<float> losses;
  for (int i = 0; i < 40; ++i) {
    const Tensor x = tensor({{1.0f, 0.25f * static_cast<float>(i % 4)}, {0.5f, -1.0f}, {-1.0f, 0.5f}});
    const Tensor y = matmul(x, tensor({{3.0f}, {-1.0f}}));
    batches.push_back(members({{"x", x}, {"y", y}}));
    const Tensor error = matmul(x, w) - y;  // the same step in C++
    losses.push_back(mean(square(error)).item<float>());
    w = (w - matmul(transpose(x), error) * 0.1).eval();
  }
  const Value steps = run(exchange, training, members({{"batches", batches}, {"w", zeros({2, 1})}}), owner);
  ASSERT_EQ(steps.elements().size(), 40u);
  for (std::size_t i = 0; i < 40; ++i) EXPECT_NEAR(steps[i]["loss"].tensor().item<float>(), losses[i], 1e-5) << i;
  EXPECT_LT(losses.back(), 1e-3) << "it learns";
  EXPECT_NEAR(steps[39]["w"].tensor().to_vector<float>()[0], w.to_vector<float>()[0], 1e-5);
}

TEST_F(TensorWorkflowTest, TypesOfTensorsAreChecked) {
  const auto codes = [&](Element tree) {
    std::string text;
    for (const Problem& each : check({.tree = std::move(tree)}, *registry)) text += each.code + " " + each.path + " ";
    return text;
  };
  EXPECT_EQ(codes(operation("tensor.exp", members({{"x", "one"}}))), "TYPE_MISMATCH /tree/props/input ");
  EXPECT_EQ(codes(operation("tensor.exp", members({{"y", 1}}))), "TYPE_MISMATCH /tree/props/input ");
  EXPECT_EQ(codes(sequential({operation("tensor.exp", members({{"x", 1}})), operation("tensor.log")})),
            "TYPE_MISMATCH /tree/children/1 ")
      << "an op's output is {result}, and not {x}";
  EXPECT_EQ(codes(sequential({operation("tensor.exp", members({{"x", 1}})),
                              operation("tensor.log", members({{"x", "$.previous.value"}}))})),
            "MISSING_RESULT /tree/children/1/props/input/x ");
  EXPECT_EQ(codes(sequential({operation("tensor.exp", members({{"x", 1}})),
                              operation("tensor.log", members({{"x", "$.previous.result"}}))})),
            "");
}

}  // namespace
}  // namespace weft::workflow
