// A module of WebAssembly has one thread, and memory of 4 GiB at most.
#include "base/processors.hpp"

namespace weft {

bool starts_threads() { return false; }
std::vector<int> allowed_cpus() { return {0}; }
int physical_cores() { return 1; }
int current_cpu() { return 0; }
void leave_cpu(int, const std::vector<int>&) {}

std::uint64_t physical_memory() { return 0xffff'0000u; }
std::uint64_t free_memory() {
  constexpr std::uint64_t kPage = 65536;
  return physical_memory() - __builtin_wasm_memory_size(0) * kPage;
}
std::string processor_name() { return "WebAssembly"; }

}  // namespace weft
