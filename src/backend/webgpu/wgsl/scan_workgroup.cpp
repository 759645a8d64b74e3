// Scans whose elements are neighbours: a workgroup takes a scan, or a chunk of a long one.
#include <fmt/format.h>

#include <utility>

#include "backend/webgpu/wgsl/scan_writer.hpp"

namespace weft::webgpu::scan {

std::string ScanWriter::by_workgroup() {
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

/// The totals of the chunks of a scan become what comes before each chunk.
std::string ScanWriter::starts() {
  const Extent count = divide_up(n_, chunk());
  declare("", "carried", how_.start);
  line(fmt::format("for (var stretch = 0u; stretch < {}u; stretch += {}u) {{", count, kScanThreads));
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

/// `sum` becomes what comes before this thread's elements, and `carried` what comes before the next stretch.
void ScanWriter::write_sums_before() {
  const bool subgroups = target_.subgroup_size >= 8 && kScanThreads % target_.subgroup_size == 0;
  const int parts = subgroups ? kScanThreads / static_cast<int>(target_.subgroup_size) : kScanThreads;
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
    carry_parts(parts, "part", "i");
    line("  if (lane > 0u) {");
    combine("    ", "sum", named("sum"), named("before"));
    line("  }");
    line("  workgroupBarrier();");
    return;
  }
  put_parts("  ", "mine");
  line("  workgroupBarrier();");
  line(fmt::format("  for (var by = 1u; by < {}u; by <<= 1u) {{", kScanThreads));
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
  combine("  ", "carried", named("carried"), parts_at(fmt::format("{}u", kScanThreads - 1)));
  line("  workgroupBarrier();");
}

Numbers ScanWriter::totals_at(const std::string& at) const {
  Numbers numbers;
  for (const int total : totals_)
    numbers.push_back(bindings_.load(total, fmt::format("{} + {}u", at, bindings_.base(total))));
  return numbers;
}

void ScanWriter::put_totals(const std::string& indent, const std::string& at, const std::string& name) {
  for (std::size_t k = 0; k < totals_.size(); ++k)
    line(indent + bindings_.store(totals_[k], fmt::format("{} + {}u", at, bindings_.base(totals_[k])),
                                  fmt::format("{}{}", name, k)));
}

}  // namespace weft::webgpu::scan
