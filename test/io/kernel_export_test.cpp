// Kernels written as files: what the manifest says is complete and fits together, and errors.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "base/temporary_folder.hpp"
#include "weft/compile.hpp"
#include "weft/grad.hpp"
#include "weft/kernels.hpp"
#include "weft/ops.hpp"

namespace weft::kernel_export_test {
namespace {

using nlohmann::json;

std::string content(const std::filesystem::path& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

template <class Error, class Function>
void expect_error(const Function& function, const std::string& part) {
  try {
    function();
    FAIL() << "no error: " << part;
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  }
}

NamedTensors inputs() {
  return {{"x", tensor<float>({1, 2, 3, 4, 5, 6}, {2, 3})}, {"w", tensor<float>({1, 0, 0, 1, 1, 1}, {3, 2})}};
}
NamedTensors product(const NamedTensors& in) {
  const Tensor y = softmax(matmul(in.at("x"), in.at("w")), -1);
  return {{"y", y}, {"dw", grad(sum(y * y), {in.at("w")})[0]}};
}

TEST(KernelExport, TheManifestIsComplete) {
  const test::TemporaryFolder folder;
  const ExportedKernels done = export_kernels(folder / "out", inputs(), product);
  const json manifest = json::parse(content(folder / "out" / "manifest.json"));
  EXPECT_EQ(manifest["format"], "weft.kernels");
  EXPECT_EQ(manifest["version"], 1);
  EXPECT_EQ(manifest["language"], "wgsl");
  EXPECT_EQ(manifest["kernels"].size(), done.kernels);
  EXPECT_EQ(manifest["buffers"].size(), done.buffers);
  ASSERT_EQ(manifest["inputs"].size(), 2u);
  EXPECT_EQ(manifest["inputs"][1]["name"], "x");
  EXPECT_EQ(manifest["inputs"][1]["dtype"], "f32");
  EXPECT_EQ(manifest["inputs"][1]["shape"], json::parse("[2, 3]"));
  EXPECT_EQ(manifest["outputs"][0]["name"], "dw");
  const std::string data = content(folder / "out" / "data.bin");
  std::set<std::size_t> written, used, run;
  for (const json& step : manifest["steps"]) {
    ASSERT_EQ(step.size(), 1u);
    if (step.contains("write")) {
      const json& write = step["write"];
      const std::size_t buffer = write["buffer"],
                        end = write["offset"].get<std::size_t>() + write["bytes"].get<std::size_t>();
      EXPECT_LE(end, manifest["buffers"].at(buffer)["bytes"]);
      EXPECT_LE(write["data_offset"].get<std::size_t>() + write["bytes"].get<std::size_t>(), data.size());
      written.insert(buffer);
      continue;
    }
    const json& dispatch = step["dispatch"];
    const json& kernel = manifest["kernels"].at(dispatch["kernel"].get<std::size_t>());
    run.insert(dispatch["kernel"].get<std::size_t>());
    ASSERT_EQ(dispatch["buffers"].size(), kernel["bindings"].size());
    EXPECT_EQ(dispatch["workgroups"].size(), 3u);
    for (std::size_t i = 0; i < kernel["bindings"].size(); ++i) {
      const json& range = dispatch["buffers"][i];
      const std::size_t buffer = range["buffer"];
      EXPECT_LE(range["offset"].get<std::size_t>() + range["bytes"].get<std::size_t>(),
                manifest["buffers"].at(buffer)["bytes"]);
      EXPECT_EQ(range["offset"].get<std::size_t>() % 256, 0u);
      if (kernel["bindings"][i]["access"] == "read_write")
        written.insert(buffer);
      else
        EXPECT_TRUE(written.contains(buffer)) << "buffer " << buffer << " is read before anything writes it";
      used.insert(buffer);
    }
  }
  EXPECT_EQ(run.size(), done.kernels);
  for (const char* list : {"inputs", "outputs"})
    for (const json& each : manifest[list]) {
      EXPECT_TRUE(written.contains(each["buffer"])) << each;
      EXPECT_TRUE(used.contains(each["buffer"])) << each;
    }
  for (const json& kernel : manifest["kernels"]) {
    const std::string text = content(folder / "out" / kernel["file"].get<std::string>());
    EXPECT_NE(
        text.find("@compute @workgroup_size(" + std::to_string(kernel["workgroup_size"][0].get<int>()) + ")\nfn main("),
        std::string::npos);
    for (const json& binding : kernel["bindings"]) {
      const std::string access = binding["access"], number = std::to_string(binding["binding"].get<int>());
      EXPECT_NE(text.find("@group(0) @binding(" + number + ") var<storage, " + access + ">"), std::string::npos)
          << text;
    }
  }
}

TEST(KernelExport, DataHasTheValuesOfInputs) {
  const test::TemporaryFolder folder;
  export_kernels(folder / "out", {{"x", tensor<float>({7, 8, 9}, {3})}, {"b", tensor<bool>({true, false, true}, {3})}},
                 [](const NamedTensors& in) {
                   return NamedTensors{{"y", where(in.at("b"), in.at("x"), -in.at("x"))}};
                 });
  const json manifest = json::parse(content(folder / "out" / "manifest.json"));
  const std::string data = content(folder / "out" / "data.bin");
  const auto words = [&](const json& write) {
    std::vector<std::uint32_t> all(write["bytes"].get<std::size_t>() / 4);
    std::memcpy(all.data(), data.data() + write["data_offset"].get<std::size_t>(), 4 * all.size());
    return all;
  };
  for (const json& input : manifest["inputs"])
    for (const json& step : manifest["steps"])
      if (step.contains("write") && step["write"]["buffer"] == input["buffer"]) {
        if (input["name"] == "b")  // a word each
          EXPECT_EQ(words(step["write"]), (std::vector<std::uint32_t>{1, 0, 1}));
        else
          EXPECT_EQ(words(step["write"]), (std::vector<std::uint32_t>{0x40E00000, 0x41000000, 0x41100000}));
      }
}

TEST(KernelExport, ValuesThatTheHostWroteMayBeRead) {
  const test::TemporaryFolder folder;
  export_kernels(folder / "out", {{"x", tensor<float>({7, 8, 9}, {3})}, {"b", tensor<bool>({true, false, true}, {3})}},
                 [](const NamedTensors& in) {
                   EXPECT_EQ(in.at("x").to_vector<float>(), (std::vector<float>{7, 8, 9}));
                   EXPECT_EQ(in.at("b").to_vector<bool>(), (std::vector<bool>{true, false, true}));
                   return NamedTensors{{"y", in.at("x") * in.at("x")[1].item<float>()}};
                 });
}

TEST(KernelExport, ConstantsAndInputsAreResults) {
  const test::TemporaryFolder folder;
  export_kernels(folder / "out", {{"x", tensor<float>({1, 2}, {2})}}, [](const NamedTensors& in) {
    return NamedTensors{{"x", in.at("x")}, {"ones", ones({5})}, {"sum", in.at("x") + 1}};
  });
  const json manifest = json::parse(content(folder / "out" / "manifest.json"));
  EXPECT_EQ(manifest["outputs"].size(), 3u);
  EXPECT_EQ(manifest["outputs"][2]["buffer"], manifest["inputs"][0]["buffer"]);
}

TEST(KernelExport, AnotherLanguage) {
  const test::TemporaryFolder folder;
  export_kernels(folder / "out", inputs(), product, {},
                 {.name = "capitals", .extension = "txt", .translate = [](const std::string&) { return "TEXT"; }});
  const json manifest = json::parse(content(folder / "out" / "manifest.json"));
  EXPECT_EQ(manifest["language"], "capitals");
  const std::string file = manifest["kernels"][0]["file"];
  EXPECT_TRUE(file.ends_with(".txt")) << file;
  EXPECT_EQ(content(folder / "out" / file), "TEXT");
  expect_error<UsageError>(
      [&] {
        export_kernels(folder / "broken", inputs(), product, {},
                       {.name = "none", .extension = "x", .translate = [](const std::string&) -> std::string {
                          throw UsageError("no translator");
                        }});
      },
      "as none");
}

TEST(KernelExport, SubgroupsAndLimitsChangeTheKernels) {
  const test::TemporaryFolder folder;
  const NamedTensors in{{"x", ones({64, 4096})}};
  const auto sums = [](const NamedTensors& given) { return NamedTensors{{"y", sum(given.at("x"), {1})}}; };
  const auto text_of = [&](const char* name, const KernelLimits& limits) {
    export_kernels(folder / name, in, sums, limits);
    std::string all;
    for (const auto& file : std::filesystem::directory_iterator(folder / name / "kernels")) all += content(file.path());
    return all;
  };
  EXPECT_EQ(text_of("plain", {}).find("enable subgroups"), std::string::npos);
  EXPECT_NE(text_of("subgroups", {.subgroup_size = 32}).find("enable subgroups"), std::string::npos);
}

TEST(KernelExport, Errors) {
  const test::TemporaryFolder folder;
  const auto with = [&](const KernelLimits& limits) { export_kernels(folder / "out", inputs(), product, limits); };
  expect_error<UsageError>([&] { with({.storage_buffers = 2}); }, "storage_buffers is 2, and may be 8 to 64");
  expect_error<UsageError>([&] { with({.subgroup_size = 24}); }, "powers of two");
  expect_error<UsageError>([&] { with({.binding_bytes = 1 << 30, .buffer_bytes = 1 << 20}); }, "buffer_bytes");
  folder.put("file", "content");
  expect_error<UsageError>([&] { export_kernels(folder.path(), inputs(), product); }, "not an empty folder");
  expect_error<UsageError>([&] { export_kernels(folder / "file", inputs(), product); }, "not an empty folder");
  const auto of = [&](const std::function<NamedTensors(const NamedTensors&)>& function) {
    export_kernels(folder / "out", inputs(), function);
  };
  expect_error<UsageError>([&] { of([](const NamedTensors&) { return NamedTensors{}; }); }, "returns nothing");
  expect_error<UsageError>(
      [&] {
        of([](const NamedTensors& in) { return NamedTensors{{"y", in.at("x") * sum(in.at("x")).item<float>()}}; });
      },
      "reads a value while its kernels are recorded");
  expect_error<UsageError>(
      [&] { of([](const NamedTensors&) {
              return NamedTensors{{"y", ones({2}, DType::f32, kCpu)}};
            }); },
      "not on the device that records");
  const Tensor outside = tensor<float>({1, 2, 3}, {3});  // of another session, on another device
  expect_error<DeviceError>(
      [&] { of([&](const NamedTensors& in) {
              return NamedTensors{{"y", in.at("x") * outside}};
            }); },
      "operands on webgpu:0 and cpu");
  expect_error<DTypeError>(
      [&] {
        export_kernels(folder / "out", {{"x", tensor<double>({1, 2}, {2})}}, [](const NamedTensors& in) {
          return NamedTensors{{"y", in.at("x")}};
        });
      },
      "does not hold f64");
  expect_error<UsageError>([&] { export_kernels(folder / "out", {{"x", {}}}, product); }, "has no value");
  EXPECT_FALSE(std::filesystem::exists(folder / "out"));  // nothing is left of what failed
}

}  // namespace
}  // namespace weft::kernel_export_test
