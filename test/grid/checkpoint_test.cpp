#include <gtest/gtest.h>

#include <bit>
#include <fstream>

#include "base/file.hpp"
#include "base/mutations.hpp"
#include "base/temporary_folder.hpp"
#include "io/content_hash.hpp"
#include "weft/error.hpp"
#include "weft/grid.hpp"
#include "weft/ops.hpp"

namespace weft::grid::checkpoints {
namespace {

void expect_bits(const Tensor& got, const Tensor& wanted) {
  ASSERT_EQ(got.shape(), wanted.shape());
  const std::vector<float> a = got.to_vector<float>(), b = wanted.to_vector<float>();
  for (std::size_t i = 0; i < a.size(); ++i)
    ASSERT_EQ(std::bit_cast<std::uint32_t>(a[i]), std::bit_cast<std::uint32_t>(b[i]))
        << i << ": " << a[i] << " " << b[i];
}

struct LayerCase {
  Layer layer;
  Shape x;
};
/// One of each type of layer.
std::vector<LayerCase> one_of_each() {
  return {{dense_layer(5, 3), {2, 5}},
          {attention_layer(8, 4, 2, 100), {2, 3, 8}},
          {swiglu_layer(3, 5), {2, 3}},
          {rms_norm_layer(5), {2, 5}},
          {cnn_layer(1, {.channels = 2, .filters = 3}), {1, 2, 6}},
          {cnn_layer(2, {.channels = 1, .filters = 3}), {1, 1, 4, 4}},
          {cnn_layer(3, {.channels = 1, .filters = 1}), {1, 1, 3, 3, 3}},
          {rnn_layer(3, 5), {2, 3, 3}},
          {lstm_layer(3, 3), {2, 3, 3}},
          {layer_norm_layer(7), {2, 7}},
          {conv_transposed_layer(1, {.channels = 2, .filters = 1}), {1, 2, 3}},
          {conv_transposed_layer(2, {.channels = 1, .filters = 2}), {1, 1, 2, 2}},
          {conv_transposed_layer(3, {.channels = 1, .filters = 1}), {1, 1, 2, 2, 2}},
          {embedding_layer(5, 3), {2, 4}},
          {kmeans_layer(3, 5), {2, 3}},
          {softmax_layer(), {2, 4}},
          {parallel_layer({dense_layer(3, 3), dense_layer(3, 5)}), {2, 3}},
          {sequential_layer({dense_layer(3, 7), dense_layer(7, 1)}), {2, 3}},
          {residual_layer(), {2, 4}}};
}

// Trap 16: every type of layer in every type of numbers: save, load, the same pass bit for bit.
TEST(GridCheckpoint, EveryLayerInEveryTypeComesBackBitForBit) {
  const test::TemporaryFolder folder;
  const auto path = folder / "network.safetensors";
  const std::vector<LayerCase> layers = one_of_each();
  ASSERT_EQ(layers.size(), static_cast<std::size_t>(kLayerTypeCount));
  for (const LayerCase& c : layers) {
    manual_seed(4);
    const Tensor x = rand(c.x, 0, 5).eval();
    Network network(Description::chain({c.layer}));
    for (const DType type : kNumberTypes) {
      SCOPED_TRACE(std::string(name_of(c.layer.type)) + " " + std::string(name_of(type)));
      network.morph(type);
      save(network, path);
      const auto loaded = load(path);
      EXPECT_EQ(loaded->description(), network.description());
      expect_bits((*loaded)(x), network(x));
    }
  }
}

/// Nested layers, links, a mask, a disabled layer, a gate.
Description awkward() {
  Description d(2, 1, 1, 4);
  d.layers[0] = dense_layer(4, 4, Activation::tanh);
  d.layers[1] = mixture_layer({sequential_layer({dense_layer(4, 6), dense_layer(6, 4)}), link_layer({0, 0, 0, 0})},
                              dense_layer(4, 2, Activation::linear));
  d.layers[1].gate[0].dtype = DType::ternary;
  d.layers[1].children[0].children[1].dtype = DType::int4;
  d.layers[2] = dense_layer(4, 4);
  d.layers[2].disabled = true;
  d.layers[3] = residual_layer();
  d.layers[4] = softmax_layer(SoftmaxKind::masked);
  d.layers[4].mask = {true, true, false, true};
  d.layers[5] = lstm_layer(4, 3);
  d.layers[5].link = Coordinate{0, 0, 0, 1};
  return d;
}

TEST(GridCheckpoint, TopologyComesBackWhole) {
  const test::TemporaryFolder folder;
  const auto path = folder / "network.safetensors";
  const Network network(awkward());
  const Tensor x = rand({3, 4}, -1, 1).eval();
  for (const bool keep_master : {false, true}) {
    save(network, path, {.keep_master = keep_master});
    const auto loaded = load(path);
    EXPECT_EQ(loaded->description(), network.description());
    expect_bits((*loaded)(x), network(x));
    if (keep_master) {
      EXPECT_EQ(loaded->state_dict(), network.state_dict());
    } else {
      EXPECT_NE(loaded->state_dict(), network.state_dict());
    }
  }
}

TEST(GridCheckpoint, PackedFilesAreSmall) {
  const test::TemporaryFolder folder;
  Network network(mlp({256, 256, 256}));
  save(network, folder / "f32");
  network.morph(DType::binary);
  save(network, folder / "binary");
  const auto bytes = [&](const char* name) { return static_cast<double>(std::filesystem::file_size(folder / name)); };
  EXPECT_LT(bytes("binary"), 0.05 * bytes("f32"));
}

TEST(GridCheckpoint, ParametersThatAreNotFiniteAreRefusedByName) {
  const test::TemporaryFolder folder;
  Network network(mlp({2, 2}));
  Variable weight = network.parameters()[0];
  weight.assign(full({2, 2}, NAN));
  network.morph(DType::i8);
  try {
    save(network, folder / "network");
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find("z0y0x0l0.weight"), std::string::npos) << error.what();
  }
  EXPECT_FALSE(std::filesystem::exists(folder / "network"));
  save(network, folder / "network", {.keep_master = true});
}

/// A file with these tensors and metadata, whose hash is right.
void write(const std::filesystem::path& path, std::vector<io::TensorView> tensors, io::SafetensorsMetadata metadata) {
  metadata[io::kContentHash] = io::content_hash(metadata, tensors);
  io::write_safetensors(path, tensors, metadata);
}
std::string message_of(const std::filesystem::path& path) {
  try {
    load(path);
  } catch (const FileError& error) {
    return error.what();
  }
  return "";
}

TEST(GridCheckpoint, FilesThatContradictThemselvesAreRefused) {
  const test::TemporaryFolder folder;
  const auto path = folder / "network";
  const std::vector<float> numbers(6);
  const auto bytes = std::as_bytes(std::span(numbers));
  const auto metadata = [](const std::string& layers, const std::string& values = "packed") {
    return io::SafetensorsMetadata{
        {"format", "weft-grid-checkpoint-1"}, {"description", "{\"layers\": [" + layers + "]}"}, {"values", values}};
  };
  const std::string dense = R"({"type": "dense", "inputs": 3, "outputs": 2})",
                    packed = R"({"type": "dense", "inputs": 3, "outputs": 2, "dtype": "i8"})";
  const auto message = [&](std::vector<io::TensorView> tensors, const io::SafetensorsMetadata& m) {
    write(path, std::move(tensors), m);
    return message_of(path);
  };
  const auto expect = [](const std::string& text, const char* part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  const io::TensorView weight{"z0y0x0l0.weight", "F32", {2, 3}, bytes};
  EXPECT_EQ(message({weight}, metadata(dense)), "");
  expect(message({}, metadata(dense)), "missing  z0y0x0l0.weight");
  expect(message({{"z0y0x0l0.weight", "F32", {3, 2}, bytes}}, metadata(dense)), "differs  z0y0x0l0.weight");
  expect(message({weight, {"other", "F32", {6}, bytes}}, metadata(dense)), "unknown  \"other\"");
  expect(message({weight}, metadata(packed)), "differs  z0y0x0l0.weight  \"F32\" [2, 3], not I8 [2, 3]");
  expect(message({{"z0y0x0l0.weight", "I8", {2, 3}, bytes.first(6)}}, metadata(packed)),
         "missing  z0y0x0l0.weight.scale");
  const float nan = NAN;
  expect(message({{"z0y0x0l0.weight", "I8", {2, 3}, bytes.first(6)},
                  {"z0y0x0l0.weight.scale", "F32", {}, std::as_bytes(std::span(&nan, 1))}},
                 metadata(packed)),
         "the scale is nan");
  expect(message({weight}, metadata("7")), "/layers/0");
  expect(message({weight}, metadata(dense, "other")), "its values are \"other\"");
  // A description of a terabyte in a file of a few hundred bytes.
  const test::MemoryLimit limit(std::size_t{256} << 20);
  expect(message({weight}, metadata(R"({"type": "dense", "inputs": 1000000, "outputs": 250000})")),
         "differs  z0y0x0l0.weight");
  io::SafetensorsMetadata other = metadata(dense);
  other["format"] = "other";
  expect(message({weight}, other), "its format is \"other\"");
  other.erase("format");
  expect(message({weight}, other), "has no \"format\"");
  other = metadata(dense);
  other.erase("description");
  expect(message({weight}, other), "has no \"description\"");
}

TEST(GridCheckpoint, SurvivesDamage) {
  const test::TemporaryFolder folder;
  Network network(awkward());
  save(network, folder / "good");
  const std::string good = read_text_file(folder / "good");
  const auto path = folder / "bad";
  test::for_each_mutation(good, good.size(), 150, [&](const std::string& bad, const std::string& what) {
    std::ofstream(path, std::ios::binary) << bad;
    EXPECT_THROW(load(path), FileError) << what;
  });
}

}  // namespace
}  // namespace weft::grid::checkpoints
