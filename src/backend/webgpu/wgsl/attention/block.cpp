// Chooses the block of a workgroup.
#include "backend/webgpu/wgsl/attention/writer.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "weft/error.hpp"

namespace weft::webgpu::attention {

namespace {

// Blocks for heads up to a width, in the order in which they are tried. Larger blocks read the other side less often; smaller
// blocks fill the device sooner and compute fewer masked scores. Measured on an H200.
struct Choice {
  bool backward;
  Extent width;
  AttentionBlock block;
};
constexpr Choice kChoices[] = {
    {false, 64, {4, 8, 4, 3, true}},  {false, 64, {2, 8, 4, 2, false}}, {false, 128, {2, 8, 8, 3, true}},
    {false, 128, {2, 8, 4, 3, true}}, {false, 256, {2, 8, 8, 3, true}}, {false, 256, {2, 8, 4, 3, true}},
    {true, 64, {4, 8, 8, 2, false}},  {true, 64, {2, 8, 4, 2, false}},  {true, 128, {2, 8, 8, 3, false}},
    {true, 128, {2, 8, 4, 3, false}}, {true, 256, {1, 8, 8, 3, false}},
};
// For little workgroup memory, and for compilers that are slow with unrolled text.
constexpr AttentionBlock kSmallBlocks[] = {{4, 4, 2, 3, false, false},
                                           {4, 4, 1, 3, false, false},
                                           {2, 4, 1, 3, false, false},
                                           {1, 4, 1, 3, false, false},
                                           {1, 4, 1, 2, false, false}};
constexpr Extent kBlocksOfRows = 4;  // a block is tried first if the rows are this many blocks

constexpr int kResultVectorsMax = 16;  // in a thread: more do not stay in registers

}  // namespace

int AttentionWriter::buffer_vectors(const AttentionBlock& block, int buffer) const {
  const auto buffers = buffers_of(block);
  int vectors = buffers[kMatters] == buffer ? block.rows() * share_vectors(block) : 0;
  for (int m = 0; m < kMatters; ++m)
    if (buffers[static_cast<std::size_t>(m)] == buffer)
      vectors = std::max(vectors, slab_rows(block, static_cast<Matter>(m)) * slice_);
  return vectors;
}

int AttentionWriter::workgroup_bytes(const AttentionBlock& block) const {
  int bytes = (needs_exchange() ? 16 * block.threads() : 0) + (sums_delta() ? 8 * block.tile() : 0);
  for (int b = 0; b < block.buffers; ++b) bytes += 16 * buffer_vectors(block, b);
  return bytes;
}

bool AttentionWriter::fits(const AttentionBlock& block) const {
  const int results = block.lane_rows * vectors_ / kAcross * (part_ == Part::d_key_value ? 2 : 1);
  return workgroup_bytes(block) <= static_cast<int>(target_.limits.workgroup_bytes) &&
         block.threads() <= static_cast<int>(target_.limits.workgroup_invocations) &&
         (results <= kResultVectorsMax || block.lane_rows == 1);
}

void AttentionWriter::choose_block(Extent heads) {
  if (forced_) {
    block_ = *forced_;
    return;
  }
  const AttentionBlock* best = nullptr;
  // Smaller blocks are tried if this one leaves compute units without work, or covers most of the rows.
  const auto try_block = [&](const AttentionBlock& block) {
    if (!fits(block) || (best && block.rows() >= best->rows())) return;
    const bool enough = best && owned_ >= kBlocksOfRows * best->rows() &&
                        kernel_.batch * heads * divide_up(owned_, best->rows()) >= target_.profile.compute_units;
    if (!enough) best = &block;
  };
  const Extent width_class = kernel_.width <= 64 ? 64 : kernel_.width <= 128 ? 128 : 256;
  // Software adapters take long to compile unrolled text.
  if (target_.unroll)
    for (const Choice& choice : kChoices)
      if (choice.backward == kernel_.backward && choice.width == width_class) try_block(choice.block);
  if (!best)
    for (const AttentionBlock& block : kSmallBlocks) try_block(block);
  if (!best)
    throw DeviceError(
        fmt::format("webgpu: attention of width {} needs more workgroup memory than the {} bytes of this device",
                    kernel_.width, target_.limits.workgroup_bytes));
  block_ = *best;
}

}  // namespace weft::webgpu::attention
