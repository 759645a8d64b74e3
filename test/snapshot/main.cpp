// weft_snapshot FOLDER [--only TEXT]
//
// Writes what the compiler and the backends make of some hundred graphs: a file each for a graph and a device, with the
// kernels of every plan and the program text. Nothing is computed, and no adapter is opened. Equal files of two revisions
// mean equal kernels; script/compare-plans compares them.
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "backend/cpu/isa.hpp"
#include "runtime/devices.hpp"
#include "snapshot/cases.hpp"
#include "snapshot/recording.hpp"
#include "weft/device.hpp"
#include "weft/grad.hpp"

namespace weft::snapshot {
namespace {

namespace fs = std::filesystem;

struct Kind {
  const char* name;
  const char* isa;  // of the CPU
  Gpu gpu = Gpu::desktop;
};
constexpr Kind kKinds[] = {
    {"cpu-avx2", "avx2"}, {"cpu-avx512", "avx512"}, {"webgpu", nullptr}, {"webgpu-small", nullptr, Gpu::small}};

/// In a process of its own: numbers of nodes, kept plans and random state begin anew.
int write_one(const Case& each, const Kind& kind, const fs::path& file) {
  std::string failure;
  try {
    Device device = kCpu;
    if (kind.isa) {
      setenv("WEFT_CPU_ISA", kind.isa, 1);
      runtime::use_backend(device, recording_cpu());
    } else {
      device = {Device::Kind::webgpu, 0};
      runtime::use_backend(device, recording_webgpu(kind.gpu));
      runtime::use_backend(kCpu, recording_cpu());
    }
    set_default_device(device);
    each.run();
  } catch (const std::exception& error) {
    failure = error.what();
  }
  std::ofstream out(file);
  int number = 0;
  for (const Recorded& record : recorded())
    out << fmt::format("==== plan {}\n{}---- program {}\n{}", number, record.plan, number, record.program), ++number;
  if (failure.empty() && number == 0) failure = "nothing was compiled";
  if (failure.empty() && !out.flush()) failure = "not written";
  if (!failure.empty()) fmt::print(stderr, "{}: {}\n", file.filename().string(), failure);
  return failure.empty() ? 0 : 1;
}

int run(const fs::path& folder, std::string_view only) {
  fs::create_directories(folder);
  const KeepHistory keep;  // cases evaluate values, and then their gradients
  std::vector<Case> cases;
  for (auto* list : {elementwise_cases, op_cases, training_cases, language_cases, random_cases})
    for (Case& each : list()) cases.push_back(std::move(each));
  int graphs = 0, files = 0, failed = 0;
  for (const Case& each : cases) {
    if (each.name.find(only) == std::string::npos) continue;
    ++graphs;
    for (const Kind& kind : kKinds) {
      if ((kind.gpu == Gpu::small && !each.on_small_gpu) || (!kind.isa && each.cpu_only)) continue;
      if (kind.isa && std::string_view(kind.isa) == "avx512" && cpu::best_isa() < cpu::Isa::avx512) continue;
      std::fflush(nullptr);
      const pid_t child = fork();
      if (child == 0) std::_Exit(write_one(each, kind, folder / fmt::format("{}.{}.txt", each.name, kind.name)));
      int status = 1;
      if (child < 0 || waitpid(child, &status, 0) < 0 || status != 0) {
        ++failed;
        if (WIFSIGNALED(status)) fmt::print(stderr, "{} on {}: signal {}\n", each.name, kind.name, WTERMSIG(status));
      }
      ++files;
    }
  }
  fmt::print("{} graphs, {} files, {} failed\n", graphs, files, failed);
  return failed == 0 && files > 0 ? 0 : 1;
}

}  // namespace
}  // namespace weft::snapshot

int main(int count, char** arguments) {
  const std::vector<std::string_view> given(arguments + 1, arguments + count);
  const bool is_only = given.size() == 3 && given[1] == "--only";
  if ((given.size() != 1 && !is_only) || given[0].starts_with("-")) {
    fmt::print(stderr, "usage: weft_snapshot FOLDER [--only TEXT]\n");
    return 2;
  }
  return weft::snapshot::run(given[0], given.size() == 3 ? given[2] : std::string_view());
}
