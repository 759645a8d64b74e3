#include "backend/webgpu/wgsl/matmul/staged_product.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "backend/webgpu/wgsl/index.hpp"
#include "backend/webgpu/wgsl/matmul/matrix_writer.hpp"

namespace weft::webgpu {
namespace {

using kernel::MatmulKernel;
using kernel::Operand;

constexpr int kScanThreads = 256;
// A workgroup scans so many rows along k, or so many vectors of columns over a part of k.
constexpr Extent kScanRows = 32, kScanVectors = 8, kScanDepth = 1024, kPartsMax = 16;

/// One operand whose largest numbers are found.
struct ScannedOperand {
  const Operand& operand;
  kernel::MatrixView view;  // [batch, extent, k]
  Extent batch, extent, k;
  bool along_k;
  Operand largest;

  Extent depth() const { return along_k ? k : std::max(kScanDepth, divide_up(k, kPartsMax)); }
  Extent parts() const { return divide_up(k, depth()); }
  Extent across() const { return divide_up(extent, along_k ? kScanRows : 8 * kScanVectors); }
  Extent groups() const { return batch * parts() * across(); }
};

ScannedOperand scanned(const Operand& operand, kernel::MatrixView view, Extent batch, Extent extent, Extent k,
                       Scratch& scratch) {
  const bool along_k = follows_k(view), batched = is_batched(view);
  ScannedOperand s{operand, std::move(view), batched ? batch : 1, extent, k, along_k, {}};
  s.largest = scratch.add(DType::f32, s.batch * s.parts() * extent);
  return s;
}

std::string eighths_of(Extent elements) { return fmt::format("{}u", static_cast<std::uint32_t>(elements / 8)); }

/// Writes the scan of one operand by workgroup number `block`. Sizes are compared as bits, so that NaN is the largest.
void write_scan(const ScannedOperand& s, const Bindings& bindings, int from, int to, std::string& text) {
  const auto line = [&](const std::string& each) { text += "  " + each + "\n"; };
  const std::string array = bindings.array_of(from);
  const Extent count = s.along_k ? kScanRows : 8 * kScanVectors;
  line(fmt::format("let first = {} * {}u;", modulo("block", s.across()), count));
  line(fmt::format("let rest = {};", divided("block", s.across())));
  line(fmt::format("let part = {};", modulo("rest", s.parts())));
  line(fmt::format("let b = {};", divided("rest", s.parts())));
  line(fmt::format("let batch_at = ({}) / 8u;",
                   Index(s.view.at.batch, {{{"b", s.batch}}, -1}).offset(bindings.base(from))));
  line("var even = vec4<u32>(); var odd = vec4<u32>();");
  const auto take = [&](const std::string& at) {
    line(fmt::format("  let sizes = {}[{}] & vec4<u32>(0x7fff7fffu);", array, at));
    line("  even = max(even, sizes & vec4<u32>(0xffffu)); odd = max(odd, sizes >> vec4<u32>(16u));");
    line("}");
  };
  line("let vector = thread % 8u;");
  if (s.along_k) {
    line(fmt::format("let row = min(first + thread / 8u, {}u);", s.extent - 1));
    line(fmt::format("let at = batch_at + row * {};", eighths_of(s.view.row())));
    line(fmt::format("for (var n = vector; n < {}u; n += 8u) {{", s.k / 8));
    take("at + n");
    line("let each = max(even, odd);");
    line("atomicMax(&$largest[thread / 8u], max(max(each.x, each.y), max(each.z, each.w)));");
  } else {
    line(fmt::format("let column = min(first / 8u + vector, {}u);", s.extent / 8 - 1));
    line(fmt::format("let end = min((part + 1u) * {}u, {}u);", s.depth(), s.k));
    line(fmt::format("for (var n = part * {}u + thread / 8u; n < end; n += 32u) {{", s.depth()));
    take(fmt::format("batch_at + column + n * {}", eighths_of(s.view.column())));
    for (int e = 0; e < 8; ++e)
      line(fmt::format("atomicMax(&$largest[vector * 8u + {}u], {}.{});", e, e % 2 ? "odd" : "even", "xyzw"[e / 2]));
  }
  line("workgroupBarrier();");
  line(fmt::format("if (thread < {}u && first + thread < {}u) {{", count, s.extent));
  line("  " + bindings.store(to, fmt::format("rest * {}u + first + thread + {}u", s.extent, bindings.base(to)),
                             "bitcast<f32>(atomicLoad(&$largest[thread]) << 16u)"));
  line("}");
}

/// Finds the largest numbers of both operands.
void render_scan(const MatmulKernel& kernel, const ScannedOperand (&operands)[2], const Target& target,
                 Rendered& rendered) {
  Bindings bindings(target, kernel.name + ".scan");
  int from[2], to[2];
  for (int o = 0; o < 2; ++o) {
    from[o] = bindings.add(operands[o].operand, false);
    bindings.want_eights(from[o]);
    to[o] = bindings.add(operands[o].largest, true);
    bindings.forbid_vectors(to[o]);
  }
  bindings.resolve();
  const auto first_groups = static_cast<std::uint64_t>(operands[0].groups());
  std::string text = fmt::format("  if (thread < {}u) {{ atomicStore(&$largest[thread], 0u); }}\n", 8 * kScanVectors);
  text += "  workgroupBarrier();\n";
  for (int o = 0; o < 2; ++o) {
    text += o == 0 ? fmt::format("  if (group < {}u) {{\n  let block = group;\n", first_groups)
                   : fmt::format("  }} else {{\n  let block = group - {}u;\n", first_groups);
    write_scan(operands[o], bindings, from[o], to[o], text);
  }
  text += "  }\n";
  ShaderPieces shader{.threads = kScanThreads, .body = std::move(text)};
  shader.share("largest", "atomic<u32>", 8 * kScanVectors);
  rendered.dispatches.push_back(dispatch_of(kernel.name + ".scan", std::move(shader), bindings,
                                            first_groups + static_cast<std::uint64_t>(operands[1].groups()), target));
  rendered.set_aside(rendered.dispatches.size() - 1);
}

/// The kernel as it is for operands of halves.
MatmulKernel on_halves(const MatmulKernel& kernel) {
  MatmulKernel made = kernel;
  made.precision = ProductPrecision::exact;
  made.a.type = made.b.type = DType::f16;
  return made;
}

}  // namespace

std::optional<TileChoice> choose_staged_tile(const MatmulKernel& kernel, const Target& target) {
  if (!target.matrices() || kernel.k <= 0) return {};
  const auto suits = [&](const Operand& operand, const kernel::MatrixView& view, Extent extent) {
    return operand.type == DType::bf16 && view.is_plain() && view.at.batch.bounds.empty() &&
           groups_of(operand, view, extent, kernel.k) == 8;
  };
  const std::size_t bindings = 4 + kernel.epilogue.inputs.size() + kernel.epilogue.outputs.size();
  if (!suits(kernel.a, kernel.a_view, kernel.m) || !suits(kernel.b, kernel.b_view.transposed(), kernel.n) ||
      bindings > target.limits.storage_buffers)
    return {};
  const MatmulKernel halves = on_halves(kernel);
  const auto choice = choose_matrix_tile(halves, target);
  if (!choice) return {};
  constexpr double kBytes = 2;  // each number is read once more
  const double prepared =
      target.profile.dispatch_microseconds +
      kBytes * static_cast<double>(kernel.a.count + kernel.b.count) / target.profile.bytes_per_second * 1e6;
  const double on_matrices =
      estimate(matrix_tiles()[static_cast<std::size_t>(choice->tile)], choice->split, halves, target.profile);
  if (prepared + on_matrices >= estimate_of_choice(kernel.batch, kernel.m, kernel.n, kernel.k, target)) return {};
  return choice;
}

void render_staged(const MatmulKernel& kernel, const MatrixTile& tile, int split, const Target& target,
                   Scratch& scratch, Rendered& rendered) {
  if (kernel.batch * kernel.m * kernel.n == 0) return;
  const ScannedOperand operands[] = {
      scanned(kernel.a, kernel.a_view, kernel.batch, kernel.m, kernel.k, scratch),
      scanned(kernel.b, kernel.b_view.transposed(), kernel.batch, kernel.n, kernel.k, scratch)};
  render_scan(kernel, operands, target, rendered);
  const auto& [a, b] = operands;
  const ScaledOperands scaled{.largest_a = a.largest,
                              .largest_b = b.largest,
                              .parts_a = a.parts(),
                              .parts_b = b.parts(),
                              .batched_a = is_batched(a.view),
                              .batched_b = is_batched(b.view),
                              .padded = false,
                              .staged = true};
  MatrixWriter(kernel, tile, split, target, scratch, rendered, &scaled).render();
}

}  // namespace weft::webgpu
