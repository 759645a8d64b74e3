#include "backend/webgpu/wgsl/line_block.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "backend/webgpu/wgsl/scalar.hpp"
#include "backend/webgpu/wgsl/turned_lines.hpp"

namespace weft::webgpu {
namespace {

constexpr Extent kBlockColumns = 8;           // neighbouring columns whose elements are read together
constexpr Extent kBlockPartsMost = 8;         // of a line: each goes through all its indices
constexpr Extent kBlockItemsLeast = 2048;     // indices of a workgroup that owns several lines
constexpr Extent kBlockItemsAlone = 1 << 16;  // the most indices of a workgroup, if compute units are left without one
constexpr int kBlockThreads = 256;
constexpr Extent kReadTogether = 4;  // updates that a thread reads at a time
constexpr Extent kHeldMost = 16;     // updates that a thread holds in registers, two each
// Columns in so many parts, with so many elements, are turned to rows. Each part would go through all indices, and updates
// would be read from all rows of a column: on an H100 such a scatter took 9.2 times a copy of as many bytes.
constexpr Extent kTurnedParts = 4, kTurnedLeast = Extent{1} << 20;

}  // namespace

std::optional<LineBlock> line_block(const AxisLines& along, const Target& target, const BlockNeeds& needs) {
  const Extent slots = std::min<Extent>(needs.bytes_most, target.limits.workgroup_bytes) / needs.slot_bytes;
  const Extent units = target.profile.compute_units;
  LineBlock block{.threads = kBlockThreads};
  block.columns = std::min(along.inner, std::max<Extent>(slots / along.extent / kBlockColumns, 1) * kBlockColumns);
  block.parts = divide_up(along.extent, slots / block.columns);
  block.places = divide_up(along.extent, block.parts);
  if (block.parts > kBlockPartsMost && along.taken > 0) return {};
  if (block.columns == along.inner && block.parts == 1) {
    const Extent wanted = divide_up(kBlockItemsLeast, std::max<Extent>(along.taken * along.inner, 1));
    block.lines = std::clamp<Extent>(std::min(wanted, along.outer / (4 * units)), 1, slots / block.slots());
  }
  if (block.groups(along) < units && along.taken * block.columns > kBlockItemsAlone) return {};
  if (block.slots() >= 16 * kBlockThreads)
    block.threads = std::min(needs.threads_most, static_cast<int>(std::bit_floor(target.limits.workgroup_invocations)));
  return block;
}

bool turns_columns(const AxisLines& along, const Target& target, const BlockNeeds& needs) {
  if (!can_turn(along) || along.outer * along.extent * along.inner < kTurnedLeast) return false;
  const AxisLines turned{along.outer * along.inner, along.extent, 1, along.taken};
  const std::optional<LineBlock> columns = line_block(along, target, needs), rows = line_block(turned, target, needs);
  return rows && rows->parts <= needs.turned_parts_most && (!columns || columns->parts >= kTurnedParts);
}

int LineBlockWriter::bind(const kernel::Operand& operand, bool written) {
  const int handle = bindings_.add(words_of(operand), written);
  bindings_.forbid_vectors(handle);
  return handle;
}

void LineBlockWriter::resolve(int indices, int updates, int out) {
  indices_ = indices;
  updates_ = updates;
  out_ = out;
  bindings_.resolve();
  const Extent strips = divide_up(along_.inner, block_.columns);
  line(fmt::format("let first = {} * {}u;", modulo("group", block_.parts), block_.places));
  line(fmt::format("let strip = {};", divided("group", block_.parts)));
  line(fmt::format("let column = {} * {}u;", modulo("strip", strips), block_.columns));
  line(fmt::format("let before = {} * {}u;", divided("strip", strips), block_.lines));
}

std::string LineBlockWriter::load(int handle, const std::string& at) const {
  if (handle < 0) return "0u";
  return bindings_.load(handle, fmt::format("{} + {}u", at, bindings_.base(handle)));
}

std::string LineBlockWriter::store(const std::string& value) const {
  return bindings_.store(out_, fmt::format("at + {}u", bindings_.base(out_)), value);
}

std::string LineBlockWriter::update_place(const std::string& l, const std::string& c, const std::string& t) const {
  return fmt::format("((before + {}) * {}u + {}) * {}u + column + {}", l, along_.taken, t, along_.inner, c);
}

/// Whether an item's line l and column c are in the tensor, or "".
std::string LineBlockWriter::inside() const {
  std::string condition;
  if (along_.outer % block_.lines != 0) condition = fmt::format("before + l < {}u", along_.outer);
  if (along_.inner % block_.columns != 0)
    condition += (condition.empty() ? "" : " && ") + fmt::format("column + c < {}u", along_.inner);
  return condition;
}

/// A loop in which the threads take the numbers below `count` in turns.
void LineBlockWriter::turns(Extent count, const std::string& number, const std::string& text) {
  line(fmt::format("for (var bit = 0u; bit < {}u; bit++) {{", divide_up(count, block_.threads)));
  line(fmt::format("  let {} = bit * {}u + thread;", number, block_.threads));
  if (count % block_.threads != 0) line(fmt::format("  if ({} >= {}u) {{ break; }}", number, count));
  shader.body += text;
  line("}");
}

void LineBlockWriter::each_slot(const std::string& statement) {
  turns(block_.slots(), "s", fmt::format("    {}\n", statement));
}

void LineBlockWriter::each_place(const std::string& statement) {
  std::string text;
  text += fmt::format("    let l = {};\n", divided("s", block_.places * block_.columns));
  text += fmt::format("    let c = {};\n", modulo("s", block_.columns));
  text += fmt::format("    let place = first + {};\n", modulo("(" + divided("s", block_.columns) + ")", block_.places));
  text += fmt::format("    let at = ((before + l) * {}u + place) * {}u + column + c;\n", along_.extent, along_.inner);
  std::string condition = inside();
  if (along_.extent % block_.places != 0)
    condition += (condition.empty() ? "" : " && ") + fmt::format("place < {}u", along_.extent);
  text += condition.empty() ? fmt::format("    {}\n", statement)
                            : fmt::format("    if ({}) {{ {} }}\n", condition, statement);
  turns(block_.slots(), "s", text);
}

/// The places of item k of the updates: its column c, line l and number t in the line.
std::string LineBlockWriter::update_item() const {
  return fmt::format("let c = {}; let l = {}; let t = {};", modulo("k", block_.columns),
                     divided("(" + divided("k", block_.columns) + ")", along_.taken),
                     modulo("(" + divided("k", block_.columns) + ")", along_.taken));
}

/// The number of places in the block.
std::string LineBlockWriter::places_here() const {
  return along_.extent % block_.places == 0 ? fmt::format("{}u", block_.places)
                                            : fmt::format("min({}u, {}u - first)", block_.places, along_.extent);
}

void LineBlockWriter::hold_updates() {
  const Extent count = items(), turns = divide_up(count, block_.threads);
  holds_ = target_.unroll && turns <= kHeldMost && inside().empty();
  for (Extent u = 0; holds_ && u < turns; ++u) {
    line(fmt::format("var slot{0} = 0xffffffffu; var value{0} = 0u;", u));
    const bool whole = (u + 1) * block_.threads <= count;
    line(fmt::format("{{ let k = {}u + thread; {}{}", u * block_.threads,
                     whole ? "" : fmt::format("if (k < {}u) {{ ", count), update_item()));
    line(fmt::format("  let at = {};", update_place("l", "c", "t")));
    line(fmt::format("  let place = {} - first;", load(indices_, "at")));
    line(fmt::format("  value{} = {};", u, load(updates_, "at")));
    line(fmt::format("  if (place < {}) {{ slot{} = (l * {}u + place) * {}u + c; }}", places_here(), u, block_.places,
                     block_.columns));
    line(whole ? "}" : "}}");
  }
}

void LineBlockWriter::each_update(const std::string& statement, bool reads) {
  const Extent count = items(), threads = block_.threads;
  if (count == 0) return;
  if (holds_) {
    for (Extent u = 0; u < divide_up(count, threads); ++u)
      line(fmt::format("if (slot{0} != 0xffffffffu) {{ let s = slot{0}; let value = value{0}; {1} }}", u, statement));
    return;
  }
  const std::string condition = inside();
  const auto put = [&](const std::string& indent) {
    line(fmt::format("{}  if (place < {}) {{", indent, places_here()));
    line(fmt::format("{}    let s = (l * {}u + place) * {}u + c;", indent, block_.places, block_.columns));
    line(fmt::format("{}    {}", indent, statement));
    line(indent + "  }");
  };
  // Reads of several updates are under way at a time.
  const Extent full = target_.unroll && condition.empty() ? count / threads / kReadTogether * kReadTogether : 0;
  if (full > 0) {
    line(fmt::format("for (var turn = 0u; turn < {}u; turn += {}u) {{", full, kReadTogether));
    for (Extent u = 0; u < kReadTogether; ++u) {
      line(fmt::format("  let k{0} = (turn + {0}u) * {1}u + thread;", u, threads));
      line(fmt::format("  var at{} = 0u;", u));
      line(fmt::format("  {{ let k = k{0}; {1} at{0} = {2}; }}", u, update_item(), update_place("l", "c", "t")));
      line(fmt::format("  let index{0} = {1};", u, load(indices_, fmt::format("at{}", u))));
      if (reads) line(fmt::format("  let value{0} = {1};", u, load(updates_, fmt::format("at{}", u))));
    }
    for (Extent u = 0; u < kReadTogether; ++u) {
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

RenderedDispatch LineBlockWriter::dispatch() {
  return dispatch_of(kernel_.name, std::move(shader), bindings_, static_cast<std::uint64_t>(block_.groups(along_)),
                     target_);
}

}  // namespace weft::webgpu
