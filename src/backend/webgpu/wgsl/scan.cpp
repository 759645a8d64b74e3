#include "backend/webgpu/wgsl/scan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "backend/webgpu/wgsl/scalar.hpp"
#include "backend/webgpu/wgsl/scan_writer.hpp"
#include "compile/call_attributes.hpp"
#include "graph/scan.hpp"

namespace weft::webgpu {
namespace scan {
namespace {

constexpr Extent kSerialMost = 64;            // elements far apart that one thread takes
constexpr Extent kLongScan = 32 * kStretch;   // a scan that is worth two more dispatches, if there are few of them
constexpr Extent kChunkLeast = 8 * kStretch;  // elements of such a scan for a workgroup

}  // namespace

ScanWriter::ScanWriter(const kernel::CallKernel& kernel, const Target& target, ScanPart part,
                       const std::vector<kernel::Operand>& scratch)
    : kernel_(kernel),
      target_(target),
      a_(kernel::attributes_of<graph::ScanAttributes>(kernel)),
      part_(part),
      scratch_(scratch),
      bindings_(target, kernel.name) {
  const Shape& shape = kernel.shape();
  const auto axis = static_cast<int>(a_.axis < 0 ? a_.axis + shape.rank() : a_.axis);
  for (int d = 0; d < shape.rank(); ++d) (d < axis ? outer_ : d == axis ? n_ : inner_) *= shape[d];
  bind(inner_ == 1 && n_ > kEach && n_ % kEach == 0);
  if (!fours_) bind(false);
  type_ = kernel.out().type == DType::f32 ? "f32" : kernel.out().type == DType::u32 ? "u32" : "i32";
  how_ = combination();
}

Extent ScanWriter::chunk() const {
  const Extent busy = 8 * Extent{target_.profile.compute_units};
  if (inner_ != 1 || n_ < kLongScan || 4 * outer_ > busy) return n_;
  return divide_up(std::max(divide_up(n_, divide_up(busy, outer_)), kChunkLeast), kStretch) * kStretch;
}

std::vector<DType> ScanWriter::types() const {
  std::vector<DType> types;
  for (const std::string& type : how_.types)
    types.push_back(type == "f32" ? DType::f32 : type == "u32" ? DType::u32 : DType::i32);
  return types;
}

RenderedDispatch ScanWriter::write() {
  if (part_ != ScanPart::whole) return write_part();
  const bool together = inner_ == 1 && n_ > kEach, strips = inner_ >= kStrip && n_ > kSerialMost;
  const Extent groups = together ? outer_
                        : strips ? outer_ * divide_up(inner_, kStrip)
                                 : divide_up(outer_ * inner_, kScanThreads);
  threads_ = strips && target_.unroll && target_.limits.workgroup_invocations >= 2 * kScanThreads ? 2 * kScanThreads
                                                                                                  : kScanThreads;
  shader_.threads = threads_;
  shader_.body = together ? by_workgroup() : strips ? by_strip() : by_thread();
  for (std::size_t k = 0; k < how_.types.size() && (together || strips); ++k)
    shader_.share(shared(k), how_.types[k], threads_);
  return dispatch_of(kernel_.name, std::move(shader_), bindings_, static_cast<std::uint64_t>(groups), target_);
}

RenderedDispatch ScanWriter::write_part() {
  const Extent groups = part_ == ScanPart::starts ? outer_ : chunks();
  shader_.threads = kScanThreads;
  shader_.body = part_ == ScanPart::starts ? starts() : by_workgroup();
  for (std::size_t k = 0; k < how_.types.size(); ++k) shader_.share(shared(k), how_.types[k], kScanThreads);
  const char* name = part_ == ScanPart::totals ? ".totals" : part_ == ScanPart::starts ? ".starts" : "";
  return dispatch_of(kernel_.name + name, std::move(shader_), bindings_, static_cast<std::uint64_t>(groups), target_);
}

/// A value gets another one by a statement for each number.
Combination ScanWriter::combination() {
  const graph::OpRow& row = *kernel_.op;
  if (&row == &graph::cumsum_row()) return {{type_}, {type_ + "()"}, "r0 = a0 + b0;"};
  if (&row == &graph::cumprod_row()) return {{type_}, {type_ + "(1)"}, "r0 = a0 * b0;"};
  Helpers& helpers = shader_.helpers;
  if (&row == &graph::linear_recurrence_row())
    return {{"f32", "f32"}, {"1f", "0f"}, "r0 = a0 * b0; r1 = b0 * a1 + b1;", false, true};
  if (&row == &graph::logcumsumexp_row()) {
    // Where the larger one is infinite or NaN it is the result.
    const std::string text = fmt::format(
        "let top = {}(a0, b0); let is_top = (bitcast<u32>(top) & 0x7f800000u) == 0x7f800000u; "
        "r0 = select(top + {}({}(select(-abs(a0 - b0), 0f, is_top))), top, is_top);",
        helpers.use("max_f32"), helpers.use("log1p_of_part_f32"), helpers.use("exp_f32"));
    return {{"f32"}, {fmt::format("(-{}())", helpers.use("inf_f32"))}, text};
  }
  const bool largest = &row == &graph::cummax_row();
  const scalar::Reduction reduction = largest ? scalar::Reduction::max : scalar::Reduction::min;
  std::string takes = largest ? "b0 >= a0" : "b0 <= a0";
  if (type_ == "f32") {
    const std::string is_nan(helpers.use("is_nan_f32"));
    takes = fmt::format("{0}(b0) || (!{0}(a0) && {1})", is_nan, takes);
  }
  return {{type_, "u32"},
          {render_identity(reduction, kernel_.out().type, helpers), "0u"},
          fmt::format("let takes = {}; r0 = select(a0, b0, takes); r1 = select(a1, b1, takes);", takes),
          true};
}

std::string ScanWriter::by_thread() {
  line(fmt::format("let number = group * {}u + thread;", kScanThreads));
  line(fmt::format("if (number < {}u) {{", outer_ * inner_));
  line(fmt::format("  let start = {} * {}u + {};", divided("number", inner_), n_ * inner_, modulo("number", inner_)));
  declare("  ", "sum", how_.start);
  line(fmt::format("  for (var i = 0u; i < {}u; i++) {{", n_));
  line(fmt::format("    let at = {};", place("start", "i")));
  declare("    ", "x", load("at", "i"));
  if (a_.exclusive) store("    ", "at", "sum");
  combine("    ", "sum", named("sum"), named("x"));
  if (!a_.exclusive) store("    ", "at", "sum");
  line("  }");
  line("}");
  return std::move(text_);
}

/// A workgroup takes neighbouring scans, whose elements of one number are neighbours in memory. A thread takes some elements of
/// one scan, and several threads share a scan.
std::string ScanWriter::by_strip() {
  const int each = target_.unroll ? 8 : 2;
  const Extent lanes = threads_ / kStrip, strips = divide_up(inner_, kStrip);
  const bool whole = inner_ % kStrip == 0;
  line(fmt::format("let column = {} * {}u + {};", modulo("group", strips), kStrip, modulo("thread", kStrip)));
  line(fmt::format("let lane = {};", divided("thread", kStrip)));
  line(fmt::format("let start = {} * {}u + {};", divided("group", strips), n_ * inner_,
                   whole ? "column" : fmt::format("min(column, {}u)", inner_ - 1)));
  declare("", "carried", how_.start);
  line(fmt::format("for (var stretch = 0u; stretch < {}u; stretch += {}u) {{", n_, lanes * each));
  line(fmt::format("  let first = stretch + lane * {}u;", each));
  for (int e = 0; e < each; ++e) {
    const std::string i = fmt::format("(first + {}u)", e), x = fmt::format("x{}_", e);
    declare("  ", x, how_.start);
    line(fmt::format("  if {} < {}u {{", i, n_));
    assign("    ", x, load(place("start", i), i));
    line("  }");
  }
  declare("  ", "mine", named("x0_"));
  for (int e = 1; e < each; ++e) combine("  ", "mine", named("mine"), named(fmt::format("x{}_", e)));
  put_parts("  ", "mine");
  line("  workgroupBarrier();");
  declare("  ", "sum", named("carried"));
  carry_parts(lanes, "lane", fmt::format("i * {}u + {}", kStrip, modulo("thread", kStrip)));
  for (int e = 0; e < each; ++e) {
    const std::string i = fmt::format("(first + {}u)", e), x = fmt::format("x{}_", e);
    if (!a_.exclusive) combine("  ", "sum", named("sum"), named(x));
    line(fmt::format("  if ({} < {}u{}) {{", i, n_, whole ? "" : fmt::format(" && column < {}u", inner_)));
    store("    ", place("start", i), "sum");
    line("  }");
    if (a_.exclusive) combine("  ", "sum", named("sum"), named(x));
  }
  line("  workgroupBarrier();");
  line("}");
  return std::move(text_);
}

}  // namespace scan

using scan::ScanPart;
using scan::ScanWriter;

void render_scan(const kernel::CallKernel& kernel, const Target& target, Scratch& scratch, Rendered& rendered) {
  if (kernel.shape().numel() == 0) return;
  ScanWriter whole(kernel, target);
  if (!whole.is_long()) {
    rendered.dispatches.push_back(whole.write());
    return;
  }
  std::vector<kernel::Operand> totals;
  for (const DType type : whole.types()) totals.push_back(scratch.add(type, whole.chunks()));
  for (const ScanPart part : {ScanPart::totals, ScanPart::starts, ScanPart::chunks})
    rendered.dispatches.push_back(ScanWriter(kernel, target, part, totals).write());
}

}  // namespace weft::webgpu
