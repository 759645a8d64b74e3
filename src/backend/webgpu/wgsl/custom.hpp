// User-defined kernels as WGSL.
#pragma once

#include "backend/webgpu/wgsl/render.hpp"
#include "compile/kernel.hpp"
#include "weft/custom_kernel.hpp"

namespace weft::webgpu {

/// Errors: UsageError if the number of workgroups does not parse.
void check_custom(const KernelDefinition& definition);
/// Appends the dispatch: the user's statements after functions that read and write operands within their bounds.
void render_custom(const KernelDefinition& definition, const KernelAttributes& attributes,
                   const kernel::CallKernel& kernel, const Target& target, Rendered& rendered);

}  // namespace weft::webgpu
