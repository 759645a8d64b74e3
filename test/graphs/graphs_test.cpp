// Random programs over all rows of the op table: the CPU's fused kernels and a GPU's against each step alone in f64.
// WEFT_TEST_DEVICE names the device beside the CPU (none: cpu), WEFT_TEST_GRAPHS the number, WEFT_TEST_SEED the first,
// WEFT_TEST_ROWS the only rows that are drawn ("conv3d histogram"), WEFT_TEST_ALL_SHADERS=1 draws those too whose shaders
// SwiftShader compiles slowly; WEFT_TEST_SHOW prints every graph before it runs, WEFT_TEST_SHOW=plans its kernels too.
// With WEFT_TEST_ONNX_EXPORTS=FOLDER the graphs are written as models of ONNX, with what ONNX Runtime has to give
// (test/onnx/graphs_judge.py).
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <map>

#include "base/file.hpp"
#include "conformance/device_run.hpp"
#include "graphs/program.hpp"
#include "runtime/op_cases.hpp"
#include "weft/compile.hpp"
#include "weft/io.hpp"
#include "weft/onnx.hpp"
#include "weft/weft.hpp"

namespace weft::test {
namespace {

using Results = std::vector<std::vector<double>>;

/// Runs the program on a device; unfused, each op is a kernel of its own and composites are their parts.
Results results_of(const Program& program, Device device, DType type, bool fused) {
  const Device before = default_device();
  set_default_device(device);
  compile_settings().fusion = compile_settings().fused_composites = fused;
  Results results;
  try {
    const std::vector<Tensor> outputs = program.make(type);
    if (fused && environment("WEFT_TEST_SHOW", "") == "plans")
      for (const Tensor& t : outputs) std::fprintf(stderr, "%s\n", explain(t, true).c_str());
    eval(outputs);
    for (const Tensor& t : outputs) results.push_back(runtime::numbers_of(t));
  } catch (...) {
    compile_settings().fusion = compile_settings().fused_composites = true;
    set_default_device(before);
    throw;
  }
  compile_settings().fusion = compile_settings().fused_composites = true;
  set_default_device(before);
  return results;
}

double largest_of(const std::vector<double>& numbers) {
  double largest = 0;
  for (const double x : numbers)
    if (std::isfinite(x)) largest = std::max(largest, std::fabs(x));
  return largest;
}
double difference_of(const std::vector<double>& a, const std::vector<double>& b) {
  double most = 0;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i)
    if (std::isfinite(a[i]) && std::isfinite(b[i])) most = std::max(most, std::fabs(a[i] - b[i]));
  return most;
}
bool is_finite(const std::vector<double>& numbers) {
  return std::all_of(numbers.begin(), numbers.end(), [](double x) { return std::isfinite(x); });
}
bool is_finite(const Results& results) {
  return std::all_of(results.begin(), results.end(), [](const auto& numbers) { return is_finite(numbers); });
}

/// How far results may be from the exact ones, one number for each output.
struct Bounds {
  Bounds(const Program& program, const Results& exact, const Results& plain, DType type) {
    const double epsilon = std::ldexp(1.0, 1 - element(type).digits);
    for (std::size_t o = 0; o < exact.size(); ++o) {
      const bool same = program.outputs()[o].same_bits;
      const double scale = largest_of(exact[o]), error = difference_of(plain[o], exact[o]);
      tight.push_back(same ? 0 : 1e-9 * (1 + scale));
      allowed.push_back(same ? 0 : 256 * epsilon * scale + 16 * error + 4 * epsilon);
      // Beyond the range of a narrow type, rounding alone makes infinities and NaN.
      if (is_finite(exact[o]) && !is_finite(plain[o])) allowed.back() = std::numeric_limits<double>::infinity();
      if (!(error <= std::sqrt(epsilon) * (scale + epsilon))) is_stable = false;
    }
  }
  std::vector<double> tight;    // in f64
  std::vector<double> allowed;  // in the type
  bool is_stable = true;
};

struct Verdict {
  std::string failure;    // "" where all agree
  bool is_finite = true;  // else no GPU took part: shader compilers may fold what makes NaN
  bool is_stable = true;  // else rounding alone changes the results by more than the bound
};

class Graphs : public Conformance {
 protected:
  /// Why two results differ by more than is allowed, or "".
  static std::string differences(const Program& program, const Results& got, const Results& wanted,
                                 const std::vector<double>& allowed, const char* what) {
    if (got.size() != wanted.size()) return fmt::format("{}: {} results, expected {}", what, got.size(), wanted.size());
    for (std::size_t o = 0; o < got.size(); ++o) {
      const std::string name = fmt::format("{}: {}", what, program.outputs()[o].name);
      if (got[o].size() != wanted[o].size())
        return fmt::format("{}: {} elements, expected {}", name, got[o].size(), wanted[o].size());
      for (std::size_t i = 0; i < got[o].size(); ++i) {
        const double a = got[o][i], e = wanted[o][i];
        if (a == e || (std::isnan(a) && std::isnan(e)) || std::isinf(allowed[o])) continue;
        if (std::isfinite(a) && std::isfinite(e) && std::fabs(a - e) <= allowed[o]) continue;
        return fmt::format("{}, element {} of {}: {:.9g}, expected {:.9g} within {:.3g}{}", name, i, got[o].size(), a,
                           e, allowed[o], program.outputs()[o].same_bits ? " (exact)" : "");
      }
    }
    return "";
  }

  Verdict verdict(const Recipe& recipe) {
    Verdict found;
    try {
      compile_settings().fusion = compile_settings().fused_composites = false;
      const Program program(recipe);
      if (std::getenv("WEFT_TEST_SHOW")) std::fprintf(stderr, "%s", program.text().c_str());
      const DType type = recipe.type;
      const Results exact = results_of(program, kCpu, DType::f64, false);
      Results alone;
      for (std::size_t o = 0; o < exact.size(); ++o)
        alone.push_back(program.outputs()[o].alone.empty() ? exact[o] : program.outputs()[o].alone);
      const Results plain = results_of(program, kCpu, type, false);
      const Bounds bounds(program, exact, plain, type);
      const std::vector<double>& allowed = bounds.allowed;
      found.is_stable = bounds.is_stable && !program.grows_rounding();
      found.failure = differences(program, exact, alone, bounds.tight, "f64 as one graph beside each step alone");
      if (found.failure.empty() && !found.is_stable) return found;
      if (found.failure.empty())
        found.failure = differences(program, results_of(program, kCpu, type, true), exact, allowed, "cpu");
      found.is_finite = weft::test::is_finite(exact) && weft::test::is_finite(plain);
      if (found.failure.empty() && found.is_finite && !is_cpu())
        found.failure = differences(program, results_of(program, device(), type, true), exact, allowed, "device");
      if (!found.failure.empty()) found.failure += "\n" + program.text();
    } catch (const std::exception& error) {
      compile_settings().fusion = compile_settings().fused_composites = true;
      found.failure = error.what();
    }
    return found;
  }

  /// The smallest recipe that still fails, and how.
  std::pair<Recipe, std::string> shrunk(Recipe recipe, std::string failure) {
    for (bool shrinks = true; shrinks;) {
      shrinks = false;
      for (const Recipe& less : smaller(recipe))
        if (const Verdict found = verdict(less); !found.failure.empty()) {
          recipe = less;
          failure = found.failure;
          shrinks = true;
          break;
        }
    }
    return {recipe, failure};
  }
};

std::uint64_t number(const char* name, std::uint64_t otherwise) {
  return std::strtoull(environment(name, fmt::to_string(otherwise).c_str()).c_str(), nullptr, 10);
}

/// Rows named in WEFT_TEST_ROWS, else all that the device draws.
std::vector<const graph::OpRow*> chosen_rows(Drawn drawn) {
  std::vector<const graph::OpRow*> rows = drawn_rows(drawn);
  if (const std::string names = " " + environment("WEFT_TEST_ROWS", "") + " "; names.size() > 2)
    std::erase_if(rows,
                  [&](const graph::OpRow* row) { return names.find(" " + row->name + " ") == std::string::npos; });
  return rows;
}

/// A line now and then, so that a run of hours shows where it is.
class Progress {
 public:
  explicit Progress(std::uint64_t count) : count_(count) {}
  void step(std::uint64_t seed, std::uint64_t failures) {
    ++done_;
    const auto now = std::chrono::steady_clock::now();
    const double last = std::chrono::duration<double>(now - before_).count();
    before_ = now;
    if (last > kSlow) std::printf("seed %llu took %.0f s\n", static_cast<unsigned long long>(seed), last);
    if (last <= kSlow && std::chrono::duration<double>(now - shown_).count() < kEvery) return;
    shown_ = now;
    std::printf("%llu of %llu graphs in %.0f s, %llu fail\n", static_cast<unsigned long long>(done_),
                static_cast<unsigned long long>(count_), std::chrono::duration<double>(now - start_).count(),
                static_cast<unsigned long long>(failures));
    std::fflush(stdout);
  }

 private:
  static constexpr double kSlow = 60, kEvery = 30;  // seconds
  std::uint64_t count_, done_ = 0;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now(), before_ = start_, shown_ = start_;
};

// The long run on a GPU is in pieces; together their seeds draw every row.
TEST(GraphSeeds, DrawAllRows) {
  constexpr std::uint64_t kSeeds = 4400;
  constexpr int kLeast = 10;
  for (const Drawn drawn : {Drawn::on_cpu, Drawn::on_gpu_of_all_shaders}) {
    const std::vector<const graph::OpRow*> rows = drawn_rows(drawn);
    std::map<std::string, int> times;
    for (std::uint64_t seed = 1; seed <= kSeeds; ++seed)
      for (const Step& step : draw(seed, rows).steps) ++times[step.row->name];
    for (const graph::OpRow* row : rows) EXPECT_GE(times[row->name], kLeast) << row->name;
  }
}

TEST_F(Graphs, OfAllRowsAgree) {
  const std::uint64_t count = number("WEFT_TEST_GRAPHS", is_cpu() ? 300 : 100), first = number("WEFT_TEST_SEED", 1);
  const std::uint64_t failures_max = number("WEFT_TEST_FAILURES", 5);
  const bool all_shaders = std::getenv("WEFT_TEST_ALL_SHADERS");
  const std::vector<const graph::OpRow*> rows = chosen_rows(is_cpu()      ? Drawn::on_cpu
                                                            : all_shaders ? Drawn::on_gpu_of_all_shaders
                                                                          : Drawn::on_gpu);
  std::map<std::string, int> drawn;
  for (const graph::OpRow* row : rows) drawn[row->name] = 0;
  ASSERT_FALSE(rows.empty());
  std::uint64_t not_finite = 0, unstable = 0, failures = 0;
  Progress progress(count);
  for (std::uint64_t seed = first; seed < first + count && failures < failures_max; ++seed) {
    const Recipe recipe = draw(seed, rows);
    const Verdict found = verdict(recipe);
    not_finite += found.is_finite ? 0 : 1;
    unstable += found.is_stable ? 0 : 1;
    if (found.is_stable && (found.is_finite || is_cpu()))
      for (const Step& step : recipe.steps) ++drawn[step.row->name];
    progress.step(seed, failures);
    if (found.failure.empty()) continue;
    ++failures;
    const auto [least, failure] = shrunk(recipe, found.failure);
    std::string names;
    for (const Step& step : least.steps) names += " " + step.row->name;
    ADD_FAILURE() << "WEFT_TEST_SEED=" << seed << " (WEFT_TEST_GRAPHS=1) fails:\n"
                  << found.failure << "\nshrunk to" << names << ":\n"
                  << failure;
  }
  std::string missing;
  for (const auto& [name, times] : drawn)
    if (times == 0) missing += " " + name;
  std::printf("%llu graphs over %zu rows, %llu with NaN, %llu unstable; not drawn:%s\n",
              static_cast<unsigned long long>(count), rows.size(), static_cast<unsigned long long>(not_finite),
              static_cast<unsigned long long>(unstable), count >= 1000 ? missing.c_str() : " -");
  EXPECT_LE(not_finite, count / 10 + 3);
  EXPECT_LE(unstable, count / 20 + 3);
  if (count >= 2000) {
    EXPECT_EQ(missing, "");
  }
}

// Writes what ONNX has operators for; `reasons` counts the others by what the exporter says.
bool write_for_onnx(const Program& program, const std::string& path, std::map<std::string, int>& reasons) {
  compile_settings().fusion = compile_settings().fused_composites = false;
  const Results exact = results_of(program, kCpu, DType::f64, false),
                plain = results_of(program, kCpu, DType::f32, false);
  const Bounds bounds(program, exact, plain, DType::f32);
  if (!bounds.is_stable || program.grows_rounding() || !is_finite(exact) || !is_finite(plain)) {
    ++reasons["not finite, or rounding alone changes the results"];
    return false;
  }
  if (program.reads_nan()) {
    ++reasons["a step reads NaN"];
    return false;
  }
  try {
    onnx::save(path + ".onnx", [&](std::span<const Tensor>) { return program.make(DType::f32); }, {});
  } catch (const InternalError&) {
    throw;
  } catch (const Error& error) {
    const std::string text = error.what();
    ++reasons[text.substr(0, text.find('\n'))];
    return false;
  }
  NamedTensors wanted;
  for (std::size_t o = 0; o < exact.size(); ++o) {
    wanted.emplace(fmt::format("exact{}", o), tensor(exact[o]));
    wanted.emplace(fmt::format("allowed{}", o), tensor(std::vector<double>{bounds.allowed[o]}));
  }
  save_npz(path + ".npz", wanted);
  write_file_atomically(path + ".txt", program.text());
  return true;
}

TEST_F(Graphs, AreModelsOfOnnx) {
  const std::string folder = environment("WEFT_TEST_ONNX_EXPORTS", "");
  if (folder.empty() || !is_cpu()) GTEST_SKIP() << "the judge runs this";
  const std::uint64_t count = number("WEFT_TEST_GRAPHS", 100), first = number("WEFT_TEST_SEED", 1);
  const std::vector<const graph::OpRow*> rows = chosen_rows(Drawn::on_cpu);
  std::map<std::string, int> reasons;
  std::map<std::string, int> drawn;
  std::uint64_t written = 0;
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    Recipe recipe = draw(seed, rows);
    recipe.type = DType::f32;
    if (!write_for_onnx(Program(recipe), fmt::format("{}/{}", folder, seed), reasons)) continue;
    ++written;
    for (const Step& step : recipe.steps) ++drawn[step.row->name];
  }
  std::printf("%llu of %llu graphs written, over %zu rows\n", static_cast<unsigned long long>(written),
              static_cast<unsigned long long>(count), drawn.size());
  for (const auto& [reason, times] : reasons) std::printf("%4d not: %s\n", times, reason.c_str());
}

}  // namespace
}  // namespace weft::test
