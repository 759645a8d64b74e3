// ONNX's published tests of its operators: a model, inputs and outputs in each folder. Debian's libonnx-testdata has those of
// opset 17; script/setup --judges fetches those of 18 to 21, which run with WEFT_TEST_ALL_OPSETS=1. WEFT_TEST_DEVICE=webgpu:0 runs
// tests there, and WEFT_TEST_ONNX_ONLY those whose names contain a text.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "base/file.hpp"
#include "base/name_pattern.hpp"
#include "onnx/proto.hpp"
#include "runtime/devices.hpp"
#include "webgpu_driver.hpp"
#include "weft/onnx.hpp"
#include "weft/ops.hpp"

namespace weft::onnx {
namespace {

namespace fs = std::filesystem;

// As ONNX's own runner compares.
constexpr double kRelative = 1e-3, kAbsolute = 1e-7;

fs::path data_folder() {
  if (const char* given = std::getenv("WEFT_TEST_ONNX_DATA")) return given;
  return "/usr/share/libonnx-testdata/data";
}

/// Where the folders of newer opsets are: one for each version of ONNX.
fs::path newer_folder() {
  const char* judges = std::getenv("WEFT_TEST_JUDGES");
  return (judges ? fs::path(judges).parent_path() : fs::path(".cache")) / "data" / "onnx-nodes";
}

Device device_under_test() {
  const char* name = std::getenv("WEFT_TEST_DEVICE");
  if (!name) return kCpu;
  test::choose_driver();
  const Device device = parse_device(name);
  runtime::backend_of(device);
  return device;
}
bool on_cpu(Device device) { return device == kCpu; }
bool is_missing(DType type) { return type == DType::f64 || type == DType::u64; }  // on a GPU, which has i32 for i64

io::Array read_tensor(const fs::path& path) {
  const std::vector<std::byte> bytes = read_file(path);
  return elements_of(parse_tensor(bytes, path.string()), path.string(), {});
}

std::vector<io::Array> read_tensors(const fs::path& folder, const std::string& prefix) {
  std::vector<io::Array> arrays;
  for (int i = 0;; ++i) {
    const fs::path path = folder / (prefix + "_" + std::to_string(i) + ".pb");
    if (!fs::exists(path)) return arrays;
    arrays.push_back(read_tensor(path));
  }
}

// "" if they agree.
std::string difference(const Tensor& found, const io::Array& wanted) {
  if (found.shape() != wanted.shape) return "shape " + found.shape().to_string() + ", not " + wanted.shape.to_string();
  const bool is_narrowed = !on_cpu(found.device()) && wanted.dtype == DType::i64 && found.dtype() == DType::i32;
  if (found.dtype() != wanted.dtype && !is_narrowed)
    return "dtype " + std::string(name_of(found.dtype())) + ", not " + std::string(name_of(wanted.dtype));
  const Tensor other = tensor_from_bytes(wanted.data.data(), wanted.shape, wanted.dtype, kCpu);
  if (wanted.dtype == DType::i64 || wanted.dtype == DType::u64)
    return sum(ne(cast(found.to(kCpu), wanted.dtype), other)).item<std::int32_t>() ? "integers differ" : "";
  const std::vector<double> x = cast(found.to(kCpu), DType::f64).to_vector<double>();
  const std::vector<double> y = cast(other, DType::f64).to_vector<double>();
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (x[i] == y[i] || (std::isnan(x[i]) && std::isnan(y[i]))) continue;
    if (std::abs(x[i] - y[i]) <= kAbsolute + kRelative * std::abs(y[i])) continue;
    return "element " + std::to_string(i) + " is " + std::to_string(x[i]) + ", not " + std::to_string(y[i]);
  }
  return "";
}

// The data of some tests have the bits of bf16 as u16.
void as_declared(io::Array& array, const Port& port) {
  if (array.dtype == DType::u16 && port.type == DType::bf16) array.dtype = DType::bf16;
}

Tensor on_device(const io::Array& a, Device device) {
  const Tensor x = tensor_from_bytes(a.data.data(), a.shape, a.dtype, kCpu);
  if (on_cpu(device)) return x;
  return (a.dtype == DType::i64 ? cast(x, DType::i32) : x).to(device);
}

constexpr const char* kMissingType = "a type that the device lacks";

std::string outcome(const fs::path& folder, Device device) {
  try {
    const Model model = load(folder / "model.onnx", device);
    bool any = false;
    for (const auto& entry : fs::directory_iterator(folder)) {
      if (!entry.is_directory()) continue;
      any = true;
      std::vector<Tensor> inputs;
      for (io::Array& a : read_tensors(entry.path(), "input")) {
        if (inputs.size() < model.inputs().size()) as_declared(a, model.inputs()[inputs.size()]);
        if (!on_cpu(device) && is_missing(a.dtype)) return kMissingType;
        inputs.push_back(on_device(a, device));
      }
      std::vector<io::Array> wanted = read_tensors(entry.path(), "output");
      for (std::size_t i = 0; i < wanted.size() && i < model.outputs().size(); ++i)
        as_declared(wanted[i], model.outputs()[i]);
      for (const io::Array& each : wanted)
        if (!on_cpu(device) && is_missing(each.dtype)) return kMissingType;
      const std::vector<Tensor> found = model(inputs);
      if (found.size() != wanted.size()) return std::to_string(found.size()) + " outputs";
      eval(found);
      for (std::size_t i = 0; i < found.size(); ++i)
        if (const std::string d = difference(found[i], wanted[i]); !d.empty())
          return "output " + std::to_string(i) + ": " + d;
    }
    return any ? "" : "no data";
  } catch (const std::exception& error) {
    std::string text = error.what();
    return text.substr(0, 400);
  }
}

using Reasons = std::map<std::string, std::string>;  // by name, which may be a pattern

Reasons reasons_in(const char* name) {
  Reasons list;
  std::ifstream file(fs::path(WEFT_TEST_SOURCE) / name);
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line[0] == '#') continue;
    const std::size_t colon = line.find(": ");
    list[line.substr(0, colon)] = colon == std::string::npos ? "" : line.substr(colon + 2);
  }
  return list;
}

/// What tests did, of one folder of them or of several.
struct Outcomes {
  std::size_t total = 0, passed = 0, missing = 0;
  std::map<std::string, std::string> failed, all;  // "" or a message, by name; the worst of several folders
};

void run_folder(const fs::path& root, Device device, Outcomes& outcomes) {
  const char* only = std::getenv("WEFT_TEST_ONNX_ONLY");
  const Outcomes before = outcomes;
  for (const auto& entry : fs::directory_iterator(root)) {
    const std::string name = entry.path().filename();
    if (only && name.find(only) == std::string::npos) continue;
    ++outcomes.total;
    const std::string failure = outcome(entry.path(), device);
    if (failure == kMissingType) {
      ++outcomes.missing;
      continue;
    }
    outcomes.all.try_emplace(name);
    if (failure.empty())
      ++outcomes.passed;
    else
      outcomes.failed[name] = failure;
    if (outcomes.total % 100 == 0 && !on_cpu(device)) std::cout << outcomes.total << " tests" << std::endl;
  }
  std::cout << root.string() << ": " << outcomes.passed - before.passed << " of " << outcomes.total - before.total
            << " pass";
  if (outcomes.missing > before.missing)
    std::cout << ", " << outcomes.missing - before.missing << " have types that the device lacks";
  std::cout << "\n";
}

// Failures must be listed, and what is listed must fail.
void compare(const Outcomes& outcomes, const Reasons& expected) {
  const auto is_listed = [&](const std::string& name) {
    return std::any_of(expected.begin(), expected.end(),
                       [&](const auto& entry) { return matches_pattern(name, entry.first); });
  };
  for (const auto& [name, failure] : outcomes.failed) EXPECT_TRUE(is_listed(name)) << name << ": " << failure;
  for (const auto& [name, nothing] : outcomes.all)
    EXPECT_TRUE(outcomes.failed.contains(name) || !is_listed(name)) << name << " passes now: remove it from the list";
}

void run_folders(const fs::path& root, std::size_t least) {
  if (!fs::exists(root)) GTEST_SKIP() << "no tests in " << root << "; install libonnx-testdata (script/setup --judges)";
  const Device device = device_under_test();
  Outcomes outcomes;
  run_folder(root, device, outcomes);
  Reasons expected = reasons_in("expected_failures.txt");
  if (!on_cpu(device)) expected.merge(reasons_in("expected_failures_webgpu.txt"));
  compare(outcomes, expected);
  if (!std::getenv("WEFT_TEST_ONNX_ONLY")) {
    EXPECT_GE(outcomes.passed + outcomes.missing, least);
  }
}

TEST(OnnxNodes, PublishedTestsOfOperators) { run_folders(data_folder() / "node", 850); }
TEST(OnnxNodes, PublishedTestsOfSmallModels) { run_folders(data_folder() / "simple", 12); }
TEST(OnnxNodes, PublishedTestsFromPytorchOperators) { run_folders(data_folder() / "pytorch-operator", 25); }
TEST(OnnxNodes, PublishedTestsFromPytorchModels) { run_folders(data_folder() / "pytorch-converted", 70); }

// Each version of ONNX publishes its tests for its newest opset.
TEST(OnnxNodes, PublishedTestsOfOpsets18To21) {
  if (!std::getenv("WEFT_TEST_ALL_OPSETS")) GTEST_SKIP() << "a long test: set WEFT_TEST_ALL_OPSETS=1";
  if (!fs::exists(newer_folder())) GTEST_SKIP() << "no tests in " << newer_folder() << "; run script/setup --judges";
  const Device device = device_under_test();
  Outcomes outcomes;
  std::size_t versions = 0;
  for (const auto& version : fs::directory_iterator(newer_folder()))
    if (version.is_directory()) run_folder(version.path(), device, outcomes), ++versions;
  EXPECT_EQ(versions, 4u);
  Reasons expected = reasons_in("expected_failures_18_to_21.txt");
  if (!on_cpu(device)) expected.merge(reasons_in("expected_failures_webgpu.txt"));
  compare(outcomes, expected);
  if (!std::getenv("WEFT_TEST_ONNX_ONLY")) {
    EXPECT_GE(outcomes.passed + outcomes.missing, 4100u);
  }
}

// Those are made by test/onnx/nodes_judge.py.
TEST(OnnxNodes, TestsOfOpsets22To28) {
  const char* made = std::getenv("WEFT_TEST_ONNX_MADE");
  if (!made) GTEST_SKIP() << "run onnx.nodes_judge";
  Outcomes outcomes;
  run_folder(made, device_under_test(), outcomes);
  compare(outcomes, reasons_in("expected_failures_22_to_28.txt"));
  if (!std::getenv("WEFT_TEST_ONNX_ONLY")) {
    EXPECT_GE(outcomes.passed, 730u);
  }
}

TEST(OnnxNodes, ExpectedFailuresHaveReasons) {
  for (const char* list : {"expected_failures.txt", "expected_failures_18_to_21.txt", "expected_failures_22_to_28.txt",
                           "expected_failures_webgpu.txt"}) {
    const Reasons reasons = reasons_in(list);
    EXPECT_FALSE(reasons.empty()) << list;
    for (const auto& [name, reason] : reasons) EXPECT_GT(reason.size(), 10u) << name;
  }
}

}  // namespace
}  // namespace weft::onnx
