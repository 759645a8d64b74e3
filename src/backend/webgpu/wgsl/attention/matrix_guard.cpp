// Guarded values on subgroup matrices: those that a query does not see may be infinite or NaN.
//
// A product multiplies the values of a tile by the weights of all owned queries, and 0 times an infinity is NaN. A check of each
// value would slow down every attention. So the results are checked: if a sum is NaN, the workgroup starts again and stages
// zeros for the values that are infinite or NaN. Then a walk over the span of each query adds these to its results.
#include <fmt/format.h>

#include "backend/webgpu/wgsl/attention/matrix_writer.hpp"

namespace weft::webgpu::attention {

ShaderPieces::Function special_halves() {
  // Adding 1 to an exponent whose bits are all set carries into the sign, which is 0.
  return {"special_halves",
          "(v: vec4<u32>) -> vec4<u32> {\n"
          "  let carried = ((v & vec4<u32>(0x7c007c00u)) + vec4<u32>(0x04000400u)) & vec4<u32>(0x80008000u);\n"
          "  return (carried >> vec4<u32>(15u)) * vec4<u32>(0xffffu);\n"
          "}\n"};
}

// Declares `clean`: whether values are staged without infinities and NaN.
void MatrixAttentionWriter::write_guard() {
  line("var clean = false;");
  line("if (thread == 0u) { $again[1] = 0u; }");
}

// Clears infinities and NaN among the values that are about to be staged.
void MatrixAttentionWriter::write_cleaned() {
  line("if (clean) {");
  for (int i = 0; i < loads(); ++i) line(fmt::format("  second{0} = second{0} & ~$special_halves(second{0});", i));
  line("}");
}

// A statement that looks for NaN among eight results at `place`.
std::string MatrixAttentionWriter::finds_nan(const std::string& place) const {
  return fmt::format(
      "let bits = max($scores[{0}] & vec4<u32>(0x7fffffffu), $scores[{0} + 1u] & vec4<u32>(0x7fffffffu)); "
      "found_nan = found_nan || any(bits > vec4<u32>(0x7f800000u));",
      place);
}

// What follows results: the end of the attempts, or another one.
void MatrixAttentionWriter::write_next_guarded_attempt() {
  line("if (clean) {");
  write_specials();
  line("break;");
  line("}");
  line("if (found_nan) { $again[1] = 1u; }");
  line("if (workgroupUniformLoad(&$again[1]) == 0u) { break; }");
  line("clean = true;");
}

// Adds the infinities and NaN of a query's span to its results. Weights are above 0, so they do not matter.
void MatrixAttentionWriter::write_specials() {
  const Extent eights = kernel_.width / 8;
  const int to = first_.handle;
  line("storageBarrier();");
  line(fmt::format("for (var at = thread; at < {}u; at += {}u) {{", block_.rows() * eights, block_.threads()));
  line(fmt::format("  let row = begin + {};", divided("at", eights)));
  line(fmt::format("  let vector = {};", modulo("at", eights)));
  line(fmt::format("  if (row < {}u) {{", owned_));
  line(fmt::format("    let last = min({}, {}i);", extras_.span("row", 1), others_));
  line("    var sums = array<vec4f, 2>();");
  line(fmt::format("    for (var key = max({}, 0i); key < last; key++) {{", extras_.span("row", 0)));
  line(fmt::format("      let eight = {};", eight(other_second_, "u32(key)", "vector")));
  line("      let special = eight & $special_halves(eight);");
  line("      sums[0] += vec4f(unpack2x16float(special.x), unpack2x16float(special.y));");
  line("      sums[1] += vec4f(unpack2x16float(special.z), unpack2x16float(special.w));");
  line("    }");
  line("    for (var e = 0u; e < 2u; e++) {");
  line("      if (any(bitcast<vec4<u32>>(sums[e]) != vec4<u32>())) {");
  line(fmt::format("        let four_at = {} + row * {}u + vector * 2u + e;",
                   offset(*first_.tensor, first_.of_keys, bindings_.base(to), 4),
                   static_cast<std::uint32_t>(first_.tensor->row_stride / 4)));
  line(fmt::format("        let four = {} + sums[e];", bindings_.load_vec4f(to, "four_at", helpers_)));
  line("        " + bindings_.store_vec4f(to, "four_at", "four", helpers_));
  line("      }");
  line("    }");
  line("  }");
  line("}");
}

}  // namespace weft::webgpu::attention
