#include "backend/webgpu/wgsl/quantised.hpp"

#include <optional>

#include "backend/webgpu/quantised_pack.hpp"
#include "backend/webgpu/wgsl/loop.hpp"
#include "backend/webgpu/wgsl/matmul.hpp"
#include "backend/webgpu/wgsl/quantised/chosen_rows.hpp"
#include "backend/webgpu/wgsl/quantised/halved_product.hpp"
#include "backend/webgpu/wgsl/quantised/packed_reader.hpp"
#include "backend/webgpu/wgsl/quantised/rows_writer.hpp"
#include "backend/webgpu/wgsl/quantised/unpack.hpp"
#include "graph/node.hpp"

namespace weft::webgpu {
using kernel::CallKernel;
using kernel::Operand;
using kernel::PackedMatmulKernel;

namespace {

constexpr Extent kUnpackedMax = Extent{1} << 28;  // elements of scratch

}  // namespace

void render(const PackedMatmulKernel& kernel, const Target& target, Scratch& scratch, Rendered& rendered) {
  if (kernel.m * kernel.n == 0) return;
  const Extent elements = kernel.n * kernel.k;
  const bool unpacks = kernel.m > kFewRows && elements <= kUnpackedMax &&
                       static_cast<std::uint64_t>(elements) * 4 <= target.limits.binding_bytes &&
                       (!kernel.chosen || is_tiled(kernel.m, kernel.n, kernel.k));
  if (!unpacks) return RowsWriter(kernel, target).render(rendered);
  if (render_on_halves(kernel, target, scratch, rendered)) return;
  kernel::MatmulKernel plain{.name = kernel.name, .batch = 1, .m = kernel.m, .n = kernel.n, .k = kernel.k};
  plain.a = kernel.a;
  plain.a_view = kernel::matrix_view({}, kernel.m, kernel.a_row, kernel.k, 1);
  Extent column = kernel.k;  // of the weights, from one to the next
  plain.epilogue = kernel.epilogue;
  if (kernel.block_type == BlockType::f32) {  // stored unchanged, except for the ends of rows
    column = quant_layout(quant_form(BlockType::f32), kernel.n, kernel.k).blocks * kQuantBlock;
    plain.b = {kernel.weights.buffer, DType::f32, kernel.weights.offset, kernel.n * column};
  } else {
    plain.b = scratch.add(DType::f32, elements);
    rendered.dispatches.push_back(unpack(kernel.name + ".unpack", kernel.block_type, kernel.weights, kernel.n, kernel.k,
                                         nullptr, plain.b, kernel.n, target));
  }
  plain.b_view = kernel::matrix_view({{1}, {0}, 0, {}}, kernel.k, 1, kernel.n, column);
  if (!kernel.chosen) return render(plain, target, scratch, rendered);
  const Operand order = scratch.add(DType::u32, kernel.m + 1);
  rendered.dispatches.push_back(order_rows(kernel, order, target));
  render_ordered(plain, order, target, scratch, rendered);
}

bool render_packed_pair(const PackedMatmulKernel& first, const PackedMatmulKernel& second, bool keeps_first,
                        const Target& target, Scratch& scratch, Rendered& rendered) {
  const std::optional<GatedPair> pair = gated_pair(first, second, keeps_first);
  if (!pair) return false;
  if (first.m > kFewRows) return render_pair_on_halves(first, second, *pair, target, scratch, rendered);
  Bindings counted(target, second.name);
  const int runs = PackedReader(first.block_type, first.weights, first.n, first.k, counted).runs();
  const std::size_t bindings = (first.rows ? first.rows->inputs.size() : 1) + (first.chosen ? 1 : 0) +
                               2 * static_cast<std::size_t>(runs) + pair->epilogue.inputs.size() +
                               pair->epilogue.outputs.size();
  if (bindings > target.limits.storage_buffers) return false;
  RowsWriter(second, target, {.before = &first, .pair = &*pair}).render(rendered);
  return true;
}

void render_unpack_rows(const CallKernel& kernel, const Target& target, Rendered& rendered) {
  if (kernel.shape().numel() == 0) return;
  rendered.dispatches.push_back(unpack(kernel.name, kernel.types[0], kernel.reads[0], graph::rows_of(kernel.shapes[0]),
                                       kernel.shape()[1], &kernel.reads[1], kernel.out(), kernel.shape()[0], target));
}

}  // namespace weft::webgpu
