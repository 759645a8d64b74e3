#include "backend/webgpu/wgsl/line_radix.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <utility>

namespace weft::webgpu {
namespace {

constexpr int kLineBits = 4, kLineDigits = 1 << kLineBits;
constexpr int kLineThreadsLeast = 128;

// Word i is at i + i / 32, so that both neighbours and every 16th word are in different banks.
constexpr Extent padded_words(Extent count) { return count + count / 32; }

}  // namespace

std::optional<int> LineRadix::threads_for(Extent n, const Target& target) {
  if (n > kWordsMost) return {};
  const Extent wanted = divide_up(n, kLineEach);
  const int threads = std::max(kLineThreadsLeast, static_cast<int>(std::bit_ceil(static_cast<std::uint64_t>(wanted))));
  const Extent words = padded_words(Extent{threads} * kLineEach) + threads;
  if (threads > static_cast<int>(target.limits.workgroup_invocations) ||
      words * 4 > Extent{target.limits.workgroup_bytes})
    return {};
  return threads;
}

LineRadix::LineRadix(SortShader& shader, const Target& target, int threads)
    : shader_(shader), target_(target), threads_(threads) {
  shader_.pieces.threads = threads;
  shader_.pieces.share("words", "u32", padded_words(Extent{threads} * kLineEach));
  shader_.pieces.share("sums", "u32", threads);
}

std::string LineRadix::word(const std::string& i) { return fmt::format("$words[{0} + ({0} >> 5u)]", i); }

Extent LineRadix::words() const { return Extent{threads_} * kLineEach; }

void LineRadix::write(int from, int bits) {
  if (!target_.unroll) line(fmt::format("var key: array<u32, {0}>; var place: array<u32, {0}>;", kLineEach));
  each(target_.unroll ? "var key# = @; var place# = %;" : "key[#] = @; place[#] = %;");
  line(fmt::format("for (var shift = {}u; shift < {}u; shift += {}u) {{", from, from + bits, kLineBits));
  line("workgroupBarrier();");
  count_digits();
  add_up();
  each("{ let d = (KEY >> shift) & 15u; PLACE = PLACE | (" + counter("d") + " << 16u); " + counter("d") + " += 1u; }");
  line("workgroupBarrier();");
  move("KEY");
  move("PLACE");
  line("}");
  line("workgroupBarrier();");
  each("@ = PLACE;");
}

/// The counter of a digit of this thread; those of a digit are neighbours.
std::string LineRadix::counter(const std::string& digit) const {
  return word(fmt::format("({} * {}u + thread)", digit, threads_));
}

/// Statements for each of the thread's words: number #, word KEY, place PLACE, its memory @, and its index % in the line.
void LineRadix::each(const std::string& statements) {
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

void LineRadix::count_digits() {
  line(fmt::format("for (var d = 0u; d < {}u; d++) {{ {} = 0u; }}", kLineDigits, counter("d")));
  each("{ let d = (KEY >> shift) & 15u; " + counter("d") + " += 1u; }");
  line("workgroupBarrier();");
}

/// Counters become the number of elements before: by digit, and by thread below that. A thread adds up some neighbours.
void LineRadix::add_up() {
  line("var mine = 0u;");
  each("mine += @;");
  line("var sum = 0u;");
  const int subgroup = static_cast<int>(target_.subgroup_size);
  if (subgroup >= 8) {
    shader_.pieces.subgroups = true;
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

/// Every word's number goes to where it belongs, the upper half of PLACE, and each thread takes those that are now its own.
void LineRadix::move(const std::string& number) {
  const bool ends = number == "PLACE";  // where it belongs is then needed no more
  each("$words[(PLACE >> 16u) + (PLACE >> 21u)] = " + number + (ends ? " & 0xffffu;" : ";"));
  line("workgroupBarrier();");
  each(number + " = @;");
  if (!ends) line("workgroupBarrier();");
}

}  // namespace weft::webgpu
