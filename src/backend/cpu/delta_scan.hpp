// Scans of the gated delta rule.
#pragma once

#include <memory>

#include "backend/cpu/prepared.hpp"

namespace weft::cpu {

/// Operands as graph/delta_scan.hpp lists them, of f32 or f64. A task takes columns of a head through all steps.
std::unique_ptr<Prepared> prepare_delta_scan(const kernel::CallKernel& kernel);

}  // namespace weft::cpu
