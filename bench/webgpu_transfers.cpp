// Bytes between the host and a device, beside a copy within the host's memory: GB/s, the best of several.
//   bench_webgpu_transfers [device]
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <vector>

#include "figure.hpp"
#include "runtime/devices.hpp"
#include "weft/weft.hpp"

using namespace weft;
using Clock = std::chrono::steady_clock;

namespace {

template <class Work>
double best_seconds(std::size_t bytes, Work work) {
  double best = 1e30;
  const int rounds = bytes > (1 << 24) ? 8 : 40;
  for (int i = 0; i < rounds; ++i) {
    const auto begin = Clock::now();
    work();
    best = std::min(best, std::chrono::duration<double>(Clock::now() - begin).count());
  }
  return best;
}

int run(int argc, char** argv) {
  const Device device = parse_device(argc > 1 ? argv[1] : "webgpu");
  set_default_device(device);
  const std::string hardware = runtime::backend_of(device).describe().hardware;
  fmt::print("{:>12} {:>12} {:>12} {:>12} {:>12}  GB/s\n", "bytes", "to device", "from device", "copy", "new memory");
  for (std::size_t bytes = 1 << 12; bytes <= (std::size_t(1) << 28); bytes *= 4) {
    std::vector<float> host(bytes / 4, 1.0f), other(host.size());
    const auto rate = [&](double seconds) { return static_cast<double>(bytes) / seconds * 1e-9; };
    const Shape shape{static_cast<Extent>(host.size())};
    const double to = best_seconds(bytes, [&] {
      const Tensor x = tensor_from_bytes(host.data(), shape, DType::f32);
      synchronize(device);
    });
    const Tensor x = tensor_from_bytes(host.data(), shape, DType::f32);
    const double from = best_seconds(bytes, [&] { x.copy_to(other.data(), bytes); });
    const double copy = best_seconds(bytes, [&] { std::memcpy(other.data(), host.data(), bytes); });
    const double fresh = best_seconds(bytes, [&] { std::vector<float> made(host.begin(), host.end()); });
    fmt::print("{:>12} {:>12.2f} {:>12.2f} {:>12.2f} {:>12.2f}\n", bytes, rate(to), rate(from), rate(copy),
               rate(fresh));
    for (const auto& [work, seconds] : {std::pair("to the device", to), std::pair("from the device", from)})
      figures::keep({"bytes between host and device", fmt::format("{} bytes {}", bytes, work), "GB/s", rate(seconds),
                     "memcpy in the host's memory", rate(copy), hardware});
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "error: {}\nusage: bench_webgpu_transfers [device]\n", error.what());
    return 2;
  }
}
