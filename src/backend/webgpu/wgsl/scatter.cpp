#include "backend/webgpu/wgsl/scatter.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "backend/webgpu/wgsl/line_sums.hpp"
#include "backend/webgpu/wgsl/loop.hpp"
#include "backend/webgpu/wgsl/scatter_lists.hpp"
#include "backend/webgpu/wgsl/zeros.hpp"
#include "weft/error.hpp"

namespace weft::webgpu {
namespace {

using kernel::Level;
using kernel::LoopKernel;
using kernel::ScatterAddKernel;
using kernel::Step;
using kernel::StepKind;

constexpr Extent kColumnThreads = 256;  // of a workgroup: a column each
constexpr Extent kIndicesAtOnce = 1024;
constexpr Extent kPartMin = 256;  // updates in a part
constexpr Extent kPartialBytesMax = Extent{64} << 20;
constexpr int kInFlight = 4;      // updates read before the first is added
constexpr Extent kManyRows = 32;  // of a compute unit: the updates of each row are listed first
// Single numbers, so many of them, are added up as integers, if there are so many rows. Lists would be slow where few rows meet
// most updates, as in histograms, and one thread of a workgroup would have the only column.
constexpr Extent kManyNumbers = 32768, kNumberRows = 256;

struct Plan {
  Extent rows_per_group = 1, row_groups = 1, column_groups = 1, parts = 1;
  Extent part(const ScatterAddKernel& kernel) const { return divide_up(kernel.count, parts); }
};

Plan plan_of(const ScatterAddKernel& kernel, const Target& target) {
  Plan plan;
  plan.column_groups = divide_up(kernel.columns, kColumnThreads);
  const Extent enough = 4 * Extent{target.profile.compute_units};
  plan.rows_per_group = std::clamp<Extent>(kernel.rows * plan.column_groups / enough, 1, 8);
  plan.row_groups = divide_up(kernel.rows, plan.rows_per_group);
  const Extent wanted = divide_up(enough, plan.row_groups * plan.column_groups);
  const Extent affordable = kPartialBytesMax / std::max<Extent>(4, kernel.rows * kernel.columns * 4);
  plan.parts = std::max<Extent>(1, std::min({wanted * 8, affordable, kernel.count / kPartMin}));
  if (kernel.count > 0) plan.parts = divide_up(kernel.count, plan.part(kernel));  // none is empty
  return plan;
}

ShaderPieces shader_of(const ScatterAddKernel& kernel, const Plan& plan, const Bindings& bindings, int indices,
                       int updates, int out) {
  const DType type = kernel.out.type;
  const std::string_view wgsl = wgsl_type(type);
  const auto element = [&](int handle, const std::string& at) {
    return bindings.load(handle, fmt::format("{} + {}u", at, bindings.base(handle)));
  };
  const auto add = [&](const std::string& a, const std::string& b) {
    return type == DType::boolean ? fmt::format("{} || {}", a, b) : fmt::format("{} + {}", a, b);
  };
  ShaderPieces shader{.threads = kColumnThreads};
  shader.share("sums", wgsl, plan.rows_per_group * kColumnThreads);
  shader.share("row_of", "u32", kIndicesAtOnce);
  shader.share("found", "atomic<u32>", kIndicesAtOnce / 32);
  std::string& text = shader.body;
  const auto line = [&](const std::string& statement) { text += "  " + statement + "\n"; };
  line(fmt::format("let column = {} * {}u + thread;", modulo("group", plan.column_groups), kColumnThreads));
  line(fmt::format("let rest = {};", divided("group", plan.column_groups)));
  line(fmt::format("let row0 = {} * {}u;", modulo("rest", plan.row_groups), plan.rows_per_group));
  line(fmt::format("let part = {};", divided("rest", plan.row_groups)));
  line(fmt::format("let end = min((part + 1u) * {}u, {}u);", plan.part(kernel), kernel.count));
  line(fmt::format("for (var row = 0u; row < {}u; row++) {{ $sums[row * {}u + thread] = {}(); }}", plan.rows_per_group,
                   kColumnThreads, wgsl));
  line(fmt::format("for (var first = part * {}u; first < end; first += {}u) {{", plan.part(kernel), kIndicesAtOnce));
  line(fmt::format("  if (thread < {}u) {{ atomicStore(&$found[thread], 0u); }}", kIndicesAtOnce / 32));
  line("  workgroupBarrier();");
  line(fmt::format("  for (var at = thread; at < {}u; at += {}u) {{", kIndicesAtOnce, kColumnThreads));
  line("    if (first + at < end) {");
  // A negative index is large as u32, so it is also outside.
  line(fmt::format("      let wanted = {};", kernel.indices.type == DType::u32
                                                 ? element(indices, "first + at")
                                                 : fmt::format("bitcast<u32>({})", element(indices, "first + at"))));
  line(fmt::format("      let row = wanted - row0;"));
  line(fmt::format("      if (row < {}u && wanted < {}u) {{", plan.rows_per_group, kernel.rows));
  line("        $row_of[at] = row;");
  line("        atomicOr(&$found[at >> 5u], 1u << (at & 31u));");
  line("      }");
  line("    }");
  line("  }");
  line("  workgroupBarrier();");
  line(fmt::format("  if (column < {}u) {{", kernel.columns));
  line(fmt::format("    for (var word = 0u; word < {}u; word++) {{", kIndicesAtOnce / 32));
  line("      var bits = atomicLoad(&$found[word]);");
  line("      while (bits != 0u) {");
  for (int i = 0; i < kInFlight; ++i) {
    line(fmt::format("        let has{} = bits != 0u;", i));
    line(i == 0 ? "        let at0 = word * 32u + firstTrailingBit(bits);"
                : fmt::format("        let at{0} = select(at0, word * 32u + firstTrailingBit(bits), has{0});", i));
    line("        bits &= bits - 1u;");
    line(fmt::format("        let x{} = {};", i,
                     element(updates, fmt::format("(first + at{}) * {}u + column", i, kernel.columns))));
  }
  for (int i = 0; i < kInFlight; ++i) {
    const std::string place = fmt::format("$sums[$row_of[at{}] * {}u + thread]", i, kColumnThreads);
    line(fmt::format("        {}{} = {};{}", i == 0 ? "" : fmt::format("if (has{}) {{ ", i), place,
                     add(place, fmt::format("x{}", i)), i == 0 ? "" : " }"));
  }
  line("      }");
  line("    }");
  line("  }");
  line("  workgroupBarrier();");
  line("}");
  line(fmt::format("if (column < {}u) {{", kernel.columns));
  line(fmt::format("  for (var row = 0u; row < {}u && row0 + row < {}u; row++) {{", plan.rows_per_group, kernel.rows));
  line("    " + bindings.store(out,
                               fmt::format("(part * {}u + row0 + row) * {}u + column + {}u", kernel.rows,
                                           kernel.columns, bindings.base(out)),
                               fmt::format("$sums[row * {}u + thread]", kColumnThreads)));
  line("  }");
  line("}");
  return shader;
}

}  // namespace

void render(const ScatterAddKernel& kernel, const Target& target, Scratch& scratch, Rendered& rendered) {
  const Extent results = kernel.rows * kernel.columns;
  if (results == 0) return;
  if (kernel.updates.type != kernel.out.type || !is_integer(kernel.indices.type))
    throw InternalError(fmt::format("webgpu: kernel {}: updates of {} are added to {} by indices of {}", kernel.name,
                                    name_of(kernel.updates.type), name_of(kernel.out.type),
                                    name_of(kernel.indices.type)));
  if (kernel.count == 0) {
    const kernel::Operand all{kernel.out.buffer, kernel.out.type, kernel.out.offset, results};
    return render_zeros(kernel.name, all, target, scratch, rendered);
  }
  const DType type = kernel.out.type;
  const bool are_words = type == DType::f32 || type == DType::i32 || type == DType::u32;
  if (kernel.columns == 1 && kernel.count >= kManyNumbers && kernel.rows >= kNumberRows && are_words) {
    const LineSums sums{kernel.name, kernel.indices, kernel.updates, kernel.out, {1, kernel.rows, 1, kernel.count}};
    return render_sums_in_memory(sums, target, scratch, rendered);
  }
  const Plan plan = plan_of(kernel, target);
  if (kernel.rows >= kManyRows * Extent{target.profile.compute_units})
    return render_scatter_lists(kernel, target, scratch, rendered);
  kernel::Operand out = kernel.out;
  if (plan.parts > 1) out = scratch.add(kernel.out.type, results * plan.parts);
  Bindings bindings(target, kernel.name);
  const int indices = bindings.add(kernel.indices, false), updates = bindings.add(kernel.updates, false),
            written = bindings.add(out, true);
  bindings.resolve();
  const auto groups = static_cast<std::uint64_t>(plan.row_groups * plan.column_groups * plan.parts);
  rendered.dispatches.push_back(
      dispatch_of(kernel.name, shader_of(kernel, plan, bindings, indices, updates, written), bindings, groups, target));
  if (plan.parts == 1) return;

  LoopKernel join;
  join.name = kernel.name + ".join";
  join.outer = results;
  join.inner = plan.parts;
  join.inputs = {out};
  join.outputs = {kernel.out};
  Step load{StepKind::load, out.type, Level::inner};
  load.operand = 0;
  load.view = {{results, plan.parts}, {1, results}, 0, {}};
  Step sum{StepKind::reduce, out.type, Level::outer};
  sum.a = 0;
  join.steps = {load, sum};
  join.stores = {{1, 0, {{results}, {1}, 0, {}}}};
  render(join, target, scratch, rendered);
}

}  // namespace weft::webgpu
