#include "backend/webgpu/calls.hpp"

#include "backend/webgpu/wgsl/cache.hpp"
#include "backend/webgpu/wgsl/cache_attention.hpp"
#include "backend/webgpu/wgsl/ctc.hpp"
#include "backend/webgpu/wgsl/delta_scan.hpp"
#include "backend/webgpu/wgsl/grouped.hpp"
#include "backend/webgpu/wgsl/poisson.hpp"
#include "backend/webgpu/wgsl/polynomials.hpp"
#include "backend/webgpu/wgsl/put_along.hpp"
#include "backend/webgpu/wgsl/quantised.hpp"
#include "backend/webgpu/wgsl/recurrence.hpp"
#include "backend/webgpu/wgsl/sample.hpp"
#include "backend/webgpu/wgsl/scan.hpp"
#include "backend/webgpu/wgsl/scatter_along.hpp"
#include "backend/webgpu/wgsl/sort.hpp"
#include "backend/webgpu/wgsl/state_scan.hpp"
#include "backend/webgpu/wgsl/state_scan_backward.hpp"
#include "compile/call_attributes.hpp"
#include "graph/attention.hpp"
#include "graph/cache.hpp"
#include "graph/ctc.hpp"
#include "graph/delta_scan.hpp"
#include "graph/grouped.hpp"
#include "graph/order.hpp"
#include "graph/packed.hpp"
#include "graph/poisson.hpp"
#include "graph/polynomials.hpp"
#include "graph/recurrence.hpp"
#include "graph/scan.hpp"
#include "graph/scatter.hpp"
#include "graph/state_scan.hpp"

namespace weft::webgpu {
namespace {

bool accepts_attention(const graph::Call& call) {
  constexpr Extent kWidthMax = 256;  // channels of a head
  return graph::fits_tiles(call, kWidthMax);
}

bool has_32_bits(DType type) { return type == DType::f32 || type == DType::i32 || type == DType::u32; }

bool accepts_scan(const graph::Call& call) {
  const DType type = call.input(0).dtype();
  const bool counts = &call.row() == &graph::cumsum_row() || &call.row() == &graph::cumprod_row();
  return has_32_bits(type) || (type == DType::boolean && counts);
}

bool accepts_grouped(const graph::Call& call) { return call.input(0).dtype() == DType::f32; }

bool accepts_sort(const graph::Call& call) {
  const Extent axis = call.attributes<graph::SortAttributes>().axis;
  const Tensor& x = call.input(0);
  return has_32_bits(x.dtype()) && (axis == -1 || axis == x.rank() - 1) && x.numel() <= UINT32_MAX;
}

bool accepts_scatter_along(const graph::Call& call) {
  const DType index = call.input(0).dtype(), type = call.input(1).dtype();
  return (index == DType::i32 || index == DType::u32) && has_32_bits(type);
}

bool accepts_last_along(const graph::Call& call) {
  const DType index = call.input(0).dtype();
  return index == DType::i32 || index == DType::u32;
}

bool accepts_put_along(const graph::Call& call) {
  const DType index = call.input(1).dtype();
  return (index == DType::i32 || index == DType::u32) && has_32_bits(call.input(0).dtype());
}

bool accepts_scatter_rows(const graph::Call& call) { return has_32_bits(call.input(1).dtype()); }

using Render = void (*)(const kernel::CallKernel&, const Target&, Scratch&, Rendered&);
CallEntry alignment_entry(Render render) { return {.accepts = accepts_ctc_alignment, .render = render}; }
CallEntry recurrence_entry(Render render) { return {.accepts = accepts_recurrence, .render = render}; }

template <auto render>
void render_words(const kernel::CallKernel& kernel, const Target& target, Scratch& scratch, Rendered& rendered) {
  render(kernel::with_words(kernel), target, scratch, rendered);
}

}  // namespace

backend::CallTable<CallEntry>& calls() {
  static auto& table = *new backend::CallTable<CallEntry>(
      "WebGPU", {{&graph::attention_row(), {.accepts = accepts_attention}},
                 {&graph::attention_backward_row(), {.accepts = accepts_attention}},
                 {&graph::scatter_rows_row(), {.accepts = accepts_scatter_rows}},
                 {&graph::packed_matmul_row(), {}},
                 {&graph::write_rows_row(), {.render = render_words<render_write_rows>}},
                 {&graph::cache_attention_row(), {.render = render_words<render_cache_attention>}},
                 {&graph::cumsum_row(), {.accepts = accepts_scan, .render = render_scan}},
                 {&graph::cumprod_row(), {.accepts = accepts_scan, .render = render_scan}},
                 {&graph::logcumsumexp_row(), {.accepts = accepts_scan, .render = render_scan}},
                 {&graph::cummax_row(), {.accepts = accepts_scan, .render = render_scan}},
                 {&graph::cummin_row(), {.accepts = accepts_scan, .render = render_scan}},
                 {&graph::linear_recurrence_row(), {.accepts = accepts_scan, .render = render_scan}},
                 {&graph::recurrence_row(), recurrence_entry(render_recurrence)},
                 {&graph::recurrence_backward_row(), recurrence_entry(render_recurrence_backward)},
                 {&graph::state_scan_row(), {.accepts = accepts_state_scan, .render = render_state_scan}},
                 {&graph::state_scan_backward_row(),
                  {.accepts = accepts_state_scan_backward, .render = render_state_scan_backward}},
                 {&graph::state_convolution_row(),
                  {.accepts = [](const graph::Call& call) { return call.input(0).dtype() == DType::f32; },
                   .render = render_state_convolution}},
                 {&graph::delta_scan_row(), {.accepts = accepts_delta_scan, .render = render_delta_scan}},
                 {&graph::grouped_matmul_row(), {.accepts = accepts_grouped, .render = render_grouped_matmul}},
                 {&graph::grouped_outer_row(), {.accepts = accepts_grouped, .render = render_grouped_outer}},
                 {&graph::sort_row(), {.accepts = accepts_sort, .render = render_sort}},
                 {&graph::scatter_along_row(), {.accepts = accepts_scatter_along, .render = render_scatter_along}},
                 {&graph::last_along_row(), {.accepts = accepts_last_along, .render = render_last_along}},
                 {&graph::put_along_row(), {.accepts = accepts_put_along, .render = render_put_along}},
                 {&graph::ctc_alignment_row(), alignment_entry(render_ctc_alignment)},
                 {&graph::ctc_alignment_backward_row(), alignment_entry(render_ctc_alignment_backward)},
                 {&graph::poisson_quantile_row(),
                  {.accepts = [](const graph::Call& call) { return call.input(0).dtype() == DType::f32; },
                   .render = render_poisson_quantile}},
                 {&graph::orthogonal_polynomial_row(),
                  {.accepts = [](const graph::Call& call) { return call.input(0).dtype() == DType::f32; },
                   .render = render_orthogonal_polynomial}},
                 {&graph::sample_token_row(), {.render = render_sample_token}},
                 {&graph::unpack_rows_row(),
                  {.render = [](const kernel::CallKernel& k, const Target& target, Scratch&, Rendered& rendered) {
                    render_unpack_rows(k, target, rendered);
                  }}}});
  return table;
}

}  // namespace weft::webgpu
