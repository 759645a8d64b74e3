#include "backend/webgpu/calls.hpp"

#include <fmt/format.h>

#include <mutex>
#include <unordered_map>

#include "backend/webgpu/wgsl/cache.hpp"
#include "backend/webgpu/wgsl/cache_attention.hpp"
#include "backend/webgpu/wgsl/quantised.hpp"
#include "backend/webgpu/wgsl/sample.hpp"
#include "backend/webgpu/wgsl/scan.hpp"
#include "graph/attention.hpp"
#include "graph/cache.hpp"
#include "graph/scan.hpp"
#include "graph/scatter.hpp"
#include "weft/error.hpp"

namespace weft::webgpu {
namespace {

bool accepts_attention(const graph::Call& call) {
  constexpr Extent kWidthMax = 256;  // channels of a head
  return graph::fits_tiles(call, kWidthMax);
}

bool accepts_cumsum(const graph::Call& call) {
  const DType type = call.input(0).dtype();
  return type == DType::f32 || type == DType::i32 || type == DType::u32 || type == DType::boolean;
}

struct Table {
  Table() {
    const auto put = [&](const graph::OpRow& row, CallEntry entry) { entries.emplace(&row, std::move(entry)); };
    put(graph::attention_row(), {.accepts = accepts_attention});
    put(graph::attention_backward_row(), {.accepts = accepts_attention});
    put(graph::scatter_rows_row(), {});
    put(graph::packed_matmul_row(), {});
    put(graph::write_rows_row(), {.render = render_write_rows});
    put(graph::cache_attention_row(), {.render = render_cache_attention});
    put(graph::cumsum_row(), {.accepts = accepts_cumsum, .render = render_cumsum});
    put(graph::sample_token_row(), {.render = render_sample_token});
    put(graph::unpack_rows_row(), {.render = [](const kernel::CallKernel& k, const Target& target, Scratch&,
                                                Rendered& rendered) { render_unpack_rows(k, target, rendered); }});
  }
  std::mutex mutex;
  std::unordered_map<const graph::OpRow*, CallEntry> entries;
};
Table& table() {
  static Table& t = *new Table;
  return t;
}

}  // namespace

const CallEntry* find_call(const graph::OpRow& row) {
  Table& t = table();
  const std::lock_guard lock(t.mutex);
  const auto found = t.entries.find(&row);
  return found == t.entries.end() ? nullptr : &found->second;
}

void register_call(const graph::OpRow& row, CallEntry entry) {
  Table& t = table();
  const std::lock_guard lock(t.mutex);
  if (!t.entries.emplace(&row, std::move(entry)).second)
    throw UsageError(fmt::format("{}: WebGPU has a kernel for it already", row.name));
}

bool has_kernel(const graph::Call& call) {
  const CallEntry* entry = find_call(call.row());
  return entry && (!entry->accepts || entry->accepts(call));
}

}  // namespace weft::webgpu
