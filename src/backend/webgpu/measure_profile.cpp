#include "backend/webgpu/measure_profile.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include "backend/webgpu/command_sequence.hpp"
#include "backend/webgpu/wgsl/shader.hpp"
#include "base/log.hpp"
#include "weft/error.hpp"

namespace weft::webgpu {
namespace {

constexpr int kThreads = 256;               // in a workgroup that keeps a compute unit busy
constexpr int kChains = 8;                  // independent chains of fmas in each thread
constexpr int kWritten = 64;                // fmas of a turn of the timed loops
constexpr int kRepeats = 3;                 // the fastest counts
constexpr int kSerialRepeats = 20;          // runs that the host times
constexpr double kShares = 1.4;             // times as long: two workgroups share a compute unit
constexpr std::uint32_t kChased = 1 << 20;  // words of the buffer for dependent loads: beyond the first caches
constexpr std::uint32_t kChaseStep = 4099;  // words from one load to the next, a prime
constexpr int kLoads = 512;
constexpr int kSerialDispatches = 128;

/// Runs shaders on one buffer and measures their times.
class Stopwatch {
 public:
  Stopwatch(std::shared_ptr<Device> device, std::shared_ptr<Buffer> data) : device_(std::move(device)) {
    slots_.push_back({std::move(data)});
  }

  /// Microseconds of a shader with each of these numbers of workgroups; empty without timestamps.
  std::vector<double> microseconds(const ShaderPieces& pieces, const std::vector<std::uint32_t>& workgroups) {
    CommandSequence sequence(device_, recording_of(pieces, workgroups));
    std::vector<double> least(workgroups.size(), std::numeric_limits<double>::infinity());
    for (int repeat = 0; repeat < kRepeats; ++repeat) {
      const std::vector<backend::KernelTime> times = sequence.profile({});
      if (times.size() != workgroups.size()) return {};
      for (std::size_t i = 0; i < times.size(); ++i) least[i] = std::min(least[i], times[i].microseconds);
    }
    return least;
  }

  /// Microseconds of `count` dispatches that wait for one another, by the host's clock.
  double serial_microseconds(const ShaderPieces& pieces, int count) {
    CommandSequence sequence(device_,
                             recording_of(pieces, std::vector<std::uint32_t>(static_cast<std::size_t>(count), 1)));
    double least = std::numeric_limits<double>::infinity();
    for (int repeat = 0; repeat < kSerialRepeats; ++repeat) {
      device_->synchronize();
      const auto start = std::chrono::steady_clock::now();
      sequence.run({});
      device_->synchronize();
      const std::chrono::duration<double, std::micro> taken = std::chrono::steady_clock::now() - start;
      least = std::min(least, taken.count());
    }
    return least;
  }

 private:
  Recording recording_of(const ShaderPieces& pieces, const std::vector<std::uint32_t>& workgroups) const {
    Recording recording;
    recording.slots = slots_;
    recording.shaders.push_back({"measure", pieces.text(), {false}});
    for (const std::uint32_t count : workgroups)
      recording.commands.emplace_back(
          Dispatch{"measure", 0, {{0, 0, slots_[0].buffer->allocated_bytes()}}, fold_workgroups(count)});
    return recording;
  }

  std::shared_ptr<Device> device_;
  std::vector<Slot> slots_;
};

ShaderPieces pieces_of(int threads, std::string body) {
  ShaderPieces pieces{.threads = threads, .storage = {{"u32", true}}, .body = std::move(body)};
  return pieces;
}

/// `chains` sums of products per thread, kWritten fmas per turn. Factors come from memory, so nothing can be precomputed.
ShaderPieces fma_shader(int threads, int chains, int turns) {
  std::string body = "  let factor = f32($data0[0]);\n";
  for (int c = 0; c < chains; ++c) body += fmt::format("  var x{0} = f32(thread + {0}u);\n", c);
  body += fmt::format("  for (var i = 0u; i < {}u + (thread >> 16u); i++) {{\n", turns);
  for (int i = 0; i < kWritten; ++i) body += fmt::format("    x{0} = fma(x{0}, factor, factor);\n", i % chains);
  body += "  }\n  let sum = x0";
  for (int c = 1; c < chains; ++c) body += fmt::format(" + x{}", c);
  return pieces_of(threads, body + ";\n  if (sum == 0.123f) { $data0[1] = group; }\n");
}

/// The largest number of workgroups that take about as long as one workgroup, if the measurement finds one.
std::optional<std::uint32_t> count_compute_units(Stopwatch& stopwatch, const ShaderPieces& busy, double alone,
                                                 std::uint32_t most) {
  std::uint32_t low = 1, high = 0;  // takes as long as one; takes longer
  for (std::uint32_t step = 0; high == 0 || high - low > 1;) {
    std::vector<std::uint32_t> tried;
    if (high == 0) {
      for (std::uint32_t n = 2; n <= most; n *= 2) tried.push_back(n);
    } else {
      step = std::max(1u, (high - low) / 16);
      for (std::uint32_t n = low + step; n < high; n += step) tried.push_back(n);
    }
    const std::vector<double> times = stopwatch.microseconds(busy, tried);
    const bool is_first = high == 0;
    for (std::size_t i = 0; i < times.size(); ++i) {
      if (times[i] > kShares * alone) {
        high = tried[i];
        break;
      }
      low = tried[i];
    }
    if (is_first && high == 0) return {};
  }
  return low;
}

std::optional<DeviceProfile> measured(const std::shared_ptr<Device>& device, const MeasureOptions& options) {
  DeviceProfile profile;
  profile.source = "measured";
  const AdapterInfo& info = device->info();
  const std::uint64_t bytes =
      std::min({options.bytes, info.limits.buffer_bytes, info.limits.binding_bytes}) / 65536 * 65536;
  const std::shared_ptr<Buffer> data = Buffer::create(device, bytes, "measuring the device");
  std::vector<std::uint32_t> next(std::min<std::uint64_t>(kChased, bytes / 4));
  for (std::size_t i = 0; i < next.size(); ++i) next[i] = static_cast<std::uint32_t>((i + kChaseStep) % next.size());
  data->upload(0, next.data(), next.size() * 4);

  const ShaderPieces nothing = pieces_of(1, "  if (group > 9u) { $data0[1] = 0u; }\n");
  const ShaderPieces busy = fma_shader(kThreads, kChains, options.turns);
  const ShaderPieces serial = fma_shader(1, 1, options.turns);
  const ShaderPieces chase =
      pieces_of(1, fmt::format("  var at = group;\n  for (var i = 0u; i < {}u; i++) {{ at = $data0[at]; }}\n"
                               "  if (at == 0xffffffffu) {{ $data0[1] = at; }}\n",
                               kLoads));
  // Each thread reads 16 words, neighbours neighbouring ones.
  constexpr int kWords = 16;
  const auto readers = static_cast<std::uint32_t>(bytes / 4 / kWords / kThreads);
  std::string body = fmt::format("  let first = group * {}u + thread;\n  var sum = 0u;\n", kWords * kThreads);
  for (int w = 0; w < kWords; ++w) body += fmt::format("  sum += $data0[first + {}u];\n", w * kThreads);
  const ShaderPieces read = pieces_of(kThreads, body + "  if (sum == 0x9e3779b9u) { $data0[1] = sum; }\n");
  const ShaderPieces increment = pieces_of(1, "  $data0[0] = $data0[0] + 1u;\n");
  std::vector<Shader> shaders;  // compiled at once, which takes longer than the measurements
  for (const ShaderPieces* pieces : {&nothing, &busy, &serial, &chase, &read, &increment})
    shaders.push_back({"measure", pieces->text(), {false}});
  device->pipelines().compile(shaders);

  Stopwatch stopwatch(device, data);
  const std::vector<double> empty = stopwatch.microseconds(nothing, {1});
  if (empty.empty()) return {};
  const double alone = stopwatch.microseconds(busy, {1})[0];
  const auto units = count_compute_units(stopwatch, busy, alone, options.compute_units_max);
  if (!units) return {};
  profile.compute_units = *units;
  profile.unit_flops = 2.0 * kThreads * kWritten * options.turns / ((alone - empty[0]) * 1e-6);
  profile.fma_microseconds = (stopwatch.microseconds(serial, {1})[0] - empty[0]) / (kWritten * options.turns);
  profile.load_microseconds = (stopwatch.microseconds(chase, {1})[0] - empty[0]) / kLoads;
  const double read_microseconds = stopwatch.microseconds(read, {std::min(readers, 65535u)})[0] - empty[0];
  profile.bytes_per_second = 4.0 * kWords * kThreads * std::min(readers, 65535u) / (read_microseconds * 1e-6);
  profile.dispatch_microseconds =
      (stopwatch.serial_microseconds(increment, kSerialDispatches) - stopwatch.serial_microseconds(increment, 1)) /
      (kSerialDispatches - 1);
  return parse_profile(profile_text(rounded(profile)));  // impossible figures mean a wrong measurement
}

}  // namespace

std::optional<DeviceProfile> measure_profile(const std::shared_ptr<Device>& device, const MeasureOptions& options) {
  if (!device->info().timestamps) return {};
  const std::lock_guard lock(device->mutex());
  try {
    return measured(device, options);
  } catch (const DeviceError& error) {  // for example too little memory
    device->check();
    log(LogLevel::warning, "webgpu", fmt::format("the device could not be measured: {}", error.what()));
    return {};
  }
}

DeviceProfile profile_of(const AdapterInfo& adapter) {
  if (const auto given = profile_from_environment(adapter)) return *given;
  BlobCache cache(default_cache_folder(), cache_owner(adapter));
  return load_profile(cache).value_or(profile_from_table(adapter));
}

ProfileKeeper::ProfileKeeper(std::shared_ptr<Device> device, std::optional<DeviceProfile> given)
    : device_(std::move(device)), assumed_(profile_from_table(device_->info())) {
  if (!given) given = profile_from_environment(device_->info());
  if (given) assumed_ = *given;
  // A profile that cannot be stored is not measured, so that the next run chooses the same kernels.
  if (given || device_->blob_cache().folder().empty() || device_->info().type == AdapterType::software)
    measured_ = assumed_;
}

const DeviceProfile& ProfileKeeper::measured() {
  const std::lock_guard lock(device_->mutex());
  if (measured_) return *measured_;
  BlobCache& cache = device_->blob_cache();
  measured_ = load_profile(cache);
  if (measured_) return *measured_;
  measured_ = measure_profile(device_).value_or(assumed_);
  store_profile(cache, *measured_);
  log(LogLevel::info, "webgpu", fmt::format("{}: {}", device_->name(), describe(*measured_)));
  return *measured_;
}

}  // namespace weft::webgpu
