// Mixtures of experts, forward and with gradients of all weights and of x: milliseconds, the best of several rounds, beside PyTorch.
//   bench_mixture [PYTHON [DEVICE]]     PYTHON: an interpreter with PyTorch (default /usr/bin/python3), run right after, on as many
//                                       threads, or with CUDA if DEVICE (default cpu) is a GPU
#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "base/threads.hpp"
#include "figure.hpp"
#include "peer.hpp"
#include "runtime/devices.hpp"
#include "weft/weft.hpp"

using namespace weft;

namespace {

struct Case {
  Extent rows, width, hidden, experts, used;
};
// Of a few large experts, as in Mixtral, and of many small ones, as in Qwen3.
constexpr Case kOnGpu[] = {{8192, 1024, 3584, 8, 2}, {8192, 1024, 512, 64, 8}},
               kOnCpu[] = {{512, 256, 896, 8, 2}, {512, 256, 128, 64, 8}};

std::pair<double, double> times(const Case& c) {
  const nn::Mixture layer(c.width, c.hidden, c.experts, {.top_k = c.used});
  return bench::layer_times(layer, randn({c.rows, c.width}).eval(), [&](const Tensor& x) { return layer(x); });
}

// What the peer prints: forward and both, in milliseconds.
std::pair<double, double> peer(const std::string& python, const Case& c, bool on_gpu) {
  const std::string script = std::string(WEFT_SOURCE_FOLDER) + "/bench/torch_mixture.py";
  const std::string command = fmt::format("{} {} {} {} {} {} {} {} {}", python, script, c.rows, c.width, c.hidden,
                                          c.experts, c.used, thread_count(), on_gpu ? "cuda" : "cpu");
  return bench::printed_by(command);
}

}  // namespace

int main(int count, char** arguments) {
  const Device device = parse_device(count > 2 ? arguments[2] : "cpu");
  const bool on_gpu = device.kind != Device::Kind::cpu;
  set_default_device(device);
  const std::string python = count > 1 ? arguments[1] : "/usr/bin/python3";
  const std::string machine = on_gpu ? runtime::backend_of(device).describe().hardware : std::string();
  for (const Case& c : on_gpu ? kOnGpu : kOnCpu) {
    const auto [forward, both] = times(c);
    const auto [peer_forward, peer_both] = peer(python, c, on_gpu);
    const std::string work =
        fmt::format("{} rows of {}, {} of {} experts of {}", c.rows, c.width, c.used, c.experts, c.hidden);
    fmt::print("{}: forward {:.2f} ms (PyTorch {:.2f}, {:.2f}x), with gradients {:.2f} ms ({:.2f}, {:.2f}x)\n", work,
               forward, peer_forward, peer_forward / forward, both, peer_both, peer_both / both);
    std::fflush(stdout);  // PyTorch takes its time
    const char* name = peer_forward > 0 ? "PyTorch" : "";
    figures::keep({"mixtures of experts", work + ", forward", "ms", forward, name, peer_forward, machine});
    figures::keep({"mixtures of experts", work + ", with gradients", "ms", both, name, peer_both, machine});
  }
}
