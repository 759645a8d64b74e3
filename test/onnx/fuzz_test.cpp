// Whole imports of hostile models: random graphs over every operator, and published models with damage. Each is loaded and run, or
// refused by an error of Weft, within little memory and time.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <random>

#include "base/mutations.hpp"
#include "base/temporary_folder.hpp"
#include "onnx/apply.hpp"
#include "onnx/wire.hpp"
#include "weft/onnx.hpp"
#include "weft/ops.hpp"

namespace weft::onnx::fuzz_test {
namespace {

namespace fs = std::filesystem;
constexpr std::size_t kMemory = std::size_t{1} << 30;
constexpr auto kTime = std::chrono::seconds(20);  // for one model, on a busy machine

class Writer {
 public:
  explicit Writer(std::uint64_t seed) : random_(seed) {}

  std::string model() {
    names_ = {"x", ""};
    WireWriter graph = graph_of(1 + number(6), 2);
    graph.text(2, "graph");
    WireWriter model;
    model.integer(1, 8);
    model.message(7, graph);
    WireWriter id;
    id.text(1, "");
    id.integer(2, 1 + number(28));
    model.message(8, id);
    return model.bytes();
  }

 private:
  int number(int n) { return std::uniform_int_distribution<int>(0, n - 1)(random_); }
  template <class T>
  T pick(std::initializer_list<T> list) {
    return list.begin()[number(static_cast<int>(list.size()))];
  }
  std::int64_t extent() {
    return pick<std::int64_t>(
        {0, 1, 1, 2, 2, 3, 4, 5, 7, -1, -2, 16, 1 << 20, 1LL << 31, 1LL << 40, INT64_MAX, INT64_MIN});
  }
  std::int64_t small() { return pick<std::int64_t>({0, 1, 1, 1, 2, 2, 3, -1, -2, 4}); }
  std::int64_t integer() { return number(6) ? small() : extent(); }

  WireWriter tensor(std::string_view name) {
    WireWriter w;
    std::size_t count = 1;
    for (int i = number(5); i > 0; --i) {
      const auto n = static_cast<std::int64_t>(number(4));
      count *= static_cast<std::size_t>(n);
      w.integer(1, n);
    }
    const auto [type, bytes] = pick<std::pair<int, int>>(
        {{1, 4}, {1, 4}, {1, 4}, {7, 8}, {7, 8}, {6, 4}, {9, 1}, {2, 1}, {3, 1}, {10, 2}, {11, 8}, {16, 2}, {13, 8}});
    w.integer(2, type);
    w.text(8, name);
    std::string raw;
    for (std::size_t i = 0; i < count; ++i) {
      const std::int64_t whole = integer();
      const auto real = static_cast<float>(whole);
      char element[8] = {};
      if (type == 1)
        std::memcpy(element, &real, 4);
      else
        std::memcpy(element, &whole, 8);
      raw.append(element, static_cast<std::size_t>(bytes));
    }
    w.text(9, raw);
    return w;
  }

  WireWriter attribute(int depth) {
    WireWriter w;
    switch (number(depth > 0 ? 8 : 6)) {
      case 0:
      case 1:
        w.text(1, pick({"axis",
                        "keepdims",
                        "to",
                        "group",
                        "k",
                        "blocksize",
                        "dtype",
                        "hidden_size",
                        "num_heads",
                        "largest",
                        "sorted",
                        "exclusive",
                        "reverse",
                        "allowzero",
                        "ceil_mode",
                        "transA",
                        "transB",
                        "start",
                        "end",
                        "p",
                        "batch_dims",
                        "size",
                        "ignore_index",
                        "layout",
                        "input_forget",
                        "linear_before_reset",
                        "detect_positive",
                        "fmod",
                        "noop_with_empty_axes",
                        "upper",
                        "training_mode",
                        "onesided",
                        "num_scan_inputs",
                        "count_include_pad",
                        "storage_order",
                        "new_axis",
                        "value_int",
                        "align_corners",
                        "sampling_ratio",
                        "output_height",
                        "output_width",
                        "select_last_index",
                        "time_axis",
                        "batch_axis",
                        "num_groups",
                        "num_outputs",
                        "num_heads",
                        "q_num_heads",
                        "kv_num_heads",
                        "unidirectional",
                        "is_causal",
                        "do_rotary",
                        "local_window_size",
                        "left_window_size",
                        "rotary_embedding_dim",
                        "interleaved",
                        "bits",
                        "block_size",
                        "N",
                        "K",
                        "opset",
                        "channels_last",
                        "transA",
                        "transBatchA",
                        "saturate"}));
        w.integer(3, number(3) ? integer() : number(17));
        w.number(20, 2);
        break;
      case 2:
      case 3:
        w.text(1, pick({"axes", "perm", "pads", "kernel_shape", "strides", "dilations", "shape", "split", "starts",
                        "ends", "output_padding", "output_shape", "value_ints", "scan_input_axes", "scan_output_axes",
                        "scan_input_directions"}));
        for (int i = number(5); i > 0; --i) w.integer(8, integer());
        w.number(20, 7);
        break;
      case 4:
        w.text(1, pick({"alpha",         "beta",
                        "epsilon",       "momentum",
                        "ratio",         "bias",
                        "scale",         "gamma",
                        "lambd",         "low",
                        "high",          "mean",
                        "cubic_coeff_a", "extrapolation_value",
                        "spatial_scale", "clip",
                        "value_float",   "threshold",
                        "max",           "min"}));
        w.real(2, pick({0.0f, 1.0f, -1.0f, 0.5f, 1e30f, -0.0f, std::numeric_limits<float>::quiet_NaN(),
                        std::numeric_limits<float>::infinity()}));
        w.number(20, 1);
        break;
      case 5:
        w.text(1, pick({"mode", "auto_pad", "equation", "direction", "reduction", "coordinate_transformation_mode",
                        "nearest_mode", "padding_mode", "approximate", "interpolation_mode"}));
        w.text(4, pick({"linear",
                        "nearest",
                        "cubic",
                        "constant",
                        "reflect",
                        "edge",
                        "wrap",
                        "SAME_UPPER",
                        "SAME_LOWER",
                        "VALID",
                        "NOTSET",
                        "ij,jk->ik",
                        "...i->i",
                        "ii->i",
                        "->",
                        "i,i",
                        "forward",
                        "reverse",
                        "bidirectional",
                        "sum",
                        "mean",
                        "none",
                        "add",
                        "mul",
                        "asymmetric",
                        "pytorch_half_pixel",
                        "tf_crop_and_resize",
                        "floor",
                        "ceil",
                        "tanh",
                        "avg",
                        "max",
                        "DCR",
                        "CRD",
                        "",
                        "\xff"}));
        w.number(20, 3);
        break;
      case 6:
        w.text(1, pick({"value", "sparse_value"}));
        w.message(5, tensor("t"));
        w.number(20, 4);
        break;
      default:
        w.text(1, pick({"then_branch", "else_branch", "body"}));
        w.message(6, graph_of(number(3), depth - 1));
        w.number(20, 6);
    }
    return w;
  }

  WireWriter graph_of(int nodes, int depth) {
    const auto outer = names_;
    WireWriter w;
    for (int i = number(3) + 1; i > 0; --i) {
      const std::string name = fresh();
      w.message(5, tensor(name));
    }
    const auto types = operator_names();
    std::string last = names_.back();
    for (int i = 0; i < nodes; ++i) {
      WireWriter node;
      for (int k = 1 + number(4); k > 0; --k)
        node.text(1, names_[static_cast<std::size_t>(number(static_cast<int>(names_.size())))]);
      for (int k = number(8) ? 1 : 1 + number(3); k > 0; --k) node.text(2, last = fresh());
      const auto& [domain, type] = types[static_cast<std::size_t>(number(static_cast<int>(types.size())))];
      node.text(4, type);
      if (!domain.empty()) node.text(7, domain);
      for (int k = number(4); k > 0; --k) node.message(5, attribute(depth));
      w.message(1, node);
    }
    if (depth == 2) w.message(11, port("x", 1));
    for (int i = depth == 2 ? 0 : number(4); i > 0; --i) w.message(11, port(fresh(), pick({1, 7, 9})));
    w.message(12, port(last, 1));
    names_ = outer;
    return w;
  }
  static WireWriter port(std::string_view name, int element) {
    WireWriter port, type, tensor;
    tensor.integer(1, element);
    type.message(1, tensor);
    port.text(1, name);
    port.message(2, type);
    return port;
  }
  std::string fresh() {
    names_.push_back("v" + std::to_string(next_++));
    return names_.back();
  }

  std::mt19937_64 random_;
  std::vector<std::string> names_;
  int next_ = 0;
};

class OnnxFuzz : public ::testing::Test {
 protected:
  // Whether the model ran. Inputs are zeros of the declared shapes, with 2 for an extent that is not fixed.
  bool survives(const std::string& bytes, const std::string& what) {
    const auto begun = std::chrono::steady_clock::now();
    bool ran = false;
    try {
      const Model model = load(folder_.put("model.onnx", bytes), kCpu);
      std::vector<Tensor> inputs;
      std::size_t elements = 0;
      for (const auto& each : model.inputs()) {
        std::vector<Extent> extents;
        for (const auto& extent : each.shape) extents.push_back(std::clamp<Extent>(extent.value.value_or(2), 0, 64));
        if (!each.has_shape) extents = {2, 3};
        const Shape shape{extents};
        elements += static_cast<std::size_t>(shape.numel());
        if (elements > 1'000'000) throw UsageError("more than this test feeds");
        inputs.push_back(zeros(shape, each.type.value_or(DType::f32)));
      }
      eval(model(inputs));
      ran = true;
    } catch (const InternalError& error) {
      ADD_FAILURE() << what << ": " << error.what();
    } catch (const Error&) {
    } catch (const std::exception& other) {
      ADD_FAILURE() << what << ": " << other.what();
    }
    const auto took = std::chrono::steady_clock::now() - begun;
    EXPECT_LT(took, kTime) << what;
    return ran;
  }
  const test::TemporaryFolder folder_;
};

TEST_F(OnnxFuzz, RandomModelsOverEveryOperator) {
  const test::MemoryLimit limit(kMemory);
  const int count = test::every_mutation() ? 100'000 : 1'000;
  int ran = 0;
  for (int seed = 0; seed < count && !HasFailure(); ++seed)
    ran += survives(Writer(static_cast<std::uint64_t>(seed)).model(), "seed " + std::to_string(seed));
  EXPECT_GT(ran, count / 100) << "most of the models are refused at once, and test nothing";
}

// The models of ONNX's own tests, each with a few flipped bits and cuts.
TEST_F(OnnxFuzz, DamagedModelsOfEveryOperator) {
  const fs::path root = "/usr/share/libonnx-testdata/data/node";
  if (!fs::exists(root)) GTEST_SKIP() << "no tests in " << root << "; install libonnx-testdata (script/setup --judges)";
  const test::MemoryLimit limit(kMemory);
  const int rounds = test::every_mutation() ? 100 : 1;
  std::vector<fs::path> files;
  for (const auto& each : fs::directory_iterator(root))
    if (fs::exists(each.path() / "model.onnx") && fs::file_size(each.path() / "model.onnx") < 20'000)
      files.push_back(each.path() / "model.onnx");
  std::sort(files.begin(), files.end());
  std::mt19937_64 random(5);
  for (const fs::path& path : files) {
    std::ifstream in(path, std::ios::binary);
    const std::string good{std::istreambuf_iterator<char>(in), {}};
    for (int round = 0; round < rounds && !HasFailure(); ++round) {
      std::string bytes = good;
      for (std::uint64_t i = 1 + random() % 4; i > 0 && !bytes.empty(); --i) {
        const std::size_t at = random() % bytes.size();
        switch (random() % 8) {
          case 0: bytes.resize(at); break;
          case 1: bytes.erase(at, 1 + random() % 8); break;
          case 2: bytes.insert(at, bytes.substr(random() % bytes.size(), 1 + random() % 16)); break;
          default: bytes[at] = static_cast<char>(bytes[at] ^ (1 << random() % 8));
        }
      }
      survives(bytes, path.parent_path().filename().string() + ", round " + std::to_string(round));
    }
  }
}

}  // namespace
}  // namespace weft::onnx::fuzz_test
