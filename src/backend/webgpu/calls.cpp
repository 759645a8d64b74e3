#include "backend/webgpu/calls.hpp"

#include "backend/webgpu/wgsl/cache.hpp"
#include "backend/webgpu/wgsl/cache_attention.hpp"
#include "backend/webgpu/wgsl/quantised.hpp"
#include "backend/webgpu/wgsl/sample.hpp"
#include "backend/webgpu/wgsl/scan.hpp"
#include "backend/webgpu/wgsl/scatter_along.hpp"
#include "compile/call_attributes.hpp"
#include "graph/attention.hpp"
#include "graph/cache.hpp"
#include "graph/packed.hpp"
#include "graph/scan.hpp"
#include "graph/scatter.hpp"

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

bool accepts_scatter_along(const graph::Call& call) {
  const DType index = call.input(0).dtype(), type = call.input(1).dtype();
  return (index == DType::i32 || index == DType::u32) &&
         (type == DType::f32 || type == DType::i32 || type == DType::u32);
}

template <auto render>
void render_words(const kernel::CallKernel& kernel, const Target& target, Scratch& scratch, Rendered& rendered) {
  render(kernel::with_words(kernel), target, scratch, rendered);
}

}  // namespace

backend::CallTable<CallEntry>& calls() {
  static auto& table = *new backend::CallTable<CallEntry>(
      "WebGPU", {{&graph::attention_row(), {.accepts = accepts_attention}},
                 {&graph::attention_backward_row(), {.accepts = accepts_attention}},
                 {&graph::scatter_rows_row(), {}},
                 {&graph::packed_matmul_row(), {}},
                 {&graph::write_rows_row(), {.render = render_words<render_write_rows>}},
                 {&graph::cache_attention_row(), {.render = render_words<render_cache_attention>}},
                 {&graph::cumsum_row(), {.accepts = accepts_cumsum, .render = render_cumsum}},
                 {&graph::scatter_along_row(), {.accepts = accepts_scatter_along, .render = render_scatter_along}},
                 {&graph::sample_token_row(), {.render = render_sample_token}},
                 {&graph::unpack_rows_row(),
                  {.render = [](const kernel::CallKernel& k, const Target& target, Scratch&, Rendered& rendered) {
                    render_unpack_rows(k, target, rendered);
                  }}}});
  return table;
}

}  // namespace weft::webgpu
