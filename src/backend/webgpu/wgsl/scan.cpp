#include "backend/webgpu/wgsl/scan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "backend/webgpu/wgsl/scalar.hpp"
#include "backend/webgpu/wgsl/steps.hpp"
#include "compile/call_attributes.hpp"
#include "graph/scan.hpp"

namespace weft::webgpu {
namespace {

constexpr int kThreads = 256;
constexpr int kEach = 4;            // neighbouring elements of a thread
constexpr Extent kStrip = 32;       // neighbouring scans of a workgroup, where each has its elements far apart
constexpr Extent kSerialMost = 64;  // elements of such a scan that one thread takes
constexpr Extent kStretch = kThreads * kEach;  // elements of a scan that a workgroup takes at a time
constexpr Extent kLongScan = 32 * kStretch;    // a scan that is worth two more dispatches, if there are few of them
constexpr Extent kChunkLeast = 8 * kStretch;   // elements of such a scan for a workgroup

/// A value of a scan: one number, or two, which are scanned together. Texts of them.
using Numbers = std::vector<std::string>;

/// What tells one scan from another.
struct Combination {
  Numbers types;              // of a value's numbers
  Numbers start;              // what combines with any value to that value
  std::string combine;        // statements that set r0 (and r1) from a0 (a1), the earlier value, and b0 (b1)
  bool has_position = false;  // the second number of an element is its position, and the second result has it
  bool gives_second = false;  // the result is the second number
};

/// A long scan is three dispatches: workgroups combine their chunks, one combines what comes before each chunk, and workgroups
/// scan their chunks from there.
enum class ScanPart { whole, totals, starts, chunks };

class ScanWriter {
 public:
  ScanWriter(const kernel::CallKernel& kernel, const Target& target, ScanPart part = ScanPart::whole,
             const std::vector<kernel::Operand>& scratch = {})
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

  /// Elements of a scan for a workgroup: all of them, or a part of a long one.
  Extent chunk() const {
    const Extent busy = 8 * Extent{target_.profile.compute_units};
    if (inner_ != 1 || n_ < kLongScan || 4 * outer_ > busy) return n_;
    return divide_up(std::max(divide_up(n_, divide_up(busy, outer_)), kChunkLeast), kStretch) * kStretch;
  }
  bool is_long() const { return chunk() < n_; }
  Extent chunks() const { return outer_ * divide_up(n_, chunk()); }
  /// The types of the numbers of a value.
  std::vector<DType> types() const {
    std::vector<DType> types;
    for (const std::string& type : how_.types)
      types.push_back(type == "f32" ? DType::f32 : type == "u32" ? DType::u32 : DType::i32);
    return types;
  }

  RenderedDispatch write() {
    if (part_ != ScanPart::whole) return write_part();
    const bool together = inner_ == 1 && n_ > kEach, strips = inner_ >= kStrip && n_ > kSerialMost;
    const Extent groups = together ? outer_
                          : strips ? outer_ * divide_up(inner_, kStrip)
                                   : divide_up(outer_ * inner_, kThreads);
    threads_ =
        strips && target_.unroll && target_.limits.workgroup_invocations >= 2 * kThreads ? 2 * kThreads : kThreads;
    shader_.threads = threads_;
    shader_.body = together ? by_workgroup() : strips ? by_strip() : by_thread();
    for (std::size_t k = 0; k < how_.types.size() && (together || strips); ++k)
      shader_.share(shared(k), how_.types[k], threads_);
    return dispatch_of(kernel_.name, std::move(shader_), bindings_, static_cast<std::uint64_t>(groups), target_);
  }

 private:
  /// Binds the operands, for reading and writing by fours if that is wanted and all of them allow it.
  void bind(bool fours) {
    bindings_ = Bindings(target_, kernel_.name);
    from_.clear(), to_.clear();
    totals_.clear();
    const bool reads = part_ != ScanPart::starts, writes = part_ == ScanPart::whole || part_ == ScanPart::chunks;
    for (const kernel::Operand& operand : kernel_.reads)
      if (reads) from_.push_back(bindings_.add(operand, false));
    for (const kernel::Operand& operand : kernel_.outs)
      if (writes) to_.push_back(bindings_.add(operand, true));
    for (const kernel::Operand& operand : scratch_) {
      totals_.push_back(bindings_.add(operand, !writes));
      bindings_.forbid_vectors(totals_.back());
    }
    fours_ = fours;
    for (const auto& [handles, operands] : {std::pair{&from_, &kernel_.reads}, std::pair{&to_, &kernel_.outs}})
      for (std::size_t k = 0; k < handles->size(); ++k) {
        fours ? bindings_.want_vectors((*handles)[k]) : bindings_.forbid_vectors((*handles)[k]);
        fours_ = fours_ && (*operands)[k].offset % kEach == 0 && (*operands)[k].type != DType::boolean;
      }
    bindings_.resolve();
    for (const std::vector<int>* handles : {&from_, &to_})
      for (const int handle : *handles) fours_ = fours_ && bindings_.has_vectors(handle);
  }
  static std::string shared(std::size_t k) { return fmt::format("part{}", k); }

  /// A value gets another one by a statement for each number.
  Combination combination() {
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

  // Place of element i (text) of the scan that begins at `start`, a stride of `stride` apart.
  std::string place(const std::string& start, const std::string& i) const {
    return fmt::format("{} + {} * {}u", start, position(i), inner_);
  }
  std::string position(const std::string& i) const { return a_.reverse ? fmt::format("({}u - {})", n_ - 1, i) : i; }
  Numbers load(const std::string& at, const std::string& i) const {
    Numbers numbers;
    for (const int from : from_) {
      const std::string value = bindings_.load(from, fmt::format("{} + {}u", at, bindings_.base(from)));
      const bool is_bool = kernel_.reads[numbers.size()].type == DType::boolean;
      numbers.push_back(is_bool ? fmt::format("select(0i, 1i, {})", value) : value);
    }
    if (how_.has_position) numbers.push_back(position(i));
    return numbers;
  }
  void store(const std::string& indent, const std::string& at, const std::string& value) {
    for (std::size_t k = 0; k < to_.size(); ++k)
      line(indent + bindings_.store(to_[k], fmt::format("{} + {}u", at, bindings_.base(to_[k])), result(k, value)));
  }

  /// Variables x<e>_0, x<e>_1 with kEach neighbours of a scan, from element `first` on. Beyond the end they change nothing.
  void declare_fours() {
    for (int e = 0; e < kEach; ++e) declare("  ", fmt::format("x{}_", e), how_.start);
    if (!fours_) {
      for (int e = 0; e < kEach; ++e) {
        const std::string i = fmt::format("(first + {}u)", e);
        line(fmt::format("  if {} < {}u {{", i, n_));
        assign("    ", fmt::format("x{}_", e), load(place("start", i), i));
        line("  }");
      }
      return;
    }
    line(fmt::format("  if (first < {}u) {{", n_));
    for (std::size_t k = 0; k < from_.size(); ++k) {
      line(fmt::format("    let four{} = {};", k, bindings_.load_vector(from_[k], four_at(from_[k]))));
      for (int e = 0; e < kEach; ++e)
        line(
            fmt::format("    x{}_{} = {};", e, k, bindings_.component(from_[k], fmt::format("four{}", k), lane_of(e))));
    }
    if (how_.has_position)
      for (int e = 0; e < kEach; ++e)
        line(fmt::format("    x{}_{} = {};", e, from_.size(), position(fmt::format("(first + {}u)", e))));
    line("  }");
  }
  /// Stores y<e>, results of those elements.
  void store_fours() {
    if (!fours_) {
      for (int e = 0; e < kEach; ++e) {
        const std::string i = fmt::format("(first + {}u)", e);
        line(fmt::format("  if {} < {}u {{", i, n_));
        store("    ", place("start", i), fmt::format("y{}_", e));
        line("  }");
      }
      return;
    }
    line(fmt::format("  if (first < {}u) {{", n_));
    for (std::size_t k = 0; k < to_.size(); ++k) {
      std::string values[kEach];
      for (int e = 0; e < kEach; ++e) values[lane_of(e)] = result(k, fmt::format("y{}_", e));
      line("    " + bindings_.store_vector(to_[k], four_at(to_[k]), values));
    }
    line("  }");
  }
  /// Element `first` of a scan, or in reverse the last of the four.
  std::string four_at(int handle) const {
    const std::string i = a_.reverse ? fmt::format("({}u - first)", n_ - kEach) : "first";
    return fmt::format("start + {} + {}u", i, bindings_.base(handle));
  }
  int lane_of(int e) const { return a_.reverse ? kEach - 1 - e : e; }
  std::string result(std::size_t k, const std::string& value) const {
    const std::string number = value + (how_.gives_second ? "1" : fmt::to_string(k));
    return k == 1 ? fmt::format("bitcast<i32>({})", number) : number;
  }

  void line(const std::string& statement) { text_ += "  " + statement + "\n"; }
  /// Variables NAME0, NAME1 with these numbers.
  void declare(const std::string& indent, const std::string& name, const Numbers& numbers) {
    for (std::size_t k = 0; k < numbers.size(); ++k) line(fmt::format("{}var {}{} = {};", indent, name, k, numbers[k]));
  }
  void assign(const std::string& indent, const std::string& name, const Numbers& numbers) {
    for (std::size_t k = 0; k < numbers.size(); ++k) line(fmt::format("{}{}{} = {};", indent, name, k, numbers[k]));
  }
  /// `to` becomes the combination of `earlier` and `later`, which may be the same variable as `to`.
  void combine(const std::string& indent, const std::string& to, const Numbers& earlier, const Numbers& later) {
    line(indent + "{");
    for (std::size_t k = 0; k < how_.types.size(); ++k) {
      line(fmt::format("{}  let a{} = {};", indent, k, earlier[k]));
      line(fmt::format("{}  let b{} = {};", indent, k, later[k]));
      line(fmt::format("{}  var r{} = {}();", indent, k, how_.types[k]));
    }
    line(indent + "  " + how_.combine);
    for (std::size_t k = 0; k < how_.types.size(); ++k) line(fmt::format("{}  {}{} = r{};", indent, to, k, k));
    line(indent + "}");
  }
  Numbers named(const std::string& name) const {
    Numbers numbers;
    for (std::size_t k = 0; k < how_.types.size(); ++k) numbers.push_back(fmt::format("{}{}", name, k));
    return numbers;
  }
  Numbers parts_at(const std::string& at) const {
    Numbers numbers;
    for (std::size_t k = 0; k < how_.types.size(); ++k) numbers.push_back(fmt::format("${}[{}]", shared(k), at));
    return numbers;
  }
  void put_parts(const std::string& indent, const std::string& name) {
    for (std::size_t k = 0; k < how_.types.size(); ++k)
      line(fmt::format("{}${}[thread] = {}{};", indent, shared(k), name, k));
  }

  std::string by_thread() {
    line(fmt::format("let number = group * {}u + thread;", kThreads));
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

  RenderedDispatch write_part() {
    const Extent groups = part_ == ScanPart::starts ? outer_ : chunks();
    shader_.threads = kThreads;
    shader_.body = part_ == ScanPart::starts ? starts() : by_workgroup();
    for (std::size_t k = 0; k < how_.types.size(); ++k) shader_.share(shared(k), how_.types[k], kThreads);
    const char* name = part_ == ScanPart::totals ? ".totals" : part_ == ScanPart::starts ? ".starts" : "";
    return dispatch_of(kernel_.name + name, std::move(shader_), bindings_, static_cast<std::uint64_t>(groups), target_);
  }
  Numbers totals_at(const std::string& at) const {
    Numbers numbers;
    for (const int total : totals_)
      numbers.push_back(bindings_.load(total, fmt::format("{} + {}u", at, bindings_.base(total))));
    return numbers;
  }
  void put_totals(const std::string& indent, const std::string& at, const std::string& name) {
    for (std::size_t k = 0; k < totals_.size(); ++k)
      line(indent + bindings_.store(totals_[k], fmt::format("{} + {}u", at, bindings_.base(totals_[k])),
                                    fmt::format("{}{}", name, k)));
  }

  /// The totals of the chunks of a scan become what comes before each chunk.
  std::string starts() {
    const Extent count = divide_up(n_, chunk());
    declare("", "carried", how_.start);
    line(fmt::format("for (var stretch = 0u; stretch < {}u; stretch += {}u) {{", count, kThreads));
    line("  let number = stretch + thread;");
    line(fmt::format("  let at = group * {0}u + min(number, {1}u);", count, count - 1));
    declare("  ", "mine", how_.start);
    line(fmt::format("  if (number < {}u) {{", count));
    assign("    ", "mine", totals_at("at"));
    line("  }");
    declare("  ", "sum", how_.start);
    write_sums_before();
    line(fmt::format("  if (number < {}u) {{", count));
    put_totals("    ", "at", "sum");
    line("  }");
    line("}");
    return std::move(text_);
  }

  std::string by_workgroup() {
    const Extent count = divide_up(n_, chunk());
    std::string begin = "0u", end = fmt::format("{}u", n_);
    declare("", "carried", how_.start);
    if (part_ == ScanPart::whole) {
      line(fmt::format("let start = group * {}u;", n_));
    } else {
      line(fmt::format("let start = {} * {}u;", divided("group", count), n_));
      line(fmt::format("let begin = {} * {}u;", modulo("group", count), chunk()));
      line(fmt::format("let end = min(begin + {}u, {}u);", chunk(), n_));
      begin = "begin", end = "end";
      if (part_ == ScanPart::chunks) assign("", "carried", totals_at("group"));
    }
    line(fmt::format("for (var stretch = {}; stretch < {}; stretch += {}u) {{", begin, end, kStretch));
    line(fmt::format("  let first = stretch + thread * {}u;", kEach));
    declare_fours();
    declare("  ", "mine", named("x0_"));
    for (int e = 1; e < kEach; ++e) combine("  ", "mine", named("mine"), named(fmt::format("x{}_", e)));
    declare("  ", "sum", how_.start);
    write_sums_before();
    if (part_ == ScanPart::totals) {
      line("}");
      line("if (thread == 0u) {");
      put_totals("  ", "group", "carried");
      line("}");
      return std::move(text_);
    }
    for (int e = 0; e < kEach; ++e) {
      if (!a_.exclusive) combine("  ", "sum", named("sum"), named(fmt::format("x{}_", e)));
      declare("  ", fmt::format("y{}_", e), named("sum"));
      if (a_.exclusive) combine("  ", "sum", named("sum"), named(fmt::format("x{}_", e)));
    }
    store_fours();
    line("}");
    return std::move(text_);
  }

  /// `sum` becomes what comes before this thread's elements, and `carried` what comes before the next stretch.
  void write_sums_before() {
    const bool subgroups = target_.subgroup_size >= 8 && kThreads % target_.subgroup_size == 0;
    const int parts = subgroups ? kThreads / static_cast<int>(target_.subgroup_size) : kThreads;
    if (subgroups) {
      shader_.subgroups = true;
      line(fmt::format("  let lane = {};", modulo("thread", target_.subgroup_size)));
      for (std::uint32_t by = 1; by < target_.subgroup_size; by *= 2) {
        line("  {");
        for (std::size_t k = 0; k < how_.types.size(); ++k)
          line(fmt::format("    let below{0} = subgroupShuffleUp(mine{0}, {1}u);", k, by));
        line(fmt::format("    if (lane >= {}u) {{", by));
        combine("      ", "mine", named("below"), named("mine"));
        line("    }");
        line("  }");
      }
      for (std::size_t k = 0; k < how_.types.size(); ++k)
        line(fmt::format("  let before{0} = subgroupShuffleUp(mine{0}, 1u);", k));
      line(fmt::format("  let part = {};", divided("thread", target_.subgroup_size)));
      line(fmt::format("  if (lane == {}u) {{", target_.subgroup_size - 1));
      for (std::size_t k = 0; k < how_.types.size(); ++k) line(fmt::format("    ${}[part] = mine{};", shared(k), k));
      line("  }");
      line("  workgroupBarrier();");
      assign("  ", "sum", named("carried"));
      line(fmt::format("  for (var i = 0u; i < {}u; i++) {{", parts));
      line("    if (i == part) {");
      assign("      ", "sum", named("carried"));
      line("    }");
      combine("    ", "carried", named("carried"), parts_at("i"));
      line("  }");
      line("  if (lane > 0u) {");
      combine("    ", "sum", named("sum"), named("before"));
      line("  }");
      line("  workgroupBarrier();");
      return;
    }
    put_parts("  ", "mine");
    line("  workgroupBarrier();");
    line(fmt::format("  for (var by = 1u; by < {}u; by <<= 1u) {{", kThreads));
    declare("    ", "below", how_.start);
    line("    if (thread >= by) {");
    assign("      ", "below", parts_at("thread - by"));
    line("    }");
    line("    workgroupBarrier();");
    combine("    ", "mine", named("below"), named("mine"));
    put_parts("    ", "mine");
    line("    workgroupBarrier();");
    line("  }");
    assign("  ", "sum", named("carried"));
    line("  if (thread > 0u) {");
    combine("    ", "sum", named("carried"), parts_at("thread - 1u"));
    line("  }");
    combine("  ", "carried", named("carried"), parts_at(fmt::format("{}u", kThreads - 1)));
    line("  workgroupBarrier();");
  }

  /// A workgroup takes neighbouring scans, whose elements of one number are neighbours in memory. A thread takes some elements of
  /// one scan, and several threads share a scan.
  std::string by_strip() {
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
    line(fmt::format("  for (var i = 0u; i < {}u; i++) {{", lanes));
    line("    if (i == lane) {");
    assign("      ", "sum", named("carried"));
    line("    }");
    combine("    ", "carried", named("carried"),
            parts_at(fmt::format("i * {}u + {}", kStrip, modulo("thread", kStrip))));
    line("  }");
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

  const kernel::CallKernel& kernel_;
  const Target& target_;
  const graph::ScanAttributes a_;
  const ScanPart part_;
  const std::vector<kernel::Operand> scratch_;  // a value for each chunk
  Bindings bindings_;
  Extent outer_ = 1, n_ = 1, inner_ = 1;
  int threads_ = kThreads;
  bool fours_ = false;  // elements are read and written four at a time
  std::vector<int> from_, to_, totals_;
  std::string type_, text_;
  ShaderPieces shader_;
  Combination how_;
};

}  // namespace

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
