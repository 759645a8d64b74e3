#include "backend/webgpu/wgsl/reduction.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "backend/webgpu/wgsl/loop.hpp"
#include "backend/webgpu/wgsl/passes.hpp"
#include "backend/webgpu/wgsl/steps.hpp"

namespace weft::webgpu {
namespace {

using kernel::Level;
using kernel::LoopKernel;
using kernel::Step;
using kernel::StepKind;
using scalar::Reduction;

constexpr int kReductionThreads = 256;  // of a workgroup: every device allows as many
constexpr int kLongRowThreads = 1024;   // of one that has a long row to itself, where the device allows as many
constexpr Extent kLongRow = 16;         // items of a row for each of those threads
constexpr Extent kTurnsWritten = 8;     // reads in flight: turns of a loop over a row that are written out
constexpr Extent kSlotsMax = 8;         // parts of a row in the registers of one thread
constexpr Extent kSlotsMaxRolled = 2;   // the same where text is to be short
constexpr Extent kRegistersMax = 96;    // values kept across passes by one thread
constexpr Extent kSlotsSplit = 64;      // parts of a row a thread: fewer cost less than a second dispatch
constexpr Extent kSlotsChunk = 4;       // the least that a chunk leaves each thread
constexpr int kSharedWordsMax = 2048;   // of workgroup memory for joining lanes
constexpr int kSerialPartsMax = 16;     // partial results that every thread adds up by itself

/// How workgroups and threads share a reduction.
struct Layout {
  bool columns = false;    // neighbouring threads take neighbouring outer indices
  int width = 1;           // neighbours a thread takes at once: along inner in rows, along outer in columns
  Extent items = 0;        // of a row: inner, or groups of `width`
  Extent rows = 0;         // outer, or groups of `width`
  int lanes = 1;           // threads that share a row
  Extent chunks = 1;       // workgroups that share a row
  bool registers = false;  // each thread keeps its part of the row
  int threads = kReductionThreads;

  int rows_per_group() const { return threads / lanes; }
  Extent slots() const { return divide_up(items, lanes); }
  Extent chunk_items() const { return divide_up(items, chunks); }
};

class ReductionWriter {
 public:
  ReductionWriter(const LoopKernel& kernel, const Target& target, Scratch& scratch, Rendered& rendered)
      : kernel_(kernel),
        target_(target),
        scratch_(scratch),
        rendered_(rendered),
        needed_(needed_steps(kernel)),
        passes_(plan_passes(kernel)) {}

  void render() {
    layout_.columns = memory_runs_along_outer();
    Layout narrow = layout_, wide = layout_;
    wide.width = 4;
    const bool divisible = (layout_.columns ? kernel_.outer : kernel_.inner) % 4 == 0;
    if (divisible && vector_accesses(wide) > 0) narrow = wide;
    layout_ = narrow;
    choose_layout();
    if (layout_.chunks > 1) {
      render_split();
    } else {
      write_kernel(nullptr);
    }
  }

 private:
  Space outer_space(const Layout& layout) const {
    return {{{"r", kernel_.outer}}, layout.columns && layout.width == 4 ? 0 : -1};
  }
  Space inner_space(const Layout& layout) const {
    return {{{"r", kernel_.outer}, {kInnerVariable, kernel_.inner}}, layout.width == 1 ? -1 : layout.columns ? 0 : 1};
  }

  int vector_accesses(const Layout& layout) const {
    Bindings bindings(target_, kernel_.name);
    Helpers helpers;
    return StepWriter(kernel_, bindings, helpers, outer_space(layout), inner_space(layout)).vector_accesses();
  }

  bool memory_runs_along_outer() const {
    // The larger operands decide.
    Extent along_inner = 0, along_outer = 0;
    const auto count = [&](const kernel::View& view, const kernel::Operand& operand) {
      const Space inner{{{"r", kernel_.outer}, {"j", kernel_.inner}}, 1},
          outer{{{"r", kernel_.outer}, {"j", kernel_.inner}}, 0};
      if (Index(view, inner).lane_stride() == 1) along_inner += operand.count;
      if (kernel_.outer > 1 && Index(view, outer).lane_stride() == 1) along_outer += operand.count;
    };
    for (std::size_t s = 0; s < kernel_.steps.size(); ++s) {
      const Step& step = kernel_.steps[s];
      if (needed_[s] && step.level == Level::inner && (step.kind == StepKind::load || step.kind == StepKind::gather))
        count(step.view, kernel_.inputs[static_cast<std::size_t>(step.operand)]);
    }
    for (const kernel::Store& store : kernel_.stores)
      if (kernel_.steps[static_cast<std::size_t>(store.value)].level == Level::inner)
        count(store.view, kernel_.outputs[static_cast<std::size_t>(store.output)]);
    return along_outer > along_inner;
  }

  /// Values a thread keeps for the following passes, for each item of the row.
  int kept_values() const {
    int kept = 0;
    for (int pass = 0; pass + 1 < passes_.count; ++pass) {
      int now = 0;
      for (std::size_t s = 0; s < kernel_.steps.size(); ++s)
        if (passes_.first[s] >= 0 && passes_.first[s] <= pass && passes_.last[s] > pass &&
            kernel_.steps[s].kind != StepKind::constant)
          ++now;
      kept = std::max(kept, now);
    }
    return kept;
  }

  bool can_split() const {
    for (std::size_t s = 0; s < kernel_.steps.size(); ++s)
      if (needed_[s] && kernel_.steps[s].kind == StepKind::reduce && passes_.ready[s] != 1) return false;
    return passes_.count == 1 &&
           std::all_of(passes_.store.begin(), passes_.store.end(), [](int pass) { return pass < 0; });
  }

  void choose_layout() {
    Layout& layout = layout_;
    layout.items = layout.columns ? kernel_.inner : kernel_.inner / layout.width;
    layout.rows = layout.columns ? kernel_.outer / layout.width : kernel_.outer;
    const Extent busy_threads = Extent{target_.multiprocessors} * 1024;
    const auto lanes_for = [](Extent wanted, int most) {
      return static_cast<int>(std::bit_ceil(static_cast<std::uint64_t>(std::clamp<Extent>(wanted, 1, most))));
    };
    if (layout.columns) {
      // At least 64 bytes of neighbours, or all there are, so that memory is read in whole sectors.
      const Extent wanted = std::min(divide_up(busy_threads, layout.rows), divide_up(layout.items, 4));
      const int most =
          static_cast<int>(kReductionThreads /
                           std::bit_ceil(static_cast<std::uint64_t>(std::min<Extent>(layout.rows, 16 / layout.width))));
      layout.lanes = lanes_for(wanted, target_.unroll ? most : std::min(most, kSerialPartsMax));
    } else {
      // A subgroup a row where four items a thread suffice; many short rows take fewer lanes each.
      const Extent subgroup = target_.subgroup_size ? target_.subgroup_size : 32;
      if (layout.items <= 4 * subgroup) {
        layout.lanes = lanes_for(layout.rows >= busy_threads ? divide_up(layout.items, 4) : layout.items,
                                 static_cast<int>(subgroup));
      } else {
        layout.lanes = lanes_for(divide_up(layout.items, 4), kReductionThreads);
        // Few long rows: nothing else keeps a multiprocessor busy.
        if (target_.unroll && !can_split() && layout.rows <= 2 * Extent{target_.multiprocessors} &&
            layout.items >= kLongRow * kLongRowThreads && target_.limits.workgroup_invocations >= kLongRowThreads)
          layout.lanes = layout.threads = kLongRowThreads;
      }
    }
    const Extent kept = static_cast<Extent>(kept_values()) * layout.width * layout.slots();
    layout.registers = layout.slots() <= (target_.unroll ? kSlotsMax : kSlotsMaxRolled) && kept <= kRegistersMax;

    const Extent groups = divide_up(layout.rows, layout.rows_per_group());
    const Extent enough = 2 * Extent{target_.multiprocessors};
    if (can_split() && groups < enough && layout.slots() >= kSlotsSplit) {
      const Extent chunks = std::min(divide_up(2 * enough, groups), layout.slots() / kSlotsChunk);
      if (chunks > 1) {
        // The last chunk must not be empty.
        layout.chunks = divide_up(layout.items, divide_up(layout.items, chunks));
        layout.registers = false;
      }
    }
  }

  // Splits the rows: this kernel reduces chunks to scratch buffers, laid out [chunk][outer]; a second one reduces those and
  // does the rest. For argmax the first keeps the extreme's key and position, the second takes the position whose key wins.
  void render_split() {
    LoopKernel rest;
    rest.name = kernel_.name + ".join";
    rest.outer = kernel_.outer;
    rest.inner = layout_.chunks;
    rest.inputs = kernel_.inputs;
    rest.outputs = kernel_.outputs;
    std::vector<kernel::Operand> partials;
    std::vector<int> place(kernel_.steps.size(), -1);
    const Extent count = kernel_.outer * layout_.chunks;
    const kernel::View across{{kernel_.outer, layout_.chunks}, {1, kernel_.outer}, 0, {}};
    const auto push = [&](Step step) {
      rest.steps.push_back(std::move(step));
      return static_cast<int>(rest.steps.size()) - 1;
    };
    const auto load_partial = [&](DType type) {
      partials.push_back(scratch_.add(type, count));
      rest.inputs.push_back(partials.back());
      Step load{StepKind::load, type, Level::inner};
      load.operand = static_cast<int>(rest.inputs.size()) - 1;
      load.view = across;
      return push(load);
    };
    for (std::size_t s = 0; s < kernel_.steps.size(); ++s) {
      const Step& step = kernel_.steps[s];
      if (!needed_[s] || step.level == Level::inner) continue;
      if (step.kind != StepKind::reduce) {
        Step copy = step;
        for (int* operand : {&copy.a, &copy.b, &copy.c})
          if (*operand >= 0) *operand = place[static_cast<std::size_t>(*operand)];
        place[s] = push(copy);
        continue;
      }
      const DType from = kernel_.steps[static_cast<std::size_t>(step.a)].type;
      const bool arg = gives_position(step.reduction);
      Step reduce{StepKind::reduce, arg ? DType::i32 : step.type, Level::outer};
      reduce.reduction = arg ? Reduction::argmax : step.reduction;
      reduce.a = load_partial(arg ? DType::u32 : from);
      place[s] = push(reduce);
      if (!arg) continue;
      partials.push_back(scratch_.add(DType::i32, count));
      rest.inputs.push_back(partials.back());
      Step gather{StepKind::gather, step.type, Level::outer};
      gather.operand = static_cast<int>(rest.inputs.size()) - 1;
      gather.a = place[s];
      gather.axis_extent = layout_.chunks;
      gather.axis_stride = kernel_.outer;
      gather.view = {{kernel_.outer}, {1}, 0, {}};
      place[s] = push(gather);
    }
    for (kernel::Store store : kernel_.stores) {
      store.value = place[static_cast<std::size_t>(store.value)];
      rest.stores.push_back(store);
    }
    write_kernel(&partials);
    webgpu::render(rest, target_, scratch_, rendered_);
  }

  // With `partials` the results of the reductions of this workgroup's chunk go there and nothing else is stored.
  void write_kernel(const std::vector<kernel::Operand>* partials) {
    Bindings bindings(target_, kernel_.name);
    Helpers helpers;
    LoopKernel only_reductions;
    const LoopKernel* source = &kernel_;
    if (partials) {  // stores of what needs the reductions, so that the writer binds what they read and no outputs
      only_reductions = kernel_;
      only_reductions.stores.clear();
      only_reductions.outputs.clear();
      for (std::size_t s = 0; s < kernel_.steps.size(); ++s)
        if (needed_[s] && kernel_.steps[s].kind == StepKind::reduce) {
          only_reductions.outputs.push_back({});  // no elements: not bound, not written
          only_reductions.stores.push_back({static_cast<int>(s),
                                            static_cast<int>(only_reductions.outputs.size()) - 1,
                                            {{kernel_.outer}, {1}, 0, {}}});
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
    // Threads without a row of their own repeat the last one and store nothing: all reach the barriers.
    const std::string row = all_rows ? "row" : fmt::format("min(row, {}u)", layout_.rows - 1);
    writer.line(layout_.columns && layout_.width == 4 ? fmt::format("let r = {} * 4u;", row)
                                                      : fmt::format("let r = {};", row));

    std::size_t partial = 0;
    for (int pass = 0; pass < passes_.count; ++pass) {
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
                                              accumulator(s, lane, part == 1)));
      if (!guard.empty()) writer.line("}");
    }
    if (!partials) write_results(writer, all_rows);

    std::string head;
    if (uses_subgroups_) head = "enable subgroups;\ndiagnostic(off, subgroup_uniformity);\n";
    if (shared_words_ > 0) head += fmt::format("var<workgroup> shared_words: array<u32, {}>;\n", shared_words_);
    const WorkgroupNumber number = workgroup_number(groups, target_);
    rendered_.dispatches.push_back(
        {partials ? kernel_.name + ".part" : kernel_.name,
         compute_shader(bindings, helpers, number, layout_.threads, head, writer.take_text()), bindings.ranges(),
         groups});
  }

  bool is_reduced_in(std::size_t s, int pass) const {
    return kernel_.steps[s].kind == StepKind::reduce && needed_[s] && passes_.ready[s] - 1 == pass;
  }

  /// Separate accumulators of a thread for one reduction: one for each of its rows.
  int accumulators() const { return layout_.columns ? layout_.width : 1; }
  /// The accumulator's name, or that of the position beside an argmax's key.
  static std::string accumulator(int step, int lane, bool position) {
    return fmt::format("a{}{}{}", step, "xyzw"[lane], position ? "p" : "");
  }

  void write_pass(const LoopKernel& source, StepWriter& writer, Helpers& helpers, int pass, bool all_rows) {
    bool any = false;
    for (std::size_t s = 0; s < kernel_.steps.size(); ++s) {
      if (!is_reduced_in(s, pass)) continue;
      any = true;
      const Step& step = kernel_.steps[s];
      const DType from = kernel_.steps[static_cast<std::size_t>(step.a)].type;
      for (int lane = 0; lane < accumulators(); ++lane) {
        writer.line(fmt::format("var {} = {};", accumulator(static_cast<int>(s), lane, false),
                                render_identity(step.reduction, from, helpers)));
        if (gives_position(step.reduction))
          writer.line(fmt::format("var {} = 2147483647i;", accumulator(static_cast<int>(s), lane, true)));
      }
    }
    const bool stores = &source == &kernel_;  // else the reductions' results alone are wanted
    if (stores) any = any || std::find(passes_.store.begin(), passes_.store.end(), pass) != passes_.store.end();
    if (!any) return;

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
    // A thread takes its items in the same order whether turns are written out or not.
    const Extent turns = layout_.slots() / layout_.chunks;
    const Extent written =
        !target_.unroll || turns < 2 * kTurnsWritten ? 1 : kTurnsWritten / (layout_.width == 4 ? 2 : 1);
    const std::string scale = !layout_.columns && layout_.width == 4 ? " * 4u" : "";
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
        writer.line(fmt::format("let j{} = (item + {}u){};", slots.back(), turn * layout_.lanes, scale));
      }
      // All reads come before the first store, past which compilers would not take them.
      for (const std::string& slot : slots) write_values(stores, writer, helpers, pass, slot, "j" + slot, "");
      for (const std::string& slot : slots) write_stores(stores, writer, pass, slot, "j" + slot, "", all_rows);
      for (const std::string& slot : slots) writer.forget(slot);
      writer.dedent();
      writer.line("}");
    }
    writer.line(fmt::format("for (; item < end; item += {}u) {{", layout_.lanes));
    writer.indent();
    writer.line(fmt::format("let j = item{};", scale));
    write_values(stores, writer, helpers, pass, "s", "j", "");
    write_stores(stores, writer, pass, "s", "j", "", all_rows);
    writer.forget("s");
    writer.dedent();
    writer.line("}");
    writer.dedent();
    writer.line("}");
  }

  // The item of slot `number` in a thread that keeps its part of the row. Where not `whole` it may lie beyond the row's end:
  // then the last one is read again, and neither added nor stored.
  void write_items(bool stores, StepWriter& writer, Helpers& helpers, int pass, const std::string& slot, Extent number,
                   bool whole, bool all_rows) {
    // Blocks of their own would hide the kept values, so that j is declared once a slot, in the first pass that runs.
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

  // What the pass reduces and stores of one item, whose index is `at`; `valid`: whether it is one, or "".
  void write_values(bool stores, StepWriter& writer, Helpers& helpers, int pass, const std::string& slot,
                    const std::string& at, const std::string& valid) {
    writer.set_inner_variable(at);
    for (std::size_t s = 0; s < kernel_.steps.size(); ++s) {
      if (!is_reduced_in(s, pass)) continue;
      writer.write(kernel_.steps[s].a, slot);
      accumulate(static_cast<int>(s), writer, helpers, slot, valid);
    }
    if (!stores) return;
    // All values come before the first store, which may overwrite what they are made of.
    for (std::size_t i = 0; i < kernel_.stores.size(); ++i)
      if (passes_.store[i] == pass) writer.write(kernel_.stores[i].value, slot);
  }

  void write_stores(bool stores, StepWriter& writer, int pass, const std::string& slot, const std::string& at,
                    const std::string& valid, bool all_rows) {
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

  void accumulate(int s, StepWriter& writer, Helpers& helpers, const std::string& slot, const std::string& valid) {
    const Step& step = kernel_.steps[static_cast<std::size_t>(s)];
    const DType from = kernel_.steps[static_cast<std::size_t>(step.a)].type;
    const auto add = [&](const std::string& target, const std::string& value) {
      const std::string guarded =
          valid.empty()
              ? value
              : fmt::format("select({}, {}, {})", render_identity(step.reduction, from, helpers), value, valid);
      writer.line(fmt::format("{} = {};", target, render_combine(step.reduction, from, target, guarded, helpers)));
    };
    if (gives_position(step.reduction)) {
      for (int lane = 0; lane < layout_.width; ++lane) {
        const int own = layout_.columns ? lane : 0;
        const std::string key = accumulator(s, own, false), position = accumulator(s, own, true);
        const std::string at = layout_.columns || lane == 0 ? writer.inner_variable()
                                                            : fmt::format("({} + {}u)", writer.inner_variable(), lane);
        const std::string name = fmt::format("k{}{}_{}", s, slot, lane);
        writer.line(
            fmt::format("let {} = {};", name, render_key(step.reduction, writer.value(step.a, lane, slot), helpers)));
        // Items come in growing order in a thread, so an equal key comes later; the first of all may equal the start.
        writer.line(
            fmt::format("if ({0}{1} > {2} || ({1} == {2} && {3} == 2147483647i){4}) {{ {2} = {1}; {3} = i32({5}); }}",
                        valid.empty() ? "" : valid + " && (", name, key, position, valid.empty() ? "" : ")", at));
      }
      return;
    }
    if (layout_.columns) {
      for (int lane = 0; lane < layout_.width; ++lane)
        add(accumulator(s, lane, false), writer.value(step.a, lane, slot).text);
      return;
    }
    const auto item = [&](int lane) { return writer.value(step.a, lane, slot).text; };
    std::string value = item(0);
    if (layout_.width == 4)
      value = render_combine(step.reduction, from, render_combine(step.reduction, from, item(0), item(1), helpers),
                             render_combine(step.reduction, from, item(2), item(3), helpers), helpers);
    add(accumulator(s, 0, false), value);
  }

  static std::string to_word(DType type, const std::string& value) {
    return type == DType::u32 ? value : type == DType::boolean ? "u32(" + value + ")" : "bitcast<u32>(" + value + ")";
  }
  static std::string from_word(DType type, const std::string& word) {
    return type == DType::u32       ? word
           : type == DType::boolean ? "(" + word + " != 0u)"
                                    : fmt::format("bitcast<{}>({})", wgsl_type(type), word);
  }

  /// Statement that takes another thread's partial result into this one's.
  std::string combine_statement(int s, int lane, const std::string& other, const std::string& other_position,
                                Helpers& helpers) const {
    const Step& step = kernel_.steps[static_cast<std::size_t>(s)];
    const std::string own = accumulator(s, lane, false);
    if (!gives_position(step.reduction))
      return fmt::format(
          "{} = {};", own,
          render_combine(step.reduction, kernel_.steps[static_cast<std::size_t>(step.a)].type, own, other, helpers));
    const std::string position = accumulator(s, lane, true);
    return fmt::format("if ({0} > {1} || ({0} == {1} && {2} < {3})) {{ {1} = {0}; {3} = {2}; }}", other, own,
                       other_position, position);
  }

  bool has_position(int s) const { return gives_position(kernel_.steps[static_cast<std::size_t>(s)].reduction); }
  int components(int s) const { return has_position(s) ? 2 : 1; }
  /// Type of a reduction's accumulators.
  DType type_of(int s) const {
    return has_position(s) ? DType::u32
                           : kernel_.steps[static_cast<std::size_t>(kernel_.steps[static_cast<std::size_t>(s)].a)].type;
  }

  // Joins the partial results of the lanes of each row, so that all of them have the row's results, and names these.
  void join(const std::vector<int>& steps, StepWriter& writer, Helpers& helpers) {
    int joined = 1;  // neighbouring lanes that agree
    if (!layout_.columns && target_.subgroup_size >= 2 && layout_.lanes > 1) {
      uses_subgroups_ = true;
      for (; joined < std::min<int>(layout_.lanes, static_cast<int>(target_.subgroup_size)); joined *= 2)
        for (int s : steps) {
          const DType type = type_of(s);
          const std::string own = accumulator(s, 0, false), name = fmt::format("o{}d{}", s, joined);
          writer.line(
              fmt::format("let {} = {};", name,
                          from_word(type, fmt::format("subgroupShuffleXor({}, {}u)", to_word(type, own), joined))));
          if (has_position(s))
            writer.line(fmt::format("let {}p = subgroupShuffleXor({}, {}u);", name, accumulator(s, 0, true), joined));
          writer.line(combine_statement(s, 0, name, name + "p", helpers));
        }
    }
    if (joined < layout_.lanes) {
      // As many at a time as workgroup memory holds.
      for (std::size_t from = 0, to = 0; from < steps.size(); from = to) {
        int words = 0;
        std::vector<int> some;
        for (; to < steps.size(); ++to) {
          const int more = layout_.threads / joined * accumulators() * components(steps[to]);
          if (!some.empty() && words + more > kSharedWordsMax) break;
          words += more;
          some.push_back(steps[to]);
        }
        shared_words_ = std::max(shared_words_, words);
        join_through_memory(some, joined, writer, helpers);
      }
    }
    for (int s : steps) {
      const bool arg = has_position(s);
      std::vector<std::string> lanes;
      for (int lane = 0; lane < accumulators(); ++lane)
        lanes.push_back(render_cast({accumulator(s, lane, arg), arg ? DType::i32 : type_of(s), {}},
                                    kernel_.steps[static_cast<std::size_t>(s)].type, helpers));
      writer.define(s, lanes);
    }
  }

  // Every lane adds up the row's partial results in the same order; where they are many, some lanes first add up a part.
  void join_through_memory(const std::vector<int>& steps, int joined, StepWriter& writer, Helpers& helpers) {
    const int parts = layout_.lanes / joined;                           // of a row
    const int stride = layout_.columns ? layout_.rows_per_group() : 1;  // in memory, from part to part
    const int region = layout_.threads / joined;                        // words of one accumulator
    const auto each = [&](const auto& visit) {
      int base = 0;
      for (int s : steps)
        for (int lane = 0; lane < accumulators(); ++lane) {
          visit(s, lane, base);
          base += region * components(s);
        }
    };
    const auto put = [&](const std::string& at) {
      each([&](int s, int lane, int base) {
        writer.line(
            fmt::format("  shared_words[{}u + {}] = {};", base, at, to_word(type_of(s), accumulator(s, lane, false))));
        if (has_position(s))
          writer.line(fmt::format("  shared_words[{}u + {}] = bitcast<u32>({});", base + region, at,
                                  accumulator(s, lane, true)));
      });
    };
    const auto take = [&](const std::string& at, int count, int step) {
      each([&](int s, int lane, int base) {
        const auto get = [&](const std::string& from) {
          return from_word(type_of(s), fmt::format("shared_words[{}u + {}]", base, from));
        };
        const auto get_position = [&](const std::string& from) {
          return fmt::format("bitcast<i32>(shared_words[{}u + {}])", base + region, from);
        };
        writer.line(fmt::format("  {} = {};", accumulator(s, lane, false), get(at)));
        if (has_position(s)) writer.line(fmt::format("  {} = {};", accumulator(s, lane, true), get_position(at)));
        // Numbers of threads are below 2^16; slow compilers cannot tell, and so leave the loop alone.
        writer.line(fmt::format("  for (var part = 1u; part < {}u{}; part++) {{", count,
                                target_.unroll ? "" : " + (thread >> 16u)"));
        const std::string from = fmt::format("{} + part * {}u", at, step);
        writer.line(fmt::format("    let other = {};", get(from)));
        if (has_position(s)) writer.line(fmt::format("    let other_p = {};", get_position(from)));
        writer.line("    " + combine_statement(s, lane, "other", "other_p", helpers));
        writer.line("  }");
      });
    };
    const std::string own = divided("thread", joined);
    const std::string row_start =
        layout_.columns ? modulo("thread", stride) : fmt::format("{} * {}u", divided("thread", layout_.lanes), parts);
    writer.line(joined > 1 ? fmt::format("if ({} == 0u) {{", modulo("thread", joined)) : "{");
    put(own);
    writer.line("}");
    writer.line("workgroupBarrier();");
    int left = parts;
    if (parts > kSerialPartsMax) {
      left = kSerialPartsMax;
      const std::string part = joined == 1 ? "lane" : divided("lane", joined);
      writer.line(fmt::format("if ({} < {}u{}) {{", part, left,
                              joined > 1 ? fmt::format(" && {} == 0u", modulo("thread", joined)) : ""));
      take(own, parts / left, left * stride);
      put(own);
      writer.line("}");
      writer.line("workgroupBarrier();");
    }
    writer.line("{");
    take(row_start, left, stride);
    writer.line("}");
    writer.line("workgroupBarrier();");  // before the words are used again
  }

  void write_results(StepWriter& writer, bool all_rows) {
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
    // Other lanes of the row may still have to read what this one is about to overwrite.
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

  const LoopKernel& kernel_;
  const Target& target_;
  Scratch& scratch_;
  Rendered& rendered_;
  std::vector<bool> needed_;
  Passes passes_;
  Layout layout_;
  std::vector<std::string> declared_;
  bool uses_subgroups_ = false;
  int shared_words_ = 0;
};

}  // namespace

void render_reduction(const LoopKernel& kernel, const Target& target, Scratch& scratch, Rendered& rendered) {
  ReductionWriter(kernel, target, scratch, rendered).render();
}

}  // namespace weft::webgpu
