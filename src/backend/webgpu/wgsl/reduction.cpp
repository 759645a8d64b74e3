#include "backend/webgpu/wgsl/reduction.hpp"

#include "backend/webgpu/wgsl/reduction/writer.hpp"

namespace weft::webgpu {

void render_reduction(const kernel::LoopKernel& kernel, const Target& target, Scratch& scratch, Rendered& rendered) {
  ReductionWriter(kernel, target, scratch, rendered).render();
}

}  // namespace weft::webgpu
