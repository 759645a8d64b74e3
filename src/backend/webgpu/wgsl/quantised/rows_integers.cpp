// Rows of A as integers of 16 bits, each block of 32 elements scaled by its largest one. An integer is two bytes, which are multiplied
// apart with the bytes of weights: one instruction for four elements, and no weight becomes a float.
#include <fmt/format.h>

#include "backend/webgpu/wgsl/quantised/rows_writer.hpp"

namespace weft::webgpu {
using kernel::PackedMatmulKernel;

namespace {

constexpr Extent kSixteen = 16;                 // elements that a thread rounds
constexpr std::string_view kLargest = "32639";  // 127 * 256 + 127: the upper byte stays one after rounding

}  // namespace

bool RowsWriter::may_have_integers(const Target& target, const PackedMatmulKernel& kernel) {
  // Below, a row is rounded for too few columns.
  constexpr Extent kElementsMin = Extent{1} << 21;
  return target.tested.integer_dots && target.subgroup_size >= 2 && !kernel.exact && kernel.k % kQuantBlock == 0 &&
         kernel.n * kernel.k >= kElementsMin;
}

bool RowsWriter::suits_integers(const PackedReader& reader) const {
  const Extent bytes = rows_ * kernel_.k * 2 + rows_ * kernel_.k / kQuantBlock * 12;
  // Weights of a byte keep the memory busy even as floats, so long rows of A should leave room for more workgroups.
  const Extent limit = target_.limits.workgroup_bytes,
               bytes_max = reader.elements() < kQuantBlock ? limit / 4 : limit * 3 / 4;
  return may_have_integers(target_, kernel_) && reader.has_integers() && reader.has_scales() &&
         !(extras_.before && extras_.before->exact) && (target_.unroll || rows_ == 1) && bytes <= bytes_max;
}

// Vector h of plane p (0: upper bytes) of a unit of row i is $staged[((i * 2 + p) * vectors + h) * units + unit]: neighbours read
// neighbours.
void RowsWriter::share_integers(const PackedReader& reader, ShaderPieces& shader) const {
  shader.share("staged", "vec4<u32>", Extent{rows_} * 2 * (reader.chunks() / 4) * reader.units());
  const Extent blocks = kernel_.k / kQuantBlock;
  shader.share("steps", "f32", rows_ * blocks);
  if (reader.has_offset()) shader.share("halves", "f32", rows_ * blocks * 2);  // sums of sixteen elements
}

void RowsWriter::write_staged_integers(const PackedReader& reader) {
  const Extent tasks = kernel_.k / kSixteen, turns = divide_up(tasks, Extent{threads_});
  const int vectors = reader.chunks() / 4;
  const Extent units = reader.units();
  for (int i = 0; i < rows_; ++i)
    for (Extent turn = 0; turn < turns; ++turn) {
      const bool whole = (turn + 1) * threads_ <= tasks;
      line("{");
      line(fmt::format("  let at = thread + {}u;", turn * threads_));
      line(whole ? std::string("  let sixteen = at;") : fmt::format("  let sixteen = min(at, {}u);", tasks - 1));
      for (int r = 0; r < sums_ && !whole; ++r) line(fmt::format("  var last{}_{} = vec4f();", i, r));
      for (int c = 0; c < 4; ++c)
        line(fmt::format("  let x{0} = $activations(i0 + {1}u, sixteen * 16u + {2}u{3});", c, i, 4 * c,
                         row_sums(i, whole ? "&row" : "&last")));
      for (int r = 0; r < sums_ && !whole; ++r)
        line(fmt::format("  row{0}_{1} += select(vec4f(), last{0}_{1}, at < {2}u);", i, r, tasks));
      // As integers, the largest size is a NaN if there is one.
      line(
          "  let sizes = max(max(bitcast<vec4u>(x0) & vec4u(0x7FFFFFFFu), bitcast<vec4u>(x1) & vec4u(0x7FFFFFFFu)), "
          "max(bitcast<vec4u>(x2) & vec4u(0x7FFFFFFFu), bitcast<vec4u>(x3) & vec4u(0x7FFFFFFFu)));");
      line("  var size = max(max(sizes.x, sizes.y), max(sizes.z, sizes.w));");
      line("  size = max(size, subgroupShuffleXor(size, 1u));");
      line("  let largest = bitcast<f32>(size);");
      line(fmt::format("  let inverse = select({}f / largest, 0f, size < 0x0DA24260u);", kLargest));  // 1e-30
      // 1.5 * 2^23 + v has the integer nearest to v in its low bits.
      for (int c = 0; c < 4; ++c)
        line(fmt::format(
            "  let v{0} = bitcast<vec4i>(fma(x{0}, vec4f(inverse), vec4f(12582912f))) - vec4i(0x4B400000);", c));
      if (!whole) line(fmt::format("  if (at < {}u) {{", tasks));
      for (int p = 0; p < 2; ++p) {
        const auto word = [&](int c) {
          return p == 0 ? fmt::format("pack4xI8((v{} + vec4i(128)) >> vec4u(8u))", c) : fmt::format("pack4xI8(v{})", c);
        };
        const std::string four = fmt::format("vec4u({}, {}, {}, {})", word(0), word(1), word(2), word(3));
        const Extent first = (Extent{i} * 2 + p) * vectors * units;
        line(vectors == 1 ? fmt::format("  $staged[{}u + at] = {};", first, four)
                          : fmt::format("  $staged[{}u + (at & 1u) * {}u + (at >> 1u)] = {};", first, units, four));
      }
      const Extent blocks = kernel_.k / kQuantBlock;
      line(fmt::format(
          "  let step = bitcast<f32>(select(bitcast<u32>(largest / {}f), 0x7FC00000u, size >= 0x7F800000u));",
          kLargest));
      line(fmt::format("  if ((at & 1u) == 0u) {{ $steps[{}u + (at >> 1u)] = step; }}", i * blocks));
      if (reader.has_offset()) {
        line("  let all = v0 + v1 + v2 + v3;");
        line(fmt::format("  $halves[{}u + at] = step * f32(all.x + all.y + all.z + all.w);", i * blocks * 2));
      }
      if (!whole) line("  }");
      line("}");
    }
}

void RowsWriter::write_integer_turn(const std::vector<Weights>& weights, int turn) {
  const PackedReader& reader = *weights[0].reader;  // the other has the same form
  const int vectors = reader.chunks() / 4, parts = reader.chunks() / reader.chunks_together();
  const Extent units = reader.units(), blocks = kernel_.k / kQuantBlock;
  const bool shares_block = vectors == 1;  // two units are a block
  const std::string unit = fmt::format("unit{}", turn), block = shares_block ? fmt::format("({} >> 1u)", unit) : unit;
  for (int i = 0; i < rows_; ++i) {
    for (int p = 0; p < 2; ++p)
      for (int h = 0; h < vectors; ++h)
        line(fmt::format("    let x{}_{}_{} = $staged[{}u + {}];", i, p, h, ((Extent{i} * 2 + p) * vectors + h) * units,
                         unit));
    line(fmt::format("    let step{} = $steps[{}u + {}];", i, i * blocks, block));
    if (!reader.has_offset()) continue;
    for (int half = 0; half < vectors; ++half)
      line(fmt::format("    let half{}_{} = $halves[{}u + {}];", i, half, i * blocks * 2,
                       shares_block ? unit : fmt::format("{} * 2u + {}u", unit, half)));
  }
  constexpr std::string_view kComponents = "xyzw";
  for (const Weights& each : weights)
    for (int r = 0; r < columns_; ++r) {
      const std::string name = fmt::format("{}_{}{}", r, turn, each.mark);
      line("    {");
      for (int c = 0; c < reader.chunks(); ++c)
        line(fmt::format("      let w{0} = $word{1}(q{2}, high{2}, {0}u);", c, each.mark, name));
      for (int part = 0; part < parts; ++part) {
        const int first = part * reader.chunks_together(), end = first + reader.chunks_together();
        if (parts > 1)
          line(fmt::format("      let f{}_{} = {};", name, part, each.reader->scale(name, fmt::format("{}u", first))));
        const std::string factor = parts > 1 ? fmt::format("f{}_{}", name, part) : "f" + name;
        for (int i = 0; i < rows_; ++i) {
          std::string sums[2];
          for (int p = 0; p < 2; ++p)
            for (int c = first; c < end; ++c)
              sums[p] += fmt::format("{}dot4I8Packed(w{}, x{}_{}_{}.{})", c > first ? " + " : "", c, i, p, c / 4,
                                     kComponents[static_cast<std::size_t>(c % 4)]);
          line(fmt::format("      {}{}_{} += {}.x * (step{} * f32((({}) << 8u) + ({})));", each.sum, r, i, factor, i,
                           sums[0], sums[1]));
          if (!reader.has_offset()) continue;
          std::string whole;
          for (int half = first / 4; half < (end + 3) / 4; ++half)
            whole += fmt::format("{}half{}_{}", whole.empty() ? "" : " + ", i, half);
          line(fmt::format("      {}{}_{} += {}.y * ({});", each.sum, r, i, factor, whole));
        }
      }
      line("    }");
    }
}

}  // namespace weft::webgpu
