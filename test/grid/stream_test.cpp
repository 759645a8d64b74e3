#include "weft/grid/stream.hpp"

#include <gtest/gtest.h>

#include "weft/error.hpp"
#include "weft/grid/builders.hpp"
#include "weft/ops.hpp"

namespace weft::grid::streams {
namespace {

/// The whole sequences at once, and in parts of these lengths, which add up to them.
void expect_parts_to_be_the_whole(const Network& network, const Tensor& x, const std::vector<Extent>& parts) {
  const std::vector<float> whole = network(x).to_vector<float>();
  Stream stream(network);
  for (int again = 0; again < 2; ++again) {
    std::vector<Tensor> outputs;
    Extent first = 0;
    for (const Extent length : parts) {
      outputs.push_back(stream.next(narrow(x, 1, first, length)));
      first += length;
    }
    const std::vector<float> joined = concat(outputs, 1).to_vector<float>();
    ASSERT_EQ(joined.size(), whole.size());
    for (std::size_t i = 0; i < joined.size(); ++i) EXPECT_NEAR(joined[i], whole[i], 1e-5) << i;
    stream.reset();
  }
}

// Trap 12: decoding step by step is the full pass.
TEST(GridStream, TransformersDecodeStepByStep) {
  const Network network(
      transformer({.vocabulary = 7, .width = 8, .hidden = 12, .heads = 4, .key_heads = 2, .blocks = 2}));
  const Tensor ids = tensor<std::int32_t>({0, 1, 2, 3, 4, 5, 6, 0, 3, 1, 4, 1, 5, 2, 6, 5}, {2, 8});
  expect_parts_to_be_the_whole(network, ids, {1, 1, 1, 1, 1, 1, 1, 1});
  expect_parts_to_be_the_whole(network, ids, {5, 1, 2});
}

// Trap: behind the end of the cache, slots were counted more than once.
TEST(GridStream, AFullCacheIsASlidingWindow) {
  for (const Extent window : {1, 2, 3}) {
    Layer layer = attention_layer(8, 4, 1, 100);
    layer.window = window;
    const Network network(Description::chain({layer, layer}));
    expect_parts_to_be_the_whole(network, rand({2, 9, 8}, -1, 1).eval(), {1, 1, 1, 1, 1, 1, 1, 1, 1});
    expect_parts_to_be_the_whole(network, rand({2, 9, 8}, -1, 1).eval(), {4, 1, 4});
  }
}

TEST(GridStream, RecurrentLayersKeepTheirState) {
  Description d = Description::chain(
      {rnn_layer(3, 4), sequential_layer({lstm_layer(4, 4), residual_layer(), link_layer({0, 0, 0, 0})})});
  d.layers[0] = rnn_layer(4, 4);
  const Network network(d);  // the rnn runs at two places, with a state at each
  expect_parts_to_be_the_whole(network, rand({3, 6, 4}, -1, 1).eval(), {2, 1, 3});
}

TEST(GridStream, ConvolutionsAreRefusedAndNothingIsLost) {
  Network network(Description::chain({rnn_layer(4, 4), cnn_layer(1, {.channels = 2, .filters = 2, .kernel = 1})}));
  network.set_disabled({0, 0, 0, 1}, true);
  Stream stream(network), other(network);
  const Tensor x = rand({1, 2, 4}).eval();
  stream.next(x);
  other.next(x);
  network.set_disabled({0, 0, 0, 1}, false);
  EXPECT_THROW(stream.next(x), UsageError);
  network.set_disabled({0, 0, 0, 1}, true);
  EXPECT_EQ(stream.next(x).to_vector<float>(), other.next(x).to_vector<float>());
}

}  // namespace
}  // namespace weft::grid::streams
