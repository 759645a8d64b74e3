#include "backend/webgpu/wgsl/attention.hpp"

#include <fmt/format.h>

#include "backend/webgpu/wgsl/attention/matrix_writer.hpp"
#include "backend/webgpu/wgsl/attention/writer.hpp"
#include "backend/webgpu/wgsl/loop.hpp"
#include "backend/webgpu/wgsl/matmul/as_reduction.hpp"
#include "weft/error.hpp"

namespace weft::webgpu {
using attention::AttentionWriter;
using attention::computes_delta_twice;
using attention::Part;
using kernel::AttentionKernel;

namespace {

constexpr Extent kWidthMax = 256;

// rowsum(dO * O) of each query.
kernel::LoopKernel delta_kernel(const AttentionKernel& kernel, const kernel::Operand& delta) {
  kernel::LoopKernel loop;
  loop.name = kernel.name + ".delta";
  loop.outer = kernel.batch * kernel.heads * kernel.queries;
  loop.inner = kernel.width;
  for (const AttentionKernel::Tensor* tensor : {&kernel.d_o, &kernel.o}) {
    kernel::Step load = load_step(DType::f32, static_cast<int>(loop.inputs.size()),
                                  {{kernel.batch, kernel.heads, kernel.queries, kernel.width},
                                   {tensor->batch_stride, tensor->head_stride, tensor->row_stride, 1},
                                   0,
                                   {}});
    load.level = kernel::Level::inner;
    loop.inputs.push_back(tensor->operand);
    loop.steps.push_back(load);
  }
  kernel::Step product{kernel::StepKind::map, DType::f32, kernel::Level::inner};
  product.op = scalar::Op::mul;
  product.a = 0, product.b = 1;
  loop.steps.push_back(product);
  loop.steps.push_back(sum_step(DType::f32, 2));
  loop.outputs = {delta};
  loop.stores = {{3, 0, {{loop.outer}, {1}, 0, {}}}};
  return loop;
}

}  // namespace

bool render_on_matrices(const AttentionKernel& kernel, const MatrixAttentionBlocks& blocks, const Target& target,
                        Scratch& scratch, Rendered& rendered) {
  using attention::MatrixAttentionWriter;
  if (!suits_matrices(kernel)) return false;
  if (!kernel.backward) {
    MatrixAttentionWriter writer(kernel, Part::forward, {}, blocks.forward, target, rendered);
    if (!writer.is_possible()) return false;
    writer.render();
    return true;
  }
  const kernel::Operand delta = scratch.add(DType::f32, kernel.batch * kernel.heads * kernel.queries);
  MatrixAttentionWriter of_queries(kernel, Part::d_query, delta, blocks.d_query, target, rendered);
  MatrixAttentionWriter of_keys(kernel, Part::d_key_value, delta, blocks.d_key_value, target, rendered);
  if (!of_queries.is_possible() || !of_keys.is_possible()) return false;
  render(delta_kernel(kernel, delta), target, scratch, rendered);
  of_keys.render();
  of_queries.render();
  return true;
}

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
  if (!block && target.matrices() &&
      render_on_matrices(kernel, choose_matrix_blocks(kernel, target), target, scratch, rendered))
    return;
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
