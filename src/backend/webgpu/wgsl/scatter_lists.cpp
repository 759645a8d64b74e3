#include "backend/webgpu/wgsl/scatter_lists.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "backend/webgpu/wgsl/zeros.hpp"

namespace weft::webgpu {
namespace {

using kernel::Operand;
using kernel::ScatterAddKernel;

constexpr int kListThreads = 256;
constexpr Extent kListedMost = 1024;  // updates that a workgroup sorts; rows with more search the indices again
constexpr Extent kListItemsEach = 4;  // of a thread, at least: a row's columns, or vectors of them
constexpr int kListsInFlight = 4;     // updates read before the first is added

class ListsWriter {
 public:
  ListsWriter(const ScatterAddKernel& kernel, const Target& target, Scratch& scratch, Rendered& rendered)
      : kernel_(kernel), target_(target), scratch_(scratch), rendered_(rendered) {
    // Behind the counts of rows: how many places the rows before have taken.
    counts_ = scratch.add(DType::u32, kernel.rows + 1);
    begins_ = scratch.add(DType::u32, kernel.rows);
    places_ = scratch.add(DType::u32, kernel.count);
  }

  void render() {
    render_zeros(kernel_.name + ".clear", counts_, target_, scratch_, rendered_);
    count_or_fill(false);
    divide_places();
    count_or_fill(true);
    add_up();
  }

 private:
  void line(const std::string& statement) { text_ += indent_ + statement + "\n"; }
  void open(const std::string& statement) {
    line(statement + " {");
    indent_ += "  ";
  }
  void close() {
    indent_.resize(indent_.size() - 2);
    line("}");
  }
  void for_threads(const char* name, const std::string& end) {
    open(fmt::format("for (var {0} = thread; {0} < {1}; {0} += {2}u)", name, end, kListThreads));
  }
  void dispatch(const char* suffix, ShaderPieces shader, const Bindings& bindings, Extent groups) {
    shader.threads = kListThreads;
    shader.body = std::exchange(text_, {});
    rendered_.dispatches.push_back(
        dispatch_of(kernel_.name + suffix, std::move(shader), bindings, static_cast<std::uint64_t>(groups), target_));
  }
  static int bind_atomics(Bindings& bindings, const Operand& operand) {
    const int handle = bindings.add(operand, true);
    bindings.want_atomics(handle);
    return handle;
  }
  /// The row of update `at`; a negative index is large as u32, so it is also outside.
  std::string row_of(const Bindings& bindings, int indices, const std::string& at) const {
    const std::string index = bindings.load(indices, fmt::format("{} + {}u", at, bindings.base(indices)));
    return kernel_.indices.type == DType::u32 ? index : fmt::format("bitcast<u32>({})", index);
  }

  void count_or_fill(bool fills) {
    Bindings bindings(target_, kernel_.name);
    const int indices = bindings.add(kernel_.indices, false), counts = bind_atomics(bindings, counts_),
              places = fills ? bindings.add(places_, true) : -1;
    if (fills) bindings.forbid_vectors(places);
    bindings.resolve();
    line(fmt::format("let update = group * {}u + thread;", kListThreads));
    open(fmt::format("if (update < {}u)", kernel_.count));
    line(fmt::format("let row = {};", row_of(bindings, indices, "update")));
    open(fmt::format("if (row < {}u)", kernel_.rows));
    const std::string next = fmt::format("atomicAdd(&{}[row], 1u)", bindings.array_of(counts));
    if (fills) {
      line(fmt::format("let at = {};", next));
      line(bindings.store(places, "at", "update"));
    } else {
      line(next + ";");
    }
    close();
    close();
    dispatch(fills ? ".fill" : ".count", {}, bindings, divide_up(kernel_.count, kListThreads));
  }

  /// Each row gets a part of the places; the rows of a workgroup get neighbouring parts, in their order.
  void divide_places() {
    Bindings bindings(target_, kernel_.name);
    const int counts = bind_atomics(bindings, counts_), begins = bindings.add(begins_, true);
    bindings.forbid_vectors(begins);
    bindings.resolve();
    ShaderPieces shader;
    shader.share("sums", "u32", kListThreads);
    shader.share("first", "u32", 1);
    const std::string array = bindings.array_of(counts);
    line(fmt::format("let row = group * {}u + thread;", kListThreads));
    line("var mine = 0u;");
    line(fmt::format("if (row < {}u) {{ mine = atomicLoad(&{}[row]); }}", kernel_.rows, array));
    line("var sum = mine;");
    line("$sums[thread] = sum;");
    line("workgroupBarrier();");
    open(fmt::format("for (var by = 1u; by < {}u; by <<= 1u)", kListThreads));
    line("if (thread >= by) { sum += $sums[thread - by]; }");
    line("workgroupBarrier();");
    line("$sums[thread] = sum;");
    line("workgroupBarrier();");
    close();
    line(fmt::format("if (thread == {}u) {{ $first[0] = atomicAdd(&{}[{}u], sum); }}", kListThreads - 1, array,
                     kernel_.rows));
    line("let begin = workgroupUniformLoad(&$first[0]) + sum - mine;");
    open(fmt::format("if (row < {}u)", kernel_.rows));
    line(bindings.store(begins, "row", "begin"));
    line(fmt::format("atomicStore(&{}[row], begin);", array));
    close();
    dispatch(".divide", std::move(shader), bindings, divide_up(kernel_.rows, kListThreads));
  }

  /// A workgroup takes some rows, whose lists are neighbours.
  void add_up() {
    Bindings bindings(target_, kernel_.name);
    const int indices = bindings.add(kernel_.indices, false), updates = bindings.add(kernel_.updates, false),
              places = bindings.add(places_, false), begins = bindings.add(begins_, false),
              ends = bindings.add({counts_.buffer, DType::u32, 0, kernel_.rows}, false),
              out = bindings.add(kernel_.out, true);
    const bool fours = kernel_.out.type == DType::f32 && kernel_.columns % 4 == 0 && kernel_.updates.offset % 4 == 0 &&
                       kernel_.out.offset % 4 == 0;
    if (fours) {
      bindings.want_vectors(updates);
      bindings.want_vectors(out);
    } else {
      bindings.forbid_vectors(out);
    }
    bindings.resolve();
    const int width = fours && bindings.has_vectors(updates) && bindings.has_vectors(out) ? 4 : 1;
    const Extent vectors = kernel_.columns / width;
    // A divisor of the rows whose lists are neighbours.
    const Extent rows = std::bit_floor(static_cast<std::uint64_t>(
        std::clamp<Extent>(kListItemsEach * kListThreads / std::max<Extent>(vectors, 1), 1, 64)));
    const std::string type = width == 4 ? "vec4f" : std::string(wgsl_type(kernel_.out.type));
    const auto load = [&](int handle, const std::string& row) {
      return width == 4
                 ? bindings.vector(handle,
                                   fmt::format("({}) * {}u + column + {}u", row, vectors, bindings.base(handle) / 4))
                 : bindings.load(handle, fmt::format("({}) * {}u + column + {}u", row, vectors, bindings.base(handle)));
    };
    const auto store = [&](const std::string& row, const std::string& value) {
      return width == 4 ? fmt::format("{} = {};", load(out, row), value)
                        : bindings.store(
                              out, fmt::format("({}) * {}u + column + {}u", row, vectors, bindings.base(out)), value);
    };
    const auto add = [&](const std::string& value) {
      return kernel_.out.type == DType::boolean ? fmt::format("sum = sum || {};", value)
                                                : fmt::format("sum = sum + {};", value);
    };
    ShaderPieces shader;
    shader.share("edges", "u32", rows + 1);
    shader.share("listed", "u32", kListedMost);
    shader.share("sorted", "u32", kListedMost);
    shader.share("found", "atomic<u32>", kListedMost / 32);
    line(fmt::format("let row0 = group * {}u;", rows));
    line(fmt::format("let owned = min({}u, {}u - row0);", rows, kernel_.rows));
    line(fmt::format("if (thread < owned) {{ $edges[thread] = {}; }}", bindings.load(begins, "row0 + thread")));
    line(fmt::format("if (thread == 0u) {{ $edges[owned] = {}; }}", bindings.load(ends, "row0 + owned - 1u")));
    line("workgroupBarrier();");
    line("let first = workgroupUniformLoad(&$edges[0]);");
    line("let held = workgroupUniformLoad(&$edges[owned]) - first;");
    open(fmt::format("if (held <= {}u)", kListedMost));
    for_threads("i", "held");
    line(fmt::format("$listed[i] = {};", bindings.load(places, "first + i")));
    close();
    line("workgroupBarrier();");
    for_threads("i", "held");
    line("var row = 0u;");
    line("while ($edges[row + 1u] <= first + i) { row++; }");
    line("let begin = $edges[row] - first;");
    line("let mine = $listed[i];");
    line("var before = 0u;");
    line("for (var j = begin; j < $edges[row + 1u] - first; j++) { before += select(0u, 1u, $listed[j] < mine); }");
    line("$sorted[begin + before] = mine;");
    close();
    line("workgroupBarrier();");
    for_threads("item", fmt::format("owned * {}u", vectors));
    line(fmt::format("let row = {};", divided("item", vectors)));
    line(fmt::format("let column = {};", modulo("item", vectors)));
    line("let end = $edges[row + 1u] - first;");
    line(fmt::format("var sum = {}();", type));
    open(fmt::format("for (var i = $edges[row] - first; i < end; i += {}u)", kListsInFlight));
    for (int i = 0; i < kListsInFlight; ++i)
      line(fmt::format("let x{} = {};", i, load(updates, fmt::format("$sorted[min(i + {}u, end - 1u)]", i))));
    for (int i = 0; i < kListsInFlight; ++i)
      line(i == 0 ? add("x0") : fmt::format("if (i + {}u < end) {{ {} }}", i, add(fmt::format("x{}", i))));
    close();
    line(store("row0 + row", "sum"));
    close();
    line("return;");
    close();
    // Rows that meet very many updates look for them in the indices, one after another.
    open("for (var row = row0; row < row0 + owned; row++)");
    for_threads("column", fmt::format("{}u", vectors));
    line(store("row", type + "()"));
    close();
    open(fmt::format("for (var start = 0u; start < {}u; start += {}u)", kernel_.count, kListedMost));
    line("workgroupBarrier();");
    line(fmt::format("if (thread < {}u) {{ atomicStore(&$found[thread], 0u); }}", kListedMost / 32));
    line("workgroupBarrier();");
    for_threads("i", fmt::format("min({}u, {}u - start)", kListedMost, kernel_.count));
    line(fmt::format("if ({} == row) {{ atomicOr(&$found[i >> 5u], 1u << (i & 31u)); }}",
                     row_of(bindings, indices, "start + i")));
    close();
    line("workgroupBarrier();");
    for_threads("column", fmt::format("{}u", vectors));
    line(fmt::format("var sum = {};", load(out, "row")));
    open(fmt::format("for (var word = 0u; word < {}u; word++)", kListedMost / 32));
    line("var bits = atomicLoad(&$found[word]);");
    open("while (bits != 0u)");
    line("let place = start + word * 32u + firstTrailingBit(bits);");
    line("bits &= bits - 1u;");
    line(add(load(updates, "place")));
    close();
    close();
    line(store("row", "sum"));
    close();
    close();
    close();
    dispatch("", std::move(shader), bindings, divide_up(kernel_.rows, rows));
  }

  const ScatterAddKernel& kernel_;
  const Target& target_;
  Scratch& scratch_;
  Rendered& rendered_;
  Operand counts_, begins_, places_;
  std::string text_, indent_ = "  ";
};

}  // namespace

void render_scatter_lists(const ScatterAddKernel& kernel, const Target& target, Scratch& scratch, Rendered& rendered) {
  ListsWriter(kernel, target, scratch, rendered).render();
}

}  // namespace weft::webgpu
