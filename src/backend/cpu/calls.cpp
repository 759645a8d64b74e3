#include "backend/cpu/calls.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "backend/cpu/cache.hpp"
#include "backend/cpu/conv_adjoint.hpp"
#include "backend/cpu/ctc.hpp"
#include "backend/cpu/delta_scan.hpp"
#include "backend/cpu/grouped.hpp"
#include "backend/cpu/linear_algebra.hpp"
#include "backend/cpu/matrix_exponential.hpp"
#include "backend/cpu/poisson.hpp"
#include "backend/cpu/polynomials.hpp"
#include "backend/cpu/recurrence.hpp"
#include "backend/cpu/sample.hpp"
#include "backend/cpu/scan.hpp"
#include "backend/cpu/scatter.hpp"
#include "backend/cpu/sort.hpp"
#include "backend/cpu/state_scan.hpp"
#include "backend/cpu/unpack_rows.hpp"
#include "compile/call_attributes.hpp"
#include "graph/attention.hpp"
#include "graph/cache.hpp"
#include "graph/convolution.hpp"
#include "graph/ctc.hpp"
#include "graph/delta_scan.hpp"
#include "graph/grouped.hpp"
#include "graph/linear_algebra.hpp"
#include "graph/matrix_exponential.hpp"
#include "graph/order.hpp"
#include "graph/packed.hpp"
#include "graph/poisson.hpp"
#include "graph/polynomials.hpp"
#include "graph/recurrence.hpp"
#include "graph/scan.hpp"
#include "graph/scatter.hpp"
#include "graph/state_scan.hpp"

namespace weft::cpu {
namespace {

class PreparedFunction final : public Prepared {
 public:
  PreparedFunction(kernel::CallKernel kernel, CallFunction function, bool is_short)
      : kernel_(std::move(kernel)), function_(std::move(function)), short_(is_short) {}
  void bind(const Memory& memory) override {
    reads_.clear();
    outs_.clear();
    for (const kernel::Operand& operand : kernel_.reads) reads_.push_back(memory.at(operand));
    for (const kernel::Operand& operand : kernel_.outs) outs_.push_back(memory.at(operand));
  }
  void run() override { function_(kernel_, reads_, outs_); }
  int stages() const override { return short_ ? 1 : 0; }
  Extent tasks(int) const override { return 1; }
  void run_task(int, Extent) override { run(); }
  std::string to_string() const override { return call_text(kernel_); }

 private:
  kernel::CallKernel kernel_;
  CallFunction function_;
  bool short_;
  std::vector<char*> reads_, outs_;
};

bool accepts_attention(const graph::Call& call) {
  constexpr Extent kWidthMax = 256;  // channels of a head
  return graph::fits_tiles(call, kWidthMax);
}

bool accepts_scan(const graph::Call& call) {
  const DType type = call.input(0).dtype();
  const bool counts = &call.row() == &graph::cumsum_row() || &call.row() == &graph::cumprod_row();
  return size_bytes(type) >= 4 || (type == DType::boolean && counts);
}
CallEntry scan_entry() {
  return {.accepts = accepts_scan,
          .prepare = [](const kernel::CallKernel& k) { return prepare_function(k, run_scan, false); }};
}

bool accepts_sort(const graph::Call& call) {
  const Extent axis = call.attributes<graph::SortAttributes>().axis;
  const Tensor& x = call.input(0);
  return size_bytes(x.dtype()) >= 4 && (axis == -1 || axis == x.rank() - 1) && x.dim(-1) <= INT32_MAX;
}

bool accepts_scatter_along(const graph::Call& call) {
  const DType index = call.input(0).dtype(), type = call.input(1).dtype();
  return (index == DType::i32 || index == DType::u32) && size_bytes(type) >= 4;
}

bool accepts_last_along(const graph::Call& call) {
  const DType index = call.input(0).dtype();
  return index == DType::i32 || index == DType::u32;
}

// A line is the work of one thread; the decomposition divides long ones.
bool accepts_put_along(const graph::Call& call) {
  constexpr Extent kLongLine = 1 << 16, kManyLines = 8;
  const DType index = call.input(1).dtype();
  const Tensor& updates = call.input(2);
  const Extent line = updates.dim(call.axis(call.words()[0]));
  return (index == DType::i32 || index == DType::u32) && size_bytes(updates.dtype()) >= 4 &&
         (line < kLongLine || updates.numel() / line >= kManyLines);
}

bool accepts_scatter_rows(const graph::Call& call) { return size_bytes(call.input(1).dtype()) >= 4; }

constexpr Extent kFewRows = 32;

bool accepts_wide(const graph::Call& call) { return !is_narrow(call.input(0).dtype()); }

// A function of whole operands, and nothing to accept or refuse.
CallEntry computed_by(void (*run)(const kernel::CallKernel&, std::span<char* const>, std::span<char* const>)) {
  return {.prepare = [run](const kernel::CallKernel& k) { return prepare_function(k, run, false); }};
}

// A function of whole operands of floats that are not narrow.
CallEntry wide_entry(void (*run)(const kernel::CallKernel&, std::span<char* const>, std::span<char* const>)) {
  CallEntry entry = computed_by(run);
  entry.accepts = accepts_wide;
  return entry;
}

}  // namespace

backend::CallTable<CallEntry>& calls() {
  static auto& table = *new backend::CallTable<CallEntry>(
      "the CPU",
      {{&graph::attention_row(), {.accepts = accepts_attention}},
       {&graph::attention_backward_row(), {.accepts = accepts_attention}},
       {&graph::scatter_rows_row(), {.accepts = accepts_scatter_rows}},
       {&graph::packed_matmul_row(), {}},
       {&graph::write_rows_row(),
        {.prepare =
             [](const kernel::CallKernel& k) {
               return prepare_function(kernel::with_words(k), run_write_rows, k.shapes.at(1)[0] <= kFewRows);
             }}},
       {&graph::cache_attention_row(),
        {.prepare = [](const kernel::CallKernel& k) { return prepare_cache_attention(kernel::with_words(k)); }}},
       {&graph::unpack_rows_row(),
        {.prepare =
             [](const kernel::CallKernel& k) {
               return prepare_function(k, run_unpack_rows, k.shape()[0] <= kFewRows);
             }}},
       {&graph::pack_rows_row(),
        {.prepare = [](const kernel::CallKernel& k) { return prepare_function(k, run_pack_rows, false); }}},
       {&graph::cumsum_row(), scan_entry()},
       {&graph::cumprod_row(), scan_entry()},
       {&graph::logcumsumexp_row(), scan_entry()},
       {&graph::cummax_row(), scan_entry()},
       {&graph::cummin_row(), scan_entry()},
       {&graph::linear_recurrence_row(), scan_entry()},
       {&graph::sort_row(),
        {.accepts = accepts_sort,
         .prepare = [](const kernel::CallKernel& k) { return prepare_function(k, run_sort, false); }}},
       {&graph::scatter_along_row(),
        {.accepts = accepts_scatter_along,
         .prepare = [](const kernel::CallKernel& k) { return prepare_function(k, run_scatter_along, false); }}},
       {&graph::put_along_row(),
        {.accepts = accepts_put_along,
         .prepare = [](const kernel::CallKernel& k) { return prepare_function(k, run_put_along, false); }}},
       {&graph::last_along_row(),
        {.accepts = accepts_last_along,
         .prepare = [](const kernel::CallKernel& k) { return prepare_function(k, run_last_along, false); }}},
       {&graph::conv_adjoint_row(),
        {.accepts = accepts_conv_adjoint,
         .prepare = [](const kernel::CallKernel& k) { return prepare_function(k, run_conv_adjoint, false); }}},
       {&graph::grouped_matmul_row(), wide_entry(run_grouped_matmul)},
       {&graph::grouped_outer_row(), wide_entry(run_grouped_outer)},
       {&graph::recurrence_row(), wide_entry(run_recurrence)},
       {&graph::recurrence_backward_row(), wide_entry(run_recurrence_backward)},
       {&graph::state_scan_row(), {.accepts = accepts_wide, .prepare = prepare_state_scan}},
       {&graph::state_scan_backward_row(), {.accepts = accepts_wide, .prepare = prepare_state_scan_backward}},
       {&graph::state_convolution_row(), {.accepts = accepts_wide, .prepare = prepare_state_convolution}},
       {&graph::delta_scan_row(), {.accepts = accepts_wide, .prepare = prepare_delta_scan}},
       {&graph::ctc_alignment_row(), wide_entry(run_ctc_alignment)},
       {&graph::ctc_alignment_backward_row(), wide_entry(run_ctc_alignment_backward)},
       {&graph::poisson_quantile_row(), computed_by(run_poisson_quantile)},
       {&graph::orthogonal_polynomial_row(), computed_by(run_orthogonal_polynomial)},
       {&graph::solve_row(), computed_by(run_solve)},
       {&graph::solve_triangular_row(), computed_by(run_solve_triangular)},
       {&graph::slogdet_row(), computed_by(run_slogdet)},
       {&graph::cholesky_row(), computed_by(run_cholesky)},
       {&graph::lu_factor_row(), computed_by(run_lu_factor)},
       {&graph::pivot_order_row(), computed_by(run_pivot_order)},
       {&graph::qr_row(), computed_by(run_qr)},
       {&graph::eigh_row(), computed_by(run_eigh)},
       {&graph::svd_row(), computed_by(run_svd)},
       {&graph::matrix_exp_row(), computed_by(run_matrix_exp)},
       {&graph::matrix_exp_frechet_row(), computed_by(run_matrix_exp_frechet)},
       {&graph::sample_token_row(),
        {.prepare = [](const kernel::CallKernel& k) { return prepare_function(k, run_sample_token, false); }}}});
  return table;
}

std::unique_ptr<Prepared> prepare_function(const kernel::CallKernel& kernel, CallFunction function, bool is_short) {
  return std::make_unique<PreparedFunction>(kernel, std::move(function), is_short);
}

std::string call_text(const kernel::CallKernel& kernel) {
  return fmt::format("call {}: {}\n", kernel.name, fmt::join(kernel.attributes, " "));
}

}  // namespace weft::cpu
