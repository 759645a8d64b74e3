#include "backend/webgpu/wgsl/loop.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "backend/webgpu/wgsl/reduction.hpp"
#include "backend/webgpu/wgsl/staged_gather.hpp"
#include "backend/webgpu/wgsl/steps.hpp"
#include "backend/webgpu/wgsl/strips.hpp"
#include "backend/webgpu/wgsl/turned.hpp"
#include "backend/webgpu/wgsl/turned_gather.hpp"
#include "weft/error.hpp"

namespace weft::webgpu {
namespace {

using kernel::Level;
using kernel::LoopKernel;
using kernel::Step;
using kernel::StepKind;
using scalar::Reduction;

constexpr int kLoopThreads = 256;           // of a workgroup: every device allows as many
constexpr Extent kLarge = Extent{1} << 20;  // with this many elements or groups of four, a thread takes several

void check_extent(const LoopKernel& kernel) {
  if (kernel.outer * kernel.inner >> 32 != 0)
    throw DeviceError(
        fmt::format("webgpu: kernel {} runs over {} x {} elements, and a shader counts to 2^32; use a smaller batch",
                    kernel.name, kernel.outer, kernel.inner));
}

/// Writes the copy of a gathered row to workgroup memory, and the head of the loop over the items of the workgroup's part.
void write_staged_head(const StagedGather& gather, StepWriter& writer, const Bindings& bindings, Extent total,
                       int width) {
  const int handle = writer.handle_of(gather.steps.front());
  const Space rows{{{"n", total / gather.run}}, -1};
  const Index index(gather.rows, rows);
  bool fours =
      bindings.has_vectors(handle) && gather.extent % 4 == 0 && (gather.rows.offset + bindings.base(handle)) % 4 == 0;
  for (const Extent stride : gather.rows.strides) fours = fours && stride % 4 == 0;
  writer.line(fmt::format("let n = {};", divided("group", gather.parts())));
  writer.line(fmt::format("let begin = {} * {}u;", modulo("group", gather.parts()), gather.part));
  writer.line(fmt::format("let from_row = {};", index.offset(bindings.base(handle))));
  writer.line(
      fmt::format("for (var e = thread; e < {}u; e += {}u) {{", gather.extent / (fours ? 4 : 1), gather.threads));
  writer.indent();
  if (fours) {
    writer.line(fmt::format("let four = {};", bindings.load_vector(handle, "from_row + e * 4u")));
    for (int lane = 0; lane < 4; ++lane)
      writer.line(fmt::format("$row[e * 4u + {}u] = {};", lane, bindings.component(handle, "four", lane)));
  } else {
    writer.line(fmt::format("$row[e] = {};", bindings.load(handle, "from_row + e")));
  }
  writer.dedent();
  writer.line("}");
  writer.line("workgroupBarrier();");
  const bool whole = gather.run % gather.part == 0;
  writer.line(fmt::format("let end = {};", whole ? fmt::format("{}u", gather.part)
                                                 : fmt::format("min({}u, {}u - begin)", gather.part, gather.run)));
  writer.line(fmt::format("for (var at = thread * {0}u; at < end; at += {1}u) {{", width, gather.threads * width));
  writer.indent();
  writer.line(fmt::format("let i = n * {}u + begin + at;", gather.run));
  for (const int step : gather.steps) writer.stage(step, "$row");
}

/// Writes the reads of a block of turned operands to workgroup memory, and the head of the loop over its elements.
void write_turned_head(const Turned& turned, const std::vector<int>& loads, StepWriter& writer) {
  constexpr Extent kSide = Turned::kSide, kPitch = kSide + 1;  // of a row: a column then has words in all banks
  const auto each = [&](const char* first, const char* second) {
    writer.line(fmt::format("for (var e = thread; e < {}u; e += {}u) {{", Turned::kBlockElements, kLoopThreads));
    writer.indent();
    writer.line(fmt::format("let {} = {};", first, modulo("e", kSide)));
    writer.line(fmt::format("let {} = {};", second, divided("e", kSide)));
    const PlaceInBlock place = place_in_block(turned, "group", "row", "column");
    writer.line(fmt::format("let i = {};", place.element));
    if (!place.inside.empty()) writer.line(fmt::format("if (!({})) {{ continue; }}", place.inside));
  };
  const auto at = [&](std::size_t k) { return fmt::format("$turned{}[column * {}u + row]", k, kPitch); };
  each("row", "column");
  for (std::size_t k = 0; k < loads.size(); ++k) {
    writer.write(loads[k]);
    writer.line(fmt::format("{} = {};", at(k), writer.value(loads[k]).text));
  }
  writer.forget("");
  writer.dedent();
  writer.line("}");
  writer.line("workgroupBarrier();");
  each("column", "row");
  for (std::size_t k = 0; k < loads.size(); ++k) writer.replace(loads[k], at(k));
}

void render_elementwise(const LoopKernel& kernel, const Target& target, bool backwards, Rendered& rendered) {
  bool has_inner_store = false, has_outer_store = false;
  for (const kernel::Store& store : kernel.stores)
    (kernel.steps[static_cast<std::size_t>(store.value)].level == Level::inner ? has_inner_store : has_outer_store) =
        true;
  const std::vector<bool> needed = needed_steps(kernel);
  bool uses_outer = has_outer_store;
  for (std::size_t s = 0; s < kernel.steps.size(); ++s)
    if (needed[s] && kernel.steps[s].level == Level::outer && kernel.steps[s].kind != StepKind::constant)
      uses_outer = true;
  const bool mixed = has_inner_store && uses_outer;
  const Extent total = has_inner_store ? kernel.outer * kernel.inner : kernel.outer;
  const std::optional<StagedGather> staged = staged_gather(kernel, needed, total, target);
  const std::optional<Turned> turned = staged ? std::nullopt : turned_axes(kernel, needed, total);
  const std::optional<Strips> strips = staged || turned ? std::nullopt : column_strips(kernel, needed, total);

  const bool is_long = has_long_text(kernel, needed);
  for (int width : {4, 1}) {
    if (width == 4 && (total % 4 != 0 || (mixed && kernel.inner % 4 != 0) || is_long)) continue;
    // Four neighbours belong to one run of a gather, one line of a block, or one strip.
    if (width == 4 &&
        ((staged && staged->run % 4 != 0) || (turned && turned->along % 4 != 0) || (strips && strips->inner % 4 != 0)))
      continue;
    Bindings bindings(target, kernel.name);
    Helpers helpers;
    const int vector_axis = width == 4 ? 0 : -1;
    const Space all{{{"i", total}}, vector_axis};
    const Space rows{{{divided("i", kernel.inner), kernel.outer}}, -1};
    StepWriter writer(kernel, bindings, helpers, mixed ? rows : all, all);
    if (width == 4 && writer.vector_accesses() == 0) continue;
    if (staged) bindings.want_vectors(writer.handle_of(staged->steps.front()));
    bindings.resolve();

    const Extent items = (turned   ? turned->blocks(total) * Turned::kBlockElements
                          : strips ? strips->padded(total)
                                   : total) /
                         width;
    const std::vector<int> loads =
        turned && width == 1 ? turned_loads(kernel, needed, total, *turned) : std::vector<int>{};
    // Of strips, threads that run at one time should take few.
    const Extent turns = items >= kLarge && !strips ? 4 : 1;
    const Extent groups = staged           ? total / staged->run * staged->parts()
                          : !loads.empty() ? turned->blocks(total)
                                           : divide_up(items, kLoopThreads * turns);
    const int threads = staged ? staged->threads : kLoopThreads;
    int scopes = 1;
    const auto open = [&](const std::string& line) {
      writer.line(line);
      writer.indent();
      ++scopes;
    };
    if (staged) {
      write_staged_head(*staged, writer, bindings, total, width);
    } else if (!loads.empty()) {
      write_turned_head(*turned, loads, writer);
    } else {
      scopes = 0;
      const std::string block = backwards ? fmt::format("({}u - group)", groups - 1) : "group";
      if (turns > 1) {
        open(fmt::format("for (var turn = 0u; turn < {}u; turn++) {{", turns));
        writer.line(fmt::format("let item = ({} * {}u + turn) * {}u + thread;", block, turns, kLoopThreads));
      } else {
        writer.line(fmt::format("let item = {} * {}u + thread;", block, kLoopThreads));
      }
      if (items % (kLoopThreads * turns) != 0) open(fmt::format("if (item < {}u) {{", items));
      if (turned || strips) {
        const PlaceInBlock place = turned ? place_in_block(*turned, width) : place_in_strips(*strips, width);
        writer.line(fmt::format("let i = {};", place.element));
        if (!place.inside.empty()) open(fmt::format("if ({}) {{", place.inside));
      } else {
        writer.line(width == 4 ? "let i = item * 4u;" : "let i = item;");
      }
    }
    for (std::size_t s = 0; s < kernel.steps.size(); ++s)
      if (needed[s]) writer.write(static_cast<int>(s));
    for (const kernel::Store& store : kernel.stores) {
      const bool once = mixed && kernel.steps[static_cast<std::size_t>(store.value)].level == Level::outer;
      if (once) writer.line(fmt::format("if ({} == 0u) {{", modulo("i", kernel.inner)));
      if (once) writer.indent();
      writer.write_store(store);
      if (once) writer.dedent();
      if (once) writer.line("}");
    }
    for (; scopes > 0; --scopes) {
      writer.dedent();
      writer.line("}");
    }
    ShaderPieces shader{.threads = threads, .helpers = std::move(helpers), .body = writer.take_text()};
    if (staged) {
      const DType type = kernel.inputs[static_cast<std::size_t>(staged->operand)].type;
      shader.share("row", wgsl_type(type), staged->extent);
    }
    for (std::size_t k = 0; k < loads.size(); ++k)
      shader.share(fmt::format("turned{}", k), wgsl_type(kernel.steps[static_cast<std::size_t>(loads[k])].type),
                   Turned::kSide * (Turned::kSide + 1));
    rendered.dispatches.push_back(
        dispatch_of(kernel.name, std::move(shader), bindings, static_cast<std::uint64_t>(groups), target));
    return;
  }
}

}  // namespace

LoopKernel without_inner(LoopKernel kernel) {
  const bool empty = kernel.inner == 0;
  if (empty)
    std::erase_if(kernel.stores, [&](const kernel::Store& store) {
      return kernel.steps[static_cast<std::size_t>(store.value)].level == Level::inner;
    });
  const std::vector<bool> needed = needed_steps(kernel);
  for (std::size_t s = 0; s < kernel.steps.size(); ++s) {
    Step& step = kernel.steps[s];
    if (step.kind == StepKind::reduce && needed[s]) {
      const DType from = kernel.steps[static_cast<std::size_t>(step.a)].type;
      const bool arg = gives_position(step.reduction);
      if (empty || arg) {
        const double inf = std::numeric_limits<double>::infinity();
        step.kind = StepKind::constant;
        step.a = -1;
        step.value = arg || step.reduction == Reduction::sum ? 0
                     : step.reduction == Reduction::prod     ? 1
                     : step.reduction == Reduction::max      ? (is_float(from)       ? -inf
                                                                : from == DType::i32 ? -2147483648.0
                                                                                     : 0)
                     : is_float(from)                        ? inf
                     : from == DType::i32                    ? 2147483647.0
                     : from == DType::u32                    ? 4294967295.0
                                                             : 1;
      } else {
        step.kind = StepKind::map;
        step.op = scalar::Op::cast;
      }
    }
    step.level = Level::outer;
  }
  kernel.inner = 1;
  return kernel;
}

namespace {

void render_either_way(const LoopKernel& given, const Target& target, bool backwards, Scratch& scratch,
                       Rendered& rendered) {
  if (given.outer == 0 || given.stores.empty()) return;
  if (given.inner <= 1) {
    const LoopKernel flat = without_inner(given);
    if (flat.stores.empty()) return;
    check_extent(flat);
    const std::optional<LoopKernel> turned = with_turned_gather(flat, target, scratch, rendered);
    render_elementwise(turned ? *turned : flat, target, backwards, rendered);
    return;
  }
  check_extent(given);
  const std::vector<bool> needed = needed_steps(given);
  bool reduces = false;
  for (std::size_t s = 0; s < given.steps.size(); ++s)
    reduces = reduces || (needed[s] && given.steps[s].kind == StepKind::reduce);
  // All inner indices read a value of their outer index that is updated in place, so a workgroup keeps them together.
  for (const kernel::Store& store : given.stores)
    if (given.steps[static_cast<std::size_t>(store.value)].level == Level::outer)
      for (const kernel::Operand& input : given.inputs)
        reduces = reduces || input.buffer == given.outputs[static_cast<std::size_t>(store.output)].buffer;
  if (reduces) {
    render_reduction(given, target, scratch, rendered);
  } else {
    render_elementwise(given, target, backwards, rendered);
  }
}

}  // namespace

void render(const LoopKernel& kernel, const Target& target, Scratch& scratch, Rendered& rendered) {
  render_either_way(kernel, target, false, scratch, rendered);
}

void render_backwards(const LoopKernel& kernel, const Target& target, Scratch& scratch, Rendered& rendered) {
  render_either_way(kernel, target, true, scratch, rendered);
}

}  // namespace weft::webgpu
