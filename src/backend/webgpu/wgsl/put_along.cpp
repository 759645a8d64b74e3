#include "backend/webgpu/wgsl/put_along.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <optional>
#include <utility>

#include "backend/webgpu/wgsl/axis_lines.hpp"
#include "backend/webgpu/wgsl/scalar.hpp"
#include "backend/webgpu/wgsl/turned_lines.hpp"
#include "backend/webgpu/wgsl/zeros.hpp"
#include "compile/call_attributes.hpp"
#include "graph/scatter.hpp"

namespace weft::webgpu {
namespace {

constexpr Extent kPutBytesMost = 32768;  // of places in workgroup memory; several workgroups then share a compute unit
constexpr Extent kPutColumns = 8;        // neighbouring columns whose elements are read together
constexpr Extent kPutPartsMost = 8;      // of a line: each goes through all its indices
constexpr Extent kPutItemsLeast = 2048;  // indices of a workgroup that owns several lines
constexpr Extent kPutItemsAlone = 1 << 16;  // the most indices of a workgroup, if compute units are left without one
constexpr int kPutThreads = 256, kPutThreadsMost = 512;
constexpr Extent kPutBits = 32;
constexpr Extent kPutTogether = 4;  // updates that a thread reads at a time
// Columns in so many parts, with so many elements, are turned to rows. Each part would go through all indices, and updates
// would be read from all rows of a column: on an H100 such a scatter took 9.2 times a copy of as many bytes.
constexpr Extent kPutTurnedParts = 4, kPutTurnedLeast = Extent{1} << 20;

/// What a workgroup owns: a part of the places of `lines` whole lines of rows, or of `columns` neighbouring columns.
struct PutBlock {
  Extent lines = 1, columns = 1, places = 0, parts = 1;
  int threads = kPutThreads;

  Extent slots() const { return lines * places * columns; }
};

std::optional<PutBlock> put_block(const AxisLines& along, const Target& target) {
  const Extent words = std::min<Extent>(kPutBytesMost, target.limits.workgroup_bytes) / 4;
  const Extent units = target.profile.compute_units;
  PutBlock block;
  block.columns = std::min(along.inner, std::max<Extent>(words / along.extent / kPutColumns, 1) * kPutColumns);
  block.parts = divide_up(along.extent, words / block.columns);
  block.places = divide_up(along.extent, block.parts);
  if (block.parts > kPutPartsMost && along.taken > 0) return {};
  if (block.columns == along.inner && block.parts == 1) {
    const Extent wanted = divide_up(kPutItemsLeast, std::max<Extent>(along.taken * along.inner, 1));
    block.lines = std::clamp<Extent>(std::min(wanted, along.outer / (4 * units)), 1, words / block.slots());
  }
  const Extent groups = divide_up(along.outer, block.lines) * divide_up(along.inner, block.columns) * block.parts;
  if (groups < units && along.taken * block.columns > kPutItemsAlone) return {};
  if (block.slots() >= 16 * kPutThreads && target.limits.workgroup_invocations >= kPutThreadsMost)
    block.threads = kPutThreadsMost;
  return block;
}

/// Whether columns are turned to rows, whose places fit workgroup memory.
bool turns_columns(const AxisLines& along, const Target& target) {
  if (!can_turn(along) || along.outer * along.extent * along.inner < kPutTurnedLeast) return false;
  const std::optional<PutBlock> columns = put_block(along, target),
                                rows = put_block({along.outer * along.inner, along.extent, 1, along.taken}, target);
  return rows && rows->parts == 1 && (!columns || columns->parts >= kPutTurnedParts);
}

class PutWriter {
 public:
  /// `indices` is the operand that has them; x and updates are the others of a put.
  PutWriter(const kernel::CallKernel& kernel, const Target& target, const AxisLines& along, std::size_t indices)
      : kernel_(kernel), target_(target), along_(along), puts_(indices > 0), bindings_(target, kernel.name) {
    if (puts_) x_ = bind(kernel.reads[0], false);
    if (along.taken > 0) indices_ = bind(kernel.reads[indices], false);
    if (puts_ && along.taken > 0) updates_ = bind(kernel.reads[2], false);
    out_ = bind(kernel.out(), true);
  }

  RenderedDispatch in_workgroup_memory(const PutBlock& block) {
    bindings_.resolve();
    block_ = block;
    const Extent strips = divide_up(along_.inner, block.columns);
    line(fmt::format("let first = {} * {}u;", modulo("group", block.parts), block.places));
    line(fmt::format("let strip = {};", divided("group", block.parts)));
    line(fmt::format("let column = {} * {}u;", modulo("strip", strips), block.columns));
    line(fmt::format("let before = {} * {}u;", divided("strip", strips), block.lines));
    each_slot("atomicStore(&$last[s], 0u);", false);
    line("workgroupBarrier();");
    each_update("atomicMax(&$last[s], t + 1u);");
    line("workgroupBarrier();");
    const Extent items = block.lines * along_.taken * block.columns;
    if (!puts_) {
      each_slot(store("atomicLoad(&$last[s])"));
    } else if (items <= kPutBits * block.threads && block.slots() <= kPutBits * block.threads) {
      // A place has one update, so values may take the positions' place, to be written in order.
      line("var kept = 0u;");
      line("var stays = 0u;");
      each_slot("kept |= u32(atomicLoad(&$last[s]) == 0u) << bit;");
      each_update("stays |= u32(atomicLoad(&$last[s]) == t + 1u) << bit;");
      line("workgroupBarrier();");
      each_slot(fmt::format("if (((kept >> bit) & 1u) != 0u) {{ atomicStore(&$last[s], {}); }}", load(x_, "at")));
      each_update("if (((stays >> bit) & 1u) != 0u) { atomicStore(&$last[s], value); }", true);
      line("workgroupBarrier();");
      each_slot(store("atomicLoad(&$last[s])"));
    } else {
      const std::string update = load(updates_, update_place("l", "c", "(last - 1u)"));
      each_slot(
          fmt::format("let last = atomicLoad(&$last[s]); var value = 0u; if (last > 0u) {{ value = {}; }} else {{ "
                      "value = {}; }} {}",
                      update, load(x_, "at"), store("value")));
    }
    shader_.threads = block.threads;
    shader_.share("last", "atomic<u32>", block.slots());
    const auto groups = static_cast<std::uint64_t>(divide_up(along_.outer, block.lines) * strips * block.parts);
    return dispatch_of(kernel_.name, std::move(shader_), bindings_, groups, target_);
  }

 private:
  int bind(const kernel::Operand& operand, bool written) {
    const kernel::Operand words{operand.buffer, DType::u32, operand.offset, operand.count};
    const int handle = bindings_.add(words, written);
    bindings_.forbid_vectors(handle);
    return handle;
  }
  void line(const std::string& statement) { shader_.body += "  " + statement + "\n"; }
  std::string load(int handle, const std::string& at) const {
    if (handle < 0) return "0u";  // without updates nothing is read
    return bindings_.load(handle, fmt::format("{} + {}u", at, bindings_.base(handle)));
  }
  std::string store(const std::string& value) const {
    return bindings_.store(out_, fmt::format("at + {}u", bindings_.base(out_)), value);
  }
  /// The place of update t of a line and column of the block.
  std::string update_place(const std::string& l, const std::string& c, const std::string& t) const {
    return fmt::format("((before + {}) * {}u + {}) * {}u + column + {}", l, along_.taken, t, along_.inner, c);
  }

  /// Whether item's line l and column c are in the tensor, or "".
  std::string inside() const {
    std::string condition;
    if (along_.outer % block_.lines != 0) condition = fmt::format("before + l < {}u", along_.outer);
    if (along_.inner % block_.columns != 0)
      condition += (condition.empty() ? "" : " && ") + fmt::format("column + c < {}u", along_.inner);
    return condition;
  }
  /// Statements for each place of the block that exists: its slot s, and its place `at` in the result.
  void each_slot(const std::string& statement, bool placed = true) {
    std::string text;
    if (placed) {
      text += fmt::format("    let l = {};\n", divided("s", block_.places * block_.columns));
      text += fmt::format("    let c = {};\n", modulo("s", block_.columns));
      text +=
          fmt::format("    let place = first + {};\n", modulo("(" + divided("s", block_.columns) + ")", block_.places));
      text +=
          fmt::format("    let at = ((before + l) * {}u + place) * {}u + column + c;\n", along_.extent, along_.inner);
      std::string condition = inside();
      if (along_.extent % block_.places != 0)
        condition += (condition.empty() ? "" : " && ") + fmt::format("place < {}u", along_.extent);
      text += condition.empty() ? fmt::format("    {}\n", statement)
                                : fmt::format("    if ({}) {{ {} }}\n", condition, statement);
    } else {
      text = fmt::format("    {}\n", statement);
    }
    const Extent slots = block_.slots();
    line(fmt::format("for (var bit = 0u; bit < {}u; bit++) {{", divide_up(slots, block_.threads)));
    line(fmt::format("  let s = bit * {}u + thread;", block_.threads));
    if (slots % block_.threads != 0) line(fmt::format("  if (s >= {}u) {{ break; }}", slots));
    shader_.body += text;
    line("}");
  }
  /// The places of item k of the updates: its column c, line l and number t in the line.
  std::string update_item() const {
    return fmt::format("let c = {}; let l = {}; let t = {};", modulo("k", block_.columns),
                       divided("(" + divided("k", block_.columns) + ")", along_.taken),
                       modulo("(" + divided("k", block_.columns) + ")", along_.taken));
  }
  /// Statements for each update that goes to a place of the block: its number t in the line, its slot s, and with `reads` its value.
  void each_update(const std::string& statement, bool reads = false) {
    const Extent count = block_.lines * along_.taken * block_.columns, threads = block_.threads;
    if (count == 0) return;
    const std::string condition = inside();
    const auto put = [&](const std::string& indent) {
      const bool whole = along_.extent % block_.places == 0;
      line(fmt::format("{}  if (place < {}) {{", indent,
                       whole ? fmt::format("{}u", block_.places)
                             : fmt::format("min({}u, {}u - first)", block_.places, along_.extent)));
      line(fmt::format("{}    let s = (l * {}u + place) * {}u + c;", indent, block_.places, block_.columns));
      line(fmt::format("{}    {}", indent, statement));
      line(indent + "  }");
    };
    // Reads of several updates are under way at a time.
    const Extent full = target_.unroll && condition.empty() ? count / threads / kPutTogether * kPutTogether : 0;
    if (full > 0) {
      line(fmt::format("for (var turn = 0u; turn < {}u; turn += {}u) {{", full, kPutTogether));
      for (Extent u = 0; u < kPutTogether; ++u) {
        line(fmt::format("  let k{0} = (turn + {0}u) * {1}u + thread;", u, threads));
        line(fmt::format("  var at{} = 0u;", u));
        line(fmt::format("  {{ let k = k{0}; {1} at{0} = {2}; }}", u, update_item(), update_place("l", "c", "t")));
        line(fmt::format("  let index{0} = {1};", u, load(indices_, fmt::format("at{}", u))));
        if (reads) line(fmt::format("  let value{0} = {1};", u, load(updates_, fmt::format("at{}", u))));
      }
      for (Extent u = 0; u < kPutTogether; ++u) {
        line(fmt::format("  {{ let k = k{0}; let bit = turn + {0}u; {1}", u, update_item()));
        line(fmt::format("    let place = index{} - first;", u));
        if (reads) line(fmt::format("    let value = value{};", u));
        put("  ");
        line("  }");
      }
      line("}");
    }
    if (full * threads >= count) return;
    line(fmt::format("for (var bit = {}u; bit < {}u; bit++) {{", full, divide_up(count, threads)));
    line(fmt::format("  let k = bit * {}u + thread;", threads));
    if (count % threads != 0) line(fmt::format("  if (k >= {}u) {{ break; }}", count));
    line("  " + update_item());
    if (!condition.empty()) line(fmt::format("  if (!({})) {{ continue; }}", condition));
    line(fmt::format("  let at = {};", update_place("l", "c", "t")));
    line(fmt::format("  let place = {} - first;", load(indices_, "at")));
    if (reads) line(fmt::format("  let value = {};", load(updates_, "at")));
    put("");
    line("}");
  }

  const kernel::CallKernel& kernel_;
  const Target& target_;
  const AxisLines along_;
  const bool puts_;
  Bindings bindings_;
  PutBlock block_;
  ShaderPieces shader_;
  int x_ = -1, indices_ = -1, updates_ = -1, out_ = -1;
};

/// Positions in memory: zeros, and then a thread for each index.
void render_last_in_memory(const std::string& name, const kernel::Operand& indices, const kernel::Operand& result,
                           const AxisLines& along, const Target& target, Scratch& scratch, Rendered& rendered) {
  const kernel::Operand words{result.buffer, DType::u32, result.offset, result.count};
  render_zeros(name + ".clear", words, target, scratch, rendered);
  const Extent count = along.outer * along.taken * along.inner;
  if (count == 0) return;

  Bindings bindings(target, name);
  const int from = bindings.add(indices, false), out = bindings.add(words, true);
  bindings.want_atomics(out);
  bindings.resolve();
  std::string body;
  const auto line = [&](const std::string& statement) { body += "  " + statement + "\n"; };
  line(fmt::format("let update = group * {}u + thread;", kPutThreads));
  line(fmt::format("if (update < {}u) {{", count));
  const std::string index = bindings.load(from, fmt::format("update + {}u", bindings.base(from)));
  line(fmt::format("  let place = {};", as_place(indices, index)));
  line(fmt::format("  if (place < {}u) {{", along.extent));
  line(fmt::format("    let row = {};", divided("update", along.inner)));
  line(fmt::format("    let line = {};", divided("row", along.taken)));
  line(fmt::format("    let at = (line * {}u + place) * {}u + {};", along.extent, along.inner,
                   modulo("update", along.inner)));
  line(fmt::format("    atomicMax(&{}[at + {}u], {} + 1u);", bindings.array_of(out), bindings.base(out),
                   modulo("row", along.taken)));
  line("  }");
  line("}");
  ShaderPieces shader{.threads = kPutThreads, .body = std::move(body)};
  rendered.dispatches.push_back(dispatch_of(name, std::move(shader), bindings,
                                            static_cast<std::uint64_t>(divide_up(count, kPutThreads)), target));
}

/// Updates by their positions in memory.
RenderedDispatch put_by_positions(const kernel::CallKernel& kernel, const kernel::Operand& positions,
                                  const AxisLines& along, const Target& target) {
  Bindings bindings(target, kernel.name);
  const int x = bindings.add(kernel.reads[0], false), updates = bindings.add(kernel.reads[2], false),
            last = bindings.add(positions, false), out = bindings.add(kernel.out(), true);
  for (const int handle : {x, updates, last, out}) bindings.forbid_vectors(handle);
  bindings.resolve();
  const auto at = [&](int handle, const std::string& index) {
    return fmt::format("{} + {}u", index, bindings.base(handle));
  };
  const Extent count = kernel.shape().numel();
  std::string body;
  const auto line = [&](const std::string& statement) { body += "  " + statement + "\n"; };
  line(fmt::format("let i = group * {}u + thread;", kPutThreads));
  line(fmt::format("if (i < {}u) {{", count));
  line(fmt::format("  let last = {};", bindings.load(last, at(last, "i"))));
  line("  if (last > 0u) {");
  line(fmt::format("    let source = ({} * {}u + last - 1u) * {}u + {};", divided("i", along.extent * along.inner),
                   along.taken, along.inner, modulo("i", along.inner)));
  line("    " + bindings.store(out, at(out, "i"), bindings.load(updates, at(updates, "source"))));
  line("  } else {");
  line("    " + bindings.store(out, at(out, "i"), bindings.load(x, at(x, "i"))));
  line("  }");
  line("}");
  ShaderPieces shader{.threads = kPutThreads, .body = std::move(body)};
  return dispatch_of(kernel.name, std::move(shader), bindings,
                     static_cast<std::uint64_t>(divide_up(count, kPutThreads)), target);
}

}  // namespace

void render_last_along(const kernel::CallKernel& kernel, const Target& target, Scratch& scratch, Rendered& rendered) {
  if (kernel.shape().numel() == 0) return;
  const auto a = kernel::attributes_of<graph::ScatterAlongAttributes>(kernel);
  const AxisLines along = axis_lines(kernel.shape(), a.axis, kernel.shapes[0]);
  if (turns_columns(along, target)) {
    render_turned_lines(kernel, along, target, scratch, rendered, render_last_along);
  } else if (const std::optional<PutBlock> block = put_block(along, target)) {
    rendered.dispatches.push_back(PutWriter(kernel, target, along, 0).in_workgroup_memory(*block));
  } else {
    render_last_in_memory(kernel.name, kernel.reads[0], kernel.out(), along, target, scratch, rendered);
  }
}

void render_put_along(const kernel::CallKernel& kernel, const Target& target, Scratch& scratch, Rendered& rendered) {
  if (kernel.shape().numel() == 0) return;
  const AxisLines along = axis_lines(kernel.shape(), kernel.attributes[0], kernel.shapes[1]);
  if (turns_columns(along, target))
    return render_turned_lines(kernel, along, target, scratch, rendered, render_put_along);
  if (const std::optional<PutBlock> block = put_block(along, target)) {
    rendered.dispatches.push_back(PutWriter(kernel, target, along, 1).in_workgroup_memory(*block));
    return;
  }
  const kernel::Operand positions = scratch.add(DType::u32, kernel.shape().numel());
  render_last_in_memory(kernel.name + ".last", kernel.reads[1], positions, along, target, scratch, rendered);
  rendered.dispatches.push_back(put_by_positions(kernel, positions, along, target));
}

}  // namespace weft::webgpu
