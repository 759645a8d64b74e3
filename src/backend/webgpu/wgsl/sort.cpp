#include "backend/webgpu/wgsl/sort.hpp"

#include <fmt/format.h>

#include <optional>
#include <utility>

#include "backend/webgpu/wgsl/scan.hpp"
#include "backend/webgpu/wgsl/sort_lines.hpp"
#include "backend/webgpu/wgsl/sort_shader.hpp"
#include "graph/scan.hpp"

namespace weft::webgpu {
namespace {

constexpr int kSortThreads = 256;
constexpr int kRadixThreads = 128, kRadixEach = 16, kRadixBits = 4, kRadixDigits = 1 << kRadixBits;
constexpr Extent kRadixTile = Extent{kRadixThreads} * kRadixEach;

class SortWriter {
 public:
  SortWriter(const kernel::CallKernel& kernel, const Target& target)
      : kernel_(kernel),
        target_(target),
        sorted_(kernel),
        n_(sorted_.n),
        count_(sorted_.count),
        lines_(sorted_.lines) {}

  void write(Scratch& scratch, Rendered& rendered) {
    tiles_ = divide_up(n_, kRadixTile);
    kernel::Operand keys = scratch.add(DType::u32, lines_ * n_), places = scratch.add(DType::u32, lines_ * n_);
    kernel::Operand to_keys = scratch.add(DType::u32, lines_ * n_), to_places = scratch.add(DType::u32, lines_ * n_);
    const Extent counters = kRadixDigits * tiles_;
    const kernel::Operand counts = scratch.add(DType::u32, lines_ * counters),
                          starts = scratch.add(DType::u32, lines_ * counters);
    rendered.dispatches.push_back(keys_of(keys, places));
    for (int pass = 0; pass < 32 / kRadixBits; ++pass) {
      rendered.dispatches.push_back(count_digits(keys, counts));
      add_up(counts, starts, counters, scratch, rendered);
      rendered.dispatches.push_back(move(keys, places, starts, to_keys, to_places));
      std::swap(keys, to_keys);
      std::swap(places, to_places);
    }
    rendered.dispatches.push_back(results(places));
  }

 private:
  RenderedDispatch keys_of(const kernel::Operand& keys, const kernel::Operand& places) {
    SortShader s(target_, kernel_.name);
    s.pieces.threads = kSortThreads;
    const int x = s.read(kernel_.reads[0]), to = s.write(keys), to_place = s.write(places);
    s.resolve();
    s.line(fmt::format("let i = group * {}u + thread;", kSortThreads));
    s.line(fmt::format("if (i < {}u) {{", lines_ * n_));
    s.line(fmt::format("  let x = {};", s.at(x, "i")));
    s.line("  " + s.put(to, "i", sorted_.key("x", s.pieces.helpers)));
    s.line("  " + s.put(to_place, "i", modulo("i", n_)));
    s.line("}");
    return s.dispatch(kernel_.name + ".keys", divide_up(lines_ * n_, kSortThreads));
  }

  /// Names what the shaders of tiles have in common: `first`, the line's first element, and `begin`, that of this thread in
  /// the line.
  void begin_tile(SortShader& s) const {
    s.pieces.threads = kRadixThreads;
    s.line(fmt::format("let line = {};", divided("group", tiles_)));
    s.line(fmt::format("let tile = {};", modulo("group", tiles_)));
    s.line(fmt::format("let first = line * {}u;", n_));
    s.line(fmt::format("let begin = tile * {}u + thread * {}u;", kRadixTile, kRadixEach));
    s.line(fmt::format("let end = min(begin + {}u, {}u);", kRadixEach, n_));
  }
  std::string counter(const std::string& digit) const {
    return fmt::format("(line * {}u + {}) * {}u + tile", kRadixDigits, digit, tiles_);
  }

  /// How many keys of each tile have each digit; the tiles of a digit are neighbours.
  RenderedDispatch count_digits(const kernel::Operand& keys, const kernel::Operand& counts) {
    SortShader s(target_, kernel_.name);
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
    return s.dispatch(kernel_.name + ".count", lines_ * tiles_);
  }

  /// Where the keys of a tile with a digit begin in their line.
  void add_up(const kernel::Operand& counts, const kernel::Operand& starts, Extent counters, Scratch& scratch,
              Rendered& rendered) const {
    const Shape shape{lines_, counters};
    const kernel::CallKernel sums{
        .name = kernel_.name + ".starts",
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
  RenderedDispatch move(const kernel::Operand& keys, const kernel::Operand& places, const kernel::Operand& starts,
                        const kernel::Operand& to_keys, const kernel::Operand& to_places) {
    SortShader s(target_, kernel_.name);
    const int from = s.read(keys), from_place = s.read(places), start = s.read(starts), to = s.write(to_keys),
              to_place = s.write(to_places);
    s.resolve();
    s.pieces.share("counts", "u32", Extent{kRadixDigits} * kRadixThreads);
    s.pieces.share("sums", "u32", kRadixThreads);
    s.pieces.share("shift", "u32", kRadixDigits);
    begin_tile(s);
    s.line(fmt::format("for (var d = 0u; d < {}u; d++) {{ $counts[d * {}u + thread] = 0u; }}", kRadixDigits,
                       kRadixThreads));
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
    s.line(
        fmt::format("  $shift[thread] = {} - $counts[thread * {}u];", s.at(start, counter("thread")), kRadixThreads));
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
    return s.dispatch(kernel_.name + ".move", lines_ * tiles_);
  }

  RenderedDispatch results(const kernel::Operand& places) {
    SortShader s(target_, kernel_.name);
    s.pieces.threads = kSortThreads;
    const int x = s.read(kernel_.reads[0]), from = s.read(places), values = s.write(kernel_.outs[0]),
              positions = s.write(kernel_.outs[1]);
    s.resolve();
    s.line(fmt::format("let i = group * {}u + thread;", kSortThreads));
    s.line(fmt::format("if (i < {}u) {{", lines_ * count_));
    s.line(fmt::format("  let first = {} * {}u;", divided("i", count_), n_));
    s.line(fmt::format("  let place = {};",
                       s.at(from, fmt::format("first + {} + {}u", modulo("i", count_), sorted_.a.first))));
    s.line("  " + s.put(values, "i", s.at(x, "first + place")));
    s.line("  " + s.put(positions, "i", "bitcast<i32>(place)"));
    s.line("}");
    return s.dispatch(kernel_.name + ".results", divide_up(lines_ * count_, kSortThreads));
  }

  const kernel::CallKernel& kernel_;
  const Target& target_;
  const SortedLines sorted_;
  Extent n_, count_, lines_, tiles_ = 0;
};

}  // namespace

void render_sort(const kernel::CallKernel& kernel, const Target& target, Scratch& scratch, Rendered& rendered) {
  if (kernel.shape().numel() == 0) return;
  if (std::optional<RenderedDispatch> dispatch = sort_lines(kernel, target))
    rendered.dispatches.push_back(std::move(*dispatch));
  else
    SortWriter(kernel, target).write(scratch, rendered);
}

}  // namespace weft::webgpu
