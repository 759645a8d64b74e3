// The processors that this process may use, and the memory of the machine.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace weft {

/// Whether the system can start threads.
bool starts_threads();
/// Numbers of the processors that this process may use; empty if the system does not tell.
std::vector<int> allowed_cpus();
/// Cores, not hyper-threads: two threads of one core share its multipliers and only disturb each other. At least 1.
int physical_cores();
/// The processor that runs this thread; -1 if the system does not tell.
int current_cpu();
/// Moves this thread to any processor of `allowed` but `cpu`, and keeps it off that one.
void leave_cpu(int cpu, const std::vector<int>& allowed);

/// Bytes of memory that the machine has, or that a process can address if that is less.
std::uint64_t physical_memory();
/// Bytes of memory that are free, as far as the system tells; else no limit.
std::uint64_t free_memory();
/// The name that the maker gave the processor, or "unknown processor".
std::string processor_name();

}  // namespace weft
