// Additions to the result of the kernel before, which may then make the sums itself.
#pragma once

#include <cstddef>
#include <optional>

#include "compile/kernel.hpp"

namespace weft::cpu {

/// What is added, where the sums go, and the kernel that would add.
struct Addition {
  kernel::Operand base, out;
  kernel::LoopKernel kernel;
};

/// The kernel behind kernel `first` of a plan, if it alone reads the latter's result, all `count` elements of it, and only adds
/// others to them. Its result may have the memory of the base.
std::optional<Addition> addition_after(const kernel::Plan& plan, std::size_t first, const kernel::Operand& result,
                                       Extent count);

}  // namespace weft::cpu
