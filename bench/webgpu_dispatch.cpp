// What a replayed WebGPU program costs the host: 200 small dispatches, a run at a time without waiting; also the wall
// time with a wait, a read of 4 bytes, transfers, and compiling cold and from the cache on disk.
// Usage: bench_webgpu_dispatch [adapter index]
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <random>
#include <vector>

#include "backend/webgpu/buffer.hpp"
#include "backend/webgpu/command_sequence.hpp"
#include "weft/error.hpp"

using namespace weft;
using namespace weft::webgpu;

namespace {

constexpr int kDispatches = 200;

double seconds_of(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Best of `repeats`; `prepare` is not timed.
double best_of(int repeats, const std::function<void()>& prepare, const std::function<void()>& work) {
  double best = 1e30;
  for (int i = 0; i < repeats; ++i) {
    prepare();
    best = std::min(best, seconds_of(work));
  }
  return best;
}

Shader adder(const AdapterInfo& adapter, int number, bool immediates) {
  const std::string parameters = immediates ? adapter.immediates_directive +
                                                  "struct Parameters { a: vec4u, b: vec4u, c: vec4u }\n"
                                                  "var<immediate> p: Parameters;\n"
                                            : "";
  return {fmt::format("add {}", number),
          parameters + fmt::format("@group(0) @binding(0) var<storage, read> x: array<vec4f>;\n"
                                   "@group(0) @binding(1) var<storage, read_write> y: array<vec4f>;\n"
                                   "@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3u) {{\n"
                                   "  y[id.x] = x[id.x] + vec4f({}.0){};\n"
                                   "}}\n",
                                   number, immediates ? " + vec4f(p.c)" : ""),
          {true, false},
          immediates ? 48u : 0u};
}

// A chain through `buffers` buffers that changes the pipeline and the bind group at each dispatch, as a training step does.
Recording chain(const std::shared_ptr<Device>& device, int buffers, int shaders, bool immediates) {
  constexpr std::uint64_t kBytes = 64 * 16;
  Recording recording;
  for (int i = 0; i < buffers; ++i) recording.slots.push_back({.buffer = Buffer::create(device, kBytes, "chain")});
  for (int i = 0; i < shaders; ++i) recording.shaders.push_back(adder(device->info(), i, immediates));
  for (int i = 0; i < kDispatches; ++i)
    recording.commands.push_back(Dispatch{.label = "add",
                                          .shader = i % shaders,
                                          .bindings = {{i % buffers, 0, kBytes}, {(i + 1) % buffers, 0, kBytes}},
                                          .immediates = std::vector<std::uint32_t>(immediates ? 12 : 0, 0)});
  return recording;
}

void bench_dispatch(const std::shared_ptr<Device>& device, bool immediates, const CommandSequenceOptions& options) {
  CommandSequence program(device, chain(device, 16, 20, immediates), options);
  const auto wait = [&] { device->synchronize(); };
  // The clocks idle low: half a second of work first.
  for (double warm = 0; warm < 0.5;) warm += seconds_of([&] { program.run({}), wait(); });
  const double host = best_of(50, wait, [&] { program.run({}); });
  const double wall = best_of(50, wait, [&] { program.run({}), wait(); });
  constexpr int kStream = 100;
  const double stream = best_of(5, wait, [&] {
    for (int i = 0; i < kStream; ++i) program.run({});
    wait();
  });
  double gpu = 0;
  for (const backend::KernelTime& time : program.profile({})) gpu += time.microseconds;
  fmt::print(
      "chunks {:3}, then {:3}{}: host {:.3f} us, with wait {:.3f} us, streamed {:.3f} us, profiled {:.3f} us a "
      "dispatch\n",
      options.first_chunk, options.chunk, immediates ? ", 48 B immediates" : "                  ",
      host / kDispatches * 1e6, wall / kDispatches * 1e6, stream / kStream / kDispatches * 1e6, gpu / kDispatches);
}

void bench_transfers(const std::shared_ptr<Device>& device) {
  const std::size_t bytes = std::min<std::size_t>(64 << 20, device->info().limits.buffer_bytes);
  const auto buffer = Buffer::create(device, bytes, "transfer");
  std::vector<std::byte> host(bytes, std::byte{1});
  const auto wait = [&] { device->synchronize(); };
  float value = 0;
  buffer->download(0, &value, 4);
  const double read = best_of(50, wait, [&] { buffer->download(0, &value, 4); });
  const double idle = best_of(50, wait, wait);
  const double up = best_of(5, wait, [&] { buffer->upload(0, host.data(), bytes), wait(); });
  const double down = best_of(5, wait, [&] { buffer->download(0, host.data(), bytes); });
  fmt::print("read of 4 bytes {:.1f} us, wait for an idle queue {:.1f} us\n", read * 1e6, idle * 1e6);
  fmt::print("{} MiB: upload {:.2f} GB/s, download {:.2f} GB/s\n", bytes >> 20, static_cast<double>(bytes) / up * 1e-9,
             static_cast<double>(bytes) / down * 1e-9);
}

void bench_start(int index) {
  const auto folder =
      std::filesystem::temp_directory_path() / fmt::format("weft-bench-cache-{}", std::random_device{}());
  DeviceOptions options{.validate = false, .cache_folder = folder};
  for (const char* state : {"cold", "from the cache"}) {
    std::shared_ptr<Device> device;
    const double open = seconds_of([&] { device = Device::open(index, options); });
    const Recording recording = chain(device, 2, 60, false);
    const double compile = seconds_of([&] { CommandSequence(device, recording); });
    fmt::print("{}: open {:.0f} ms, 60 pipelines {:.0f} ms\n", state, open * 1e3, compile * 1e3);
  }
  std::filesystem::remove_all(folder);
}

}  // namespace

int main(int argc, char** argv) try {
  const int index = argc > 1 ? std::atoi(argv[1]) : -1;
  bench_start(index);
  const auto device = Device::open(index, {.validate = false, .cache_folder = {}});
  fmt::print("{}, {}, {}\n", device->name(), describe(device->info()), library().path);
  for (const CommandSequenceOptions options : {CommandSequenceOptions{16, 128}, {16, 64}, {8, 32}, {200, 200}})
    bench_dispatch(device, false, options);
  if (device->info().limits.immediate_bytes >= 48) bench_dispatch(device, true, {});
  bench_transfers(device);
  return 0;
} catch (const weft::Error& error) {
  fmt::print(stderr, "{}\n", error.what());
  return 1;
}
