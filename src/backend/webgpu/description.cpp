#include "backend/webgpu/description.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "backend/webgpu/calls.hpp"
#include "backend/webgpu/wgsl/quantised.hpp"
#include "backend/webgpu/wgsl/render.hpp"
#include "graph/attention.hpp"

namespace weft::webgpu {

std::vector<std::pair<std::string, std::string>> details_of(const AdapterInfo& info) {
  const auto yes = [](bool is) { return is ? "yes" : "no"; };
  return {
      {"type", std::string(name_of(info.type))},
      {"backend", info.backend},
      {"vendor", info.vendor},
      {"architecture", info.architecture},
      {"driver", info.driver},
      {"subgroups",
       info.subgroups ? fmt::format("{} to {} threads", info.subgroup_size_min, info.subgroup_size_max) : "no"},
      {"shader-f16", yes(info.f16)},
      {"subgroup matrices",
       info.subgroup_matrices.empty()
           ? "no; products of f16 and bf16 are computed in f32"
           : fmt::format("{} shapes; products of f16 and bf16, and of f32 in high or medium precision, {}",
                         info.subgroup_matrices.size(),
                         target_of(info).lists_matrices ? "run on them" : "are computed in f32")},
      {"timestamps", yes(info.timestamps)},
      {"workgroup memory", fmt::format("{} bytes", info.limits.workgroup_bytes)},
      {"workgroup size", fmt::format("{} threads", info.limits.workgroup_invocations)},
      {"storage buffers of a kernel", fmt::format("{}", info.limits.storage_buffers)},
  };
}

backend::Description description_of(const AdapterInfo& info) {
  backend::Description description;
  const Limits& limits = info.limits;
  description.name = fmt::format("webgpu:{}", info.index);
  description.hardware = webgpu::describe(info);
  description.is_software = info.type == AdapterType::software;
  for (const Element& row : kElements) {
    if (!row.on_gpu) continue;
    description.dtypes.push_back(row.type);
    if (row.type != DType::f32 && !is_block(row.type) && reads_as_f32(row.type))
      description.product_reads.push_back(row.type);
  }
  description.attention_reads = description.product_reads;
  description.integer_product_reads = {DType::i8, DType::u8};
  description.attention_writes = {DType::f16, DType::bf16};
  description.runs_beside_host = true;
  description.buffer_bytes_max = limits.buffer_bytes;
  description.binding_bytes_max = limits.binding_bytes;
  description.offset_alignment = std::max(256u, limits.offset_alignment);
  description.prefers_separate_buffers = true;
  description.kernels_side_by_side = 6;
  // The tiles of attention need more workgroup memory than WebGPU guarantees. On a device with less, attention is products and
  // a softmax.
  constexpr std::uint64_t kAttentionBytes = 32 << 10;
  // A gradient's kernel has eight bindings, and one more for each of mask, spans and seed.
  constexpr std::uint32_t kAttentionBindings = 8;
  description.has_kernel = [has_room = limits.workgroup_bytes >= kAttentionBytes,
                            buffers = limits.storage_buffers](const graph::Call& call) {
    if (!calls().accepts(call)) return false;
    if (call.row().form != graph::KernelForm::attention) return true;
    const graph::AttentionInputs extra(call);
    const int more = extra.mask.defined() + extra.key_spans.defined() + extra.seed.defined();
    return has_room && (more == 0 || kAttentionBindings + static_cast<std::uint32_t>(more) <= buffers);
  };
  description.computed_rows_max = kFewRows;
  description.operands_max = static_cast<int>(info.limits.storage_buffers);
  description.shared_points = Extent{1} << 23;  // as the renderer of reductions (is_worth_sharing)

  description.details = details_of(info);
  return description;
}

}  // namespace weft::webgpu
