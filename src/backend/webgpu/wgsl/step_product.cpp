#include "backend/webgpu/wgsl/step_product.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

namespace weft::webgpu {
namespace {

constexpr Extent kStretch = 16;  // groups of four k
constexpr Extent kPartsMax = 64;
constexpr Extent kRowsOfTile = 32;
constexpr Extent kUnitsOfTile = 16;

Extent power_above(Extent n) {
  return static_cast<Extent>(std::bit_ceil(static_cast<std::uint64_t>(std::max<Extent>(n, 1))));
}

/// The array in workgroup memory, in vectors of four: rows of A, then weights; the shares of sums follow where both were, or where
/// only A was.
struct StepMemory {
  StepMemory(const StepProduct& p, const StepTile& t) {
    // Rows are one vector longer than their elements, so that neighbouring rows begin in different banks.
    a_row = t.stretch + 1;
    const Extent a = t.rows * a_row, groups = divide_up(p.inner, 4);
    w_row = (t.keeps_weights ? divide_up(groups, t.stretch) * t.stretch : t.stretch) + 1;
    const Extent w = t.units * p.columns * w_row;
    unit_stride = t.parts * t.row_lanes() + 1;
    slots = t.unit_lanes() * unit_stride;
    const Extent shares = divide_up(t.rows_each * t.units_each * p.columns, 4) * slots;
    w_begin = t.keeps_weights ? std::max(a, shares) : a;
    size = std::max(w_begin + w, shares);
  }
  Extent a_row, w_row, w_begin, unit_stride, slots, size;
};

/// The shares of k and the stretch for the rest of the tile; false if workgroup memory is too small for any.
bool complete(StepTile& tile, const StepProduct& p, const Target& target, bool may_keep) {
  const Extent outputs = tile.row_lanes() * tile.unit_lanes(), groups = power_above(divide_up(p.inner, 4));
  if (outputs > StepTile::kThreads) return false;
  const auto fits = [&](const StepTile& t) {
    return StepProductWriter::bytes(p, t) <= static_cast<Extent>(target.limits.workgroup_bytes);
  };
  for (tile.parts = std::min({StepTile::kThreads / outputs, kPartsMax, groups}); tile.parts >= 1; tile.parts /= 2)
    for (tile.stretch = std::max(kStretch, tile.parts); tile.stretch >= std::max<Extent>(tile.parts, 4);
         tile.stretch /= 2) {
      tile.keeps_weights = false;
      if (!fits(tile)) continue;
      tile.keeps_weights = may_keep;
      if (may_keep && !fits(tile)) tile.keeps_weights = false;
      return true;
    }
  return false;
}

}  // namespace

Extent StepProductWriter::bytes(const StepProduct& product, const StepTile& tile) {
  return StepMemory(product, tile).size * 16;
}

StepTile choose_step_tile(const StepProduct& p, bool alone, const Target& target) {
  const auto compute_units = static_cast<Extent>(std::max(target.profile.compute_units, 1u));
  Extent rows = std::min(power_above(p.rows), kRowsOfTile);
  // Rows that one workgroup takes alone wait for nobody, so there are as many workgroups as run at once.
  if (alone) rows = std::min(rows, power_above(divide_up(p.rows, compute_units)));
  if (!alone && p.rows > kRowsOfTile && p.rows * p.units > 2 * compute_units * kRowsOfTile * kUnitsOfTile) rows *= 2;
  const Extent row_tiles = divide_up(p.rows, rows);
  Extent units = alone
                     ? std::min<Extent>(power_above(p.units), 64)
                     : std::clamp<Extent>(power_above(divide_up(p.units * row_tiles, compute_units)), 1, kUnitsOfTile);
  for (; rows >= 1; rows /= 2)
    for (Extent u = units; u >= 1; u /= 2) {
      StepTile tile;
      tile.rows = rows;
      tile.units = u;
      tile.rows_each = std::min<Extent>(rows, rows >= 64 ? 4 : 2);
      // A thread that has four columns reads a row of A once for all.
      tile.units_each = std::min<Extent>(u, std::max<Extent>(4 / p.columns, 1));
      tile.row_tiles = divide_up(p.rows, rows);
      tile.unit_tiles = divide_up(p.units, u);
      if (complete(tile, p, target, !alone || tile.unit_tiles == 1)) return tile;
    }
  return {};  // not reached: the smallest tile takes less than a kilobyte
}

void StepProductWriter::share(ShaderPieces& shader) const {
  shader.share("pool", "vec4f", StepMemory(product_, tile_).size);
}

std::string StepProductWriter::declare_tile() const {
  return fmt::format("    let top = {} * {}u;\n    let left = {} * {}u;\n", divided("tile", tile_.unit_tiles),
                     tile_.rows, modulo("tile", tile_.unit_tiles), tile_.units);
}

std::string StepProductWriter::compute(const Source& source) const {
  const StepProduct& p = product_;
  const StepTile& t = tile_;
  const StepMemory memory(p, t);
  const Extent groups = divide_up(p.inner, 4), stretches = divide_up(groups, t.stretch);
  const Extent columns = t.units_each * p.columns, all_columns = t.units * p.columns;
  std::string text;
  const auto line = [&](const std::string& statement) { text += "      " + statement + "\n"; };
  /// Four elements from k on, zeros behind the last.
  const auto four = [&](const Load& load, const std::string& row) {
    line("  {");
    for (Extent e = 0; e < 4; ++e) {
      const std::string k = fmt::format("(k + {}u)", e);
      const std::string element = fmt::format("v.{} = {};", "xyzw"[e], load(row, k));
      line("    " +
           (p.inner % 4 == 0 || e == 0 ? element : fmt::format("if ({} < {}u) {{ {} }}", k, p.inner, element)));
    }
    line("  }");
  };
  const auto stage = [&](Extent rows, Extent width, const std::string& begin, const std::function<void()>& element,
                         Extent offset, Extent stride) {
    line(fmt::format("for (var e = thread; e < {}u; e += {}u) {{", rows * width, StepTile::kThreads));
    line(fmt::format("  let r = {};", divided("e", width)));
    line(fmt::format("  let q = {};", modulo("e", width)));
    line(fmt::format("  let k = ({} + q) * 4u;", begin));
    line("  var v = vec4f();");
    element();
    line(fmt::format("  $pool[{}u + r * {}u + q] = v;", offset, stride));
    line("}");
  };
  const auto stage_a = [&] {
    stage(
        t.rows, t.stretch, fmt::format("s * {}u", t.stretch),
        [&] {
          line(fmt::format("  if (top + r < {}u && k < {}u) {{", p.rows, p.inner));
          line("  let n = top + r;");
          if (!source.is_first.empty()) {
            line(fmt::format("  if ({}) ", source.is_first));
            four(source.first, "n");
            line("  else");
          }
          four(source.later, "n");
          line("  }");
        },
        0, memory.a_row);
  };
  const auto stage_weights = [&](Extent width, const std::string& begin) {
    stage(
        all_columns, width, begin,
        [&] {
          line(fmt::format("  let unit = left + {};", divided("r", p.columns)));
          line(fmt::format("  if (unit < {}u && k < {}u) {{", p.units, p.inner));
          line(fmt::format("  let row = {};", source.weight_row("unit", modulo("r", p.columns))));
          if (source.four_weights)
            line(fmt::format("  v = {};", source.four_weights("row", "k")));
          else
            four(source.weight, "row");
          line("  }");
        },
        memory.w_begin, memory.w_row);
  };

  // Threads are numbered by rows first, then by shares of k, then by units.
  line(fmt::format("let lane = {};", modulo("thread", t.lanes())));
  line(fmt::format("let row_lane = {};", modulo("lane", t.row_lanes())));
  line(fmt::format("let part = {};", modulo(divided("lane", t.row_lanes()), t.parts)));
  line(fmt::format("let unit_lane = {};", divided("lane", t.row_lanes() * t.parts)));
  for (Extent r = 0; r < t.rows_each; ++r)
    for (Extent c = 0; c < columns; ++c) line(fmt::format("var s_{}_{} = 0f;", r, c));
  if (t.keeps_weights) {
    line(fmt::format("if ({}) {{", source.stages_weights));
    stage_weights(memory.w_row - 1, "0u");
    line("}");
  }
  line(fmt::format("for (var s = 0u; s < {}u; s++) {{", stretches));
  stage_a();
  if (!t.keeps_weights) stage_weights(t.stretch, fmt::format("s * {}u", t.stretch));
  line("workgroupBarrier();");
  line(fmt::format("for (var q = part; q < {}u; q += {}u) {{", t.stretch, t.parts));
  for (Extent r = 0; r < t.rows_each; ++r)
    line(fmt::format("  let a{} = $pool[(row_lane + {}u) * {}u + q];", r, r * t.row_lanes(), memory.a_row));
  const std::string at = t.keeps_weights ? fmt::format("s * {}u + q", t.stretch) : "q";
  for (Extent c = 0; c < columns; ++c)
    line(fmt::format("  let w{} = $pool[{}u + (unit_lane * {}u + {}u) * {}u + {}];", c, memory.w_begin, columns, c,
                     memory.w_row, at));
  for (Extent r = 0; r < t.rows_each; ++r)
    for (Extent c = 0; c < columns; ++c)
      line(
          fmt::format("  s_{0}_{1} = fma(a{0}.w, w{1}.w, fma(a{0}.z, w{1}.z, fma(a{0}.y, w{1}.y, fma(a{0}.x, w{1}.x, "
                      "s_{0}_{1}))));",
                      r, c));
  line("}");
  line("workgroupBarrier();");
  line("}");
  line(fmt::format("if (thread < {}u) {{", t.lanes()));
  line(fmt::format("  let slot = unit_lane * {}u + part * {}u + row_lane;", memory.unit_stride, t.row_lanes()));
  for (Extent first = 0; first < sums_each(); first += 4) {
    std::string values;
    for (Extent e = first; e < first + 4; ++e)
      values += (e == first ? "" : ", ") + (e < sums_each() ? fmt::format("s_{}_{}", e / columns, e % columns) : "0f");
    line(fmt::format("  $pool[{}u + slot] = vec4f({});", first / 4 * memory.slots, values));
  }
  line("}");
  line("workgroupBarrier();");
  return text;
}

std::string StepProductWriter::begin_results() const {
  std::string text;
  const auto line = [&](const std::string& statement) { text += "    " + statement + "\n"; };
  line(fmt::format("for (var o = thread; o < {}u; o += {}u) {{", tile_.rows * tile_.units, StepTile::kThreads));
  line(fmt::format("  let row_of_tile = {};", divided("o", tile_.units)));
  line(fmt::format("  let unit_of_tile = {};", modulo("o", tile_.units)));
  line("  let n = top + row_of_tile;");
  line("  let u = left + unit_of_tile;");
  line(fmt::format("  if (n < {}u && u < {}u) {{", product_.rows, product_.units));
  return text;
}

std::string StepProductWriter::sums(const std::string& condition) const {
  const StepMemory memory(product_, tile_);
  std::string text;
  const auto line = [&](const std::string& statement) { text += "    " + statement + "\n"; };
  for (Extent c = 0; c < product_.columns; ++c) line(fmt::format("var sum{} = 0f;", c));
  line(fmt::format("if ({}) {{", condition));
  line(fmt::format("  let slot = {} * {}u + {};", divided("unit_of_tile", tile_.units_each), memory.unit_stride,
                   modulo("row_of_tile", tile_.row_lanes())));
  line(fmt::format("  let number = ({} * {}u + {}) * {}u;", divided("row_of_tile", tile_.row_lanes()), tile_.units_each,
                   modulo("unit_of_tile", tile_.units_each), product_.columns));
  for (Extent c = 0; c < product_.columns; ++c) {
    line(fmt::format("  for (var p = 0u; p < {}u; p++) {{", tile_.parts));
    line(fmt::format("    sum{0} += $pool[((number + {0}u) >> 2u) * {1}u + slot + p * {2}u][(number + {0}u) & 3u];", c,
                     memory.slots, tile_.row_lanes()));
    line("  }");
  }
  line("}");
  return text;
}

std::string StepProductWriter::end_results() const { return "    }\n    }\n    workgroupBarrier();\n"; }

}  // namespace weft::webgpu
