#include "backend/webgpu/wgsl/quantised.hpp"

#include <algorithm>
#include <optional>

#include "backend/webgpu/quantised_pack.hpp"
#include "backend/webgpu/wgsl/loop.hpp"
#include "backend/webgpu/wgsl/matmul.hpp"
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

/// Whether each row of C reads its rows of W itself. Experts with about a row each do.
bool has_few_rows(const PackedMatmulKernel& kernel) {
  return kernel.m <= (kernel.experts ? std::max(kFewRows, kernel.experts->count) : kFewRows);
}

/// Whether weights become f32 or f16 in scratch: all together, or those of some experts.
bool unpacks(const PackedMatmulKernel& kernel, const Target& target) {
  const Extent elements = kernel.n * kernel.k;
  return !has_few_rows(kernel) && elements <= kUnpackedMax &&
         static_cast<std::uint64_t>(elements) * 4 <= target.limits.binding_bytes &&
         (!kernel.experts || (is_tiled(kernel.m, kernel.n, kernel.k) && can_order(kernel.experts->count, target)));
}

/// W as f32, column by column. Of f32 it is stored unchanged, except for the ends of rows.
void render_in_f32(const PackedMatmulKernel& kernel, const Target& target, Scratch& scratch, Rendered& rendered) {
  const Extent count = kernel.experts ? kernel.experts->count : 1, all = kernel.rows_of_weights();
  const bool is_f32 = kernel.block_type == BlockType::f32;
  const Extent column =
      is_f32 ? quant_layout(quant_form(BlockType::f32), all, kernel.k).blocks * kQuantBlock : kernel.k;
  const Extent binding = static_cast<Extent>(std::min<std::uint64_t>(target.limits.binding_bytes / 4, kUnpackedMax));
  const Extent at_once = std::clamp<Extent>(binding / std::max<Extent>(1, kernel.n * column), 1, count);
  kernel::MatmulKernel plain{.name = kernel.name, .batch = at_once, .m = kernel.m, .n = kernel.n, .k = kernel.k};
  const kernel::View one{{at_once}, {0}, 0, {}}, each{{at_once}, {at_once > 1 ? kernel.n * column : 0}, 0, {}};
  plain.a = kernel.a;
  plain.a_view = kernel::matrix_view(one, kernel.rows_of_a(), kernel.a_row, kernel.k, 1);
  plain.b_view = kernel::matrix_view(each, kernel.k, 1, kernel.n, column);
  plain.epilogue = kernel.epilogue;
  std::optional<RowGroups> groups;
  int tile = 0;
  if (kernel.experts) {
    tile = choose_grouped_tile(kernel.m, count, kernel.n, kernel.k, target);
    groups.emplace(kernel.m, count, tiles()[static_cast<std::size_t>(tile)].rows, kernel.experts->share, scratch);
    rendered.dispatches.push_back(order_by_group(kernel.name, kernel.experts->of_row, *groups, target));
  }
  if (!is_f32) plain.b = scratch.add(DType::f32, at_once * kernel.n * kernel.k);
  for (Extent first = 0; first < count; first += at_once) {
    const Extent now = std::min(at_once, count - first);
    if (is_f32)
      plain.b = {kernel.weights.buffer, DType::f32, kernel.weights.offset + first * kernel.n * column,
                 now * kernel.n * column};
    else
      rendered.dispatches.push_back(unpack(kernel.name + ".unpack", kernel.block_type, kernel.weights, all, kernel.k,
                                           nullptr, plain.b, now * kernel.n, target, first * kernel.n));
    if (!groups) return render(plain, target, scratch, rendered);
    groups->first = first, groups->count = now;
    render_grouped(plain, tiles()[static_cast<std::size_t>(tile)], *groups, target, scratch, rendered);
  }
}

}  // namespace

void render(const PackedMatmulKernel& kernel, const Target& target, Scratch& scratch, Rendered& rendered) {
  if (kernel.m * kernel.n == 0) return;
  if (!unpacks(kernel, target)) return RowsWriter(kernel, target).render(rendered);
  if (!render_on_halves(kernel, target, scratch, rendered)) render_in_f32(kernel, target, scratch, rendered);
}

bool render_packed_pair(const PackedMatmulKernel& first, const PackedMatmulKernel& second, bool keeps_first,
                        const Target& target, Scratch& scratch, Rendered& rendered) {
  const std::optional<GatedPair> pair = gated_pair(first, second, keeps_first);
  if (!pair) return false;
  if (!has_few_rows(first))
    return unpacks(first, target) && render_pair_on_halves(first, second, *pair, target, scratch, rendered);
  Bindings counted(target, second.name);
  const int runs = PackedReader(first.block_type, first.weights, first.rows_of_weights(), first.k, counted).runs();
  const std::size_t bindings = (first.rows ? first.rows->inputs.size() : 1) + (first.experts ? 1 : 0) +
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
