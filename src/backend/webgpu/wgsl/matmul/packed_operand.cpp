#include "backend/webgpu/wgsl/matmul/packed_operand.hpp"

#include <fmt/format.h>

namespace weft::webgpu {

bool PackedOperand::suits(BlockType type) {
  const QuantForm form = quant_form(type);
  return (form.values == QuantValues::nibble || form.values == QuantValues::byte) &&
         (form.scales == QuantScales::half || form.scales == QuantScales::coded);
}

ShaderPieces::Function PackedOperand::words_function(const char* name, int handle, Extent k,
                                                     const Bindings& bindings) const {
  const QuantForm form = quant_form(type);
  const QuantLayout at = quant_layout(form, rows, k);
  const auto load = [&](const std::string& index, Extent first) {
    return bindings.load(handle, fmt::format("{} + {}u", index, first + bindings.base(handle)));
  };
  std::string second = "0u";
  if (form.values == QuantValues::byte) second = load("block * 8u + part * 2u", 1);
  if (form.planes == 1) second = load("block", at.high);
  if (form.planes == 2) second = load("block * 2u + (part >> 1u)", at.high);
  const std::string first =
      form.values == QuantValues::byte ? load("block * 8u + part * 2u", 0) : load("block * 4u + part", 0);
  const std::string factors = form.scales == QuantScales::coded ? load("(block >> 3u)", at.factors) : "0u";
  return {name, fmt::format("(block: u32, part: u32) -> vec4<u32> {{ return vec4<u32>({}, {}, {}, {}); }}\n", first,
                            second, load("block", at.scales), factors)};
}

ShaderPieces::Function PackedOperand::halves_function(const char* name, Helpers& helpers) const {
  const QuantForm form = quant_form(type);
  std::string text = "(words: vec4<u32>, part: u32) -> vec4<u32> {\n";
  if (form.values == QuantValues::byte) {
    text += "  var low = vec4f(unpack4xI8(words.x)); var high = vec4f(unpack4xI8(words.y));\n";
  } else {
    text += "  var even = words.x & 0x0F0F0F0Fu; var odd = (words.x >> 4u) & 0x0F0F0F0Fu;\n";
    if (form.planes == 1)
      text +=
          "  even |= ((words.y >> (part << 1u)) & 0x01010101u) << 4u;\n"
          "  odd |= ((words.y >> ((part << 1u) + 1u)) & 0x01010101u) << 4u;\n";
    if (form.planes == 2)
      text +=
          "  let shift = (part & 1u) << 2u;\n"
          "  even |= ((words.y >> shift) & 0x03030303u) << 4u;\n"
          "  odd |= ((words.y >> (shift + 2u)) & 0x03030303u) << 4u;\n";
    text += "  var low = vec4f(unpack4xU8(even)); var high = vec4f(unpack4xU8(odd));\n";
  }
  if (form.scales == QuantScales::half) {
    text += "  let pair = unpack2x16float(words.z);\n";
  } else {
    text += fmt::format("  let codes = bitcast<i32>(words.z{});\n", form.group == 16 ? " >> ((part >> 1u) << 4u)" : "");
    text +=
        "  let pair = unpack2x16float(words.w) * "
        "vec2f(f32(extractBits(codes, 0u, 8u)), f32(extractBits(codes, 8u, 8u)));\n";
  }
  text += fmt::format("  let offset = {}pair.x * {}f;\n", form.has_minimum ? "pair.y - " : "-", form.zero);
  const std::string_view halves = helpers.use("halves_from_f32");
  text +=
      "  low = clamp(low * pair.x + offset, vec4f(-65504f), vec4f(65504f));\n"
      "  high = clamp(high * pair.x + offset, vec4f(-65504f), vec4f(65504f));\n";
  return {name, text + fmt::format("  return vec4<u32>({0}(low.x, low.y), {0}(low.z, low.w), {0}(high.x, high.y), "
                                   "{0}(high.z, high.w));\n}}\n",
                                   halves)};
}

}  // namespace weft::webgpu
