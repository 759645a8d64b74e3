#include "backend/webgpu/wgsl/attention/matrix_block.hpp"

#include <limits>

#include "backend/webgpu/wgsl/attention/matrix_writer.hpp"

namespace weft::webgpu {
namespace {

constexpr Extent kWidthMost = 256;  // beyond, registers do not suffice
constexpr Extent kRowsLeast = 16;
constexpr double kScaleLeast = 1e-20;       // so that hidden scores stay hidden when they are scaled
constexpr double kMaskedScaleLeast = 1e-6;  // so that a mask's values can be divided by it

// Blocks in the order in which they are tried: of heads up to a width, with so many keys. Measured on an H200. Sixteen rows a
// subgroup need fewer registers than 32, and hide less of a short row block.
constexpr Extent kAny = std::numeric_limits<Extent>::max();
struct MatrixChoice {
  attention::Part part;
  Extent width, keys_least, keys_most;
  MatrixAttentionBlock block;
};
constexpr attention::Part kForward = attention::Part::forward, kQuery = attention::Part::d_query,
                          kKeyValue = attention::Part::d_key_value;
constexpr MatrixChoice kMatrixChoices[] = {
    {kForward, 64, 0, 256, {16, 8, 32}},
    {kForward, 64, 4096, kAny, {32, 8, 64}},
    {kForward, 64, 0, kAny, {32, 4, 32}},
    {kForward, 64, 0, kAny, {16, 4, 32}},
    {kForward, 64, 0, kAny, {16, 2, 16}},
    {kForward, 128, 0, kAny, {16, 8, 64}},
    {kForward, 128, 0, kAny, {16, 8, 32}},
    {kForward, 128, 0, kAny, {16, 4, 32}},
    {kForward, 128, 0, kAny, {16, 2, 16}},
    {kForward, 256, 0, kAny, {16, 8, 16}},
    {kForward, 256, 0, kAny, {16, 4, 16}},
    {kForward, 256, 0, kAny, {16, 2, 16}},
    {kQuery, 64, 4096, kAny, {16, 16, 64, false}},
    {kQuery, 64, 0, kAny, {16, 8, 32, false}},
    {kQuery, 64, 0, kAny, {16, 4, 32, false}},
    {kQuery, 128, 0, kAny, {16, 8, 32, true}},
    {kQuery, 128, 0, kAny, {16, 8, 32, false}},
    {kQuery, 128, 0, kAny, {16, 4, 32, false}},
    {kQuery, 256, 0, kAny, {16, 8, 32, false, 2}},
    {kQuery, 256, 0, kAny, {16, 8, 16, false, 2}},
    {kQuery, 256, 0, kAny, {16, 4, 16, false, 2}},
    {kQuery, 256, 0, kAny, {16, 2, 16, false, 2}},
    {kKeyValue, 64, 0, 256, {16, 4, 32, true}},
    {kKeyValue, 64, 0, kAny, {16, 8, 64, true}},
    {kKeyValue, 64, 0, kAny, {16, 4, 32, true}},
    {kKeyValue, 64, 0, kAny, {16, 4, 16, false}},
    {kKeyValue, 128, 0, kAny, {16, 8, 64, false}},
    {kKeyValue, 128, 0, kAny, {16, 8, 32, false}},
    {kKeyValue, 128, 0, kAny, {16, 4, 32, false}},
    {kKeyValue, 128, 0, kAny, {16, 2, 16, false}},
    {kKeyValue, 256, 0, kAny, {16, 8, 16, false, 2}},
    {kKeyValue, 256, 0, kAny, {16, 4, 16, false, 2}},
    {kKeyValue, 256, 0, kAny, {16, 2, 16, false, 2}},
};

// The first that fits and gives every compute unit a workgroup, else the last that fits.
MatrixAttentionBlock choose_block(const kernel::AttentionKernel& kernel, attention::Part part, const Target& target) {
  const bool of_keys = part == kKeyValue;
  const Extent rows = of_keys ? kernel.keys : kernel.queries, heads = of_keys ? kernel.kv_heads : kernel.heads;
  const Extent width = kernel.width <= 64 ? 64 : kernel.width <= 128 ? 128 : 256;
  attention::Ranges ranges;
  ranges.chunks = attention::is_scaled(kernel) ? 1 : 0;
  MatrixAttentionBlock best;
  for (const MatrixChoice& choice : kMatrixChoices) {
    if (choice.part != part || choice.width != width || kernel.keys < choice.keys_least ||
        kernel.keys > choice.keys_most)
      continue;
    Rendered rendered;
    if (!attention::MatrixAttentionWriter(kernel, part, {}, ranges, choice.block, target, rendered).fits()) continue;
    best = choice.block;
    if (kernel.batch * heads * divide_up(rows, best.rows()) * best.slices >= target.profile.compute_units) break;
  }
  return best;
}

}  // namespace

bool suits_matrices(const kernel::AttentionKernel& kernel) {
  const auto fits = [&](const kernel::AttentionKernel::Tensor& tensor, Extent group) {
    return tensor.operand.offset % group == 0 && tensor.batch_stride % group == 0 && tensor.head_stride % group == 0 &&
           tensor.row_stride % group == 0;
  };
  const auto reads = [&](const kernel::AttentionKernel::Tensor& tensor) {
    return tensor.operand.type == kernel.q.operand.type && fits(tensor, 8);
  };
  const auto writes = [&](const kernel::AttentionKernel::Tensor& tensor) {
    const DType type = tensor.operand.type;
    return (type == DType::f32 || type == DType::f16 || type == DType::bf16) && fits(tensor, 4);
  };
  if (kernel.width % 8 != 0 || kernel.width > kWidthMost ||
      kernel.scale < (kernel.mask ? kMaskedScaleLeast : kScaleLeast) || kernel.queries < kRowsLeast ||
      kernel.keys < kRowsLeast || kernel.batch == 0)
    return false;
  if (kernel.q.operand.type != DType::f16 && kernel.q.operand.type != DType::bf16) return false;
  if (!reads(kernel.q) || !reads(kernel.k) || !reads(kernel.v)) return false;
  return kernel.backward ? reads(kernel.d_o) && writes(kernel.d_q) && writes(kernel.d_k) && writes(kernel.d_v)
                         : writes(kernel.o);
}

MatrixAttentionBlocks choose_matrix_blocks(const kernel::AttentionKernel& kernel, const Target& target) {
  if (!kernel.backward) return {choose_block(kernel, kForward, target), {}, {}};
  return {{}, choose_block(kernel, kQuery, target), choose_block(kernel, kKeyValue, target)};
}

}  // namespace weft::webgpu
