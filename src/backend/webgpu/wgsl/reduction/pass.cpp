// One pass over a row: the sums and stores of each thread.
#include "backend/webgpu/wgsl/reduction/writer.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace weft::webgpu {
using kernel::Level;
using kernel::LoopKernel;
using kernel::Step;
using kernel::StepKind;
using scalar::Reduction;

namespace {

constexpr Extent kTurnsWritten = 8;  // reads in flight: turns of a loop over a row that are written out

}  // namespace

void ReductionWriter::write_pass(const LoopKernel& source, StepWriter& writer, Helpers& helpers, int pass,
                                 bool all_rows) {
  bool reduces = false;
  for (std::size_t s = 0; s < kernel_.steps.size(); ++s) {
    if (!is_reduced_in(s, pass)) continue;
    reduces = true;
    const Step& step = kernel_.steps[s];
    const DType from = kernel_.steps[static_cast<std::size_t>(step.a)].type;
    if (joint(static_cast<int>(s)) != Joint::none) {
      declare_joint(static_cast<int>(s), writer, helpers);
      continue;
    }
    for (int lane = 0; lane < accumulators(); ++lane) {
      writer.line(fmt::format("var {} = {};", accumulator(static_cast<int>(s), lane, 0),
                              render_identity(step.reduction, from, helpers)));
      if (gives_position(step.reduction))
        writer.line(fmt::format("var {} = 2147483647i;", accumulator(static_cast<int>(s), lane, 1)));
    }
  }
  const bool stores = &source == &kernel_;  // otherwise only the reductions' results are needed
  if (!reduces && !(stores && std::find(passes_.store.begin(), passes_.store.end(), pass) != passes_.store.end()))
    return;

  if (layout_.registers) {
    for (Extent slot = 0; slot < layout_.slots(); ++slot) {
      const bool whole = (slot + 1) * layout_.lanes <= layout_.items;
      write_items(stores, writer, helpers, pass, fmt::format("s{}", slot), slot, whole, all_rows);
    }
    return;
  }
  const std::string first = layout_.chunks > 1 ? fmt::format("chunk * {}u + lane", layout_.chunk_items()) : "lane";
  const std::string end = layout_.chunks > 1
                              ? fmt::format("min((chunk + 1u) * {}u, {}u)", layout_.chunk_items(), layout_.items)
                              : fmt::format("{}u", layout_.items);
  const auto add_joint = [&](const std::vector<std::string>& slots) {
    for (std::size_t s = 0; s < kernel_.steps.size(); ++s)
      if (is_reduced_in(s, pass) && joint(static_cast<int>(s)) != Joint::none)
        accumulate_joint(static_cast<int>(s), writer, helpers, slots);
  };
  // A thread takes its items in the same order whether turns are unrolled or not.
  const Extent turns = layout_.slots() / layout_.chunks;
  const Extent written =
      !target_.unroll || turns < 2 * kTurnsWritten ? 1 : kTurnsWritten / (layout_.width == 4 ? 2 : 1);
  // A pass that only stores goes back from the end of the row, of which a cache still has the most.
  const bool backwards = pass > 0 && layout_.chunks == 1 && !reduces;
  const auto place = [&](const std::string& item) {
    const std::string at = backwards ? fmt::format("({}u - {})", layout_.items - 1, item) : item;
    return !layout_.columns && layout_.width == 4 ? at + " * 4u" : at;
  };
  writer.line("{");
  writer.indent();
  writer.line(fmt::format("var item = {};", first));
  writer.line(fmt::format("let end = {};", end));
  if (written > 1) {
    writer.line(fmt::format("for (; item + {}u < end; item += {}u) {{", (written - 1) * layout_.lanes,
                            written * layout_.lanes));
    writer.indent();
    std::vector<std::string> slots;
    for (Extent turn = 0; turn < written; ++turn) {
      slots.push_back(fmt::format("t{}", turn));
      writer.line(fmt::format("let j{} = {};", slots.back(), place(fmt::format("(item + {}u)", turn * layout_.lanes))));
    }
    // All reads come before the first store, because compilers do not move reads across stores.
    for (const std::string& slot : slots) write_values(stores, writer, helpers, pass, slot, "j" + slot, "");
    add_joint(slots);
    for (const std::string& slot : slots) write_stores(stores, writer, pass, slot, "j" + slot, "", all_rows);
    for (const std::string& slot : slots) writer.forget(slot);
    writer.dedent();
    writer.line("}");
  }
  writer.line(fmt::format("for (; item < end; item += {}u) {{", layout_.lanes));
  writer.indent();
  writer.line(fmt::format("let j = {};", place("item")));
  write_values(stores, writer, helpers, pass, "s", "j", "");
  add_joint({"s"});
  write_stores(stores, writer, pass, "s", "j", "", all_rows);
  writer.forget("s");
  writer.dedent();
  writer.line("}");
  writer.dedent();
  writer.line("}");
}

// The item of slot `number` in a thread that keeps its part of the row. If not `whole`, the item may be beyond the row's end:
// then the last item is read again, and is neither added nor stored.
void ReductionWriter::write_items(bool stores, StepWriter& writer, Helpers& helpers, int pass, const std::string& slot,
                                  Extent number, bool whole, bool all_rows) {
  // Separate blocks would hide the kept values, so j is declared once for each slot, in the first pass that runs.
  if (std::find(declared_.begin(), declared_.end(), slot) == declared_.end()) {
    declared_.push_back(slot);
    std::string item = number == 0 ? "lane" : fmt::format("lane + {}u", number * layout_.lanes);
    if (!whole) {
      writer.line(fmt::format("let in_{} = {} < {}u;", slot, item, layout_.items));
      item = fmt::format("min({}, {}u)", item, layout_.items - 1);
    }
    writer.line(!layout_.columns && layout_.width == 4 ? fmt::format("let j{} = ({}) * 4u;", slot, item)
                                                       : fmt::format("let j{} = {};", slot, item));
  }
  const std::string valid = whole ? "" : "in_" + slot;
  write_values(stores, writer, helpers, pass, slot, "j" + slot, valid);
  write_stores(stores, writer, pass, slot, "j" + slot, valid, all_rows);
}

// The reductions and stores of the pass for one item, whose index is `at`; `valid`: condition that the item exists, or "".
void ReductionWriter::write_values(bool stores, StepWriter& writer, Helpers& helpers, int pass, const std::string& slot,
                                   const std::string& at, const std::string& valid) {
  writer.set_inner_variable(at);
  for (std::size_t s = 0; s < kernel_.steps.size(); ++s) {
    if (!is_reduced_in(s, pass)) continue;
    writer.write(kernel_.steps[s].a, slot);
    if (joint(static_cast<int>(s)) != Joint::none) continue;
    accumulate(static_cast<int>(s), writer, helpers, slot, valid);
  }
  if (!stores) return;
  // All values come before the first store, which may overwrite their inputs.
  for (std::size_t i = 0; i < kernel_.stores.size(); ++i)
    if (passes_.store[i] == pass) writer.write(kernel_.stores[i].value, slot);
}

void ReductionWriter::write_stores(bool stores, StepWriter& writer, int pass, const std::string& slot,
                                   const std::string& at, const std::string& valid, bool all_rows) {
  if (!stores) return;
  writer.set_inner_variable(at);
  std::string guard = valid;
  if (!all_rows) guard += (guard.empty() ? "" : " && ") + fmt::format("row < {}u", layout_.rows);
  for (std::size_t i = 0; i < kernel_.stores.size(); ++i) {
    if (passes_.store[i] != pass) continue;
    if (!guard.empty()) writer.line(fmt::format("if ({}) {{", guard));
    writer.indent();
    writer.write_store(kernel_.stores[i], slot);
    writer.dedent();
    if (!guard.empty()) writer.line("}");
  }
}

void ReductionWriter::accumulate(int s, StepWriter& writer, Helpers& helpers, const std::string& slot,
                                 const std::string& valid) {
  const Step& step = kernel_.steps[static_cast<std::size_t>(s)];
  const DType from = kernel_.steps[static_cast<std::size_t>(step.a)].type;
  const auto add = [&](const std::string& target, const std::string& value) {
    const std::string guarded =
        valid.empty() ? value
                      : fmt::format("select({}, {}, {})", render_identity(step.reduction, from, helpers), value, valid);
    writer.line(fmt::format("{} = {};", target, render_combine(step.reduction, from, target, guarded, helpers)));
  };
  if (gives_position(step.reduction)) {
    for (int lane = 0; lane < layout_.width; ++lane) {
      const int own = layout_.columns ? lane : 0;
      const std::string key = accumulator(s, own, 0), position = accumulator(s, own, 1);
      const std::string at = layout_.columns || lane == 0 ? writer.inner_variable()
                                                          : fmt::format("({} + {}u)", writer.inner_variable(), lane);
      const std::string name = fmt::format("k{}{}_{}", s, slot, lane);
      writer.line(
          fmt::format("let {} = {};", name, render_key(step.reduction, writer.value(step.a, lane, slot), helpers)));
      // Items are in ascending order in a thread, so an equal key is later; the very first item may equal the start.
      writer.line(
          fmt::format("if ({0}{1} > {2} || ({1} == {2} && {3} == 2147483647i){4}) {{ {2} = {1}; {3} = i32({5}); }}",
                      valid.empty() ? "" : valid + " && (", name, key, position, valid.empty() ? "" : ")", at));
    }
    return;
  }
  if (layout_.columns) {
    for (int lane = 0; lane < layout_.width; ++lane)
      add(accumulator(s, lane, 0), writer.value(step.a, lane, slot).text);
    return;
  }
  const auto item = [&](int lane) { return writer.value(step.a, lane, slot).text; };
  std::string value = item(0);
  if (layout_.width == 4)
    value = render_combine(step.reduction, from, render_combine(step.reduction, from, item(0), item(1), helpers),
                           render_combine(step.reduction, from, item(2), item(3), helpers), helpers);
  add(accumulator(s, 0, 0), value);
}

}  // namespace weft::webgpu
