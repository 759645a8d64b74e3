// Exported kernels as SPIR-V, run by a program that knows only their manifest, give the values that Weft computes.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/temporary_folder.hpp"
#include "kernels/vulkan_host.hpp"
#include "webgpu_driver.hpp"
#include "weft/grad.hpp"
#include "weft/kernels.hpp"
#include "weft/nn.hpp"
#include "weft/ops.hpp"
#include "weft/ops/convolution.hpp"
#include "weft/ops/indexing.hpp"
#include "weft/ops/order.hpp"
#include "weft/ops/pooling.hpp"
#include "weft/optim.hpp"
#include "weft/session.hpp"

namespace weft::kernels_test {
namespace {

using Function = std::function<NamedTensors(const NamedTensors&)>;

std::string naga(std::string wgsl) {
  const test::TemporaryFolder folder;
  for (const std::string_view line :
       {"enable subgroups;\n", "diagnostic(off, subgroup_uniformity);\n"})  // naga needs neither
    if (const std::size_t at = wgsl.find(line); at != std::string::npos) wgsl.erase(at, line.size());
  folder.put("kernel.wgsl", wgsl);
  const std::string command = std::string(WEFT_NAGA) + " --spirv-version 1.3 " + (folder / "kernel.wgsl").string() +
                              " " + (folder / "kernel.spv").string();
  if (std::system(command.c_str()) != 0) throw std::runtime_error("naga failed on\n" + wgsl);
#if defined(WEFT_SPIRV_VAL)
  const std::string check = WEFT_SPIRV_VAL " --target-env vulkan1.1 " + (folder / "kernel.spv").string();
  if (std::system(check.c_str()) != 0) throw std::runtime_error("spirv-val refuses\n" + wgsl);
#endif
  std::ostringstream text;
  text << std::ifstream(folder / "kernel.spv", std::ios::binary).rdbuf();
  return text.str();
}

class Kernels : public testing::Test {
 protected:
  void SetUp() override {
    test::choose_driver();
    if (!test::has_vulkan_device()) GTEST_SKIP() << "there is no Vulkan device; script/setup --tests brings one";
  }

  /// The values of `function` on the CPU and by its kernels on the Vulkan device: floats within `tolerance` of the largest, the rest
  /// the same.
  static void expect_same(const NamedTensors& inputs, const Function& function, double tolerance = 2e-5,
                          const KernelLimits& limits = {}) {
    const test::TemporaryFolder folder;
    const ExportedKernels done = export_kernels(folder / "out", inputs, function, limits,
                                                {.name = "spirv", .extension = "spv", .translate = naga});
    EXPECT_GT(done.kernels, 0u);
    const auto results = test::run_manifest(folder / "out");
    const Session session({.threads = 1, .device = kCpu});
    NamedTensors given;
    for (const auto& [name, tensor] : inputs) given[name] = session.copy(tensor);
    const auto entered = session.enter();
    const NamedTensors wanted = function(given);
    ASSERT_EQ(results.size(), wanted.size());
    for (const auto& [name, tensor] : wanted) {
      SCOPED_TRACE(name);
      const std::vector<std::byte>& bytes = results.at(name);
      const auto count = static_cast<std::size_t>(tensor.numel());
      if (tensor.dtype() == DType::f32) {
        const std::vector<float> right = tensor.to_vector<float>();
        double largest = 0, worst = 0;
        for (std::size_t i = 0; i < count; ++i) {
          float got;
          std::memcpy(&got, bytes.data() + 4 * i, 4);
          largest = std::max<double>(largest, std::abs(right[i]));
          const bool equal = got == right[i] || (std::isnan(got) && std::isnan(right[i]));
          worst = std::max<double>(worst, equal ? 0 : std::isfinite(got) ? std::abs(got - right[i]) : INFINITY);
        }
        EXPECT_LE(worst, tolerance * largest) << "of " << largest;
      } else if (tensor.dtype() == DType::boolean) {  // a word each
        const std::vector<bool> right = tensor.to_vector<bool>();
        for (std::size_t i = 0; i < count; ++i) EXPECT_EQ(std::to_integer<int>(bytes[4 * i]), right[i] ? 1 : 0) << i;
      } else {
        std::vector<std::byte> right(bytes_of(tensor.dtype(), count));
        tensor.copy_to(right.data(), right.size());
        EXPECT_EQ(std::memcmp(right.data(), bytes.data(), right.size()), 0);
      }
    }
  }
};

Tensor numbers(const Shape& shape, float step = 0.37f) {
  std::vector<float> values(static_cast<std::size_t>(shape.numel()));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = std::sin(step * static_cast<float>(i + 1)) * 1.5f;
  return tensor<float>(values, shape);
}
Tensor places(const Shape& shape, int below) {
  std::vector<std::int32_t> values(static_cast<std::size_t>(shape.numel()));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<int>(i * 7 % static_cast<std::size_t>(below));
  return tensor<std::int32_t>(values, shape);
}

TEST_F(Kernels, ElementwiseReductionsAndViews) {
  expect_same({{"x", numbers({33, 70})}, {"y", numbers({70}, 0.11f)}}, [](const NamedTensors& in) {
    const Tensor &x = in.at("x"), &y = in.at("y");
    return NamedTensors{{"fused", gelu(x * y + 1) - exp(-x)}, {"sums", sum(x * x, {0})}, {"softmax", softmax(x, -1)},
                        {"turned", transpose(x, 0, 1) * 2},   {"positive", x > 0.25},    {"largest", argmax(x, 1)}};
  });
}

TEST_F(Kernels, Subgroups) {
  expect_same({{"x", numbers({70, 3000})}},
              [](const NamedTensors& in) {
                return NamedTensors{{"sums", sum(in.at("x"), {1})}, {"softmax", softmax(in.at("x"), -1)}};
              },
              2e-5, {.workgroup_bytes = 32 << 10, .subgroup_size = test::subgroup_size()});
}

TEST_F(Kernels, ProductsAndNorms) {
  expect_same(
      {{"a", numbers({65, 130})}, {"b", numbers({130, 97}, 0.21f)}, {"w", numbers({97}, 0.5f)}},
      [](const NamedTensors& in) {
        const Tensor product = matmul(in.at("a"), in.at("b"));
        return NamedTensors{{"product", product}, {"normed", layer_norm(relu(product), in.at("w"), in.at("w"))}};
      });
}

TEST_F(Kernels, AttentionAndItsGradients) {
  expect_same(
      {{"q", numbers({2, 3, 40, 16})}, {"k", numbers({2, 3, 40, 16}, 0.13f)}, {"v", numbers({2, 3, 40, 16}, 0.29f)}},
      [](const NamedTensors& in) {
        const Tensor y = attention(in.at("q"), in.at("k"), in.at("v"));
        const std::vector<Tensor> g = grad(sum(y * y), {in.at("q"), in.at("k"), in.at("v")});
        return NamedTensors{{"y", y}, {"dq", g[0]}, {"dk", g[1]}, {"dv", g[2]}};
      });
}

TEST_F(Kernels, ConvolutionsAndPools) {
  expect_same({{"x", numbers({2, 3, 17, 19})}, {"w", numbers({5, 3, 3, 3}, 0.7f)}}, [](const NamedTensors& in) {
    const Tensor y = conv2d(in.at("x"), in.at("w"));
    return NamedTensors{{"y", max_pool2d(y, 2)}, {"dw", grad(sum(y * y), {in.at("w")})[0]}};
  });
}

TEST_F(Kernels, OrdersScansAndIndices) {
  expect_same({{"x", numbers({4, 300})}, {"at", places({9}, 4)}, {"rows", numbers({9, 300}, 0.9f)}},
              [](const NamedTensors& in) {
                const Tensor& x = in.at("x");
                return NamedTensors{{"sorted", sort(x, -1).values},
                                    {"sums", cumsum(x, 1)},
                                    {"taken", index_select(x, 0, in.at("at"))},
                                    {"added", scatter_add(in.at("at"), in.at("rows"), 4)}};
              });
}

TEST_F(Kernels, NarrowTypes) {
  expect_same(
      {{"x", numbers({6, 50})}},
      [](const NamedTensors& in) {
        const Tensor &x = in.at("x"), f16 = cast(x, DType::f16), bf16 = cast(x, DType::bf16);
        return NamedTensors{{"f16", f16},
                            {"bf16", bf16},
                            {"i8", cast(x * 50, DType::i8)},
                            {"product", cast(matmul(f16, transpose(f16, 0, 1)), DType::f32)}};
      },
      2e-3);
}

TEST_F(Kernels, RandomNumbersHaveTheSameBits) {
  expect_same(
      {{"x", numbers({8})}},
      [](const NamedTensors&) {
        manual_seed(5);
        const Tensor first = rand({100}), second = rand({7, 9});
        return NamedTensors{{"first", first}, {"second", second}};
      },
      0);
}

struct Network : nn::Module {
  nn::Linear hidden{12, 33}, output{33, 7};
  Network() { add("hidden", hidden), add("output", output); }
  Tensor operator()(const Tensor& x) const { return output(tanh(hidden(x))); }
};

TEST_F(Kernels, StepsOfTraining) {
  expect_same({{"x", numbers({20, 12})}, {"y", places({20}, 7)}}, [](const NamedTensors& in) {
    manual_seed(3);
    Network network;
    optim::AdamW optimizer(network, {.learning_rate = 0.02});
    NamedTensors results;
    for (int i = 0; i < 3; ++i) {
      const Tensor loss = nn::cross_entropy(network(in.at("x")), in.at("y"));
      optimizer.step(grad(loss, optimizer.parameters()));
      results["loss " + std::to_string(i)] = loss;
    }
    results["weight"] = network.output.weight().value();
    return results;
  });
}

}  // namespace
}  // namespace weft::kernels_test
