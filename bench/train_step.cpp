// One training step of a GPT preset: milliseconds a step, host time, kernels, memory, and on request where the time goes.
//   bench_train_step [device] [preset] [seconds] [profile|explain|source|cold|none] [f32|high|bf16|f16] [python]
// python: an interpreter with PyTorch, which does the same step beside it (torch_train_step.py), in every way that it has.
// high: f32 with products of two halves each (ProductPrecision::high) where the device has matrix units.
// cold: the time from the start of the program to the end of the first step, with every cache of shaders empty.
#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <random>

#include "figure.hpp"
#include "runtime/devices.hpp"
#include "weft/weft.hpp"

using namespace weft;
using Clock = std::chrono::steady_clock;

namespace {

double milliseconds(Clock::duration d) { return std::chrono::duration<double, std::milli>(d).count(); }

/// An empty folder as the cache of Weft and of the drivers (NVIDIA's by its own variable, Mesa's by HOME and XDG), gone at the
/// end.
class EmptyCaches {
 public:
  EmptyCaches() {
    std::filesystem::create_directories(folder_);
    for (const char* name : {"WEFT_CACHE_DIR", "HOME", "XDG_CACHE_HOME", "__GL_SHADER_DISK_CACHE_PATH"})
      setenv(name, folder_.c_str(), 1);
  }
  EmptyCaches(const EmptyCaches&) = delete;
  ~EmptyCaches() {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }

 private:
  std::filesystem::path folder_ =
      std::filesystem::temp_directory_path() / fmt::format("weft-cold-{:08x}", std::random_device()());
};

struct Peer {
  std::string name;
  double best;  // milliseconds
};

/// PyTorch's fastest way of the step on its GPU: eager, compiled, or compiled into a graph of CUDA.
std::optional<Peer> fastest_peer(const std::string& python, const std::string& preset, const std::string& seconds,
                                 const std::string& numbers) {
  std::optional<Peer> fastest;
  const std::string script = std::string(WEFT_SOURCE_FOLDER) + "/bench/torch_train_step.py";
  for (const char* mode : {"eager", "compiled", "graphs"}) {
    const std::string command = fmt::format("{} {} cuda {} {} {} {}", python, script, preset, seconds,
                                            numbers == "high" ? "f32" : numbers, mode);
    FILE* pipe = popen(command.c_str(), "r");
    if (!pipe) continue;
    char version[64], line[512];
    double best = 0;
    while (std::fgets(line, sizeof line, pipe)) {
      const char* found = std::strstr(line, "(best ");
      if (!found || std::sscanf(line, "PyTorch %63[^+ ]", version) != 1 || std::sscanf(found, "(best %lf", &best) != 1)
        continue;
      fmt::print("{}", line);
      if (!fastest || best < fastest->best) fastest = {fmt::format("PyTorch {}, {}", version, mode), best};
    }
    pclose(pipe);
  }
  return fastest;
}

int run(int argc, char** argv) {
  const auto start = Clock::now();
  auto argument = [&](int i, const char* otherwise) { return std::string(argc > i ? argv[i] : otherwise); };
  const std::string extra = argument(4, "none");
  std::optional<EmptyCaches> empty_caches;
  if (extra == "cold") empty_caches.emplace();
  const Device device = parse_device(argument(1, "cpu"));
  set_default_device(device);
  train::Preset config = train::preset(argument(2, "small"));
  if (config.model.vocabulary == 1) config.model.vocabulary = 83;  // the characters of a text
  const auto vocabulary = static_cast<std::uint64_t>(config.model.vocabulary);
  const double seconds = std::stod(argument(3, "5"));
  const std::string numbers = argument(5, "f32");
  if (numbers == "high") compile_settings().products = ProductPrecision::high;
  const DType precision = train::precision_named(numbers == "high" ? "f32" : numbers);

  nn::GPT model(config.model);
  model.initialize(1);
  optim::AdamW optimizer(model, {.learning_rate = 1e-3, .weight_decay = 0.1, .clip_norm = 1.0});
  optim::LossScale scale;
  Compiled step([&](std::span<const Tensor> in) {
    const Autocast scope(precision);
    const Extent context = in[0].dim(1) - 1;
    const Tensor loss = model.loss(narrow(in[0], 1, 0, context), narrow(in[0], 1, 1, context));
    const Tensor norm = precision == DType::f16
                            ? optimizer.step(grad(scale.apply(loss), optimizer.parameters()), in[1], scale)
                            : optimizer.step(grad(loss, optimizer.parameters()), in[1]);
    return std::vector<Tensor>{loss, norm};
  });
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(config.batch * (config.model.context + 1)));
  for (std::size_t i = 0; i < tokens.size(); ++i)
    tokens[i] = static_cast<std::int32_t>((i * 2654435761u >> 7) % vocabulary);
  const Shape shape{config.batch, config.model.context + 1};
  const float rate = 1e-3f;
  auto arguments = [&] {
    return std::vector<Tensor>{tensor_from_bytes(tokens.data(), shape, DType::i32),
                               tensor_from_bytes(&rate, {}, DType::f32)};
  };

  float loss = step(arguments())[0].item<float>();
  const double first = milliseconds(Clock::now() - start);
  fmt::print("{} {}: first step after {:.0f} ms, loss {:.4f}, {} kernels, {:.1f} MB scratch\n", device.to_string(),
             argument(2, "small"), first, loss, step.kernel_count(), static_cast<double>(step.scratch_bytes()) / 1e6);
  if (extra == "cold")
    figures::keep({"start to the end of the first training step, empty caches",
                   fmt::format("preset {}, {}", argument(2, "small"), numbers), "ms", first, "", 0,
                   device.kind == Device::Kind::webgpu ? runtime::backend_of(device).describe().hardware : ""});
  if (extra == "explain" || extra == "source") fmt::print("{}", step.explain(extra == "source"));

  // Batches of steps, the device waited for after each; the host's own share is the time until the calls return.
  const int batch = device.kind == Device::Kind::cpu || config.model.width > 500 ? 5 : 50;
  double best = 1e30, best_host = 1e30;
  int steps = 0;
  const auto begin = Clock::now();
  while (milliseconds(Clock::now() - begin) < seconds * 1e3) {
    const auto t0 = Clock::now();
    std::vector<Tensor> results;
    for (int i = 0; i < batch; ++i) results = step(arguments());
    const auto t1 = Clock::now();
    loss = results[0].item<float>();
    best = std::min(best, milliseconds(Clock::now() - t0) / batch);
    best_host = std::min(best_host, milliseconds(t1 - t0) / batch);
    steps += batch;
  }
  if (steps == 0) {  // only the cold start, and perhaps the profile, were asked for
    if (extra == "profile") fmt::print("{}", step.profile(arguments()));
    return 0;
  }
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const double per_step = milliseconds(Clock::now() - begin) / steps;
  fmt::print(
      "{} {}: {:.3f} ms a step (best {:.3f}), host {:.3f} ms = {:.2f} us a kernel, {:.0f} tokens/s, loss {:.4f} after "
      "{} steps, peak memory {:.0f} MB\n",
      device.to_string(), argument(2, "small"), per_step, best, best_host,
      best_host * 1e3 / static_cast<double>(step.kernel_count()),
      static_cast<double>(config.batch * config.model.context) / best * 1e3, loss, steps,
      static_cast<double>(usage.ru_maxrss) / 1e3);
  if (device.kind == Device::Kind::webgpu) {  // bench/compare_torch.py keeps those of the CPU, beside a peer
    const std::optional<Peer> peer =
        argc > 6 ? fastest_peer(argv[6], argument(2, "small"), argument(3, "5"), numbers) : std::nullopt;
    if (peer) fmt::print("{}: {:.3f} ms, ratio {:.2f}\n", peer->name, peer->best, peer->best / best);
    figures::keep({"training step", fmt::format("preset {}, {}", argument(2, "small"), numbers), "ms", best,
                   peer ? peer->name : "", peer ? peer->best : 0, runtime::backend_of(device).describe().hardware});
  }
  if (extra == "profile") fmt::print("{}", step.profile(arguments()));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(
        stderr,
        "error: {}\n"
        "usage: bench_train_step [device] [preset] [seconds] [profile|explain|source|cold|none] [f32|high|bf16|f16] "
        "[python]\n",
        error.what());
    return 2;
  }
}
