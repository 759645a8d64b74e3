// Scans of states and short convolutions.
#pragma once

#include <memory>

#include "backend/cpu/prepared.hpp"

namespace weft::cpu {

/// Operands as graph/state_scan.hpp lists them, of f32 or f64. A task takes channels of a sequence through all steps, so tasks
/// never wait for each other. Going back, states are kept for the beginnings of runs of steps, and computed again within one.
std::unique_ptr<Prepared> prepare_state_scan(const kernel::CallKernel& kernel);
std::unique_ptr<Prepared> prepare_state_scan_backward(const kernel::CallKernel& kernel);
std::unique_ptr<Prepared> prepare_state_convolution(const kernel::CallKernel& kernel);

}  // namespace weft::cpu
