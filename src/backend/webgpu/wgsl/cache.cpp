#include "backend/webgpu/wgsl/cache.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "backend/webgpu/wgsl/cache_rows.hpp"
#include "backend/webgpu/wgsl/loop.hpp"
#include "backend/webgpu/wgsl/scalar.hpp"
#include "backend/webgpu/wgsl/steps.hpp"
#include "compile/call_attributes.hpp"
#include "graph/cache.hpp"

namespace weft::webgpu {
namespace {

using kernel::CallKernel;
using kernel::Operand;

constexpr int kWriteThreads = 256;  // as in elementwise kernels, so that they run side by side

/// Statements that write unit `u` of a row: an element, a word of two halves, or a block of 32.
std::string write_unit(CacheType type, const Bindings& bindings, int rows, int out) {
  const auto value = [&](const std::string& i) {
    return bindings.load(rows, fmt::format("source + {} + {}u", i, bindings.base(rows)));
  };
  const auto store = [&](const std::string& i, const std::string& v) {
    return bindings.store(out, fmt::format("place + {} + {}u", i, bindings.base(out)), v);
  };
  switch (type) {
    case CacheType::f32: return "      " + store("u", value("u")) + "\n";
    case CacheType::f16:
      return fmt::format(
          "      {}\n", store("u", cached_halves(fmt::format("vec2f({}, {})", value("2u * u"), value("2u * u + 1u")))));
    case CacheType::q8: break;
  }
  std::string text = "      var largest = 0f;\n";
  text += fmt::format("      for (var i = 0u; i < 32u; i++) {{ largest = max(largest, abs({})); }}\n",
                      value("u * 32u + i"));
  text += "      let inverse = select(0f, 127f / largest, largest > 0f);\n";
  text += fmt::format("      {}\n", store("u * 9u", "bitcast<u32>(largest / 127f)"));
  text += "      for (var w = 0u; w < 8u; w++) {\n";
  text += "        var word = 0u;\n        for (var i = 0u; i < 4u; i++) {\n";
  text +=
      fmt::format("          let q = i32(round(clamp({} * inverse, -127f, 127f)));\n", value("u * 32u + w * 4u + i"));
  text += "          word |= (bitcast<u32>(q) & 255u) << (i * 8u);\n        }\n";
  text += fmt::format("        {}\n      }}\n", store("u * 9u + w + 1u", "word"));
  return text;
}

/// If places are equal, the last one counts. The threads of a workgroup, which have `units` of each row, look together for later
/// places that are those of their rows, and mark these rows in `overwritten`.
std::string overwritten_lines(ShaderPieces& shader, Extent count, Extent units, const auto& place) {
  std::string text;
  const auto line = [&](const std::string& statement) { text += "  " + statement + "\n"; };
  shader.share("overwritten", "atomic<u32>", kWriteThreads / std::min<Extent>(units, kWriteThreads) + 2);
  line(fmt::format("let first = {};", divided(fmt::format("(group * {}u)", kWriteThreads), units)));
  line(fmt::format("let end = min({} + 1u, {}u);",
                   divided(fmt::format("(group * {0}u + {1}u)", kWriteThreads, kWriteThreads - 1), units), count));
  line("if (thread < end - first) { atomicStore(&$overwritten[thread], 0u); }");
  line("workgroupBarrier();");
  line("for (var t = first; t < end; t++) {");
  line(fmt::format("  let row = {};", place("t")));
  line(fmt::format("  for (var later = t + 1u + thread; later < {}u; later += {}u) {{", count, kWriteThreads));
  line(fmt::format("    if ({} == row) {{ atomicStore(&$overwritten[t - first], 1u); }}", place("later")));
  line("  }");
  line("}");
  line("workgroupBarrier();");
  return text;
}

/// Whether `row`, the place of row `t`, is in the cache and counts.
std::string is_written(Extent rows, Extent count) {
  return fmt::format("row >= 0 && row < {}{}", rows, count > 1 ? " && atomicLoad(&$overwritten[t - first]) == 0u" : "");
}

}  // namespace

void render_copy(const Operand& from, const Operand& to, const Target& target, Scratch& scratch, Rendered& rendered) {
  kernel::LoopKernel loop;
  loop.name = "copy";
  loop.outer = to.count;
  loop.inputs = {from};
  loop.outputs = {to};
  const kernel::View view{{to.count}, {1}, 0, {}};
  kernel::Step load{kernel::StepKind::load, to.type, kernel::Level::outer};
  load.operand = 0;
  load.view = view;
  loop.steps = {load};
  loop.stores = {{0, 0, view}};
  render(loop, target, scratch, rendered);
}

void render_write_rows(const CallKernel& kernel, const Target& target, Scratch& scratch, Rendered& rendered) {
  const CacheType type = kernel::attributes_of<graph::WriteRows>(kernel).type;
  const Extent rows = kernel.shape()[0], words = kernel.shape()[1], count = kernel.shapes[1][0],
               width = kernel.shapes[1][1];
  if (kernel.out().buffer != kernel.reads[0].buffer || kernel.out().offset != kernel.reads[0].offset)
    render_copy(kernel.reads[0], kernel.out(), target, scratch, rendered);
  const Extent units = type == CacheType::q8 ? words / 9 : words;
  if (count * units * rows == 0) return;
  Bindings bindings(target, kernel.name);
  const int from = bindings.add(kernel.reads[1], false), at = bindings.add(kernel.reads[2], false),
            out = bindings.add(kernel.out(), true);
  bindings.forbid_vectors(out);
  bindings.resolve();
  const auto groups = static_cast<std::uint64_t>(divide_up(count * units, kWriteThreads));
  const auto place = [&](const std::string& t) {
    return bindings.load(at, fmt::format("{} + {}u", t, bindings.base(at)));
  };
  std::string body;
  const auto line = [&](const std::string& text) { body += "  " + text + "\n"; };
  ShaderPieces shader{.threads = kWriteThreads};
  if (count > 1) body += overwritten_lines(shader, count, units, place);
  line(fmt::format("let number = group * {}u + thread;", kWriteThreads));
  line(fmt::format("if (number < {}u) {{", count * units));
  line(fmt::format("  let t = {};", divided("number", units)));
  line(fmt::format("  let u = {};", modulo("number", units)));
  line(fmt::format("  let row = {};", place("t")));
  line(fmt::format("  if ({}) {{", is_written(rows, count)));
  line(fmt::format("    let source = t * {}u;", width));
  line(fmt::format("    let place = u32(row) * {}u;", words));
  body += write_unit(type, bindings, from, out);
  line("  }");
  line("}");
  shader.body = std::move(body);
  rendered.dispatches.push_back(dispatch_of(kernel.name, std::move(shader), bindings, groups, target));
}

bool render_written_loop(const kernel::LoopKernel& loop, const CallKernel& write, const Target& target,
                         Rendered& rendered) {
  constexpr Extent kFour = 4;
  if (write.op != &graph::write_rows_row() || write.out() != write.reads[0] || loop.inner != 1 ||
      loop.outputs.size() != 1 || loop.stores.size() != 1)
    return false;
  const CacheType type = kernel::attributes_of<graph::WriteRows>(write).type;
  const Extent rows = write.shape()[0], words = write.shape()[1], count = write.shapes[1][0],
               width = write.shapes[1][1];
  if (type == CacheType::q8 || (type == CacheType::f16 && width % kFour != 0)) return false;
  const Operand &made = loop.outputs[0], &given = write.reads[1];
  kernel::LoopKernel each = without_inner(loop);
  if (each.outer != count * width || count * width == 0 || made.type != DType::f32 || made.buffer != given.buffer ||
      made.offset + each.stores[0].view.offset != given.offset || !each.stores[0].view.bounds.empty())
    return false;
  // The loop's elements must have the layout of the rows.
  const kernel::View& view = each.stores[0].view;
  Extent stride = 1;
  for (std::size_t d = view.extents.size(); d-- > 0; stride *= view.extents[d])
    if (view.extents[d] != 1 && view.strides[d] != stride) return false;
  for (const Operand& input : each.inputs)
    if (input.buffer == write.out().buffer || input.buffer == made.buffer) return false;
  for (const kernel::Step& step : each.steps)
    if (step.kind == kernel::StepKind::reduce) return false;
  if (each.inputs.size() + 3 > target.limits.storage_buffers || made.buffer == write.out().buffer ||
      made.buffer == write.reads[2].buffer)
    return false;

  const std::string name = loop.name + " + " + write.name;
  Bindings bindings(target, name);
  Helpers helpers;
  const int at = bindings.add(write.reads[2], false), out = bindings.add(write.out(), true);
  bindings.forbid_vectors(out);
  const Extent lanes = type == CacheType::f16 ? kFour : 1, units = width / lanes;  // of a row, one for each thread
  const Space space{{{"t", count}, {"u", width}}, lanes > 1 ? 1 : -1};
  StepWriter writer(each, bindings, helpers, space, space);
  bindings.resolve();
  const std::vector<bool> needed = needed_steps(each);
  for (std::size_t step = 0; step < each.steps.size(); ++step)
    if (needed[step]) writer.write(static_cast<int>(step));
  writer.write_store(each.stores[0]);
  const auto place = [&](const std::string& t) {
    return bindings.load(at, fmt::format("{} + {}u", t, bindings.base(at)));
  };
  const auto groups = static_cast<std::uint64_t>(divide_up(count * units, kWriteThreads));
  ShaderPieces shader{.threads = kWriteThreads};
  std::string body;
  const auto line = [&](const std::string& text) { body += "  " + text + "\n"; };
  if (count > 1) body += overwritten_lines(shader, count, units, place);
  line(fmt::format("let number = group * {}u + thread;", kWriteThreads));
  line(fmt::format("if (number >= {}u) {{ return; }}", count * units));
  line(fmt::format("let t = {};", divided("number", units)));
  line(fmt::format("let u = {} * {}u;", modulo("number", units), lanes));
  body += writer.take_text();
  line(fmt::format("let row = {};", place("t")));
  line(fmt::format("if ({}) {{", is_written(rows, count)));
  line(fmt::format("  let place = u32(row) * {}u + {} + {}u;", words, type == CacheType::f16 ? "u / 2u" : "u",
                   bindings.base(out)));
  const auto value = [&](int lane) { return writer.value(each.stores[0].value, lane).text; };
  if (type == CacheType::f32) line("  " + bindings.store(out, "place", value(0)));
  for (int pair = 0; pair < 2 && type == CacheType::f16; ++pair)
    line("  " + bindings.store(out, fmt::format("place + {}u", pair),
                               cached_halves(fmt::format("vec2f({}, {})", value(2 * pair), value(2 * pair + 1)))));
  line("}");
  shader.helpers = std::move(helpers);
  shader.body = std::move(body);
  rendered.dispatches.push_back(dispatch_of(name, std::move(shader), bindings, groups, target));
  return true;
}

}  // namespace weft::webgpu
