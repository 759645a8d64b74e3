#include "backend/webgpu/wgsl/sort_lines.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "backend/webgpu/wgsl/sort_shader.hpp"

namespace weft::webgpu {
namespace {

constexpr Extent kExchangedMost = 1024;  // elements of a line that is sorted by exchanges
constexpr int kExchangeThreads = 256;
constexpr int kLineEach = 16;  // elements of a thread in a sort by radix
constexpr int kLineBits = 4, kLineDigits = 1 << kLineBits;
constexpr int kLineThreadsLeast = 128, kLineThreadsMost = 512;

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

class LineRadix {
 public:
  LineRadix(const kernel::CallKernel& kernel, const SortedLines& sorted, const Target& target, int threads)
      : kernel_(kernel), sorted_(sorted), target_(target), threads_(threads), s_(target, kernel.name) {}

  static Extent words(int threads) { return padded(Extent{threads} * kLineEach) + threads; }

  RenderedDispatch write() {
    const int x = s_.read(kernel_.reads[0]), values = s_.write(kernel_.outs[0]), positions = s_.write(kernel_.outs[1]);
    s_.resolve();
    s_.pieces.threads = threads_;
    s_.pieces.share("words", "u32", padded(Extent{threads_} * kLineEach));
    s_.pieces.share("sums", "u32", threads_);
    line(fmt::format("let first = group * {}u;", sorted_.n));
    if (!target_.unroll) line(fmt::format("var key: array<u32, {0}>; var place: array<u32, {0}>;", kLineEach));
    // Elements beyond the line come last: they have the largest key, and positions behind all others.
    line(fmt::format("for (var e = thread; e < {}u; e += {}u) {{", threads_ * kLineEach, threads_));
    line("  var k = 0xffffffffu;");
    line(fmt::format("  if (e < {}u) {{", sorted_.n));
    line(fmt::format("    let x = {};", s_.at(x, "first + e")));
    line(fmt::format("    k = {};", sorted_.key("x", s_.pieces.helpers)));
    line("  }");
    line(fmt::format("  {} = k;", word("e")));
    line("}");
    line("workgroupBarrier();");
    each(target_.unroll ? "var key# = @; var place# = %;" : "key[#] = @; place[#] = %;");
    line(fmt::format("for (var shift = 0u; shift < 32u; shift += {}u) {{", kLineBits));
    line("workgroupBarrier();");
    count_digits();
    add_up();
    each("{ let d = (KEY >> shift) & 15u; PLACE |= " + counter("d") + " << 16u; " + counter("d") + " += 1u; }");
    line("workgroupBarrier();");
    move("KEY");
    move("PLACE");
    line("}");
    line("workgroupBarrier();");
    each("@ = PLACE;");
    line("workgroupBarrier();");
    line(fmt::format("for (var e = thread; e < {}u; e += {}u) {{", sorted_.count, threads_));
    line(fmt::format("  let from_place = {};", word(fmt::format("(e + {}u)", sorted_.a.first))));
    line(fmt::format("  let to = group * {}u + e;", sorted_.count));
    line("  " + s_.put(values, "to", s_.at(x, "first + from_place")));
    line("  " + s_.put(positions, "to", "bitcast<i32>(from_place)"));
    line("}");
    return s_.dispatch(kernel_.name, sorted_.lines);
  }

 private:
  /// Index i of words is at i + i / 32, so that both neighbours and every 16th word are in different banks.
  static Extent padded(Extent count) { return count + count / 32; }
  static std::string word(const std::string& i) { return fmt::format("$words[{0} + ({0} >> 5u)]", i); }
  /// The counter of a digit of this thread; those of a digit are neighbours.
  std::string counter(const std::string& digit) const {
    return word(fmt::format("({} * {}u + thread)", digit, threads_));
  }
  void line(const std::string& statement) { s_.line(statement); }

  /// Statements for each of the thread's elements: number #, key KEY, position PLACE, its word @, and its index % in the line.
  void each(const std::string& statements) {
    if (!target_.unroll) line(fmt::format("for (var j = 0u; j < {}u; j++) {{", kLineEach));
    for (int j = 0; j < (target_.unroll ? kLineEach : 1); ++j) {
      const std::string number = target_.unroll ? fmt::format("{}", j) : "j";
      const std::string index = fmt::format("(thread * {}u + {}{})", kLineEach, number, target_.unroll ? "u" : "");
      std::string text = statements;
      for (const auto& [mark, value] :
           {std::pair<std::string, std::string>{"KEY", target_.unroll ? "key" + number : "key[j]"},
            {"PLACE", target_.unroll ? "place" + number : "place[j]"},
            {"#", number},
            {"@", word(index)},
            {"%", index}})
        for (std::size_t at; (at = text.find(mark)) != std::string::npos;) text.replace(at, mark.size(), value);
      line(text);
    }
    if (!target_.unroll) line("}");
  }

  void count_digits() {
    line(fmt::format("for (var d = 0u; d < {}u; d++) {{ {} = 0u; }}", kLineDigits, counter("d")));
    each("{ let d = (KEY >> shift) & 15u; " + counter("d") + " += 1u; }");
    line("workgroupBarrier();");
  }

  /// Counters become the number of elements before: by digit, and by thread below that. A thread adds up some neighbours.
  void add_up() {
    line("var mine = 0u;");
    each("mine += @;");
    line("var sum = 0u;");
    const int subgroup = static_cast<int>(target_.subgroup_size);
    if (subgroup >= 8) {
      s_.pieces.subgroups = true;
      line("var upto = mine;");
      for (int by = 1; by < subgroup; by *= 2) {
        line(fmt::format("let before{0} = subgroupShuffleUp(upto, {0}u);", by));
        line(fmt::format("if ({} >= {}u) {{ upto += before{}; }}", modulo("thread", subgroup), by, by));
      }
      line(fmt::format("if ({0} == {1}u) {{ $sums[{2}] = upto; }}", modulo("thread", subgroup), subgroup - 1,
                       divided("thread", subgroup)));
      line("workgroupBarrier();");
      line("sum = upto - mine;");
      line(fmt::format("for (var g = 0u; g < {}; g++) {{ sum += $sums[g]; }}", divided("thread", subgroup)));
    } else {
      line("$sums[thread] = mine;");
      line("workgroupBarrier();");
      line(fmt::format("for (var by = 1u; by < {}u; by <<= 1u) {{", threads_));
      line("  var below = 0u;");
      line("  if (thread >= by) { below = $sums[thread - by]; }");
      line("  workgroupBarrier();");
      line("  $sums[thread] += below;");
      line("  workgroupBarrier();");
      line("}");
      line("sum = $sums[thread] - mine;");
    }
    each("{ let count = @; @ = sum; sum += count; }");
    line("workgroupBarrier();");
  }

  /// Every element's number goes to its place, the upper half of PLACE, and each thread takes those that are now its own.
  void move(const std::string& number) {
    const bool ends = number == "PLACE";  // the last one needs the places no more
    each("$words[(PLACE >> 16u) + (PLACE >> 21u)] = " + number + (ends ? " & 0xffffu;" : ";"));
    line("workgroupBarrier();");
    each(number + " = @;");
    if (!ends) line("workgroupBarrier();");
  }

  const kernel::CallKernel& kernel_;
  const SortedLines& sorted_;
  const Target& target_;
  const int threads_;
  SortShader s_;
};

}  // namespace

std::optional<RenderedDispatch> sort_lines(const kernel::CallKernel& kernel, const Target& target) {
  const SortedLines sorted(kernel);
  if (sorted.n <= kExchangedMost) return sort_by_exchanges(kernel, sorted, target);
  const Extent wanted = divide_up(sorted.n, kLineEach);
  if (wanted > kLineThreadsMost) return {};
  const int threads = std::max(kLineThreadsLeast, static_cast<int>(std::bit_ceil(static_cast<std::uint64_t>(wanted))));
  if (threads > static_cast<int>(target.limits.workgroup_invocations) ||
      LineRadix::words(threads) * 4 > Extent{target.limits.workgroup_bytes})
    return {};
  return LineRadix(kernel, sorted, target, threads).write();
}

}  // namespace weft::webgpu
