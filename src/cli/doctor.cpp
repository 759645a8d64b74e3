// weft doctor: every op on the user's own device against the CPU, and what a bug report needs.
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/utsname.h>

#include <chrono>
#include <fstream>
#include <memory>

#include "base/threads.hpp"
#include "cli/commands.hpp"
#include "cli/doctor_checks.hpp"
#include "weft/device.hpp"
#include "weft/error.hpp"

namespace weft::cli {
namespace {

// The rest of the line of a /proc file that begins with `key`.
std::string line_of(const char* path, std::string_view beginning) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);)
    if (line.starts_with(beginning)) return line.substr(line.find_first_not_of(": \t", beginning.size()));
  return "unknown";
}

void print_report(Device device) {
  fmt::print("\nFor a bug report:\n");
  auto row = [](std::string_view key, std::string_view value) { fmt::print("  {:<24}  {}\n", key, value); };
  row("weft", WEFT_VERSION);
  row("compiler", __VERSION__);
  utsname system{};
  if (uname(&system) == 0) row("system", fmt::format("{} {} {}", system.sysname, system.release, system.machine));
  row("processor", line_of("/proc/cpuinfo", "model name"));
  row("threads", fmt::to_string(thread_count()));
  row("memory", line_of("/proc/meminfo", "MemTotal"));
  rusage usage{};
  if (getrusage(RUSAGE_SELF, &usage) == 0)
    row("peak memory of this test", fmt::format("{} MiB", usage.ru_maxrss >> 10));
  std::string problem;
  for (const DeviceInfo& info : list_devices(&problem)) {
    if (info.device != device) continue;
    row("device",
        fmt::format("{}  {}{}", info.device.to_string(), info.hardware, info.is_software ? "  (software)" : ""));
    for (const auto& [key, value] : info.details) row("  " + key, value);
  }
  if (!problem.empty()) row("WebGPU", problem);
}

int doctor(const std::string& name) {
  constexpr std::size_t kFailuresShown = 10;
  const Device device = parse_device(name);
  fmt::print("Testing {} against references in f64.\n\n", device.to_string());
  bool passed = true;
  for (const CheckGroup& group : check_groups()) {
    const auto start = std::chrono::steady_clock::now();
    const Findings found = group.run(device);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    fmt::print("{}  {:<28} {:>4} cases  {:>6.1f} s  worst error {:>5.2f} of what is allowed{}\n",
               found.failures.empty() ? "PASS" : "FAIL", group.name, found.cases, seconds, found.worst,
               found.worst_case.empty() ? "" : fmt::format(" ({})", found.worst_case));
    for (std::size_t i = 0; i < found.failures.size() && i < kFailuresShown; ++i)
      fmt::print("      {}\n", found.failures[i]);
    if (found.failures.size() > kFailuresShown)
      fmt::print("      ... and {} more\n", found.failures.size() - kFailuresShown);
    std::fflush(stdout);
    passed &= found.failures.empty();
  }
  print_report(device);
  fmt::print("\n{}\n", passed
                           ? "All groups pass."
                           : "Something is wrong with Weft, the driver or the device. Please report the lines above.");
  return passed ? kOk : kFailure;
}

}  // namespace

void set_up_doctor(CLI::App& app, Action& action) {
  auto device = std::make_shared<std::string>("auto");
  app.footer("Exits with 0 if every group passes, else with 1.");
  app.add_option("--device", *device, "auto, cpu, webgpu or webgpu:INDEX")->capture_default_str();
  app.callback([&action, device] { action = [device] { return doctor(*device); }; });
}

}  // namespace weft::cli
