#include "backend/webgpu/wgsl/sort_lines.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "backend/webgpu/wgsl/line_radix.hpp"
#include "backend/webgpu/wgsl/sort_shader.hpp"

namespace weft::webgpu {
namespace {

constexpr Extent kExchangedMost = 1024;  // elements of a line that is sorted by exchanges
constexpr int kExchangeThreads = 256;

/// Bitonic sorts of lines side by side, padded with largest keys at positions beyond all others.
RenderedDispatch sort_by_exchanges(const kernel::CallKernel& kernel, const SortedLines& sorted, const Target& target) {
  const auto padded = static_cast<Extent>(std::bit_ceil(static_cast<std::uint64_t>(sorted.n)));
  const Extent tile = std::max<Extent>(padded, 2 * kExchangeThreads), of_tile = tile / padded;
  SortShader s(target, kernel.name);
  s.pieces.threads = kExchangeThreads;
  const int x = s.read(kernel.reads[0]), values = s.write(kernel.outs[0]), positions = s.write(kernel.outs[1]);
  s.resolve();
  s.pieces.share("keys", "u32", tile);
  s.pieces.share("places", "u32", tile);
  s.line(fmt::format("for (var e = thread; e < {}u; e += {}u) {{", tile, kExchangeThreads));
  s.line(fmt::format("  let line = group * {}u + {};", of_tile, divided("e", padded)));
  s.line(fmt::format("  let i = {};", modulo("e", padded)));
  s.line("  $keys[e] = 0xffffffffu;");
  s.line("  $places[e] = i;");
  s.line(fmt::format("  if (line < {}u && i < {}u) {{", sorted.lines, sorted.n));
  s.line(fmt::format("    let x = {};", s.at(x, fmt::format("line * {}u + i", sorted.n))));
  s.line(fmt::format("    $keys[e] = {};", sorted.key("x", s.pieces.helpers)));
  s.line("  }");
  s.line("}");
  s.line("workgroupBarrier();");
  s.line(fmt::format("for (var size = 2u; size <= {}u; size <<= 1u) {{", padded));
  s.line("  for (var by = size >> 1u; by > 0u; by >>= 1u) {");
  s.line(fmt::format("    for (var e = thread; e < {}u; e += {}u) {{", tile / 2, kExchangeThreads));
  s.line("      let a = ((e & ~(by - 1u)) << 1u) | (e & (by - 1u));");
  s.line("      let b = a | by;");
  s.line("      let key_a = $keys[a];");
  s.line("      let key_b = $keys[b];");
  s.line("      let place_a = $places[a];");
  s.line("      let place_b = $places[b];");
  s.line("      let after = key_a > key_b || (key_a == key_b && place_a > place_b);");
  s.line(fmt::format("      let upwards = (a & {}u & size) == 0u;", padded - 1));
  s.line("      if (after == upwards) {");
  s.line("        $keys[a] = key_b;");
  s.line("        $keys[b] = key_a;");
  s.line("        $places[a] = place_b;");
  s.line("        $places[b] = place_a;");
  s.line("      }");
  s.line("    }");
  s.line("    workgroupBarrier();");
  s.line("  }");
  s.line("}");
  s.line(fmt::format("for (var e = thread; e < {}u; e += {}u) {{", of_tile * sorted.count, kExchangeThreads));
  s.line(fmt::format("  let line = group * {}u + {};", of_tile, divided("e", sorted.count)));
  s.line(fmt::format("  if (line < {}u) {{", sorted.lines));
  s.line(fmt::format("    let rank = {};", modulo("e", sorted.count)));
  s.line(fmt::format("    let place = $places[{} * {}u + rank + {}u];", divided("e", sorted.count), padded,
                     sorted.a.first));
  s.line(fmt::format("    let to = line * {}u + rank;", sorted.count));
  s.line("    " + s.put(values, "to", s.at(x, fmt::format("line * {}u + place", sorted.n))));
  s.line("    " + s.put(positions, "to", "bitcast<i32>(place)"));
  s.line("  }");
  s.line("}");
  return s.dispatch(kernel.name, divide_up(sorted.lines, of_tile));
}

/// A sort by radix of one line a workgroup.
RenderedDispatch sort_by_radix(const kernel::CallKernel& kernel, const SortedLines& sorted, const Target& target,
                               int threads) {
  SortShader s(target, kernel.name);
  const int x = s.read(kernel.reads[0]), values = s.write(kernel.outs[0]), positions = s.write(kernel.outs[1]);
  s.resolve();
  LineRadix radix(s, target, threads);
  s.line(fmt::format("let first = group * {}u;", sorted.n));
  // Elements beyond the line come last: they have the largest key, and places behind all others.
  s.line(fmt::format("for (var e = thread; e < {}u; e += {}u) {{", radix.words(), threads));
  s.line("  var k = 0xffffffffu;");
  s.line(fmt::format("  if (e < {}u) {{", sorted.n));
  s.line(fmt::format("    let x = {};", s.at(x, "first + e")));
  s.line(fmt::format("    k = {};", sorted.key("x", s.pieces.helpers)));
  s.line("  }");
  s.line(fmt::format("  {} = k;", LineRadix::word("e")));
  s.line("}");
  s.line("workgroupBarrier();");
  radix.write(0, 32);
  s.line("workgroupBarrier();");
  s.line(fmt::format("for (var e = thread; e < {}u; e += {}u) {{", sorted.count, threads));
  s.line(fmt::format("  let taken = {};", LineRadix::word(fmt::format("(e + {}u)", sorted.a.first))));
  s.line(fmt::format("  let to = group * {}u + e;", sorted.count));
  s.line("  " + s.put(values, "to", s.at(x, "first + taken")));
  s.line("  " + s.put(positions, "to", "bitcast<i32>(taken)"));
  s.line("}");
  return s.dispatch(kernel.name, sorted.lines);
}

}  // namespace

std::optional<RenderedDispatch> sort_lines(const kernel::CallKernel& kernel, const Target& target) {
  const SortedLines sorted(kernel);
  if (sorted.n <= kExchangedMost) return sort_by_exchanges(kernel, sorted, target);
  const std::optional<int> threads = LineRadix::threads_for(sorted.n, target);
  if (!threads) return {};
  return sort_by_radix(kernel, sorted, target, *threads);
}

}  // namespace weft::webgpu
