// Zeros in memory.
#pragma once

#include <string>

#include "backend/webgpu/wgsl/render.hpp"

namespace weft::webgpu {

/// Appends the dispatch that sets all elements of an operand to zero (false).
void render_zeros(std::string name, const kernel::Operand& operand, const Target& target, Scratch& scratch,
                  Rendered& rendered);

}  // namespace weft::webgpu
