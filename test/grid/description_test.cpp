#include <gtest/gtest.h>

#include "base/temporary_folder.hpp"
#include "weft/error.hpp"
#include "weft/grid/builders.hpp"
#include "weft/grid/number_types.hpp"

namespace weft::grid::descriptions {
namespace {

std::string text_of(const std::vector<Problem>& problems) {
  std::string text;
  for (const Problem& p : problems) text += p.path + ": " + p.message + "\n";
  return text;
}
std::string message_of(const std::string& json) {
  try {
    from_json(json);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}
bool holds(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST(GridDescription, IndexRunsThroughCellsAndTheirLayers) {
  const Description d(2, 3, 4, 5);
  EXPECT_EQ(d.layers.size(), 120u);
  EXPECT_EQ(d.index({1, 2, 3, 4}), 119u);
  EXPECT_EQ(d.index({1, 0, 2, 1}), static_cast<std::size_t>(((1 * 3 + 0) * 4 + 2) * 5 + 1));
  for (std::size_t i = 0; i < d.layers.size(); ++i) EXPECT_EQ(d.index(d.coordinate(i)), i);
  EXPECT_THROW((void)d.index({0, 3, 0, 0}), UsageError);
  EXPECT_THROW((void)d.index({-1, 0, 0, 0}), UsageError);
  EXPECT_THROW(Description(0, 1, 1, 1), UsageError);
  EXPECT_THROW(Description(1 << 20, 1 << 20, 1 << 20, 1), UsageError);
}

/// A grid with every type and member.
Description everything() {
  Description d(2, 2, 1, 6);
  std::size_t next = 0;
  const auto put = [&](Layer layer) { d.layers[next++] = std::move(layer); };
  put(embedding_layer(11, 8));
  Layer attention = attention_layer(8, 4, 2, 500);
  attention.window = 3;
  attention.dtype = DType::fp8_e4m3;
  put(attention);
  put(swiglu_layer(8, 5));
  put(rms_norm_layer(8));
  put(layer_norm_layer(8));
  put(rnn_layer(8, 8));
  put(lstm_layer(8, 8));
  put(kmeans_layer(8, 3, true, 0.5));
  Layer mixture = mixture_layer({dense_layer(8, 8, Activation::gelu),
                                 sequential_layer({dense_layer(8, 4), dense_layer(4, 8)}), link_layer({0, 0, 0, 2})},
                                dense_layer(8, 3, Activation::linear));
  mixture.children[0].dtype = DType::binary;
  put(mixture);
  put(residual_layer());
  Layer masked = softmax_layer(SoftmaxKind::masked, 2);
  masked.mask = {true, false, true, true, true, true, true, true};
  put(masked);
  Layer hierarchical = softmax_layer(SoftmaxKind::hierarchical);
  hierarchical.levels = {4, 2};
  put(hierarchical);
  Layer later = dense_layer(8, 8);
  later.link = Coordinate{0, 0, 0, 1};
  later.disabled = true;
  put(later);
  put(cnn_layer(1, {.channels = 2, .filters = 2, .padding = 1}));
  put(cnn_layer(2, {.channels = 2, .filters = 2, .padding = 1}));
  put(cnn_layer(3, {.channels = 2, .filters = 2, .padding = 1}));
  put(conv_transposed_layer(1, {.channels = 2, .filters = 2, .padding = 1}));
  put(conv_transposed_layer(2, {.channels = 2, .filters = 2, .padding = 1}));
  put(conv_transposed_layer(3, {.channels = 2, .filters = 2, .padding = 1}));
  Layer parallel =
      parallel_layer({softmax_layer(SoftmaxKind::entmax), softmax_layer(SoftmaxKind::grid)}, Combine::concat);
  parallel.axis = 1;
  parallel.children[0].alpha = 1.25;
  put(parallel);
  return d;
}

TEST(GridDescription, SurvivesJson) {
  const Description d = everything();
  EXPECT_EQ(text_of(problems_of(d)), "");
  const std::string json = to_value(d).to_json(2);
  EXPECT_EQ(from_json(json), d);
  EXPECT_EQ(to_value(from_json(json)).to_json(2), json);
  const test::TemporaryFolder folder;
  EXPECT_EQ(load_description(folder.put("grid.json", json)), d);
  EXPECT_THROW(load_description(folder / "none.json"), FileError);
}

TEST(GridDescription, LayersFollowOneAnotherWithoutPlaces) {
  const Description d = from_json(
      R"({"layers_per_cell": 2, "columns": 2, "layers": [{"type": "dense", "inputs": 2, "outputs": 3}, {"type": "residual"},
          {"at": [0, 0, 1, 1], "type": "dense", "inputs": 3, "outputs": 1, "activation": "tanh", "dtype": "int8"}]})");
  EXPECT_EQ(d.layers[0].activation, Activation::relu);
  EXPECT_EQ(d.layers[1].type, LayerType::residual);
  EXPECT_TRUE(d.layers[2].disabled);
  EXPECT_EQ(d.layers[3].activation, Activation::tanh);
  EXPECT_EQ(d.layers[3].dtype, DType::i8);
}

TEST(GridDescription, OneCellHasAsManyLayersAsAreGiven) {
  const std::string dense = R"({"type": "dense", "inputs": 2, "outputs": 2})";
  EXPECT_EQ(from_json(R"({"layers": [)" + dense + ", " + dense + "]}").layers_per_cell, 2);
  EXPECT_EQ(from_json(R"({"layers": []})").layers_per_cell, 1);
  EXPECT_THROW(from_json(R"({"columns": 2, "layers": [)" + dense + ", " + dense + ", " + dense + "]}"), UsageError);
}

TEST(GridDescription, EveryMistakeIsReportedWithItsPath) {
  const std::string message = message_of(R"({"layers_per_cell": 6, "layers": [
      {"type": "dense", "inputs": 0, "outputs": 2, "heads": 3},
      {"type": "sequential", "children": [{"type": "attention", "inputs": 6, "heads": 4}, {"type": "gru"}]},
      {"type": "parallel", "combine": "filter", "children": [{"type": "dense", "inputs": "many", "outputs": 1}]},
      {"inputs": 3},
      {"type": "dense", "inputs": 2.5, "outputs": 1, "activation": "swish"}, 7]})");
  for (const char* part :
       {"/layers/0/heads: is unknown for dense", "/layers/1/children/1/type: the type of layer \"gru\" is unknown",
        "/layers/2/children/0/inputs", "/layers/3: has no type", "/layers/4/inputs",
        "/layers/4/activation: the activation \"swish\" is unknown", "/layers/5: a value is integer"})
    EXPECT_TRUE(holds(message, part)) << part << "\nin " << message;

  Description d(1, 1, 1, 8);
  d.layers[0] = dense_layer(0, -3);
  d.layers[1] = attention_layer(6, 4);
  d.layers[2] = parallel_layer({dense_layer(2, 2), dense_layer(2, 3)}, Combine::filter);
  d.layers[3] = parallel_layer({});
  d.layers[4] = dense_layer(2, 2);
  d.layers[4].link = Coordinate{0, 0, 3, 0};
  d.layers[5] = softmax_layer(SoftmaxKind::masked);
  d.layers[6] = dense_layer(2, 2);
  d.layers[6].dtype = DType::q4_0;
  d.layers[7] = dense_layer(2, 2);
  d.layers[7].children.push_back(dense_layer(2, 2));
  const std::string problems = text_of(problems_of(d));
  for (const char* part :
       {"/layers/0/inputs: is 0", "/layers/0/outputs: is -3", "/layers/1/heads: 4 heads do not divide 6 inputs",
        "/layers/2/gate: a filter has one gate", "/layers/3/children: is empty", "/layers/4/link: 0,0,3,0 is outside",
        "/layers/5/mask: is true nowhere", "/layers/6/dtype: q4_0 is not", "/layers/7/children: dense has no children"})
    EXPECT_TRUE(holds(problems, part)) << part << "\nin " << problems;
  EXPECT_THROW(check(d), UsageError);
}

TEST(GridDescription, WidthsOfNeighboursMustFit) {
  EXPECT_EQ(text_of(problems_of(Description::chain({dense_layer(4, 8), dense_layer(9, 2)}))),
            "/layers/1/inputs: is 9, but the layer before gives 8\n");
  // Joined axes: five steps of eight.
  EXPECT_EQ(text_of(problems_of(Description::chain({lstm_layer(4, 8), dense_layer(40, 2)}))), "");
  EXPECT_EQ(text_of(problems_of(
                Description::chain({parallel_layer({dense_layer(4, 2), dense_layer(4, 3)}), dense_layer(5, 1)}))),
            "");
  EXPECT_TRUE(holds(
      text_of(problems_of(Description::chain({parallel_layer({dense_layer(4, 2), dense_layer(4, 3)}, Combine::add)}))),
      "/layers/0/children/1: gives 3, but an earlier child gives 2"));
  EXPECT_TRUE(holds(text_of(problems_of(Description::chain(
                        {mixture_layer({dense_layer(4, 2), dense_layer(4, 2)}, dense_layer(4, 3))}))),
                    "gives 3 scores for 2 children"));
}

TEST(GridDescription, LinksInACircleAreRefused) {
  Description d(1, 1, 1, 3);
  d.layers[0] = sequential_layer({link_layer({0, 0, 0, 1})});
  d.layers[1] = parallel_layer({dense_layer(2, 2), link_layer({0, 0, 0, 2})});
  d.layers[2] = sequential_layer({dense_layer(2, 2)});
  EXPECT_EQ(text_of(problems_of(d)), "");
  d.layers[2].children.push_back(link_layer({0, 0, 0, 0}));
  EXPECT_TRUE(holds(text_of(problems_of(d)), "by a link, which runs this one"));
  EXPECT_TRUE(
      holds(text_of(problems_of(Description::chain({sequential_layer({link_layer({0, 0, 0, 0})})}))), "runs this one"));
}

TEST(GridDescription, HostileSizesAreRefusedBeforeTheyAreMade) {
  for (const char* json :
       {R"({"depth": 1000000, "rows": 1000000})", R"({"depth": -1})", R"({"depth": 9223372036854775807, "rows": 2})",
        R"({"layers": [{"type": "dense", "inputs": 1099511627776, "outputs": 1099511627776}]})",
        R"({"layers": [{"type": "dense", "inputs": 9223372036854775807, "outputs": 1}]})",
        R"({"layers": [{"type": "cnn3", "channels": 1099511627776, "filters": 1, "kernel": 1048576}]})",
        R"({"layers": [{"type": "attention", "inputs": 1099511627776, "heads": 1}]})",
        R"({"layers": [{"type": "attention", "inputs": 8, "heads": 2, "key_heads": 1099511627776}]})",
        R"({"layers": [{"type": "embedding", "vocabulary": 4294967296, "outputs": 1}]})",
        R"({"layers": [{"type": "kmeans", "inputs": 2, "clusters": 2, "temperature": 0}]})",
        R"({"layers_per_cell": 1, "layers": [{"type": "dense", "inputs": 1, "outputs": 1}, {"type": "residual"}]})",
        R"({"layers": [{"at": [0, 0, 0, 0], "type": "residual"}, {"at": [0, 0, 0, 0], "type": "residual"}]})",
        R"({"layers": [{"at": [0, 0, 0], "type": "residual"}]})", R"({"layers": {}})", R"([])",
        R"({"format": "other"})", R"({"extra": 1})"})
    EXPECT_THROW(from_json(json), UsageError) << json;
  std::string many = R"({"type": "residual"})";
  for (int i = 0; i < 14; ++i) many += ", " + many;
  EXPECT_THROW(
      from_json(R"({"layers": [{"type": "sequential", "children": [)" + many + R"(, {"type": "residual"}]}]})"),
      UsageError);
  std::string nested = R"({"type": "dense", "inputs": 1, "outputs": 1})";
  for (int i = 0; i < 28; ++i) nested = R"({"type": "sequential", "children": [)" + nested + "]}";
  EXPECT_TRUE(holds(message_of(R"({"layers": [)" + nested + "]}"), "nested deeper than"));
  EXPECT_THROW(from_json("{"), FileError);
}

TEST(GridDescription, BuildersMakeValidNetworks) {
  for (const Description& d : {mlp({3, 8, 2}), cnn({}), transformer({}),
                               transformer({.vocabulary = 0, .width = 8, .hidden = 16, .heads = 2, .blocks = 3}),
                               random({.depth = 2, .rows = 2, .width = 12, .seed = 4})})
    EXPECT_EQ(text_of(problems_of(d)), "");
  EXPECT_EQ(random({.seed = 7}), random({.seed = 7}));
  EXPECT_NE(random({.seed = 7}), random({.seed = 8}));
  EXPECT_THROW(mlp({3}), UsageError);
  EXPECT_THROW(cnn_layer(4, {}), UsageError);
  EXPECT_THROW(layer_of_width(LayerType::attention, 4, 8), UsageError);
}

TEST(GridDescription, CountsParametersAsTheirTypesHaveThem) {
  const Extent d = 8, kv = 4, i = 3, h = 5;
  EXPECT_EQ(parameter_count(dense_layer(i, h)), i * h);
  EXPECT_EQ(parameter_count(attention_layer(d, 4, 2)), 2 * d * d + 2 * d * kv + 2 * d + 2 * kv);
  EXPECT_EQ(parameter_count(swiglu_layer(i, h)), 3 * i * h + 2 * h + i);
  EXPECT_EQ(parameter_count(rms_norm_layer(i)), i);
  EXPECT_EQ(parameter_count(layer_norm_layer(i)), 2 * i);
  EXPECT_EQ(parameter_count(rnn_layer(i, h)), i * h + h * h + h);
  EXPECT_EQ(parameter_count(lstm_layer(i, h)), 4 * (i * h + h * h + h));
  EXPECT_EQ(parameter_count(cnn_layer(3, {.channels = 2, .filters = 3, .kernel = 2})), 3 * 2 * 8);
  EXPECT_EQ(parameter_count(embedding_layer(7, 2)), 14);
  EXPECT_EQ(parameter_count(kmeans_layer(i, 2)), 2 * i);
  EXPECT_EQ(parameter_count(parallel_layer({dense_layer(i, h), link_layer({})})), i * h);
}

TEST(GridDescription, NamesGoBothWays) {
  for (int i = 0; i < kLayerTypeCount; ++i)
    EXPECT_EQ(layer_type(name_of(static_cast<LayerType>(i))), static_cast<LayerType>(i));
  for (const Activation a : kActivations) EXPECT_EQ(activation(name_of(a)), a);
  EXPECT_THROW(layer_type("gru"), UsageError);
}

}  // namespace
}  // namespace weft::grid::descriptions
