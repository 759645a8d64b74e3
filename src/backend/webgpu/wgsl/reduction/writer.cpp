// The whole shader: its passes, and its final stores.
#include "backend/webgpu/wgsl/reduction/writer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace weft::webgpu {
using kernel::Level;
using kernel::LoopKernel;
using kernel::Step;
using kernel::StepKind;
using scalar::Reduction;

ReductionWriter::ReductionWriter(const LoopKernel& kernel, const Target& target, Scratch& scratch, Rendered& rendered,
                                 std::vector<Joint> kinds, bool shares)
    : kernel_(kernel),
      target_(target),
      scratch_(scratch),
      rendered_(rendered),
      kinds_(std::move(kinds)),
      shares_(shares),
      needed_(needed_steps(kernel)),
      passes_(plan_passes(kernel)) {
  layout_.columns = memory_runs_along_outer();
  ReductionLayout narrow = layout_, wide = layout_;
  wide.width = 4;
  const bool divisible = (layout_.columns ? kernel_.outer : kernel_.inner) % 4 == 0;
  if (divisible && !has_long_text(kernel, needed_) && vector_accesses(wide) > 0) narrow = wide;
  layout_ = narrow;
  choose_layout();
}

void ReductionWriter::render() {
  if (layout_.chunks > 1) {
    render_split();
  } else {
    write_kernel(nullptr);
  }
}

// With `partials`, only the results of the reductions of this workgroup's chunk are stored, to `partials`.
void ReductionWriter::write_kernel(const std::vector<kernel::Operand>* partials) {
  Bindings bindings(target_, kernel_.name);
  Helpers helpers;
  LoopKernel only_reductions;
  const LoopKernel* source = &kernel_;
  if (partials) {  // store values that need the reductions, so that the writer binds their inputs and no outputs
    only_reductions = kernel_;
    only_reductions.stores.clear();
    only_reductions.outputs.clear();
    for (std::size_t s = 0; s < kernel_.steps.size(); ++s)
      if (is_reduced_in(s, 0)) {
        only_reductions.outputs.push_back({});  // no elements: not bound, not written
        only_reductions.stores.push_back(
            {static_cast<int>(s), static_cast<int>(only_reductions.outputs.size()) - 1, {{kernel_.outer}, {1}, 0, {}}});
      }
    source = &only_reductions;
  }
  const std::vector<bool> needed = needed_steps(*source);
  StepWriter writer(*source, bindings, helpers, outer_space(layout_), inner_space(layout_));
  std::vector<int> partial_handles;
  if (partials)
    for (const kernel::Operand& partial : *partials) {
      partial_handles.push_back(bindings.add(partial, true));
      bindings.forbid_vectors(partial_handles.back());
    }
  bindings.resolve();

  const Extent row_groups = divide_up(layout_.rows, layout_.rows_per_group());
  const auto groups = static_cast<std::uint64_t>(row_groups * layout_.chunks);
  const bool all_rows = layout_.rows % layout_.rows_per_group() == 0;
  const std::string group_of_rows = layout_.chunks > 1 ? divided("group", layout_.chunks) : "group";
  const int rows_per_group = layout_.rows_per_group();
  if (layout_.chunks > 1) writer.line(fmt::format("let chunk = {};", modulo("group", layout_.chunks)));
  if (layout_.columns) {
    writer.line(fmt::format("let lane = {};", divided("thread", rows_per_group)));
    writer.line(
        fmt::format("let row = {} * {}u + {};", group_of_rows, rows_per_group, modulo("thread", rows_per_group)));
  } else {
    writer.line(fmt::format("let lane = {};", modulo("thread", layout_.lanes)));
    writer.line(
        fmt::format("let row = {} * {}u + {};", group_of_rows, rows_per_group, divided("thread", layout_.lanes)));
  }
  // Threads without a row repeat the last row and store nothing, so that all threads reach the barriers.
  const std::string row = all_rows ? "row" : fmt::format("min(row, {}u)", layout_.rows - 1);
  writer.line(layout_.columns && layout_.width == 4 ? fmt::format("let r = {} * 4u;", row)
                                                    : fmt::format("let r = {};", row));

  std::size_t partial = 0;
  for (int pass = 0; pass < (partials ? 1 : passes_.count); ++pass) {
    for (std::size_t s = 0; s < kernel_.steps.size(); ++s)
      if (needed[s] && kernel_.steps[s].level == Level::outer && kernel_.steps[s].kind != StepKind::reduce &&
          passes_.ready[s] == pass)
        writer.write(static_cast<int>(s));
    write_pass(*source, writer, helpers, pass, all_rows);
    std::vector<int> reduced;
    for (std::size_t s = 0; s < kernel_.steps.size(); ++s)
      if (is_reduced_in(s, pass)) reduced.push_back(static_cast<int>(s));
    join(reduced, writer, helpers);
    if (!partials) continue;
    std::string guard = layout_.lanes > 1 ? "lane == 0u" : "";
    if (!all_rows) guard += (guard.empty() ? "" : " && ") + fmt::format("row < {}u", layout_.rows);
    if (!guard.empty()) writer.line(fmt::format("if ({}) {{", guard));
    for (int s : reduced)
      for (int part = 0; part < components(s); ++part, ++partial)
        for (int lane = 0; lane < accumulators(); ++lane)
          writer.line("  " + bindings.store(partial_handles[partial],
                                            fmt::format("chunk * {}u + r + {}u", kernel_.outer, lane),
                                            accumulator(s, lane, part)));
    if (!guard.empty()) writer.line("}");
  }
  if (!partials) write_results(writer, all_rows);

  ShaderPieces shader{.threads = layout_.threads, .subgroups = uses_subgroups_, .helpers = std::move(helpers)};
  if (shared_words_ > 0) shader.share("shared_words", "u32", shared_words_);
  shader.body = writer.take_text();
  rendered_.dispatches.push_back(
      dispatch_of(partials ? kernel_.name + ".part" : kernel_.name, std::move(shader), bindings, groups, target_));
}

DType ReductionWriter::type_of(int s, int part) const {
  if (joint(s) != Joint::none) return DType::f32;
  if (part == 1) return DType::i32;
  return has_position(s) ? DType::u32
                         : kernel_.steps[static_cast<std::size_t>(kernel_.steps[static_cast<std::size_t>(s)].a)].type;
}

void ReductionWriter::write_results(StepWriter& writer, bool all_rows) {
  bool any = false, in_place = false;
  for (std::size_t i = 0; i < kernel_.stores.size(); ++i) {
    if (passes_.store[i] >= 0) continue;
    any = true;
    const kernel::Operand& output = kernel_.outputs[static_cast<std::size_t>(kernel_.stores[i].output)];
    for (const kernel::Operand& input : kernel_.inputs) in_place = in_place || input.buffer == output.buffer;
  }
  if (!any) return;
  for (std::size_t s = 0; s < kernel_.steps.size(); ++s)
    if (needed_[s] && kernel_.steps[s].level == Level::outer && kernel_.steps[s].kind != StepKind::reduce)
      writer.write(static_cast<int>(s));
  // Other lanes of the row may still need to read elements that this lane will overwrite.
  if (in_place && layout_.lanes > 1) writer.line("storageBarrier();");
  std::string guard = layout_.lanes > 1 ? "lane == 0u" : "";
  if (!all_rows) guard += (guard.empty() ? "" : " && ") + fmt::format("row < {}u", layout_.rows);
  if (!guard.empty()) writer.line(fmt::format("if ({}) {{", guard));
  writer.indent();
  for (std::size_t i = 0; i < kernel_.stores.size(); ++i)
    if (passes_.store[i] < 0) writer.write_store(kernel_.stores[i]);
  writer.dedent();
  if (!guard.empty()) writer.line("}");
}

}  // namespace weft::webgpu
