#include "backend/webgpu/wgsl/loop.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <optional>
#include <utility>

#include "backend/webgpu/wgsl/reduction.hpp"
#include "backend/webgpu/wgsl/steps.hpp"
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

constexpr Extent kBlock = 32;  // elements of a side of a block; a workgroup has one of 32 x 32, by fours

/// Elements as [.., across, between, along], where an operand has its neighbours across and another one along.
struct Turned {
  Extent across, between, along;
};

/// The axes for blocks, if a loaded operand is turned against the order of the elements. Each line that it reads then serves all
/// of a block, and not one element.
std::optional<Turned> turned_axes(const LoopKernel& kernel, const std::vector<bool>& needed, Extent total) {
  for (std::size_t s = 0; s < kernel.steps.size(); ++s) {
    const Step& step = kernel.steps[s];
    if (!needed[s] || step.kind != StepKind::load) continue;
    std::vector<Extent> extents, strides;  // merged where neighbours are contiguous
    Extent points = 1;
    for (std::size_t d = 0; d < step.view.extents.size(); ++d) {
      const Extent extent = step.view.extents[d], stride = step.view.strides[d];
      points *= extent;
      if (extent == 1) continue;
      if (!strides.empty() && strides.back() == stride * extent) {
        extents.back() *= extent;
        strides.back() = stride;
      } else {
        extents.push_back(extent);
        strides.push_back(stride);
      }
    }
    if (points != total || extents.size() < 2 || std::abs(strides.back()) < kBlock) continue;
    const auto found = std::find(strides.begin(), strides.end(), 1);
    if (found == strides.end()) continue;
    const auto at = static_cast<std::size_t>(found - strides.begin());
    Turned turned{extents[at], 1, extents.back()};
    for (std::size_t d = at + 1; d + 1 < extents.size(); ++d) turned.between *= extents[d];
    if (turned.across % kBlock == 0 && turned.along % kBlock == 0) return turned;
  }
  return {};
}

/// The first of the four elements of item `item`, of which 256 neighbours are a block.
std::string element_in_block(const Turned& turned) {
  const std::string block = divided("item", kLoopThreads), in = modulo("item", kLoopThreads);
  const std::string row = divided(in, kBlock / 4), column = modulo(in, kBlock / 4);
  const Extent blocks = turned.along / kBlock;
  const std::string rest = divided(block, blocks), outer = divided(rest, turned.between);
  return fmt::format("(({} * {}u + {}) * {}u + {}) * {}u + {} * {}u + {} * 4u", outer, kBlock, row, turned.between,
                     modulo(rest, turned.between), turned.along, modulo(block, blocks), kBlock, column);
}

void render_elementwise(const LoopKernel& kernel, const Target& target, Rendered& rendered) {
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

  for (int width : {4, 1}) {
    if (width == 4 && (total % 4 != 0 || (mixed && kernel.inner % 4 != 0))) continue;
    Bindings bindings(target, kernel.name);
    Helpers helpers;
    const int vector_axis = width == 4 ? 0 : -1;
    const Space all{{{"i", total}}, vector_axis};
    const Space rows{{{divided("i", kernel.inner), kernel.outer}}, -1};
    StepWriter writer(kernel, bindings, helpers, mixed ? rows : all, all);
    if (width == 4 && writer.vector_accesses() == 0) continue;
    bindings.resolve();

    const Extent items = total / width;
    const Extent turns = items >= kLarge ? 4 : 1;
    const auto groups = static_cast<std::uint64_t>(divide_up(items, kLoopThreads * turns));
    const bool exact = items % (kLoopThreads * turns) == 0;
    if (turns > 1) {
      writer.line(fmt::format("for (var turn = 0u; turn < {}u; turn++) {{", turns));
      writer.indent();
      writer.line(fmt::format("let item = (group * {}u + turn) * {}u + thread;", turns, kLoopThreads));
    } else {
      writer.line(fmt::format("let item = group * {}u + thread;", kLoopThreads));
    }
    if (!exact) {
      writer.line(fmt::format("if (item < {}u) {{", items));
      writer.indent();
    }
    const auto turned = width == 4 ? turned_axes(kernel, needed, total) : std::nullopt;
    writer.line(turned       ? fmt::format("let i = {};", element_in_block(*turned))
                : width == 4 ? "let i = item * 4u;"
                             : "let i = item;");
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
    for (int scopes = (exact ? 0 : 1) + (turns > 1 ? 1 : 0); scopes > 0; --scopes) {
      writer.dedent();
      writer.line("}");
    }
    ShaderPieces shader{.threads = kLoopThreads, .helpers = std::move(helpers), .body = writer.take_text()};
    rendered.dispatches.push_back(dispatch_of(kernel.name, std::move(shader), bindings, groups, target));
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

void render(const LoopKernel& given, const Target& target, Scratch& scratch, Rendered& rendered) {
  if (given.outer == 0 || given.stores.empty()) return;
  if (given.inner <= 1) {
    const LoopKernel flat = without_inner(given);
    if (flat.stores.empty()) return;
    check_extent(flat);
    render_elementwise(flat, target, rendered);
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
    render_elementwise(given, target, rendered);
  }
}

}  // namespace weft::webgpu
