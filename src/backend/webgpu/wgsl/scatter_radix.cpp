#include "backend/webgpu/wgsl/scatter_radix.hpp"

#include <fmt/format.h>

#include <bit>
#include <utility>

#include "backend/webgpu/wgsl/memory_radix.hpp"
#include "backend/webgpu/wgsl/scalar.hpp"
#include "backend/webgpu/wgsl/sort_shader.hpp"
#include "backend/webgpu/wgsl/zeros.hpp"

namespace weft::webgpu {
namespace {

constexpr int kSumThreads = 256;
constexpr Extent kSumBlock = 256;  // sorted updates of a place that a thread adds up, twice as many at most

class SortedSumsWriter {
 public:
  SortedSumsWriter(const LineSums& sums, const Target& target)
      : sums_(sums),
        along_(sums.along),
        target_(target),
        lines_(along_.outer * along_.inner),
        count_(lines_ * along_.taken),
        blocks_(divide_up(along_.taken, kSumBlock)) {}

  void render(Scratch& scratch, Rendered& rendered) {
    const MemoryRadix radix(sums_.name, lines_, along_.taken, target_, scratch);
    rendered.dispatches.push_back(keys_of(radix));
    // The place behind the last is that of updates that are dropped.
    const int bits = std::bit_width(static_cast<std::uint64_t>(along_.extent));
    sorted_ = radix.sort(bits, scratch, rendered);
    render_zeros(sums_.name + ".clear", sums_.out, target_, scratch, rendered);
    parts_ = scratch.add(sums_.out.type, lines_ * blocks_);
    rendered.dispatches.push_back(add_up());
    if (blocks_ > 1) rendered.dispatches.push_back(join());
  }

 private:
  /// The element of the updates (or of the result, with its extent) in a line, from the text of its place there.
  std::string element(Extent extent, const std::string& place) const {
    if (along_.inner == 1) return fmt::format("(line * {}u + {})", extent, place);
    return fmt::format("(({} * {}u + {}) * {}u + {})", divided("line", along_.inner), extent, place, along_.inner,
                       modulo("line", along_.inner));
  }
  /// Begins a shader in which thread `i` takes one of `each` places `at` of a line.
  void begin(SortShader& s, Extent each, const char* at) const {
    s.pieces.threads = kSumThreads;
    s.line(fmt::format("let i = group * {}u + thread;", kSumThreads));
    s.line(fmt::format("if (i >= {}u) {{ return; }}", lines_ * each));
    s.line(fmt::format("let line = {};", divided("i", each)));
    s.line(fmt::format("let {} = {};", at, modulo("i", each)));
  }
  /// The place of sorted update `at` of the line.
  std::string place(const SortShader& s, int keys, const std::string& at) const {
    return sorted_.key(s.at(keys, fmt::format("line * {}u + {}", along_.taken, at)));
  }

  RenderedDispatch keys_of(const MemoryRadix& radix) const {
    SortShader s(target_, sums_.name);
    const int indices = s.read(sums_.indices), keys = s.write(radix.keys()), places = s.write(radix.places());
    s.resolve();
    begin(s, along_.taken, "t");
    s.line(fmt::format("let place = {};", as_place(sums_.indices, s.at(indices, element(along_.taken, "t")))));
    s.line(s.put(keys, "i", fmt::format("min(place, {}u)", along_.extent)));
    s.line(s.put(places, "i", "t"));
    return s.dispatch(sums_.name + ".keys", divide_up(count_, kSumThreads));
  }

  /// A thread adds up a part of a place's updates: to the first block that begins a block or more behind the first update, or
  /// from there to the next block. So short runs are one part.
  RenderedDispatch add_up() const {
    SortShader s(target_, sums_.name);
    const int keys = s.read(sorted_.keys), places = s.read(sorted_.places), updates = s.read(sums_.updates),
              out = s.write(sums_.out), parts = s.write(parts_);
    s.resolve();
    begin(s, along_.taken, "e");
    s.line(fmt::format("let r = {};", place(s, keys, "e")));
    s.line(fmt::format("if (r == {}u) {{ return; }}", along_.extent));
    s.line("var is_first = e == 0u;");
    s.line(fmt::format("if (!is_first) {{ is_first = {} != r; }}", place(s, keys, "e - 1u")));
    s.line(fmt::format("var is_later = e % {0}u == 0u && e >= {0}u;", kSumBlock));
    s.line(fmt::format("if (is_later) {{ is_later = {} == r; }}", place(s, keys, fmt::format("e - {}u", kSumBlock))));
    s.line("if (!(is_first || is_later)) { return; }");
    const std::string type(wgsl_type(sums_.out.type));
    s.line(fmt::format("var sum = {}();", type));
    s.line(
        fmt::format("let end = min({0}u, (e + {1}u) / {2}u * {2}u + {2}u);", along_.taken, kSumBlock - 1, kSumBlock));
    s.line("for (var j = e; j < end; j++) {");
    s.line(fmt::format("  if ({} != r) {{ break; }}", place(s, keys, "j")));
    s.line(fmt::format("  let t = {};", s.at(places, fmt::format("line * {}u + j", along_.taken))));
    s.line(fmt::format("  sum += {};", s.at(updates, element(along_.taken, "t"))));
    s.line("}");
    s.line("if (is_first) {");
    s.line("  " + s.put(out, element(along_.extent, "r"), "sum"));
    s.line("} else {");
    s.line("  " + s.put(parts, fmt::format("line * {}u + {}", blocks_, divided("e", kSumBlock)), "sum"));
    s.line("}");
    return s.dispatch(sums_.name, divide_up(count_, kSumThreads));
  }

  /// The thread of a place's first later part adds the later ones to its sum, in order.
  RenderedDispatch join() const {
    SortShader s(target_, sums_.name);
    const int keys = s.read(sorted_.keys), parts = s.read(parts_), out = s.write(sums_.out);
    s.resolve();
    begin(s, blocks_, "first");
    const auto at = [&](const std::string& block, Extent before) {
      return place(s, keys,
                   before ? fmt::format("({} - {}u) * {}u", block, before, kSumBlock)
                          : fmt::format("{} * {}u", block, kSumBlock));
    };
    s.line("if (first == 0u) { return; }");
    s.line(fmt::format("let r = {};", at("first", 0)));
    s.line(fmt::format("if (r == {}u || {} != r) {{ return; }}", along_.extent, at("first", 1)));
    s.line(fmt::format("if (first > 1u) {{ if ({} == r) {{ return; }} }}", at("first", 2)));
    const std::string to = element(along_.extent, "r");
    s.line(fmt::format("var sum = {};", s.at(out, to)));
    s.line(fmt::format("for (var block = first; block < {}u; block++) {{", blocks_));
    s.line(fmt::format("  if ({} != r) {{ break; }}", at("block", 0)));
    s.line(fmt::format("  sum += {};", s.at(parts, fmt::format("line * {}u + block", blocks_))));
    s.line("}");
    s.line(s.put(out, to, "sum"));
    return s.dispatch(sums_.name + ".join", divide_up(lines_ * blocks_, kSumThreads));
  }

  const LineSums& sums_;
  const AxisLines along_;
  const Target& target_;
  const Extent lines_, count_, blocks_;
  MemoryRadix::Sorted sorted_;
  kernel::Operand parts_;
};

}  // namespace

void render_sorted_sums(const LineSums& sums, const Target& target, Scratch& scratch, Rendered& rendered) {
  SortedSumsWriter(sums, target).render(scratch, rendered);
}

}  // namespace weft::webgpu
