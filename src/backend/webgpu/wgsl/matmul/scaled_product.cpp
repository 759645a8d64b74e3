#include "backend/webgpu/wgsl/matmul/scaled_product.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "backend/webgpu/wgsl/loop.hpp"
#include "backend/webgpu/wgsl/matmul/as_reduction.hpp"
#include "backend/webgpu/wgsl/matmul/matrix_writer.hpp"
#include "tensor/element.hpp"

namespace weft::webgpu {
namespace {

using kernel::Level;
using kernel::LoopKernel;
using kernel::MatmulKernel;
using kernel::Operand;
using kernel::Step;
using kernel::StepKind;

constexpr int kHalvesThreads = 256;
constexpr int kTurned = 64;  // rows and k of a block that is turned in workgroup memory
constexpr int kTurnedPitch = kTurned + 1;

/// Whether one scaled half holds every number of the operands, but for those below 2^-29 of the largest in their row or column,
/// which are rounded to a multiple of 2^-39 of it: bf16 has fewer digits than f16, and only a wider range.
bool fit_one_half(const MatmulKernel& kernel) {
  const auto is_short = [](DType type) {
    return type == DType::bf16 || type == DType::f16 || (is_storage(type) && holds_all(DType::f16, type));
  };
  return is_short(kernel.a.type) && is_short(kernel.b.type);
}

int product_count(const MatmulKernel& kernel) {
  return kernel.precision == ProductPrecision::high && !fit_one_half(kernel) ? 3 : 1;
}
int half_count(int products) { return products == 3 ? 2 : 1; }

/// One operand on its way: what it is, and where its halves go.
struct HalvesSource {
  char name;
  const Operand& operand;
  kernel::MatrixView view;  // [batch, extent, k]
  Extent batch, extent, k;
  Extent padded, padded_k;
  int halves;
  bool low_first;
  Operand largest, result;
};

// The largest size in each row of [batch, extent, k].
LoopKernel largest_kernel(const HalvesSource& s, const std::string& name) {
  LoopKernel loop;
  loop.name = fmt::format("{}.largest_{}", name, s.name);
  loop.outer = s.batch * s.extent;
  loop.inner = s.k;
  loop.inputs = {s.operand};
  kernel::View view{{}, {}, s.view.at.batch.offset, {}};
  if (s.batch > 1) view = s.view.at.batch;
  view.extents.insert(view.extents.end(), {s.extent, s.k});
  view.strides.insert(view.strides.end(), {s.view.row(), s.view.column()});
  Step load = load_step(DType::f32, 0, view);
  load.level = Level::inner;
  Step size{StepKind::map, DType::f32, Level::inner};
  size.op = scalar::Op::abs;
  size.a = 0;
  Step most{StepKind::reduce, DType::f32, Level::outer};
  most.reduction = scalar::Reduction::max;
  most.a = 1;
  loop.steps = {load, size, most};
  loop.outputs = {s.largest};
  loop.stores = {{2, 0, {{loop.outer}, {1}, 0, {}}}};
  return loop;
}

/// Writes the scaled halves of one operand.
class HalvesWriter {
 public:
  HalvesWriter(const HalvesSource& source, const std::string& name, const Target& target, Rendered& rendered)
      : s_(source), name_(name), target_(target), rendered_(rendered), bindings_(target, name) {}

  void render() {
    in_ = bindings_.add(s_.operand, false);
    largest_ = bindings_.add(s_.largest, false);
    out_ = bindings_.add(s_.result, true);
    const bool along_k = follows_k(s_.view);
    by_fours_ = groups_of(s_.operand, s_.view, s_.extent, s_.k) >= 4;
    if (by_fours_) bindings_.want_vectors(in_);
    bindings_.want_vectors(out_);
    bindings_.resolve();
    by_fours_ = by_fours_ && bindings_.has_vectors(in_);
    ShaderPieces shader{.threads = kHalvesThreads};
    shader.functions.push_back(store_function());
    std::uint64_t groups = 0;
    if (along_k) {
      shader.share("turned", "f32", kTurned * kTurnedPitch);
      groups = write_turned();
    } else {
      groups = write_straight();
    }
    shader.helpers = std::move(helpers_);
    shader.body = std::move(text_);
    rendered_.dispatches.push_back(
        dispatch_of(fmt::format("{}.halves_{}", name_, s_.name), std::move(shader), bindings_, groups, target_));
  }

 private:
  void line(const std::string& text) { text_ += "  " + text + "\n"; }

  // Scales eight neighbours of row `k`, `i` to `i + 7` of the extent, and stores their halves. The high one is rounded by
  // bits: a compiler may take f32(f16(x)) for x.
  ShaderPieces::Function store_function() {
    const std::string_view pair = helpers_.use("halves_from_f32");
    std::string text = "(b: u32, k: u32, i: u32, low4: vec4f, high4: vec4f) {\n  var x = array<f32, 8>(";
    for (int e = 0; e < 8; ++e) {
      const std::string at =
          fmt::format("{}min(i + {}u, {}u) + {}u", s_.batch > 1 ? fmt::format("b * {}u + ", s_.extent) : "", e,
                      s_.extent - 1, bindings_.base(largest_));
      text += fmt::format("{}\n      {}.{} * bitcast<f32>((127 + {}) << 23u)", e ? "," : "", e < 4 ? "low4" : "high4",
                          "xyzw"[e % 4], scale_exponent(bindings_.load(largest_, at)));
    }
    text += ");\n";
    const auto store = [&](int part, const char* name) {
      const Extent line_of = s_.padded / 4;
      const std::string at =
          fmt::format("((b * {}u + k + {}u) * {}u + i / 4u)", s_.halves * s_.padded_k, part * s_.padded_k, line_of);
      for (int g = 0; g < 2; ++g)
        text += fmt::format("  {0}[{1} + {2}u] = vec2<u32>({8}({3}[{4}], {3}[{5}]), {8}({3}[{6}], {3}[{7}]));\n",
                            bindings_.array_of(out_), at, static_cast<Extent>(g) + bindings_.base(out_) / 4, name,
                            4 * g, 4 * g + 1, 4 * g + 2, 4 * g + 3, pair);
    };
    if (s_.halves == 1) {
      store(0, "x");
      return {"store", text + "}\n"};
    }
    text += "  var high: array<f32, 8>;\n  var low: array<f32, 8>;\n";
    for (int e = 0; e < 8; ++e)
      text += fmt::format(
          "  high[{0}] = bitcast<f32>((bitcast<u32>(x[{0}]) + 0x1000u) & 0xffffe000u);\n  low[{0}] = x[{0}] - "
          "high[{0}];\n",
          e);
    store(s_.low_first ? 1 : 0, "high");
    store(s_.low_first ? 0 : 1, "low");
    return {"store", text + "}\n"};
  }

  std::string batch_at() const { return Index(s_.view.at.batch, {{{"b", s_.batch}}, -1}).offset(bindings_.base(in_)); }
  static std::string number(Extent value) { return fmt::format("{}u", static_cast<std::uint32_t>(value)); }

  // Neighbours follow the extent, as they do in the result: a thread takes eight of them.
  std::uint64_t write_straight() {
    const Extent eights = s_.padded / 8;
    line(fmt::format("let at = group * {}u + thread;", kHalvesThreads));
    line(fmt::format("let i = {} * 8u;", modulo("at", eights)));
    line(fmt::format("let line = {};", divided("at", eights)));
    line(fmt::format("let k = {};", modulo("line", s_.padded_k)));
    line(fmt::format("let b = {};", divided("line", s_.padded_k)));
    line(fmt::format("if (b >= {}u) {{ return; }}", s_.batch));
    line(fmt::format("let line_at = {} + min(k, {}u) * {};", batch_at(), s_.k - 1, number(s_.view.column())));
    for (int g = 0; g < 2; ++g) write_four(g, "k", "i", s_.view.row());
    line("$store(b, k, i, four0, four1);");
    return static_cast<std::uint64_t>(divide_up(s_.batch * s_.padded_k * eights, kHalvesThreads));
  }

  // four<g>: elements 4 g to 4 g + 3 of row i and the next ones, at line_at; zeros beyond the operand.
  void write_four(int g, const char* k, const char* i, Extent stride) {
    const std::string at = fmt::format("({} + {}u)", i, 4 * g);
    if (by_fours_) {
      line(fmt::format(
          "let four{} = select(vec4f(), {}, {} < {}u && {} < {}u);", g,
          bindings_.load_vec4f(in_, fmt::format("(line_at + min({}, {}u)) / 4u", at, s_.extent - 4), helpers_), k, s_.k,
          at, s_.extent));
      return;
    }
    std::string four;
    for (int e = 0; e < 4; ++e) {
      const std::string one = fmt::format("({} + {}u)", i, 4 * g + e);
      const std::string value = bindings_.load_f32(
          in_, fmt::format("line_at + min({}, {}u) * {}", one, s_.extent - 1, number(stride)), helpers_);
      four += fmt::format("{}select(0f, {}, {} < {}u && {} < {}u)", e ? ", " : "", value, k, s_.k, one, s_.extent);
    }
    line(fmt::format("let four{} = vec4f({});", g, four));
  }

  // Neighbours follow k: blocks are turned in workgroup memory.
  std::uint64_t write_turned() {
    const Extent across = divide_up(s_.padded, kTurned), down = divide_up(s_.padded_k, kTurned);
    line(fmt::format("let i0 = {} * {}u;", modulo("group", across), kTurned));
    line(fmt::format("let k0 = {} * {}u;", modulo(divided("group", across), down), kTurned));
    line(fmt::format("let b = {};", divided(divided("group", across), down)));
    line(fmt::format("let batch_at = {};", batch_at()));
    constexpr int kFours = kTurned / 4, kEights = kTurned / 8;
    line(fmt::format("for (var at = thread; at < {}u; at += {}u) {{", kTurned * kFours, kHalvesThreads));
    line(fmt::format("  let row = at / {}u;", kFours));
    line(fmt::format("  let k = at % {}u * 4u;", kFours));
    line(fmt::format("  let row_at = batch_at + min(i0 + row, {}u) * {};", s_.extent - 1, number(s_.view.row())));
    line(fmt::format("  let is_row = i0 + row < {}u;", s_.extent));
    if (by_fours_) {
      line(fmt::format("  let four = select(vec4f(), {}, is_row && k0 + k < {}u);",
                       bindings_.load_vec4f(in_, fmt::format("(row_at + min(k0 + k, {}u)) / 4u", s_.k - 4), helpers_),
                       s_.k));
    } else {
      std::string four;
      for (int e = 0; e < 4; ++e)
        four += fmt::format(
            "{}select(0f, {}, is_row && k0 + k + {}u < {}u)", e ? ", " : "",
            bindings_.load_f32(
                in_, fmt::format("row_at + min(k0 + k + {}u, {}u) * {}", e, s_.k - 1, number(s_.view.column())),
                helpers_),
            e, s_.k);
      line(fmt::format("  let four = vec4f({});", four));
    }
    for (int e = 0; e < 4; ++e)
      line(fmt::format("  $turned[(k + {}u) * {}u + row] = four.{};", e, kTurnedPitch, "xyzw"[e]));
    line("}");
    line("workgroupBarrier();");
    line(fmt::format("for (var at = thread; at < {}u; at += {}u) {{", kTurned * kEights, kHalvesThreads));
    line(fmt::format("  let k = k0 + at / {}u;", kEights));
    line(fmt::format("  let i = i0 + at % {}u * 8u;", kEights));
    line(fmt::format("  if (k < {}u && i < {}u) {{", s_.padded_k, s_.padded));
    line(fmt::format("    let place = at / {}u * {}u + at % {}u * 8u;", kEights, kTurnedPitch, kEights));
    std::string eight;
    for (int e = 0; e < 8; ++e)
      eight += fmt::format("{}$turned[place + {}u]{}",
                           e == 0   ? "vec4f("
                           : e == 4 ? ", vec4f("
                                    : ", ",
                           e, e % 4 == 3 ? ")" : "");
    line(fmt::format("    $store(b, k, i, {});", eight));
    line("  }");
    line("}");
    return static_cast<std::uint64_t>(across * down * s_.batch);
  }

  const HalvesSource& s_;
  const std::string& name_;
  const Target& target_;
  Rendered& rendered_;
  Bindings bindings_;
  Helpers helpers_;
  int in_ = -1, largest_ = -1, out_ = -1;
  bool by_fours_ = false;
  std::string text_;
};

/// A product of halves with one k a line, of this padded size.
MatmulKernel product_of_halves(const MatmulKernel& kernel, Extent rows, Extent columns, Extent part, bool together) {
  const int products = product_count(kernel), halves = half_count(products);
  MatmulKernel made = kernel;
  made.precision = ProductPrecision::exact;
  made.k = together ? part : products * part;
  const auto stored = [&](const kernel::MatrixView& view, Extent extent) {
    const Extent one = halves * part * extent;
    return kernel::matrix_view({{kernel.batch}, {is_batched(view) ? one : 0}, 0, {}}, extent, 1, made.k, extent);
  };
  made.a_view = stored(kernel.a_view, rows);
  made.b_view = stored(kernel.b_view, columns).transposed();
  made.a = {-1, DType::f16, 0, (is_batched(kernel.a_view) ? kernel.batch : 1) * halves * part * rows};
  made.b = {-1, DType::f16, 0, (is_batched(kernel.b_view) ? kernel.batch : 1) * halves * part * columns};
  return made;
}

}  // namespace

std::string scale_exponent(const std::string& largest) {
  return fmt::format("(141 - max(i32((bitcast<u32>({}) >> 23u) & 0xffu), 15))", largest);
}

bool suits_scaling(const MatmulKernel& kernel, const Target& target) {
  const auto suits = [](const Operand& operand, const kernel::MatrixView& view) {
    return reads_as_f32(operand.type) && view.is_plain() && view.at.batch.bounds.empty();
  };
  const std::size_t bindings = 4 + kernel.epilogue.inputs.size() + kernel.epilogue.outputs.size();
  return (kernel.precision != ProductPrecision::exact || fit_one_half(kernel)) && kernel.k > 0 &&
         suits(kernel.a, kernel.a_view) && suits(kernel.b, kernel.b_view) && bindings <= target.limits.storage_buffers;
}

std::optional<TileChoice> choose_scaled_tile(const MatmulKernel& kernel, const Target& target) {
  if (!target.matrices() || !suits_scaling(kernel, target)) return {};
  // Halves are padded to whole tiles, so they are read by eights whatever the sizes are.
  constexpr Extent kWhole = 64, kMostPadding = 255;
  const auto whole = [](Extent extent) { return divide_up(extent, kWhole) * kWhole; };
  const Extent part = whole(kernel.k);
  const MatmulKernel most = product_of_halves(kernel, kernel.m + kMostPadding, kernel.n + kMostPadding, part, false);
  const auto binding = static_cast<Extent>(target.limits.binding_bytes / 2);
  if (std::max(most.a.count, most.b.count) > binding) return {};
  MatmulKernel halves = product_of_halves(kernel, whole(kernel.m), whole(kernel.n), part, false);
  halves.m = whole(kernel.m), halves.n = whole(kernel.n);
  const auto choice = choose_matrix_tile(halves, target);
  if (!choice) return {};
  // Each operand is read twice as it is, and its halves are written; two short dispatches each.
  constexpr double kDispatches = 4;
  const auto moved_by = [&](const Operand& made, DType read) {
    const double elements = static_cast<double>(made.count);
    return elements * 2 + 2 * elements / product_count(kernel) * element(read).bits / 8;
  };
  const double moved = moved_by(halves.a, kernel.a.type) + moved_by(halves.b, kernel.b.type);
  const double prepared =
      kDispatches * target.profile.dispatch_microseconds + moved / target.profile.bytes_per_second * 1e6;
  const double on_matrices =
      estimate(matrix_tiles()[static_cast<std::size_t>(choice->tile)], choice->split, halves, target.profile);
  if (prepared + on_matrices >= estimate_of_choice(kernel.batch, kernel.m, kernel.n, kernel.k, target)) return {};
  return choice;
}

bool multiplies_together(const MatmulKernel& kernel, const MatrixTile& tile, const Target& target) {
  return product_count(kernel) == 3 && tile.buffers == 2 && tile.depth == kMatrix &&
         workgroup_bytes(tile, false, false, 2) <= static_cast<int>(target.limits.workgroup_bytes);
}

void render_scaled(const MatmulKernel& kernel, const MatrixTile& tile, int split, const Target& target,
                   Scratch& scratch, Rendered& rendered, bool together) {
  if (kernel.batch * kernel.m * kernel.n == 0) return;
  const Extent depth = static_cast<Extent>(tile.depth) * tile.turn;
  const Extent part = divide_up(kernel.k, depth) * depth;
  const Extent rows = divide_up(kernel.m, tile.rows) * tile.rows;
  const Extent columns = divide_up(kernel.n, tile.columns) * tile.columns;
  MatmulKernel halves = product_of_halves(kernel, rows, columns, part, together);
  const int products = product_count(kernel);
  ScaledOperands scaled{.products = products,
                        .together = together,
                        .part = part,
                        .batched_a = is_batched(kernel.a_view),
                        .batched_b = is_batched(kernel.b_view)};
  const auto source = [&](char name, const Operand& operand, const kernel::MatrixView& view, Extent extent,
                          Extent padded, bool batched, const Operand& result) {
    return HalvesSource{.name = name,
                        .operand = operand,
                        .view = view,
                        .batch = batched ? kernel.batch : 1,
                        .extent = extent,
                        .k = kernel.k,
                        .padded = padded,
                        .padded_k = part,
                        .halves = half_count(products),
                        .low_first = name == 'a' && !together,
                        .largest = scratch.add(DType::f32, (batched ? kernel.batch : 1) * extent),
                        .result = scratch.add(DType::f16, result.count)};
  };
  const HalvesSource sources[] = {
      source('a', kernel.a, kernel.a_view, kernel.m, rows, scaled.batched_a, halves.a),
      source('b', kernel.b, kernel.b_view.transposed(), kernel.n, columns, scaled.batched_b, halves.b)};
  // Neighbouring dispatches are of different operands, so that they overlap.
  for (const HalvesSource& each : sources) webgpu::render(largest_kernel(each, kernel.name), target, scratch, rendered);
  for (const HalvesSource& each : sources) HalvesWriter(each, kernel.name, target, rendered).render();
  halves.a = sources[0].result, halves.b = sources[1].result;
  scaled.largest_a = sources[0].largest, scaled.largest_b = sources[1].largest;
  MatrixWriter(halves, tile, split, target, scratch, rendered, &scaled).render();
}

}  // namespace weft::webgpu
