// The CPU as a backend.
#pragma once

#include <memory>

#include "backend/contract.hpp"

namespace weft::cpu {

/// Every dtype, all of the machine's memory; programs run to their end before `run` returns. The instruction set is what
/// `isa()` says when a plan is compiled, the number of threads what `thread_count()` says when it runs.
std::unique_ptr<backend::Backend> make_cpu_backend();

}  // namespace weft::cpu
