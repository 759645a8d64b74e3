// Copies between layouts in which different axes are contiguous: a matrix and its transpose, images with channels first and last.
#pragma once

#include <memory>

#include "backend/cpu/prepared.hpp"

namespace weft::cpu {

/// The program of a kernel that is such a copy, of elements of 32 or 64 bits; null for any other kernel.
std::unique_ptr<Prepared> prepare_turned_copy(const kernel::LoopKernel& kernel);

}  // namespace weft::cpu
