#include "backend/webgpu/wgsl/reduction.hpp"

#include <utility>

#include "backend/webgpu/wgsl/reduction/joint.hpp"
#include "backend/webgpu/wgsl/reduction/writer.hpp"

namespace weft::webgpu {

void render_reduction(const kernel::LoopKernel& kernel, const Target& target, Scratch& scratch, Rendered& rendered) {
  ReductionWriter alone(kernel, target, scratch, rendered);
  if (!alone.keeps_values() && !alone.is_split()) {
    JointReductions joint = joint_reductions(kernel);
    ReductionWriter whole(joint.kernel, target, scratch, rendered, joint.kinds),
        shared(joint.kernel, target, scratch, rendered, std::move(joint.kinds), true);
    if (shared.is_worth_sharing() && !whole.fills_units()) return shared.render();
    if (whole.passes() < alone.passes() && !whole.is_split()) return whole.render();
  }
  alone.render();
}

}  // namespace weft::webgpu
