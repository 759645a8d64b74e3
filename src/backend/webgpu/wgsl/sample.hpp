// The draw of the next token as WGSL.
#pragma once

#include "backend/webgpu/wgsl/render.hpp"
#include "compile/kernel.hpp"

namespace weft::webgpu {

/// Appends the dispatches of sample_token: three; the second returns at once if no row draws at random. Settings are read at
/// run time. Throws DeviceError for a vocabulary beyond two million tokens.
void render_sample_token(const kernel::CallKernel& kernel, const Target& target, Scratch& scratch, Rendered& rendered);

}  // namespace weft::webgpu
