// The kernels at the end of a product: results pass through workgroup memory, a slot for each element of the workgroup.
#include <fmt/format.h>

#include <utility>

#include "backend/webgpu/wgsl/cache_rows.hpp"
#include "backend/webgpu/wgsl/quantised/rows_writer.hpp"
#include "compile/call_attributes.hpp"
#include "graph/cache.hpp"

namespace weft::webgpu {

std::string RowsWriter::held(int number, const std::string& slot) const {
  return fmt::format("$held[{}u + {}]", number * teams() * rows_, slot);
}

std::vector<RowsWriter::TailLoop> RowsWriter::tail_writers(Bindings& bindings, Helpers& helpers) const {
  std::vector<TailLoop> writers;
  if (!extras_.tail) return writers;
  const Space space{{{"i", kernel_.m}, {"j", kernel_.n}}, -1};
  for (std::size_t at = 0; at < extras_.tail->loops().size(); ++at) {
    const RowsTail::Loop& each = extras_.tail->loops()[at];
    const int value = extras_.tail->values()[static_cast<std::size_t>(each.held)];
    writers.push_back({at, StepWriter(each.loop, bindings, helpers, space, space, std::span(&value, 1))});
  }
  return writers;
}

// Of each write, the places and the cache.
std::vector<std::pair<int, int>> RowsWriter::tail_bindings(Bindings& bindings) const {
  std::vector<std::pair<int, int>> handles;
  if (!extras_.tail) return handles;
  for (const RowsTail::Write& each : extras_.tail->writes()) {
    const int places = bindings.add(each.write.reads[2], false), cache = bindings.add(each.write.out(), true);
    bindings.forbid_vectors(cache);
    handles.emplace_back(places, cache);
  }
  return handles;
}

// Values of an even column and the next one are a word of a cache of halves.
ShaderPieces::Function RowsWriter::write_function(std::size_t at, const std::pair<int, int>& handles,
                                                  const Bindings& bindings) const {
  const RowsTail::Write& each = extras_.tail->writes()[at];
  const bool halves = kernel::attributes_of<graph::WriteRows>(each.write).type == CacheType::f16;
  const Extent rows = each.write.shape()[0], words = each.write.shape()[1];
  const auto place = [&](const std::string& t) {
    return bindings.load(handles.first, fmt::format("{} + {}u", t, bindings.base(handles.first)));
  };
  std::string text = "(i: u32, j: u32, own: f32, next: f32) {\n";
  if (halves) text += "  if ((j & 1u) != 0u) { return; }\n";
  text += fmt::format("  let row = {};\n  var last = row >= 0 && row < {};\n", place("i"), rows);
  // If places are equal, the last one counts.
  if (kernel_.m > 1)
    text += fmt::format("  for (var later = i + 1u; later < {}u; later++) {{ last = last && row != {}; }}\n", kernel_.m,
                        place("later"));
  const std::string to =
      fmt::format("u32(row) * {}u + {} + {}u", words, halves ? "(j >> 1u)" : "j", bindings.base(handles.second));
  // Values out of range saturate.
  const std::string value = halves ? cached_halves("vec2f(own, next)") : "own";
  text += fmt::format("  if (last) {{ {} }}\n}}\n", bindings.store(handles.second, to, value));
  return {fmt::format("write{}", at), std::move(text)};
}

void RowsWriter::write_tail(std::vector<TailLoop>& loops, const std::vector<std::pair<int, int>>& writes,
                            const Bindings& bindings, ShaderPieces& shader) {
  const RowsTail& tail = *extras_.tail;
  const int slots = teams() * rows_;
  const bool near = tail.distance() == 1;
  shader.share("held", "f32", static_cast<std::int64_t>(tail.held().size()) * slots);
  const auto each_slot = [&](const std::string& work) {
    line("workgroupBarrier();");
    line(fmt::format("for (var slot = thread; slot < {}u; slot += {}u) {{", slots, threads_));
    line(fmt::format("  let i = i0 + {};", modulo("slot", rows_)));
    line(fmt::format("  let j = {};", column_of(divided("slot", rows_))));
    line(fmt::format("  if (i < {}u) {{ {} }}", kernel_.m, work));
    line("}");
  };
  for (TailLoop& each : loops) {
    const RowsTail::Loop& loop = tail.loops()[each.at];
    const int value = tail.values()[static_cast<std::size_t>(loop.held)];
    for (const auto& [step, source] : loop.sources)
      each.writer.define(step, {held(source.held, source.partner ? "partner" : "slot")});
    each.writer.write(value);
    for (const kernel::Store& store : loop.loop.stores) each.writer.write_store(store);
    each.writer.line(held(loop.held, "slot") + fmt::format(" = {};", each.writer.value(value).text));
    const std::string name = fmt::format("tail{}", each.at);
    shader.functions.push_back(
        {name, "(i: u32, j: u32, slot: u32, partner: u32) {\n" + each.writer.take_text() + "}\n"});
    each_slot(fmt::format("${}(i, j, slot, {});", name, modulo(fmt::format("(slot + {}u)", slots / 2), slots)));
  }
  for (std::size_t at = 0; at < writes.size(); ++at) {
    shader.functions.push_back(write_function(at, writes[at], bindings));
    const int of = tail.writes()[at].held;
    const std::string next = fmt::format("min(slot + {}u, {}u)", near ? slots / 2 : rows_, slots - 1);
    each_slot(fmt::format("$write{}(i, j, {}, {});", at, held(of, "slot"), held(of, next)));
  }
}

}  // namespace weft::webgpu
