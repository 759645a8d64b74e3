#include "backend/webgpu/wgsl/attention.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "backend/webgpu/wgsl/attention/matrix_writer.hpp"
#include "backend/webgpu/wgsl/attention/ranges.hpp"
#include "backend/webgpu/wgsl/attention/writer.hpp"
#include "backend/webgpu/wgsl/loop.hpp"
#include "backend/webgpu/wgsl/matmul/as_reduction.hpp"
#include "weft/error.hpp"

namespace weft::webgpu {
using attention::AttentionWriter;
using attention::computes_delta_twice;
using attention::Part;
using kernel::AttentionKernel;

namespace {

constexpr Extent kWidthMax = 256;

// rowsum(dO * O) of each query.
kernel::LoopKernel delta_kernel(const AttentionKernel& kernel, const kernel::Operand& delta) {
  kernel::LoopKernel loop;
  loop.name = kernel.name + ".delta";
  loop.outer = kernel.batch * kernel.heads * kernel.queries;
  loop.inner = kernel.width;
  for (const AttentionKernel::Tensor* tensor : {&kernel.d_o, &kernel.o}) {
    kernel::Step load = load_step(DType::f32, static_cast<int>(loop.inputs.size()),
                                  {{kernel.batch, kernel.heads, kernel.queries, kernel.width},
                                   {tensor->batch_stride, tensor->head_stride, tensor->row_stride, 1},
                                   0,
                                   {}});
    load.level = kernel::Level::inner;
    loop.inputs.push_back(tensor->operand);
    loop.steps.push_back(load);
  }
  kernel::Step product{kernel::StepKind::map, DType::f32, kernel::Level::inner};
  product.op = scalar::Op::mul;
  product.a = 0, product.b = 1;
  loop.steps.push_back(product);
  loop.steps.push_back(sum_step(DType::f32, 2));
  loop.outputs = {delta};
  loop.stores = {{3, 0, {{loop.outer}, {1}, 0, {}}}};
  return loop;
}

// Few queries leave most of the device without work, unless several workgroups share the keys of each.
Extent parts_of(const AttentionKernel& kernel, const Target& target) {
  constexpr Extent kQueriesMost = 16, kKeysEach = 256, kPartsMost = 64;
  if (kernel.backward || kernel.queries > kQueriesMost) return 1;
  const Extent groups = std::max<Extent>(kernel.batch * kernel.heads, 1);
  return std::clamp<Extent>(
      std::min(2 * static_cast<Extent>(target.profile.compute_units) / groups, kernel.keys / kKeysEach), 1, kPartsMost);
}

// Joins the results of the parts, each of which is divided by its own sum: those of larger sums weigh more.
void render_join(const AttentionKernel& kernel, const AttentionKernel& of_parts, Extent parts, const Target& target,
                 Rendered& rendered) {
  constexpr int kThreads = 128;
  Bindings bindings(target, kernel.name + ".join");
  Helpers helpers;
  const int from = bindings.add(of_parts.o.operand, false), sums = bindings.add(of_parts.logsumexp, false),
            to = bindings.add(kernel.o.operand, true), logsumexp = bindings.add(kernel.logsumexp, true);
  for (const int handle : {from, sums, to, logsumexp}) bindings.forbid_vectors(handle);
  bindings.resolve();
  const Extent rows = kernel.batch * kernel.heads * kernel.queries, count = rows * kernel.width;
  std::string text;
  const auto line = [&](const std::string& each) { text += "  " + each + "\n"; };
  line(fmt::format("let at = group * {}u + thread;", kThreads));
  line(fmt::format("if (at < {}u) {{", count));
  line(fmt::format("let row = {};", divided("at", kernel.width)));
  line(fmt::format("let channel = {};", modulo("at", kernel.width)));
  const std::string sum =
      fmt::format("max({}, {})", bindings.load(sums, fmt::format("part * {}u + row + {}u", rows, bindings.base(sums))),
                  attention::kUnseen);
  line(fmt::format("var top = {};", attention::kUnseen));
  line(fmt::format("for (var part = 0u; part < {}u; part++) {{ top = max(top, {}); }}", parts, sum));
  line("var total = 0f; var result = 0f;");
  line(fmt::format("for (var part = 0u; part < {}u; part++) {{", parts));
  line(fmt::format("  let weight = exp2(({} - top) * {});", sum,
                   render_constant(attention::kLog2E, DType::f32, helpers)));
  line("  total += weight;");
  line(fmt::format("  result = fma(weight, {}, result);",
                   bindings.load(from, fmt::format("part * {}u + at + {}u", count, bindings.base(from)))));
  line("}");
  // Rows are numbered by batch, head and query.
  const AttentionKernel::Tensor& o = kernel.o;
  const std::string place =
      fmt::format("{} * {}u + {} * {}u + {} * {}u + channel + {}u", divided("row", kernel.heads * kernel.queries),
                  o.batch_stride, modulo(divided("row", kernel.queries), kernel.heads), o.head_stride,
                  modulo("row", kernel.queries), o.row_stride, bindings.base(to));
  line(bindings.store_f32(to, place, "result / total", helpers));
  line(fmt::format("if (channel == 0u) {{ {} }}",
                   bindings.store(logsumexp, fmt::format("row + {}u", bindings.base(logsumexp)),
                                  fmt::format("select(top + {}(total), {}, top <= {})", helpers.use("log_f32"),
                                              bindings.load(sums, fmt::format("row + {}u", bindings.base(sums))),
                                              attention::kUnseen))));
  line("}");
  ShaderPieces shader{.threads = kThreads, .helpers = std::move(helpers)};
  shader.body = std::move(text);
  rendered.dispatches.push_back(dispatch_of(kernel.name + ".join", std::move(shader), bindings,
                                            static_cast<std::uint64_t>(divide_up(count, kThreads)), target));
}

void render_in_parts(const AttentionKernel& kernel, Extent parts, const Target& target, Scratch& scratch,
                     Rendered& rendered, const AttentionBlock* block) {
  const Extent rows = kernel.batch * kernel.heads * kernel.queries;
  AttentionKernel of_parts = kernel;
  of_parts.o = {scratch.add(DType::f32, parts * rows * kernel.width), rows / kernel.batch * kernel.width,
                kernel.queries * kernel.width, kernel.width};
  of_parts.logsumexp = scratch.add(DType::f32, parts * rows);
  AttentionWriter(of_parts, Part::forward, {}, target, rendered, block, parts).render();
  render_join(kernel, of_parts, parts, target, rendered);
}

// The groups whose numbers do not fit halves, in f32. Workgroups of all others end at once.
void render_wide(const AttentionKernel& kernel, Part part, const kernel::Operand& delta,
                 const attention::Ranges& ranges, const Target& target, Rendered& rendered) {
  AttentionWriter writer(kernel, part, delta, target, rendered, nullptr);
  writer.leave_out_fitting(ranges);
  writer.render();
}

}  // namespace

bool render_on_matrices(const AttentionKernel& kernel, const MatrixAttentionBlocks& blocks, const Target& target,
                        Scratch& scratch, Rendered& rendered) {
  using attention::MatrixAttentionWriter;
  if (!suits_matrices(kernel)) return false;
  attention::Ranges ranges;
  if (attention::is_scaled(kernel)) {
    if (!attention::can_bind_ranges(kernel, target)) return false;
    ranges = attention::ranges_of(kernel, target, scratch);
  }
  if (!kernel.backward) {
    MatrixAttentionWriter writer(kernel, Part::forward, {}, ranges, blocks.forward, target, rendered);
    if (!writer.is_possible()) return false;
    if (ranges.exist()) render_ranges(kernel, ranges, target, rendered);
    writer.render();
    if (ranges.exist()) render_wide(kernel, Part::forward, {}, ranges, target, rendered);
    return true;
  }
  const kernel::Operand delta = scratch.add(DType::f32, kernel.batch * kernel.heads * kernel.queries);
  MatrixAttentionWriter of_queries(kernel, Part::d_query, delta, ranges, blocks.d_query, target, rendered);
  MatrixAttentionWriter of_keys(kernel, Part::d_key_value, delta, ranges, blocks.d_key_value, target, rendered);
  if (!of_queries.is_possible() || !of_keys.is_possible()) return false;
  if (ranges.exist()) render_ranges(kernel, ranges, target, rendered);
  const std::size_t first = rendered.dispatches.size();
  render(delta_kernel(kernel, delta), target, scratch, rendered);
  rendered.set_aside(first);
  of_keys.render();
  of_queries.render();
  if (ranges.exist())
    for (const Part part : {Part::d_query, Part::d_key_value})
      render_wide(kernel, part, computes_delta_twice(kernel) ? kernel::Operand{} : delta, ranges, target, rendered);
  return true;
}

bool is_possible(const AttentionKernel& kernel, const Target& target, const AttentionBlock& block) {
  Rendered rendered;
  const auto fits = [&](Part part) {
    return AttentionWriter(kernel, part, {}, target, rendered, nullptr).is_possible(block);
  };
  return kernel.backward ? fits(Part::d_query) && fits(Part::d_key_value) : fits(Part::forward);
}

void render(const AttentionKernel& kernel, const Target& target, Scratch& scratch, Rendered& rendered,
            const AttentionBlock* block) {
  if (kernel.width > kWidthMax)
    throw DeviceError(
        fmt::format("webgpu: attention of width {} per head; the device computes at most {}", kernel.width, kWidthMax));
  if (!block && target.matrices() &&
      render_on_matrices(kernel, choose_matrix_blocks(kernel, target), target, scratch, rendered))
    return;
  if (!kernel.backward) {
    if (const Extent parts = parts_of(kernel, target); parts > 1)
      return render_in_parts(kernel, parts, target, scratch, rendered, block);
    AttentionWriter(kernel, Part::forward, {}, target, rendered, block).render();
    return;
  }
  const kernel::Operand delta = computes_delta_twice(kernel)
                                    ? kernel::Operand{}
                                    : scratch.add(DType::f32, kernel.batch * kernel.heads * kernel.queries);
  AttentionWriter(kernel, Part::d_query, delta, target, rendered, block).render();
  AttentionWriter(kernel, Part::d_key_value, delta, target, rendered, block).render();
}

}  // namespace weft::webgpu
