// ONNX's published tests of its operators: a model, inputs and outputs in each folder. Debian's libonnx-testdata has them.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "base/file.hpp"
#include "onnx/proto.hpp"
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
  if (found.dtype() != wanted.dtype)
    return "dtype " + std::string(name_of(found.dtype())) + ", not " + std::string(name_of(wanted.dtype));
  const Tensor other = tensor_from_bytes(wanted.data.data(), wanted.shape, wanted.dtype, kCpu);
  if (found.dtype() == DType::i64 || found.dtype() == DType::u64)
    return sum(ne(found.to(kCpu), other)).item<std::int32_t>() ? "integers differ" : "";
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

std::string outcome(const fs::path& folder) {
  try {
    const Model model = load(folder / "model.onnx", kCpu);
    bool any = false;
    for (const auto& entry : fs::directory_iterator(folder)) {
      if (!entry.is_directory()) continue;
      any = true;
      std::vector<Tensor> inputs;
      for (io::Array& a : read_tensors(entry.path(), "input")) {
        if (inputs.size() < model.inputs().size()) as_declared(a, model.inputs()[inputs.size()]);
        inputs.push_back(tensor_from_bytes(a.data.data(), a.shape, a.dtype, kCpu));
      }
      std::vector<io::Array> wanted = read_tensors(entry.path(), "output");
      for (std::size_t i = 0; i < wanted.size() && i < model.outputs().size(); ++i)
        as_declared(wanted[i], model.outputs()[i]);
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

std::map<std::string, std::string> expected_failures() {
  std::map<std::string, std::string> list;
  std::ifstream file(fs::path(WEFT_TEST_SOURCE) / "expected_failures.txt");
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line[0] == '#') continue;
    const std::size_t colon = line.find(": ");
    list[line.substr(0, colon)] = colon == std::string::npos ? "" : line.substr(colon + 2);
  }
  return list;
}

void run_folders(const fs::path& root, std::size_t least) {
  if (!fs::exists(root)) GTEST_SKIP() << "no tests in " << root << "; install libonnx-testdata (script/setup --judges)";
  const std::map<std::string, std::string> expected = expected_failures();
  const char* only = std::getenv("WEFT_TEST_ONNX_ONLY");
  std::size_t passed = 0, total = 0;
  for (const auto& entry : fs::directory_iterator(root)) {
    const std::string name = entry.path().filename();
    if (only && name.find(only) == std::string::npos) continue;
    ++total;
    const std::string failure = outcome(entry.path());
    const auto listed = expected.find(name);
    if (failure.empty()) {
      ++passed;
      EXPECT_TRUE(listed == expected.end()) << name << " passes now: remove it from expected_failures.txt";
    } else {
      EXPECT_TRUE(listed != expected.end()) << name << ": " << failure;
    }
  }
  std::cout << root.filename().string() << ": " << passed << " of " << total << " pass\n";
  if (!only) {
    EXPECT_GE(passed, least);
  }
}

TEST(OnnxNodes, PublishedTestsOfOperators) { run_folders(data_folder() / "node", 850); }
TEST(OnnxNodes, PublishedTestsOfSmallModels) { run_folders(data_folder() / "simple", 12); }
TEST(OnnxNodes, PublishedTestsFromPytorchOperators) { run_folders(data_folder() / "pytorch-operator", 25); }
TEST(OnnxNodes, PublishedTestsFromPytorchModels) { run_folders(data_folder() / "pytorch-converted", 70); }

TEST(OnnxNodes, ExpectedFailuresHaveReasons) {
  for (const auto& [name, reason] : expected_failures()) EXPECT_GT(reason.size(), 10u) << name;
}

}  // namespace
}  // namespace weft::onnx
