#include "backend/webgpu/wgsl/quantised/halved_product.hpp"

#include "backend/webgpu/quantised_pack.hpp"
#include "backend/webgpu/wgsl/matmul/matrix_writer.hpp"
#include "backend/webgpu/wgsl/matmul/row_halves.hpp"
#include "backend/webgpu/wgsl/quantised/unpack.hpp"

namespace weft::webgpu {
using kernel::Operand;
using kernel::PackedMatmulKernel;

namespace {

/// Whether f16 holds the weights, rounded. Scales in f16 make every weight a multiple of 2^-24, so only sizes above 65504 are
/// outside of its range; blocks hold those only if they are damaged, and they become 65504.
bool become_halves(const QuantForm& form) {
  return form.values == QuantValues::f16 || form.scales == QuantScales::half || form.scales == QuantScales::coded;
}

}  // namespace

bool render_on_halves(const PackedMatmulKernel& kernel, const Target& target, Scratch& scratch, Rendered& rendered) {
  constexpr Extent kEight = 8;
  const QuantForm form = quant_form(kernel.block_type);
  const std::size_t bindings = 3 + kernel.epilogue.inputs.size() + kernel.epilogue.outputs.size();
  if (kernel.exact || kernel.rows || kernel.chosen || !become_halves(form) || kernel.a.type != DType::f32 ||
      kernel.k % kEight != 0 || kernel.a_row % kEight != 0 || kernel.a.offset % kEight != 0 ||
      bindings > target.limits.storage_buffers)
    return false;
  const bool is_f16 = form.values == QuantValues::f16;
  const Extent column = is_f16 ? quant_layout(form, kernel.n, kernel.k).blocks * kQuantBlock : kernel.k;
  kernel::MatmulKernel halves{.name = kernel.name, .batch = 1, .m = kernel.m, .n = kernel.n, .k = kernel.k};
  halves.epilogue = kernel.epilogue;
  halves.a = {-1, DType::f16, 0, kernel.m * kernel.k};
  halves.a_view = kernel::matrix_view({{1}, {0}, 0, {}}, kernel.m, kernel.k, kernel.k, 1);
  halves.b = {kernel.weights.buffer, DType::f16, is_f16 ? kernel.weights.offset * 2 : 0, kernel.n * column};
  halves.b_view = kernel::matrix_view({{1}, {0}, 0, {}}, kernel.k, 1, kernel.n, column);
  const auto choice = choose_matrix_tile(halves, target);
  if (!choice) return false;
  const Operand largest = scratch.add(DType::f32, kernel.m);
  halves.a = scratch.add(DType::f16, kernel.m * kernel.k);
  if (!is_f16) {
    halves.b = scratch.add(DType::f16, kernel.n * kernel.k);
    rendered.dispatches.push_back(unpack(kernel.name + ".unpack", kernel.block_type, kernel.weights, kernel.n, kernel.k,
                                         nullptr, halves.b, kernel.n, target));
  }
  render_row_halves(kernel.name, kernel.a, kernel.a_row, kernel.m, kernel.k, largest, halves.a, target, rendered);
  const ScaledOperands scaled{.largest_a = largest, .scaled_b = false, .padded = false};
  MatrixWriter(halves, matrix_tiles()[static_cast<std::size_t>(choice->tile)], choice->split, target, scratch, rendered,
               &scaled)
      .render();
  return true;
}

}  // namespace weft::webgpu
