// Plans as programs of the CPU.
#pragma once

#include <memory>

#include "backend/contract.hpp"
#include "compile/kernel.hpp"

namespace weft::cpu {

/// Kernels run in order; neighbours that consist of tasks run as one list of stages, so that threads wait only if a kernel
/// needs data that another still writes. DTypeError for a kernel without code for its types.
std::unique_ptr<backend::Program> make_program(const kernel::Plan& plan);

}  // namespace weft::cpu
