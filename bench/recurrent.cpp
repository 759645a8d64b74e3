// Recurrent layers, forward and with gradients of all weights and of x: milliseconds, the best of several rounds, beside PyTorch.
//   bench_recurrent [PYTHON [DEVICE]]     PYTHON: an interpreter with PyTorch (default /usr/bin/python3), run right after, on as many
//                                         threads, or with CUDA if DEVICE (default cpu) is a GPU
// For a GPU also how long a plan takes to compile, and how many kernels it has, by the number of steps.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>

#include "base/threads.hpp"
#include "figure.hpp"
#include "peer.hpp"
#include "runtime/devices.hpp"
#include "weft/weft.hpp"

using namespace weft;

namespace {

struct Case {
  const char* cell;
  Extent steps, sequences, inputs, width;
};
constexpr Case kCases[] = {{"lstm", 64, 32, 128, 256},
                           {"lstm", 100, 64, 256, 512},
                           {"gru", 64, 32, 128, 256},
                           {"gru", 100, 64, 256, 512},
                           {"rnn", 64, 32, 128, 256}};

template <class Layer>
std::pair<double, double> times(const Case& c) {
  Layer layer(c.inputs, c.width);
  return bench::layer_times(layer, randn({c.steps, c.sequences, c.inputs}).eval(),
                            [&](const Tensor& x) { return layer(x).output; });
}

// What a plan of a step of training takes to trace and compile: the first call less the second, in milliseconds; and its kernels.
std::pair<double, std::size_t> compilation(Extent steps) {
  nn::LSTM layer(32, 64);
  const std::vector<Variable> weights = layer.parameters();
  const Tensor x = randn({steps, 2, 32}).eval();
  eval(std::vector<Tensor>(weights.begin(), weights.end()));
  auto both = compile(
      [&](const Tensor& v) { return grad(sum(layer(v).output), std::vector<Tensor>(weights.begin(), weights.end())); });
  const auto call = [&] {
    const auto start = std::chrono::steady_clock::now();
    eval(both(x));
    synchronize(default_device());
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  };
  const double first = call();
  return {first - call(), both.compiled().kernel_count()};
}

// What the peer prints: forward and both, in milliseconds.
std::pair<double, double> peer(const std::string& python, const Case& c, bool on_gpu) {
  const std::string script = std::string(WEFT_SOURCE_FOLDER) + "/bench/torch_recurrent.py";
  const std::string command = fmt::format("{} {} {} {} {} {} {} {} {}", python, script, c.cell, c.steps, c.sequences,
                                          c.inputs, c.width, thread_count(), on_gpu ? "cuda" : "cpu");
  return bench::printed_by(command);
}

}  // namespace

int main(int count, char** arguments) {
  const Device device = parse_device(count > 2 ? arguments[2] : "cpu");
  const bool on_gpu = device.kind != Device::Kind::cpu;
  set_default_device(device);
  const std::string python = count > 1 ? arguments[1] : "/usr/bin/python3";
  if (on_gpu)
    for (const Extent steps : {64, 1000}) {
      const auto [ms, kernels] = compilation(steps);
      fmt::print("lstm N 2 I 32 H 64 with gradients, T {}: {} kernels, compiled in {:.0f} ms\n", steps, kernels, ms);
      std::fflush(stdout);
    }
  fmt::print("{:<6} {:>5} {:>5} {:>6} {:>5}  {:>22}  {:>22}\n", "cell", "T", "N", "I", "H", "forward ms (PyTorch)",
             "with gradients");
  for (const Case& c : kCases) {
    const std::string cell = c.cell;
    const auto [forward, both] = cell == "lstm"  ? times<nn::LSTM>(c)
                                 : cell == "gru" ? times<nn::GRU>(c)
                                                 : times<nn::RNN>(c);
    const auto [peer_forward, peer_both] = peer(python, c, on_gpu);
    fmt::print("{:<6} {:>5} {:>5} {:>6} {:>5}  {:>7.2f} ({:>7.2f}) {:>4.1f}x  {:>7.2f} ({:>7.2f}) {:>4.1f}x\n", cell,
               c.steps, c.sequences, c.inputs, c.width, forward, peer_forward, peer_forward / forward, both, peer_both,
               peer_both / both);
    std::fflush(stdout);  // PyTorch takes its time
    const std::string work = fmt::format("{} T {} N {} I {} H {}", cell, c.steps, c.sequences, c.inputs, c.width);
    const bool has_peer = peer_forward > 0;
    if (!has_peer && !on_gpu) continue;
    const std::string machine = on_gpu ? runtime::backend_of(device).describe().hardware : std::string();
    const char* name = has_peer ? "PyTorch" : "";
    figures::keep({"recurrent layers", work + ", forward", "ms", forward, name, peer_forward, machine});
    figures::keep({"recurrent layers", work + ", with gradients", "ms", both, name, peer_both, machine});
  }
}
