#include "backend/webgpu/wgsl/zeros.hpp"

#include <utility>

#include "backend/webgpu/wgsl/loop.hpp"

namespace weft::webgpu {

void render_zeros(std::string name, const kernel::Operand& operand, const Target& target, Scratch& scratch,
                  Rendered& rendered) {
  kernel::LoopKernel zeros;
  zeros.name = std::move(name);
  zeros.outer = operand.count;
  zeros.outputs = {operand};
  zeros.steps = {kernel::Step{kernel::StepKind::constant, operand.type, kernel::Level::outer}};
  zeros.stores = {{0, 0, {{operand.count}, {1}, 0, {}}}};
  render(zeros, target, scratch, rendered);
}

}  // namespace weft::webgpu
