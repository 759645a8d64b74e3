#include "backend/webgpu/wgsl_attention.hpp"
#include "weft/error.hpp"
namespace weft::webgpu {
void render(const kernel::AttentionKernel& kernel, const Target&, Scratch&, Rendered&) {
  throw InternalError("webgpu: kernel " + kernel.name + ": attention kernels are not rendered yet");
}
}  // namespace weft::webgpu
