#include "backend/webgpu/wgsl/memory_radix.hpp"

#include <fmt/format.h>

#include <utility>

#include "backend/webgpu/wgsl/scan.hpp"
#include "graph/scan.hpp"

namespace weft::webgpu {
namespace {

constexpr int kRadixThreads = 128, kRadixEach = 16, kRadixBits = 4, kRadixDigits = 1 << kRadixBits;
constexpr Extent kRadixTile = Extent{kRadixThreads} * kRadixEach;

}  // namespace

std::string MemoryRadix::Sorted::key(const std::string& word) const {
  return turned == 32 ? word : fmt::format("({} >> {}u)", word, 32 - turned);
}

MemoryRadix::MemoryRadix(std::string name, Extent lines, Extent n, const Target& target, Scratch& scratch)
    : name_(std::move(name)),
      lines_(lines),
      n_(n),
      tiles_(divide_up(n, kRadixTile)),
      target_(target),
      keys_(scratch.add(DType::u32, lines * n)),
      places_(scratch.add(DType::u32, lines * n)) {}

MemoryRadix::Sorted MemoryRadix::sort(int bits, Scratch& scratch, Rendered& rendered) const {
  Sorted from{keys_, places_}, to{scratch.add(DType::u32, lines_ * n_), scratch.add(DType::u32, lines_ * n_)};
  const Extent counters = lines_ * kRadixDigits * tiles_;
  const kernel::Operand counts = scratch.add(DType::u32, counters), starts = scratch.add(DType::u32, counters);
  for (int sorted = 0; sorted < bits; sorted += kRadixBits) {
    rendered.dispatches.push_back(count_digits(from.keys, counts));
    add_up(counts, starts, scratch, rendered);
    rendered.dispatches.push_back(move(from, starts, to));
    to.turned = from.turned + kRadixBits;
    std::swap(from, to);
  }
  return from;
}

/// Names what the shaders of tiles have in common: `first`, the line's first element, and `begin`, that of this thread in
/// the line.
void MemoryRadix::begin_tile(SortShader& s) const {
  s.pieces.threads = kRadixThreads;
  s.line(fmt::format("let line = {};", divided("group", tiles_)));
  s.line(fmt::format("let tile = {};", modulo("group", tiles_)));
  s.line(fmt::format("let first = line * {}u;", n_));
  s.line(fmt::format("let begin = tile * {}u + thread * {}u;", kRadixTile, kRadixEach));
  s.line(fmt::format("let end = min(begin + {}u, {}u);", kRadixEach, n_));
}

std::string MemoryRadix::counter(const std::string& digit) const {
  return fmt::format("(line * {}u + {}) * {}u + tile", kRadixDigits, digit, tiles_);
}

/// How many keys of each tile have each digit; the tiles of a digit are neighbours.
RenderedDispatch MemoryRadix::count_digits(const kernel::Operand& keys, const kernel::Operand& counts) const {
  SortShader s(target_, name_);
  const int from = s.read(keys), to = s.write(counts);
  s.resolve();
  s.pieces.share("digits", "atomic<u32>", kRadixDigits);
  begin_tile(s);
  s.line(fmt::format("if (thread < {}u) {{ atomicStore(&$digits[thread], 0u); }}", kRadixDigits));
  s.line("workgroupBarrier();");
  s.line(fmt::format("for (var i = begin; i < end; i++) {{ atomicAdd(&$digits[{} & {}u], 1u); }}",
                     s.at(from, "first + i"), kRadixDigits - 1));
  s.line("workgroupBarrier();");
  s.line(fmt::format("if (thread < {}u) {{", kRadixDigits));
  s.line("  " + s.put(to, counter("thread"), "atomicLoad(&$digits[thread])"));
  s.line("}");
  return s.dispatch(name_ + ".count", lines_ * tiles_);
}

/// Where the keys of a tile with a digit begin in their line.
void MemoryRadix::add_up(const kernel::Operand& counts, const kernel::Operand& starts, Scratch& scratch,
                         Rendered& rendered) const {
  const Shape shape{lines_, kRadixDigits * tiles_};
  const kernel::CallKernel sums{
      .name = name_ + ".starts",
      .op = &graph::cumsum_row(),
      .reads = {counts},
      .shapes = {shape},
      .types = {DType::u32},
      .out_types = {DType::u32},
      .outs = {starts},
      .out_shapes = {shape},
      .attributes = graph::words_of(graph::cumsum_row().attributes, graph::ScanAttributes{-1, true, false})};
  render_scan(sums, target_, scratch, rendered);
}

/// Every thread takes neighbouring keys. It counts its digits in workgroup memory; added up digit by digit, and thread by
/// thread below that, these counts say where each key goes, in the order of positions.
RenderedDispatch MemoryRadix::move(const Sorted& before, const kernel::Operand& starts, const Sorted& after) const {
  SortShader s(target_, name_);
  const int from = s.read(before.keys), from_place = s.read(before.places), start = s.read(starts),
            to = s.write(after.keys), to_place = s.write(after.places);
  s.resolve();
  s.pieces.share("counts", "u32", Extent{kRadixDigits} * kRadixThreads);
  s.pieces.share("sums", "u32", kRadixThreads);
  s.pieces.share("shift", "u32", kRadixDigits);
  begin_tile(s);
  s.line(
      fmt::format("for (var d = 0u; d < {}u; d++) {{ $counts[d * {}u + thread] = 0u; }}", kRadixDigits, kRadixThreads));
  s.line(fmt::format("for (var i = begin; i < end; i++) {{ $counts[({} & {}u) * {}u + thread] += 1u; }}",
                     s.at(from, "first + i"), kRadixDigits - 1, kRadixThreads));
  s.line("workgroupBarrier();");
  s.line("var mine = 0u;");
  s.line(fmt::format("for (var j = thread * {0}u; j < thread * {0}u + {0}u; j++) {{ mine += $counts[j]; }}",
                     kRadixDigits));
  s.line("$sums[thread] = mine;");
  s.line("workgroupBarrier();");
  s.line(fmt::format("for (var by = 1u; by < {}u; by <<= 1u) {{", kRadixThreads));
  s.line("  var below = 0u;");
  s.line("  if (thread >= by) { below = $sums[thread - by]; }");
  s.line("  workgroupBarrier();");
  s.line("  $sums[thread] += below;");
  s.line("  workgroupBarrier();");
  s.line("}");
  s.line("var sum = $sums[thread] - mine;");
  s.line(fmt::format("for (var j = thread * {0}u; j < thread * {0}u + {0}u; j++) {{", kRadixDigits));
  s.line("  let count = $counts[j];");
  s.line("  $counts[j] = sum;");
  s.line("  sum += count;");
  s.line("}");
  s.line("workgroupBarrier();");
  s.line(fmt::format("if (thread < {}u) {{", kRadixDigits));
  s.line(fmt::format("  $shift[thread] = {} - $counts[thread * {}u];", s.at(start, counter("thread")), kRadixThreads));
  s.line("}");
  s.line("workgroupBarrier();");
  s.line("for (var i = begin; i < end; i++) {");
  s.line(fmt::format("  let key = {};", s.at(from, "first + i")));
  s.line(fmt::format("  let digit = key & {}u;", kRadixDigits - 1));
  s.line(fmt::format("  let slot = digit * {}u + thread;", kRadixThreads));
  s.line("  let at = first + $counts[slot] + $shift[digit];");
  s.line("  $counts[slot] += 1u;");
  s.line("  " + s.put(to, "at", fmt::format("(key >> {}u) | (key << {}u)", kRadixBits, 32 - kRadixBits)));
  s.line("  " + s.put(to_place, "at", s.at(from_place, "first + i")));
  s.line("}");
  return s.dispatch(name_ + ".move", lines_ * tiles_);
}

}  // namespace weft::webgpu
