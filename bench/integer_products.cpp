// Products of i8 with sums in i32 (`int_matmul`): GOP/s on the CPU beside oneDNN's s8 on the same threads, TOP/s on a GPU.
//
//   bench_integer_products [cpu|webgpu] [seconds for each product]
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <random>
#include <thread>

#include "base/threads.hpp"
#include "figure.hpp"
#include "peers.hpp"
#include "runtime/devices.hpp"
#include "weft/weft.hpp"

using namespace weft;
using Clock = std::chrono::steady_clock;

namespace {

/// Fastest seconds of a call. Calls take turns, each after the threads of the one before have gone to sleep.
std::vector<double> fastest(const std::vector<std::function<void()>>& calls, double seconds) {
  std::vector<double> best(calls.size(), 1e30);
  const auto begin = Clock::now();
  do {
    for (std::size_t i = 0; i < calls.size(); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      for (int n = 0; n < 4; ++n) {
        const auto start = Clock::now();
        calls[i]();
        best[i] = std::min(best[i], std::chrono::duration<double>(Clock::now() - start).count());
      }
    }
  } while (std::chrono::duration<double>(Clock::now() - begin).count() < seconds);
  return best;
}

/// From -32 to 31: with larger ones, oneDNN's sums of two products saturate on processors without VNNI.
std::vector<std::int8_t> random_integers(Extent count) {
  std::mt19937 random(3);
  std::vector<std::int8_t> values(static_cast<std::size_t>(count));
  for (std::int8_t& x : values) x = static_cast<std::int8_t>(static_cast<int>(random() % 64) - 32);
  return values;
}

}  // namespace

int main(int argc, char** argv) {
  const Device device = parse_device(argc > 1 ? argv[1] : "cpu");
  const double seconds = argc > 2 ? std::atof(argv[2]) : 2;
  set_default_device(device);
  const bool on_cpu = device.kind == Device::Kind::cpu;
#ifdef WEFT_HAS_DNNL
  if (on_cpu) figures::spread_openmp_threads();
#endif
  for (const Extent size : {256, 512, 1024, 2048, 4096, 8192}) {
    if (on_cpu && size > 2048) break;
    std::vector<std::int8_t> a = random_integers(size * size), b = random_integers(size * size);
    const Tensor x = tensor_from_bytes(a.data(), {size, size}, DType::i8).eval(),
                 y = tensor_from_bytes(b.data(), {size, size}, DType::i8).eval();
    auto product = compile([](const Tensor& l, const Tensor& r) { return int_matmul(l, r); });
    constexpr int kTogether = 20;  // on a GPU, which works on several calls before the host asks for a number
    const int calls = on_cpu ? 1 : kTogether;
    Tensor made;
    std::vector<std::function<void()>> work{[&] {
      for (int i = 0; i < calls; ++i) made = product(x, y);
      if (!on_cpu) (void)made[0][0].item<std::int32_t>();
    }};
    std::string peer;
    std::vector<std::int32_t> c(static_cast<std::size_t>(size * size));
#ifdef WEFT_HAS_DNNL
    if (on_cpu) {
      peer = figures::onednn_name();
      work.push_back(figures::dnnl_product({1, size, size, false, dnnl_s8, a.data()},
                                           {1, size, size, false, dnnl_s8, b.data()},
                                           {1, size, size, false, dnnl_s32, c.data()}));
    }
#endif
    work[0]();
    const std::vector<double> best = fastest(work, seconds);
    if (work.size() > 1 && made.to_vector<std::int32_t>() != c) {
      fmt::print(stderr, "the results differ\n");
      return 1;
    }
    const double unit = on_cpu ? 1e9 : 1e12, operations = 2.0 * static_cast<double>(size * size * size);
    const double rate = operations * calls / best[0] / unit;
    const double of_peer = best.size() > 1 ? operations / best[1] / unit : 0;
    fmt::print("{:>5} x {:>5} x {:>5}  {:9.1f} {}", size, size, size, rate, on_cpu ? "GOP/s" : "TOP/s");
    if (of_peer > 0) fmt::print("  {} {:9.1f}  ratio {:.2f}", peer, of_peer, rate / of_peer);
    fmt::print("\n");
    figures::keep({on_cpu ? "i8 matrix products" : "i8 matrix products on a GPU", fmt::format("{0} x {0} x {0}", size),
                   on_cpu ? "GOP/s" : "TOP/s", rate, peer, of_peer,
                   on_cpu ? "" : runtime::backend_of(device).describe().hardware});
  }
}
