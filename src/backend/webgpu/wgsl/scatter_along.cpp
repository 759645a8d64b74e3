#include "backend/webgpu/wgsl/scatter_along.hpp"

#include <fmt/format.h>

#include <bit>
#include <optional>
#include <utility>

#include "backend/webgpu/wgsl/axis_lines.hpp"
#include "backend/webgpu/wgsl/line_radix.hpp"
#include "backend/webgpu/wgsl/scalar.hpp"
#include "backend/webgpu/wgsl/scatter_radix.hpp"
#include "backend/webgpu/wgsl/turned_lines.hpp"
#include "compile/call_attributes.hpp"
#include "graph/scatter.hpp"

namespace weft::webgpu {
namespace {

constexpr Extent kSortedLeast = 256;  // updates of a line that are sorted
constexpr Extent kLinesBusy = 16;     // lines side by side for each compute unit, of which threads take one each
constexpr int kBlock = LineRadix::kLineEach;  // updates of a place that a thread adds up, twice as many at most

/// The threads of a workgroup that sorts the updates of a row; nothing if it does not fit, or is short. A word has the place above
/// the update's number. Places beyond the last are those of updates that are dropped.
constexpr int kNumberBits = std::bit_width(static_cast<std::uint64_t>(LineRadix::kWordsMost)) - 1;
int place_bits(const AxisLines& along) { return std::bit_width(static_cast<std::uint64_t>(along.extent)); }
std::optional<int> threads_of_row(const AxisLines& along, const Target& target) {
  if (along.taken < kSortedLeast || place_bits(along) > 32 - kNumberBits) return {};
  return LineRadix::threads_for(along.taken, target);
}

/// The dispatch for rows: a workgroup sorts the updates of a row by their places, and by their own order below that. Then the
/// thread of the first update of a place adds up all of them, but if there are many, threads add up parts, which are joined in
/// order. Nothing if rows do not fit.
std::optional<RenderedDispatch> scatter_sorted_rows(const kernel::CallKernel& kernel, const AxisLines& along,
                                                    const Target& target) {
  if (along.inner != 1) return {};
  const std::optional<int> threads = threads_of_row(along, target);
  if (!threads) return {};
  SortShader s(target, kernel.name);
  const int indices = s.read(kernel.reads[0]), updates = s.read(kernel.reads[1]), out = s.write(kernel.out());
  s.resolve();
  LineRadix radix(s, target, *threads, false);
  const std::string type(wgsl_type(kernel.out().type));
  s.line(fmt::format("let first = group * {}u;", along.taken));
  s.line(fmt::format("let row = group * {}u;", along.extent));
  s.line(fmt::format("for (var r = thread; r < {}u; r += {}u) {{", along.extent, *threads));
  s.line("  " + s.put(out, "row + r", type + "()"));
  s.line("}");
  s.line(fmt::format("for (var t = thread; t < {}u; t += {}u) {{", radix.words(), *threads));
  s.line(fmt::format("  var r = {}u;", along.extent));
  s.line(fmt::format("  if (t < {0}u) {{ r = min({1}, {2}u); }}", along.taken,
                     as_place(kernel.reads[0], s.at(indices, "first + t")), along.extent));
  s.line(fmt::format("  {} = (r << {}u) | t;", LineRadix::word("t"), kNumberBits));
  s.line("}");
  s.line("workgroupBarrier();");
  radix.write(kNumberBits, place_bits(along));
  s.line("storageBarrier();");  // zeros come before sums
  s.line("workgroupBarrier();");
  const auto place = [&](const std::string& at) {
    return fmt::format("({} >> {}u)", LineRadix::word(at), kNumberBits);
  };
  // A thread adds up a part of a place's updates: to the first block of words that begins a block or more behind the first update,
  // or from there to the next block. So short runs are one part.
  const auto continues = [&](const std::string& block) {  // of a block: whether a part of place `r` begins there
    return fmt::format("({0} * {1}u < {2}u && {3} == r && {4} == r)", block, kBlock, along.taken,
                       place(fmt::format("({} * {}u)", block, kBlock)),
                       place(fmt::format("({} * {}u - {}u)", block, kBlock, kBlock)));
  };
  s.line(fmt::format("for (var e = thread; e < {}u; e += {}u) {{", along.taken, *threads));
  s.line(fmt::format("  let r = {};", place("e")));
  s.line(fmt::format("  let is_first = e == 0u || {} != r;", place("(e - 1u)")));
  s.line(fmt::format("  let is_later = e % {0}u == 0u && e >= {0}u && {1} == r;", kBlock,
                     place(fmt::format("(e - {}u)", kBlock))));
  s.line(fmt::format("  if (r == {}u || !(is_first || is_later)) {{ continue; }}", along.extent));
  s.line(fmt::format("  var sum = {}();", type));
  s.line(fmt::format("  let end = min({0}u, (e + {1}u) / {2}u * {2}u + {2}u);", along.taken, kBlock - 1, kBlock));
  s.line("  for (var i = e; i < end; i++) {");
  s.line(fmt::format("    let update = {};", LineRadix::word("i")));
  s.line(fmt::format("    if ((update >> {}u) != r) {{ break; }}", kNumberBits));
  s.line(
      fmt::format("    sum += {};", s.at(updates, fmt::format("first + (update & {}u)", LineRadix::kWordsMost - 1))));
  s.line("  }");
  s.line(fmt::format("  if (is_first) {{ {} }}", s.put(out, "row + r", "sum")));
  s.line(
      fmt::format("  if (!is_first) {{ {} = bitcast<u32>(sum); }}", LineRadix::sum(fmt::format("(e / {}u)", kBlock))));
  s.line("}");
  // The thread of a place's first later part adds the later ones to it, in order.
  s.line("storageBarrier();");
  s.line("workgroupBarrier();");
  s.line("if (thread > 0u) {");
  s.line(fmt::format("  let r = {};", place(fmt::format("(thread * {}u)", kBlock))));
  s.line(fmt::format("  let is_second = thread < 2u || {} != r;", place(fmt::format("((thread - 2u) * {}u)", kBlock))));
  s.line(fmt::format("  if (r != {}u && is_second && {}) {{", along.extent, continues("thread")));
  s.line(fmt::format("    var sum = {};", s.at(out, "row + r")));
  s.line(fmt::format("    for (var block = thread; block < {}u && {}; block++) {{", *threads, continues("block")));
  s.line(fmt::format("      sum += bitcast<{}>({});", type, LineRadix::sum("block")));
  s.line("    }");
  s.line("    " + s.put(out, "row + r", "sum"));
  s.line("  }");
  s.line("}");
  return s.dispatch(kernel.name, along.outer);
}

}  // namespace

void render_scatter_along(const kernel::CallKernel& kernel, const Target& target, Scratch& scratch,
                          Rendered& rendered) {
  if (kernel.shape().numel() == 0) return;
  constexpr int kThreads = 64;  // of a workgroup: a line each
  const auto a = kernel::attributes_of<graph::ScatterAlongAttributes>(kernel);
  const AxisLines along = axis_lines(kernel.shape(), a.axis, kernel.shapes[0]);
  if (std::optional<RenderedDispatch> dispatch = scatter_sorted_rows(kernel, along, target)) {
    rendered.dispatches.push_back(std::move(*dispatch));
    return;
  }
  if (can_turn(along) && threads_of_row(along, target))
    return render_turned_lines(kernel, along, target, scratch, rendered, render_scatter_along);
  const auto [outer, extent, inner, taken] = along;
  const Extent lines = outer * inner;
  // Threads that take a line each would read elements far apart, or leave most of the device idle.
  if (taken >= kSortedLeast && (inner == 1 || lines < kLinesBusy * Extent{target.profile.compute_units})) {
    const LineSums sums{kernel.name, kernel.reads[0], kernel.reads[1], kernel.out(), along};
    return render_sorted_sums(sums, target, scratch, rendered);
  }
  Bindings bindings(target, kernel.name);
  const bool reads = taken > 0;
  const int indices = reads ? bindings.add(kernel.reads[0], false) : -1;
  const int updates = reads ? bindings.add(kernel.reads[1], false) : -1;
  const int out = bindings.add(kernel.out(), true);
  bindings.forbid_vectors(out);
  bindings.resolve();
  const auto place = [&](int handle, const std::string& at) {
    return fmt::format("{} + {}u", at, bindings.base(handle));
  };
  std::string body;
  const auto line = [&](const std::string& statement) { body += "  " + statement + "\n"; };
  line(fmt::format("let number = group * {}u + thread;", kThreads));
  line(fmt::format("if (number < {}u) {{", lines));
  line(fmt::format("  let before = {};", divided("number", inner)));
  line(fmt::format("  let after = {};", modulo("number", inner)));
  line(fmt::format("  let to = before * {}u + after;", extent * inner));
  line(fmt::format("  for (var r = 0u; r < {}u; r++) {{ {} }}", extent,
                   bindings.store(out, place(out, fmt::format("to + r * {}u", inner)),
                                  fmt::format("{}()", wgsl_type(kernel.out().type)))));
  if (reads) {
    line(fmt::format("  for (var t = 0u; t < {}u; t++) {{", taken));
    line(fmt::format("    let at = before * {}u + t * {}u + after;", taken * inner, inner));
    const std::string index = bindings.load(indices, place(indices, "at"));
    line(fmt::format("    let r = {};", as_place(kernel.reads[0], index)));
    line(fmt::format("    if (r < {}u) {{", extent));
    const std::string target_at = place(out, fmt::format("to + r * {}u", inner));
    line("      " + bindings.store(out, target_at,
                                   fmt::format("{} + {}", bindings.load(out, target_at),
                                               bindings.load(updates, place(updates, "at")))));
    line("    }");
    line("  }");
  }
  line("}");
  const auto groups = static_cast<std::uint64_t>(divide_up(lines, kThreads));
  ShaderPieces shader{.threads = kThreads, .body = std::move(body)};
  rendered.dispatches.push_back(dispatch_of(kernel.name, std::move(shader), bindings, groups, target));
}

}  // namespace weft::webgpu
