#include "backend/webgpu/wgsl/quantised/unpack.hpp"

#include <fmt/format.h>

#include <utility>

#include "backend/webgpu/wgsl/matmul/row_halves.hpp"
#include "backend/webgpu/wgsl/matmul/scaled_product.hpp"
#include "backend/webgpu/wgsl/quantised/packed_reader.hpp"

namespace weft::webgpu {
using kernel::Operand;

namespace {

constexpr int kUnpackThreads = 256;

}  // namespace

RenderedDispatch unpack(const std::string& name, BlockType type, const Operand& words, Extent n, Extent k,
                        const Operand* indices, const Operand& out, Extent count, const Target& target, Extent first) {
  Bindings bindings(target, name);
  const PackedReader reader(type, words, n, k, bindings);
  const int rows = indices ? bindings.add(*indices, false) : -1, to = bindings.add(out, true);
  const bool by_fours = k % 4 == 0 && out.offset % 4 == 0;
  if (by_fours)
    bindings.want_vectors(to);
  else
    bindings.forbid_vectors(to);
  bindings.resolve();
  const Extent chunks = divide_up(k, 4), all = count * chunks;
  const auto groups = static_cast<std::uint64_t>(divide_up(all, kUnpackThreads));
  std::string body;
  const auto line = [&](const std::string& text) { body += "  " + text + "\n"; };
  line(fmt::format("let number = group * {}u + thread;", kUnpackThreads));
  line(fmt::format("if (number < {}u) {{", all));
  line(fmt::format("  let t = {};", divided("number", chunks)));
  line(fmt::format("  let e = {} * 4u;", modulo("number", chunks)));
  // A negative index is large as u32, so it is also outside.
  const std::string index = indices ? bindings.load(rows, fmt::format("t + {}u", bindings.base(rows))) : "";
  line(fmt::format("  let row = {};", indices     ? fmt::format("bitcast<u32>({})", index)
                                      : first > 0 ? fmt::format("t + {}u", first)
                                                  : "t"));
  line("  var v = vec4f();");
  line(fmt::format("  if (row < {}u) {{", n));
  body += reader.read("row", divided("e", reader.elements()), "", "      ");
  line(fmt::format("    let c = {} >> 2u;", modulo("e", reader.elements())));
  line("    v = $chunk(q, high, c);");
  if (reader.has_scales()) {
    line(fmt::format("    let f = {};", reader.scale("", "c")));
    line("    v = v * f.x + f.y;");
  }
  line("  }");
  const std::string place = fmt::format("t * {}u + e + {}u", k, bindings.base(to));
  Helpers helpers;
  if (out.type == DType::f16) line("  v = clamp(v, vec4f(-65504f), vec4f(65504f));");
  if (by_fours && bindings.has_vectors(to)) {
    line("  " + bindings.store_vec4f(to, fmt::format("({}) / 4u", place), "v", helpers));
  } else {
    for (int c = 0; c < 4; ++c)
      line(fmt::format(
          "  if (e + {}u < {}u) {{ {} }}", c, k,
          bindings.store_f32(to, fmt::format("{} + {}u", place, c), fmt::format("v.{}", "xyzw"[c]), helpers)));
  }
  line("}");
  ShaderPieces shader{.threads = kUnpackThreads, .helpers = std::move(helpers), .body = std::move(body)};
  reader.declare(shader);
  return dispatch_of(name, std::move(shader), bindings, groups, target);
}

RenderedDispatch unpack_scaled(const std::string& name, BlockType type, const Operand& words, Extent n, Extent k,
                               const Operand& largest, const Operand& out, Extent count, const Target& target,
                               Extent first) {
  constexpr int kLanes = 16, kRows = kUnpackThreads / kLanes;  // threads of a row, and rows of a workgroup
  Bindings bindings(target, name);
  const PackedReader reader(type, words, n, k, bindings);
  const int sizes = bindings.add(largest, true), to = bindings.add(out, true);
  bindings.want_vectors(to);
  bindings.resolve();
  Helpers helpers;
  std::string body;
  const auto line = [&](const std::string& text) { body += "  " + text + "\n"; };
  const auto each_four = [&](const std::string& work) {
    // Neighbours store neighbours; several threads read the same unit.
    line(fmt::format("for (var e = lane * 4u; e < {}u; e += {}u) {{", k, 4 * kLanes));
    body += reader.read("row", divided("e", reader.elements()), "", "    ");
    line(fmt::format("  let c = {} >> 2u;", modulo("e", reader.elements())));
    line("  var four = $chunk(q, high, c);");
    if (reader.has_scales()) {
      line(fmt::format("  let f = {};", reader.scale("", "c")));
      line("  four = four * f.x + f.y;");
    }
    line("  " + work);
    line("}");
  };
  line(fmt::format("let lane = thread % {}u;", kLanes));
  line(fmt::format("let number = group * {}u + thread / {}u;", kRows, kLanes));
  line(fmt::format("let row = min(number, {}u) + {}u;", count - 1, first));
  line("var most = vec4<u32>();");
  each_four("most = max(most, bitcast<vec4<u32>>(four) & vec4<u32>(0x7fffffffu));");
  body += largest_size("size", "lane", kLanes);
  line(fmt::format("if (number >= {}u) {{ return; }}", count));
  line(fmt::format("if (lane == 0u) {{ {} }}",
                   bindings.store(sizes, fmt::format("number + {}u", bindings.base(sizes)), "size")));
  line(fmt::format("let scale = bitcast<f32>((127 + {}) << 23u);", scale_exponent("size")));
  each_four(fmt::format(
      "let x = four * scale; {0}[(number * {1}u + e + {2}u) / 4u] = vec2<u32>({3}(x.x, x.y), {3}(x.z, x.w));",
      bindings.array_of(to), k, bindings.base(to), helpers.use("halves_from_f32")));
  ShaderPieces shader{.threads = kUnpackThreads, .helpers = std::move(helpers), .body = std::move(body)};
  shader.share("sizes", "u32", kUnpackThreads);
  reader.declare(shader);
  const auto groups = static_cast<std::uint64_t>(divide_up(count, Extent{kRows}));
  return dispatch_of(name, std::move(shader), bindings, groups, target);
}

}  // namespace weft::webgpu
