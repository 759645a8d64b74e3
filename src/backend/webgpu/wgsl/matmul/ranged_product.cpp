#include "backend/webgpu/wgsl/matmul/ranged_product.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "backend/webgpu/wgsl/index.hpp"
#include "backend/webgpu/wgsl/matmul/matrix_writer.hpp"
#include "backend/webgpu/wgsl/matmul/tile_writer.hpp"

namespace weft::webgpu {
namespace {

using kernel::LoopKernel;
using kernel::MatmulKernel;
using kernel::Operand;
using kernel::Step;
using kernel::StepKind;

constexpr int kScanThreads = 256;
constexpr Extent kScanGroups = 256;  // of an operand, at most: one thread of a workgroup joins one result
// A workgroup scans so many rows along k at a time, or so many vectors of columns over so many k.
constexpr Extent kScanRows = 32, kScanVectors = 8, kScanDepth = 1024;
constexpr Extent kConverted = 8;  // vectors of a thread

// Of the biased exponents: results are multiplied by two powers of two, one after the other.
constexpr int kLeastExponent = 67, kMostExponent = 187;
// A scaled half is a multiple of 2^-24. So numbers are rounded by at most 2^-11 of the largest one of their row or column, where
// that one is this many powers of two below the largest of the operand; and not at all where it is 8 powers of two below.
constexpr int kRowSpread = 28;

/// One operand on its way.
struct RangeOperand {
  char name;
  const Operand& operand;
  kernel::MatrixView view;  // [batch, extent, k]
  Extent batch, extent, k;
  bool along_k;

  Extent across() const { return along_k ? 1 : divide_up(extent / 8, kScanVectors); }
  Extent down() const { return along_k ? divide_up(extent, kScanRows) : divide_up(k, kScanDepth); }
  Extent blocks() const { return batch * across() * down(); }
  Extent groups() const { return std::min(blocks(), kScanGroups); }
  Extent eights() const { return divide_up(operand.count, 8); }
};

bool is_batched(const kernel::MatrixView& view) {
  const auto& strides = view.at.batch.strides;
  return std::any_of(strides.begin(), strides.end(), [](Extent stride) { return stride != 0; });
}

RangeOperand range_operand(char name, const Operand& operand, kernel::MatrixView view, Extent batch, Extent extent,
                           Extent k) {
  const bool along_k = follows_k(view), batched = is_batched(view);
  return {name, operand, std::move(view), batched ? batch : 1, extent, k, along_k};
}

std::string eighths_of(Extent elements) { return fmt::format("{}u", static_cast<std::uint32_t>(elements / 8)); }

/// Writes the loop over the blocks of one operand.
void write_scan(const RangeOperand& r, const Bindings& bindings, int handle, std::string& text) {
  const auto line = [&](const std::string& each) { text += "  " + each + "\n"; };
  const std::string array = bindings.array_of(handle);
  line(fmt::format("for (var block = chunk; block < {}u; block += {}u) {{", r.blocks(), r.groups()));
  line(fmt::format("  let across = {};", modulo("block", r.across())));
  line(fmt::format("  let rest = {};", divided("block", r.across())));
  line(fmt::format("  let down = {};", modulo("rest", r.down())));
  line(fmt::format("  let b = {};", divided("rest", r.down())));
  line(fmt::format("  let batch_at = ({}) / 8u;",
                   Index(r.view.at.batch, {{{"b", r.batch}}, -1}).offset(bindings.base(handle))));
  line("  if (thread < 64u) { atomicStore(&$largest[thread], 0u); }");
  line("  workgroupBarrier();");
  line("  var even = vec4<u32>(); var odd = vec4<u32>();");
  const auto take = [&](const std::string& at) {
    line(fmt::format("    let sizes = {}[{}] & vec4<u32>(0x7fff7fffu);", array, at));
    line("    even = max(even, sizes & vec4<u32>(0xffffu)); odd = max(odd, sizes >> vec4<u32>(16u));");
    line("  }");
  };
  line("  let vector = thread % 8u;");
  if (r.along_k) {
    line(fmt::format("  let row = min(down * {}u + thread / 8u, {}u);", kScanRows, r.extent - 1));
    line(fmt::format("  let at = batch_at + row * {};", eighths_of(r.view.row())));
    line(fmt::format("  for (var n = vector; n < {}u; n += 8u) {{", r.k / 8));
    take("at + n");
    line("  let each = max(even, odd);");
    line("  atomicMax(&$largest[thread / 8u], max(max(each.x, each.y), max(each.z, each.w)));");
  } else {
    line(fmt::format("  let column = min(across * {}u + vector, {}u);", kScanVectors, r.extent / 8 - 1));
    line(fmt::format("  let end = min((down + 1u) * {}u, {}u);", kScanDepth, r.k));
    line(fmt::format("  for (var n = down * {}u + thread / 8u; n < end; n += 32u) {{", kScanDepth));
    take(fmt::format("batch_at + column + n * {}", eighths_of(r.view.column())));
    for (int e = 0; e < 8; ++e)
      line(fmt::format("  atomicMax(&$largest[vector * 8u + {}u], {}.{});", e, e < 4 ? "even" : "odd", "xyzw"[e % 4]));
  }
  line("  workgroupBarrier();");
  line(fmt::format("  if (thread < {}u) {{", r.along_k ? kScanRows : 8 * kScanVectors));
  line("    let size = atomicLoad(&$largest[thread]);");
  line("    most = max(most, size);");
  line("    least = min(least, select(size, 0x7fffu, size == 0u));");
  line("  }");
  line("  workgroupBarrier();");
  line("}");
}

/// Finds the ranges of both operands: for each workgroup the largest exponent, and 255 minus the exponent of the row (or part
/// of a column) whose largest number is the smallest. Those of zeros do not count.
void render_scan(const MatmulKernel& kernel, const RangeOperand (&operands)[2], const Operand& words,
                 const Target& target, Rendered& rendered) {
  Bindings bindings(target, kernel.name + ".ranges");
  int handles[2];
  for (int o = 0; o < 2; ++o) {
    handles[o] = bindings.add(operands[o].operand, false);
    bindings.want_eights(handles[o]);
  }
  const int out = bindings.add(words, true);
  bindings.forbid_vectors(out);
  bindings.resolve();
  std::string text;
  const auto line = [&](const std::string& each) { text += "  " + each + "\n"; };
  const Extent first_groups = operands[0].groups();
  line("if (thread < 2u) { atomicStore(&$found[thread], 0u); }");
  line("var most = 0u; var least = 0x7fffu;");
  line(fmt::format("let is_b = group >= {}u;", first_groups));
  line(fmt::format("let chunk = select(group, group - {}u, is_b);", first_groups));
  for (int o = 0; o < 2; ++o) {
    line(o == 0 ? "if (!is_b) {" : "} else {");
    write_scan(operands[o], bindings, handles[o], text);
  }
  line("}");
  line("if (most > 0u) {");
  line("  atomicMax(&$found[0], most >> 7u);");
  line("  atomicMax(&$found[1], 255u - (least >> 7u));");
  line("}");
  line("workgroupBarrier();");
  line(fmt::format(
      "if (thread == 0u) {{ {} }}",
      bindings.store(out, fmt::format("select(0u, {}u, is_b) + chunk + {}u", kScanGroups, bindings.base(out)),
                     "(atomicLoad(&$found[0]) << 16u) | atomicLoad(&$found[1])")));
  ShaderPieces shader{.threads = kScanThreads};
  shader.share("found", "atomic<u32>", 2);
  shader.share("largest", "atomic<u32>", 8 * kScanVectors);
  shader.body = std::move(text);
  rendered.dispatches.push_back(dispatch_of(kernel.name + ".ranges", std::move(shader), bindings,
                                            static_cast<std::uint64_t>(first_groups + operands[1].groups()), target));
}

/// Writes the halves of both operands, and what `ProductRange` has.
void render_halves(const MatmulKernel& kernel, const RangeOperand (&operands)[2], const Operand& words,
                   const Operand (&halves)[2], const Operand& range, const Target& target, Rendered& rendered) {
  Bindings bindings(target, kernel.name + ".halves");
  int from[2], to[2];
  for (int o = 0; o < 2; ++o) {
    from[o] = bindings.add(operands[o].operand, false);
    bindings.want_eights(from[o]);
    to[o] = bindings.add(halves[o], true);
    bindings.want_vectors(to[o]);
  }
  const int in = bindings.add(words, false), out = bindings.add(range, true);
  for (const int handle : {in, out}) bindings.forbid_vectors(handle);
  bindings.resolve();
  std::string text;
  const auto line = [&](const std::string& each) { text += "  " + each + "\n"; };
  line("if (thread < 4u) { atomicStore(&$found[thread], 0u); }");
  line("workgroupBarrier();");
  for (int o = 0; o < 2; ++o) {
    line(fmt::format("if (thread < {}u) {{", operands[o].groups()));
    line(fmt::format("  let word = {};",
                     bindings.load(in, fmt::format("thread + {}u", o * kScanGroups + bindings.base(in)))));
    line(fmt::format("  atomicMax(&$found[{}], word >> 16u);", 2 * o));
    line(fmt::format("  atomicMax(&$found[{}], word & 0xffffu);", 2 * o + 1));
    line("}");
  }
  line("workgroupBarrier();");
  for (int o = 0; o < 2; ++o) {
    const char n = operands[o].name;
    line(fmt::format("let most_{} = i32(atomicLoad(&$found[{}]));", n, 2 * o));
    line(fmt::format("let exponent_{0} = select(most_{0}, 127i, most_{0} == 0i);", n));
    line(fmt::format("let spread_{0} = exponent_{0} - (255i - i32(atomicLoad(&$found[{1}])));", n, 2 * o + 1));
  }
  line("if (group == 0u && thread == 0u) {");
  const auto fits = [](char n) {
    return fmt::format("exponent_{0} >= {1}i && exponent_{0} <= {2}i && spread_{0} <= {3}i", n, kLeastExponent,
                       kMostExponent, kRowSpread);
  };
  line(fmt::format("  let fits = {} && {};", fits('a'), fits('b')));
  const char* const values[] = {"u32(exponent_a)", "u32(exponent_b)", "select(0u, 1u, fits)"};
  for (int i = 0; i < 3; ++i) line("  " + bindings.store(out, fmt::format("{}u", i + bindings.base(out)), values[i]));
  line("}");
  Extent first_groups = 0;
  for (int o = 0; o < 2; ++o) {
    const RangeOperand& r = operands[o];
    const Extent each = kConverted * kScanThreads, groups = divide_up(r.eights(), each);
    line(o == 0 ? fmt::format("if (group < {}u) {{", groups) : "if (true) {");
    line(fmt::format("let scale = bitcast<f32>(u32(268i - max(exponent_{}, 14i)) << 23u);", r.name));
    line(fmt::format("let first = (group - {}u) * {}u + thread;", first_groups, each));
    for (Extent i = 0; i < kConverted; ++i) {
      line(fmt::format("{{ let at = first + {}u;", i * kScanThreads));
      line(fmt::format("  if (at < {}u) {{", r.eights()));
      line(fmt::format("    let eight = {}[at + {}];", bindings.array_of(from[o]), eighths_of(bindings.base(from[o]))));
      line("    let even = bitcast<vec4f>(eight << vec4<u32>(16u)) * scale;");
      line("    let odd = bitcast<vec4f>(eight & vec4<u32>(0xffff0000u)) * scale;");
      for (int g = 0; g < 2; ++g)
        line(
            fmt::format("    {0}[2u * at + {1}u] = vec2<u32>(pack2x16float(vec2f(even.{2}, odd.{2})), "
                        "pack2x16float(vec2f(even.{3}, odd.{3})));",
                        bindings.array_of(to[o]), g + bindings.base(to[o]) / 4, "xz"[g], "yw"[g]));
      line("} }");
    }
    if (o == 0) line("return;");
    line("}");
    first_groups += groups;
  }
  ShaderPieces shader{.threads = kScanThreads};
  shader.share("found", "atomic<u32>", 4);
  shader.body = std::move(text);
  rendered.dispatches.push_back(dispatch_of(kernel.name + ".halves", std::move(shader), bindings,
                                            static_cast<std::uint64_t>(first_groups), target));
}

/// The kernel with halves in place of its operands, at the same places.
MatmulKernel on_halves(const MatmulKernel& kernel, const Operand& a, const Operand& b) {
  MatmulKernel made = kernel;
  made.precision = ProductPrecision::exact;
  made.a = a, made.b = b;
  return made;
}
Operand as_halves(const Operand& operand) { return {-1, DType::f16, 0, divide_up(operand.count, 8) * 8}; }

/// Parts of k that the writer makes of `split`.
Extent parts_of(const MatmulKernel& kernel, const MatrixTile& tile, int split) {
  const Extent turns = divide_up(divide_up(kernel.k, tile.depth), tile.turn);
  return divide_up(turns, divide_up(turns, split));
}

/// The epilogue that leaves the join of parts one sum and zeros.
LoopKernel one_part(const MatmulKernel& kernel, const Operand& partial, Extent parts) {
  LoopKernel loop;
  loop.name = kernel.name;
  loop.outer = kernel.batch * kernel.m * kernel.n;
  loop.outputs = {partial};
  loop.steps = {Step{StepKind::accumulator, DType::f32}, Step{StepKind::constant, DType::f32}};
  for (Extent part = 0; part < parts; ++part)
    loop.stores.push_back({part == 0 ? 0 : 1, 0, {{loop.outer}, {1}, part * loop.outer, {}}});
  return loop;
}

}  // namespace

std::optional<TileChoice> choose_ranged_tile(const MatmulKernel& kernel, const Target& target) {
  if (!target.matrices() || kernel.k <= 0) return {};
  const auto suits = [&](const Operand& operand, const kernel::MatrixView& view, Extent extent) {
    if (operand.type != DType::bf16 || !view.is_plain() || !view.at.batch.bounds.empty() ||
        groups_of(operand, view, extent, kernel.k) != 8)
      return false;
    // All that lies between the elements is converted too.
    return operand.count <= 2 * (is_batched(view) ? kernel.batch : 1) * extent * kernel.k;
  };
  const std::size_t bindings =
      std::max<std::size_t>(6, 3 + kernel.epilogue.inputs.size() + kernel.epilogue.outputs.size());
  if (!suits(kernel.a, kernel.a_view, kernel.m) || !suits(kernel.b, kernel.b_view.transposed(), kernel.n) ||
      bindings > target.limits.storage_buffers)
    return {};
  const MatmulKernel halves = on_halves(kernel, as_halves(kernel.a), as_halves(kernel.b));
  const auto choice = choose_matrix_tile(halves, target);
  if (!choice) return {};
  constexpr double kDispatches = 3, kBytes = 6;  // each number is read twice and written
  const double prepared =
      kDispatches * target.profile.dispatch_microseconds +
      kBytes * static_cast<double>(halves.a.count + halves.b.count) / target.profile.bytes_per_second * 1e6;
  const double on_matrices =
      estimate(matrix_tiles()[static_cast<std::size_t>(choice->tile)], choice->split, halves, target.profile);
  const TileChoice exact = choose_tile(kernel.batch, kernel.m, kernel.n, kernel.k, target);
  const double in_f32 = estimate(tiles()[static_cast<std::size_t>(exact.tile)], exact.split, kernel.batch, kernel.m,
                                 kernel.n, kernel.k, target.profile);
  if (prepared + on_matrices >= in_f32) return {};
  return choice;
}

void render_ranged(const MatmulKernel& kernel, const MatrixTile& tile, int split, const Target& target,
                   Scratch& scratch, Rendered& rendered) {
  if (kernel.batch * kernel.m * kernel.n == 0) return;
  const RangeOperand operands[] = {
      range_operand('a', kernel.a, kernel.a_view, kernel.batch, kernel.m, kernel.k),
      range_operand('b', kernel.b, kernel.b_view.transposed(), kernel.batch, kernel.n, kernel.k)};
  const Operand words = scratch.add(DType::u32, 2 * kScanGroups);
  const Operand halves[] = {scratch.add(DType::f16, as_halves(kernel.a).count),
                            scratch.add(DType::f16, as_halves(kernel.b).count)};
  ProductRange range{.words = scratch.add(DType::u32, 4)};
  render_scan(kernel, operands, words, target, rendered);
  render_halves(kernel, operands, words, halves, range.words, target, rendered);

  MatmulKernel wide = kernel;
  wide.name += ".wide";
  const Extent parts = parts_of(kernel, tile, split);
  if (parts > 1) {
    range.partial = scratch.add(DType::f32, parts * kernel.batch * kernel.m * kernel.n);
    wide.epilogue = one_part(wide, range.partial, parts);
  }
  range.fits = false;
  const TileChoice choice = choose_tile(kernel.batch, kernel.m, kernel.n, kernel.k, target);
  TileWriter in_f32(wide, nullptr, tiles()[static_cast<std::size_t>(choice.tile)], 1, target, scratch, rendered);
  in_f32.only_in(range);
  in_f32.render();
  range.fits = true;
  const MatmulKernel made = on_halves(kernel, halves[0], halves[1]);
  MatrixWriter on_matrices(made, tile, split, target, scratch, rendered);
  on_matrices.only_in(range);
  on_matrices.render();
}

}  // namespace weft::webgpu
