#include "backend/webgpu/wgsl/attention.hpp"

#include <fmt/format.h>

#include "backend/webgpu/wgsl/attention/writer.hpp"
#include "weft/error.hpp"

namespace weft::webgpu {
using attention::AttentionWriter;
using attention::computes_delta_twice;
using attention::Part;
using kernel::AttentionKernel;

namespace {

constexpr Extent kWidthMax = 256;

}  // namespace

bool is_possible(const AttentionKernel& kernel, const Target& target, const AttentionBlock& block) {
  Rendered rendered;
  const auto fits = [&](Part part) {
    return AttentionWriter(kernel, part, {}, target, rendered, nullptr).is_possible(block);
  };
  return kernel.backward ? fits(Part::d_query) && fits(Part::d_key_value) : fits(Part::forward);
}

void render(const AttentionKernel& kernel, const Target& target, Scratch& scratch, Rendered& rendered,
            const AttentionBlock* block) {
  if (kernel.width > kWidthMax)
    throw DeviceError(
        fmt::format("webgpu: attention of width {} per head; the device computes at most {}", kernel.width, kWidthMax));
  if (!kernel.backward) {
    AttentionWriter(kernel, Part::forward, {}, target, rendered, block).render();
    return;
  }
  const kernel::Operand delta = computes_delta_twice(kernel)
                                    ? kernel::Operand{}
                                    : scratch.add(DType::f32, kernel.batch * kernel.heads * kernel.queries);
  AttentionWriter(kernel, Part::d_query, delta, target, rendered, block).render();
  AttentionWriter(kernel, Part::d_key_value, delta, target, rendered, block).render();
}

}  // namespace weft::webgpu
