#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <fstream>
#include <limits>
#include <set>
#include <thread>

#include <fmt/format.h>

#include "base/processors.hpp"

namespace weft {

bool starts_threads() { return true; }

std::vector<int> allowed_cpus() {
  // The kernel refuses a mask smaller than its own, so grow until it fits.
  for (int bits = 1024; bits <= (1 << 20); bits *= 2) {
    cpu_set_t* set = CPU_ALLOC(bits);
    const std::size_t size = CPU_ALLOC_SIZE(bits);
    std::vector<int> cpus;
    const bool fits = sched_getaffinity(0, size, set) == 0;
    const bool too_small = !fits && errno == EINVAL;
    for (int cpu = 0; fits && cpu < bits; ++cpu)
      if (CPU_ISSET_S(cpu, size, set)) cpus.push_back(cpu);
    CPU_FREE(set);
    if (!too_small) return cpus;
  }
  return {};
}

int physical_cores() {
  std::set<std::string> cores;
  const std::vector<int> cpus = allowed_cpus();
  for (const int cpu : cpus) {
    std::ifstream siblings(fmt::format("/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list", cpu));
    std::string line;
    if (!std::getline(siblings, line)) line = fmt::format("cpu{}", cpu);
    cores.insert(line);
  }
  if (cpus.empty()) return static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  return static_cast<int>(cores.size());
}

int current_cpu() { return sched_getcpu(); }

void leave_cpu(int cpu, const std::vector<int>& allowed) {
  const int bits = std::max(1024, allowed.back() + 1);
  cpu_set_t* set = CPU_ALLOC(bits);
  const std::size_t size = CPU_ALLOC_SIZE(bits);
  CPU_ZERO_S(size, set);
  for (const int other : allowed)
    if (other != cpu) CPU_SET_S(other, size, set);
  sched_setaffinity(0, size, set);  // if refused, the job is only slower
  CPU_FREE(set);
}

std::uint64_t physical_memory() {
  return static_cast<std::uint64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
}

std::uint64_t free_memory() {
  std::uint64_t bytes = std::numeric_limits<std::uint64_t>::max();
  std::ifstream info("/proc/meminfo");
  for (std::string line; std::getline(info, line);) {
    std::uint64_t kilobytes = 0;
    if (std::sscanf(line.c_str(), "MemAvailable: %" SCNu64 " kB", &kilobytes) == 1) bytes = kilobytes * 1024;
  }
  // A process may have a limit of its own, and a container less than its machine.
  struct ::rlimit space {};
  if (::getrlimit(RLIMIT_AS, &space) == 0 && space.rlim_cur != RLIM_INFINITY) {
    std::uint64_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    const std::uint64_t taken = pages * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
    bytes = std::min<std::uint64_t>(bytes, space.rlim_cur - std::min<std::uint64_t>(taken, space.rlim_cur));
  }
  std::uint64_t limit = 0, used = 0;
  std::ifstream("/sys/fs/cgroup/memory.max") >> limit;
  std::ifstream("/sys/fs/cgroup/memory.current") >> used;
  return limit > 0 ? std::min(bytes, limit - std::min(used, limit)) : bytes;
}

std::string processor_name() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);)
    if (line.starts_with("model name"))
      if (const auto colon = line.find(": "); colon != std::string::npos) return line.substr(colon + 2);
  return "unknown processor";
}

}  // namespace weft
