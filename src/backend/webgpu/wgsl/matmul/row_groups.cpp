#include "backend/webgpu/wgsl/matmul/row_groups.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace weft::webgpu {
using kernel::Operand;

namespace {

constexpr int kOrderThreads = 256;

/// The text of a kernel of one workgroup that writes an order. `$counts` and `$starts` have a number for each group: its rows,
/// and its first slot.
class OrderWriter {
 public:
  OrderWriter(const std::string& name, const Operand& from, const RowGroups& groups, const Target& target)
      : name_(name), groups_(groups), target_(target), bindings_(target, name) {
    from_ = bindings_.add(from, false);
    to_ = bindings_.add(groups.order, true);
    bindings_.resolve();
  }

  void line(const std::string& text) { body_ += "  " + text + "\n"; }
  std::string load(const std::string& at) const {
    return bindings_.load(from_, fmt::format("{} + {}u", at, bindings_.base(from_)));
  }
  std::string put(const std::string& at, const std::string& value) const {
    return bindings_.store(to_, fmt::format("{} + {}u", at, bindings_.base(to_)), value);
  }
  void each(const char* variable, Extent count, auto work) {
    line(fmt::format("for (var {0} = thread; {0} < {1}u; {0} += {2}u) {{", variable, count, kOrderThreads));
    work();
    line("}");
  }

  /// From `$counts`: `$starts`, the groups of tiles, and the empty slots at the ends of groups.
  void write_tiles() {
    const int tile = groups_.tile;
    line("if (thread == 0u) {");
    line("  var at = 0u;");
    line(fmt::format("  for (var g = 0u; g < {}u; g++) {{", groups_.groups));
    line("    $starts[g] = at;");
    line(fmt::format("    at += (atomicLoad(&$counts[g]) + {}u) / {}u * {}u;", tile - 1, tile, tile));
    line("  }");
    line(fmt::format("  $starts[{}] = at;", groups_.groups));
    line("}");
    line("workgroupBarrier();");
    each("g", groups_.groups, [&] {
      line("  let start = $starts[g]; let end = $starts[g + 1u]; let count = atomicLoad(&$counts[g]);");
      line(fmt::format("  for (var slot = start; slot < end; slot += {}u) {{ {} }}", tile,
                       put(fmt::format("(slot / {}u + {}u)", tile, groups_.slots()), "g")));
      line(fmt::format("  for (var slot = start + count; slot < end; slot++) {{ {} }}",
                       put("slot", fmt::format("{}u", RowGroups::kEmpty))));
    });
    line(fmt::format("for (var t = $starts[{}] / {}u + thread; t < {}u; t += {}u) {{", groups_.groups, tile,
                     groups_.tiles, kOrderThreads));
    line("  " + put(fmt::format("(t + {}u)", groups_.slots()), fmt::format("{}u", RowGroups::kEmpty)));
    line("}");
  }

  RenderedDispatch finish() {
    ShaderPieces shader{.threads = kOrderThreads, .body = std::move(body_)};
    shader.share("counts", "atomic<u32>", groups_.groups);
    shader.share("starts", "u32", groups_.groups + 1);
    return dispatch_of(name_ + ".order", std::move(shader), bindings_, 1, target_);
  }

 private:
  const std::string& name_;
  const RowGroups& groups_;
  const Target& target_;
  Bindings bindings_;
  int from_ = -1, to_ = -1;
  std::string body_;
};

}  // namespace

RowGroups::RowGroups(Extent rows_of_c, Extent groups_in_all, int rows_of_tile, Extent rows_of_c_together,
                     Scratch& scratch)
    : rows(rows_of_c),
      groups(groups_in_all),
      tile(rows_of_tile),
      share(rows_of_c_together),
      tiles(rows_of_c / rows_of_tile + std::min(rows_of_c, groups_in_all)),
      count(groups_in_all),
      order(scratch.add(DType::u32, tiles * (rows_of_tile + 1))) {}

void declare_row_groups(const RowGroups& groups, int order, const Bindings& bindings, ShaderPieces& shader) {
  const std::string entry = bindings.load(order, fmt::format("at + {}u", bindings.base(order)));
  shader.functions.push_back({"slot_entry", fmt::format("(at: u32) -> u32 {{ return {}; }}\n", entry)});
  const std::string row = fmt::format("min($slot_entry(slot) & {}u, {}u)", ~RowGroups::kOfNoGroup, groups.rows - 1);
  shader.functions.push_back(
      {"row_at", fmt::format("(slot: u32) -> u32 {{ return {}; }}\n", divided(row, groups.share))});
  shader.share("shared_group", "u32", 1);
}

std::string group_of_tile(const RowGroups& groups, const std::string& tile, const char* number) {
  // Through workgroup memory, because compilers must assume that a buffer read may differ between threads.
  return fmt::format(
      "  if (thread == 0u) {{ $shared_group[0] = $slot_entry({}u + {}) - {}u; }}\n"
      "  let {} = workgroupUniformLoad(&$shared_group[0]);\n"
      "  if ({} >= {}u) {{ return; }}\n",
      groups.slots(), tile, groups.first, number, number, groups.count);
}

bool can_order(Extent groups, const Target& target) {
  return (2 * groups + 1) * 4 <= static_cast<Extent>(target.limits.workgroup_bytes);
}

RenderedDispatch order_by_group(const std::string& name, const Operand& of_row, const RowGroups& groups,
                                const Target& target) {
  OrderWriter w(name, of_row, groups, target);
  const auto group_of_row = [&] {
    w.line(fmt::format("  let given = bitcast<u32>({});", w.load("i")));
    w.line(fmt::format("  let g = min(given, {}u);", groups.groups - 1));
  };
  w.each("g", groups.groups, [&] { w.line("  atomicStore(&$counts[g], 0u);"); });
  w.line("workgroupBarrier();");
  w.each("i", groups.rows, [&] {
    group_of_row();
    w.line("  atomicAdd(&$counts[g], 1u);");
  });
  w.line("workgroupBarrier();");
  w.write_tiles();
  w.line("workgroupBarrier();");
  w.each("g", groups.groups, [&] { w.line("  atomicStore(&$counts[g], 0u);"); });
  w.line("workgroupBarrier();");
  // Rows of a group come in any order: no row's sums depend on its slot.
  w.each("i", groups.rows, [&] {
    group_of_row();
    w.line("  let slot = $starts[g] + atomicAdd(&$counts[g], 1u);");
    w.line("  " + w.put("slot", fmt::format("(i | select({}u, 0u, given == g))", RowGroups::kOfNoGroup)));
  });
  return w.finish();
}

RenderedDispatch order_by_ends(const std::string& name, const Operand& ends, const RowGroups& groups,
                               const Target& target) {
  OrderWriter w(name, ends, groups, target);
  w.line("if (thread == 0u) {");
  w.line("  var first = 0u;");
  w.line(fmt::format("  for (var g = 0u; g < {}u; g++) {{", groups.groups));
  w.line(fmt::format("    let last = u32(clamp({}, i32(first), {}));", w.load("g"), groups.rows));
  w.line("    atomicStore(&$counts[g], last - first);");
  w.line("    first = last;");
  w.line("  }");
  // Rows after the last end are with those of the last group.
  w.line("  $starts[0] = first;");
  w.line(fmt::format("  atomicAdd(&$counts[{}], {}u - first);", groups.groups - 1, groups.rows));
  w.line("}");
  w.line("workgroupBarrier();");
  w.line("let in_groups = $starts[0];");
  w.line("workgroupBarrier();");
  w.write_tiles();
  w.line("workgroupBarrier();");
  // The first row of each group.
  w.line("if (thread == 0u) {");
  w.line("  var first = 0u;");
  w.line(fmt::format("  for (var g = 0u; g < {}u; g++) {{", groups.groups));
  w.line("    let count = atomicLoad(&$counts[g]);");
  w.line("    atomicStore(&$counts[g], first);");
  w.line("    first += count;");
  w.line("  }");
  w.line("}");
  w.line("workgroupBarrier();");
  // The group of a row: the last one that does not begin after it.
  w.each("i", groups.rows, [&] {
    w.line(fmt::format("  var low = 0u; var high = {}u;", groups.groups));
    w.line("  while (high - low > 1u) {");
    w.line("    let middle = (low + high) / 2u;");
    w.line("    if (atomicLoad(&$counts[middle]) <= i) { low = middle; } else { high = middle; }");
    w.line("  }");
    w.line("  " + w.put("$starts[low] + i - atomicLoad(&$counts[low])",
                        fmt::format("(i | select(0u, {}u, i >= in_groups))", RowGroups::kOfNoGroup)));
  });
  return w.finish();
}

}  // namespace weft::webgpu
