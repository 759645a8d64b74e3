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

namespace {

/// Whether A may become halves, and W is or becomes halves, with so many bindings of the epilogue and `matrices` of weights.
bool suits_halves(const PackedMatmulKernel& kernel, const kernel::LoopKernel& epilogue, std::size_t matrices,
                  const Target& target) {
  constexpr Extent kEight = 8;
  return !kernel.exact && !kernel.rows && !kernel.chosen && become_halves(quant_form(kernel.block_type)) &&
         kernel.a.type == DType::f32 && kernel.k % kEight == 0 && kernel.a_row % kEight == 0 &&
         kernel.a.offset % kEight == 0 &&
         2 + matrices + epilogue.inputs.size() + epilogue.outputs.size() <= target.limits.storage_buffers;
}

/// The weights where they are of f16; else where they will be as halves, which have no buffer yet.
Operand weights_as_halves(const PackedMatmulKernel& kernel) {
  const QuantForm form = quant_form(kernel.block_type);
  if (form.values != QuantValues::f16) return {-1, DType::f16, 0, kernel.n * kernel.k};
  const Extent column = quant_layout(form, kernel.n, kernel.k).blocks * kQuantBlock;
  return {kernel.weights.buffer, DType::f16, kernel.weights.offset * 2, kernel.n * column};
}

/// The product of halves; A and weights in blocks have no buffers yet.
kernel::MatmulKernel product_of_halves(const PackedMatmulKernel& kernel) {
  kernel::MatmulKernel halves{.name = kernel.name, .batch = 1, .m = kernel.m, .n = kernel.n, .k = kernel.k};
  halves.epilogue = kernel.epilogue;
  halves.a = {-1, DType::f16, 0, kernel.m * kernel.k};
  halves.a_view = kernel::matrix_view({{1}, {0}, 0, {}}, kernel.m, kernel.k, kernel.k, 1);
  halves.b = weights_as_halves(kernel);
  halves.b_view = kernel::matrix_view({{1}, {0}, 0, {}}, kernel.k, 1, kernel.n, halves.b.count / kernel.n);
  return halves;
}

/// Weights in blocks as halves in scratch.
void unpack_weights(const PackedMatmulKernel& kernel, Operand& halves, const Target& target, Scratch& scratch,
                    Rendered& rendered) {
  if (halves.buffer >= 0) return;
  halves = scratch.add(DType::f16, kernel.n * kernel.k);
  rendered.dispatches.push_back(unpack(kernel.name + ".unpack", kernel.block_type, kernel.weights, kernel.n, kernel.k,
                                       nullptr, halves, kernel.n, target));
}

/// The tile with the least estimated time for both products, whose columns are halves of whole tiles; or null.
const MatrixTile* choose_paired_tile(const kernel::MatmulKernel& halves, const Target& target) {
  if (!target.matrices()) return nullptr;
  kernel::MatmulKernel both = halves;
  both.n *= 2;
  const MatrixTile* best = nullptr;
  for (const MatrixTile& tile : matrix_tiles())
    if (fits(tile, true, true, target.limits) && suits_pair(tile, halves) &&
        (!best || estimate(tile, 1, both, target.profile) < estimate(*best, 1, both, target.profile)))
      best = &tile;
  return best;
}

}  // namespace

bool render_on_halves(const PackedMatmulKernel& kernel, const Target& target, Scratch& scratch, Rendered& rendered) {
  if (!suits_halves(kernel, kernel.epilogue, 1, target)) return false;
  kernel::MatmulKernel halves = product_of_halves(kernel);
  const auto choice = choose_matrix_tile(halves, target);
  if (!choice) return false;
  const Operand largest = scratch.add(DType::f32, kernel.m);
  halves.a = scratch.add(DType::f16, kernel.m * kernel.k);
  unpack_weights(kernel, halves.b, target, scratch, rendered);
  render_row_halves(kernel.name, kernel.a, kernel.a_row, kernel.m, kernel.k, largest, halves.a, target, rendered);
  const ScaledOperands scaled{.largest_a = largest, .scaled_b = false, .padded = false};
  MatrixWriter(halves, matrix_tiles()[static_cast<std::size_t>(choice->tile)], choice->split, target, scratch, rendered,
               &scaled)
      .render();
  return true;
}

bool render_pair_on_halves(const PackedMatmulKernel& first, const PackedMatmulKernel& second, const GatedPair& pair,
                           const Target& target, Scratch& scratch, Rendered& rendered) {
  if (first.exact || !suits_halves(second, pair.epilogue, 2, target)) return false;
  kernel::MatmulKernel halves = product_of_halves(first);
  halves.name = first.name + " + " + second.name;
  halves.epilogue = pair.epilogue;
  const MatrixTile* tile = choose_paired_tile(halves, target);
  Operand second_b = weights_as_halves(second);
  if (!tile || !suits_matrices(halves) || halves.b.offset % 8 != 0 || second_b.offset % 8 != 0) return false;
  const Operand largest = scratch.add(DType::f32, first.m);
  halves.a = scratch.add(DType::f16, first.m * first.k);
  unpack_weights(first, halves.b, target, scratch, rendered);
  unpack_weights(second, second_b, target, scratch, rendered);
  render_row_halves(first.name, first.a, first.a_row, first.m, first.k, largest, halves.a, target, rendered);
  const ScaledOperands scaled{.largest_a = largest,
                              .scaled_b = false,
                              .padded = false,
                              .second_b = second_b,
                              .steps_of_first = pair.steps_of_first};
  MatrixWriter(halves, *tile, 1, target, scratch, rendered, &scaled).render();
  return true;
}

}  // namespace weft::webgpu
