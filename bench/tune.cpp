// Fine-tuning of a language model by low-rank adapters of all products of its layers: tokens a second, and the share of time of each kernel.
// MODEL is a file, a folder, or the name of a shape with random weights (NAME or NAME:TYPE, as in bench_llm). PYTHON, if given, runs
// torch_tune.py, which takes the same step in PyTorch on its CUDA device.
// Usage: bench_tune MODEL [device] [rows] [context] [f32|bf16|f16] [keep|recompute] [PYTHON]
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "figure.hpp"
#include "random_model.hpp"
#include "runtime/devices.hpp"
#include "weft/error.hpp"
#include "weft/parallel.hpp"
#include "weft/train/config.hpp"
#include "weft/tune.hpp"

using namespace weft;

namespace {

double seconds_of(const auto& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// The milliseconds that the peer prints; 0 if there is none.
double milliseconds_of_peer(const std::string& python, const std::string& arguments, std::string& name) {
  const std::string command = fmt::format("{} {}/bench/torch_tune.py {}", python, WEFT_SOURCE_FOLDER, arguments);
  FILE* pipe = popen(command.c_str(), "r");
  if (!pipe) return 0;
  std::array<char, 512> line{};
  double milliseconds = 0;
  while (std::fgets(line.data(), static_cast<int>(line.size()), pipe)) {
    std::array<char, 256> title{};
    double value = 0;
    if (std::sscanf(line.data(), "%lf ms %255[^\n]", &value, title.data()) == 2 &&
        (milliseconds == 0 || value < milliseconds)) {
      milliseconds = value;
      name = title.data();
    }
    fmt::print("  {}", line.data());
  }
  pclose(pipe);
  return milliseconds;
}

int run(int argc, char** argv) {
  if (argc < 2)
    throw UsageError("usage: bench_tune MODEL [device] [rows] [context] [f32|bf16|f16] [keep|recompute] [PYTHON]");
  const Device device = parallel::parse_devices(argc > 2 ? argv[2] : "auto")[0];
  set_default_device(device);
  const Extent rows = argc > 3 ? std::atoi(argv[3]) : 4, context = argc > 4 ? std::atoi(argv[4]) : 512;
  const std::string precision = argc > 5 ? argv[5] : "f32";
  const bool keeps = argc > 6 && std::string(argv[6]) == "keep";
  const std::filesystem::path path =
      bench::is_random_model(argv[1]) ? bench::random_model(argv[1]) : std::filesystem::path(argv[1]);
  const llm::Model model = llm::load(path, {.context = context, .device = device});
  tune::Tuner tuner(model,
                    {.rank = 16, .alpha = 32, .precision = train::precision_named(precision), .recompute = !keeps});
  std::vector<tune::Example> examples(16);
  for (std::size_t e = 0; e < examples.size(); ++e) {
    for (std::size_t t = 0; t <= static_cast<std::size_t>(context); ++t)
      examples[e].tokens.push_back(
          static_cast<std::int32_t>((t * 7919 + e * 104729 + 13) % static_cast<std::size_t>(model.vocabulary())));
    examples[e].counts.assign(examples[e].tokens.size(), true);
  }
  tune::RowStream stream(examples, context, 1);
  std::int64_t at = 0;
  float loss = 0;
  const auto step = [&] {
    loss = tuner.step({stream.batch(at, rows)}, 1e-4).loss.item<float>();
    at += rows;
  };
  const double first = seconds_of(step);
  const float loss_before = loss;
  step();
  double best = 1e9;
  for (int i = 0; i < 12; ++i) best = std::min(best, seconds_of(step));
  const auto tokens = static_cast<double>(rows * context);
  fmt::print(
      "{} on {}, {} rows of {}, {}, {}: first step after {:.2f} s, {:.2f} ms a step, {:.0f} tokens/s, {:.0f} MB of "
      "scratch, loss {:.4f} to {:.4f}\n",
      argv[1], device.to_string(), rows, context, precision, keeps ? "activations kept" : "layers computed again",
      first, 1e3 * best, tokens / best, static_cast<double>(tuner.planned_bytes(rows, context)) / 1e6, loss_before,
      loss);
  figures::Figure figure{
      "fine-tuning by adapters of rank 16",
      fmt::format("{}, {} rows of {}, {}{}", argv[1], rows, context, precision, keeps ? "" : ", layers again"),
      "tokens/s", tokens / best};
  if (device.kind == Device::Kind::webgpu) figure.machine = runtime::backend_of(device).describe().hardware;
  if (argc > 7) {
    std::string name;
    const double peer = milliseconds_of_peer(
        argv[7], fmt::format("{} {} {} {} {}", argv[1], rows, context, precision, keeps ? "keep" : "recompute"), name);
    if (peer > 0) {
      figure.peer = name;
      figure.of_peer = tokens / peer * 1e3;
      fmt::print("  ratio {:.2f}\n", figure.weft / figure.of_peer);
    }
  }
  figures::keep(figure);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const Error& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
