// Checkpoints: the graph of gradients computes the region again.
#include "weft/checkpoint.hpp"

#include <gtest/gtest.h>

#include "graph/node.hpp"
#include "weft/grad.hpp"
#include "weft/ops.hpp"

namespace weft {
namespace {

// The number of nodes of that name below.
int count_of(const std::vector<Tensor>& roots, std::string_view name) {
  std::vector<graph::NodeRef> nodes;
  for (const Tensor& root : roots) nodes.push_back(root.node());
  int count = 0;
  const auto sources = [](const graph::Node& n) -> const std::vector<graph::NodeRef>& { return graph::made_of(n); };
  for (const graph::Node* node : graph::topological_order_along(nodes, sources)) count += node->name == name;
  return count;
}

TEST(Checkpoint, ComputesAgainForGradientsOnly) {
  const Tensor x = full({4, 3}, 0.5), w = full({3, 3}, 0.25);
  const auto layer = [&](std::span<const Tensor> in) { return elementwise("tanh", {matmul(in[0], w)}); };
  const Tensor plain = layer(std::vector<Tensor>{x}), again = checkpoint(layer, {x});
  EXPECT_EQ(again.shape(), plain.shape());
  EXPECT_EQ(count_of({sum(again)}, "tanh"), 1);
  const std::vector<Tensor> inputs = {x, w};
  EXPECT_EQ(count_of(grad(sum(plain), inputs), "tanh"), 1);
  EXPECT_EQ(count_of(grad(sum(again), inputs), "tanh"), 2 - 1);  // the forward one is not needed by gradients any more
  std::vector<Tensor> all = grad(sum(again), inputs);
  all.push_back(sum(again));
  EXPECT_EQ(count_of(all, "tanh"), 2);
}

TEST(Checkpoint, LeavesWhatNeedsNoneAlone) {
  const Tensor x = full({4}, 0.5);
  const Tensor same = checkpoint([](std::span<const Tensor> in) { return in[0]; }, {x});
  EXPECT_EQ(same.node(), x.node());
  const Tensor other = elementwise("exp", {full({4}, 1)});
  EXPECT_EQ(checkpoint([&](std::span<const Tensor>) { return other; }, {x}).node(), other.node());
  EXPECT_THROW(checkpoint([](std::span<const Tensor> in) { return in[0]; }, {Tensor()}), UsageError);
  EXPECT_THROW(checkpoint([](std::span<const Tensor>) { return Tensor(); }, {x}), UsageError);
  const NoGrad no_grad;
  EXPECT_NE(checkpoint([](std::span<const Tensor> in) { return in[0] * 2.0; }, {x}).node()->name, "checkpoint");
}

}  // namespace
}  // namespace weft
