#include "backend/webgpu/wgsl/quantised/packed_reader.hpp"

#include <fmt/format.h>

#include <utility>

namespace weft::webgpu {

PackedReader::PackedReader(BlockType type, const kernel::Operand& words, Extent n, Extent k, Bindings& bindings,
                           std::string mark)
    : form_(quant_form(type)), at_(quant_layout(form_, n, k)), bindings_(bindings), mark_(std::move(mark)) {
  const auto run = [&](Extent first, Extent count) {
    return bindings.add({words.buffer, DType::u32, words.offset + first, count}, false);
  };
  const Extent all = n * at_.blocks;
  values_ = run(0, all * form_.value_words());
  bindings.want_vectors(values_);
  if (form_.planes > 0) high_ = run(at_.high, all * form_.planes);
  if (has_scales()) scales_ = run(at_.scales, all);
  if (form_.scales == QuantScales::coded) factors_ = run(at_.factors, all / 8);
}

std::vector<int> PackedReader::bindings() const {
  std::vector<int> numbers;
  for (const int handle : {values_, high_, scales_, factors_})
    if (handle >= 0) numbers.push_back(bindings_.binding(handle));
  return numbers;
}

void PackedReader::declare(ShaderPieces& shader) const {
  if (has_integers()) {
    std::string word = "(q: vec4u, high: vec2u, c: u32) -> u32 {\n";
    if (form_.values == QuantValues::nibble) {
      word += "  var four = (q[c >> 1u] >> ((c & 1u) << 2u)) & 0x0F0F0F0Fu;\n";
      if (form_.planes == 1) word += "  four |= ((high.x >> c) & 0x01010101u) << 4u;\n";
      if (form_.planes == 2) word += "  four |= ((high[c >> 2u] >> ((c & 3u) << 1u)) & 0x03030303u) << 4u;\n";
      word += "  return four;\n";
    } else {
      word += "  return q[c];\n";
    }
    shader.functions.push_back({"word" + mark_, word + "}\n"});
  }
  std::string text = "(q: vec4u, high: vec2u, c: u32) -> vec4f {\n";
  switch (form_.values) {
    case QuantValues::nibble: text += fmt::format("  return vec4f(unpack4xU8($word{}(q, high, c)));\n", mark_); break;
    case QuantValues::byte: text += fmt::format("  return vec4f(unpack4xI8($word{}(q, high, c)));\n", mark_); break;
    case QuantValues::f16:
      text += "  return vec4f(unpack2x16float(q[2u * c]), unpack2x16float(q[2u * c + 1u]));\n";
      break;
    case QuantValues::bf16:
      text += "  let pair = vec2u(q[2u * c], q[2u * c + 1u]);\n";
      text +=
          "  return vec4f(bitcast<f32>(pair.x << 16u), bitcast<f32>(pair.x & 0xFFFF0000u), "
          "bitcast<f32>(pair.y << 16u), bitcast<f32>(pair.y & 0xFFFF0000u));\n";
      break;
    case QuantValues::f32: text += "  return bitcast<vec4f>(q);\n"; break;
  }
  shader.functions.push_back({"chunk" + mark_, text + "}\n"});
  if (!has_scales()) return;
  text = "(block: u32, half: u32) -> vec2f {\n";
  text += fmt::format("  let word = {};\n", load(scales_, "block"));
  if (form_.scales == QuantScales::half) text += "  let pair = unpack2x16float(word);\n";
  if (form_.scales == QuantScales::single) text += "  let pair = vec2f(bitcast<f32>(word), 0f);\n";
  if (form_.scales == QuantScales::coded) {
    text += "  let codes = bitcast<i32>(word >> (half << 4u));\n";
    text += fmt::format("  let factors = unpack2x16float({});\n", load(factors_, "(block >> 3u)"));
    text += "  let pair = factors * vec2f(f32(extractBits(codes, 0u, 8u)), f32(extractBits(codes, 8u, 8u)));\n";
  }
  text +=
      fmt::format("  return vec2f(pair.x, {}pair.x * {}f);\n}}\n", form_.has_minimum ? "pair.y - " : "-", form_.zero);
  shader.functions.push_back({"scale_at" + mark_, std::move(text)});
}

std::string PackedReader::read(const std::string& row, const std::string& unit, const std::string& suffix,
                               const std::string& indent) const {
  const std::string index = fmt::format("{} * {}u + {}", row, units(), unit);
  std::string text = fmt::format("{}let place{} = {};\n", indent, suffix, index);
  const auto word = [&](int i) { return load(values_, fmt::format("(place{} * 4u + {}u)", suffix, i)); };
  if (bindings_.has_vectors(values_) && bindings_.base(values_) % 4 == 0)
    text += fmt::format("{}let q{} = {};\n", indent, suffix,
                        bindings_.vector(values_, fmt::format("place{} + {}u", suffix, bindings_.base(values_) / 4)));
  else
    text += fmt::format("{}let q{} = vec4u({}, {}, {}, {});\n", indent, suffix, word(0), word(1), word(2), word(3));
  std::string high = "vec2u()";
  if (form_.planes == 1) high = fmt::format("vec2u({}, 0u)", load(high_, "place" + suffix));
  if (form_.planes == 2)
    high = fmt::format("vec2u({}, {})", load(high_, fmt::format("(2u * place{})", suffix)),
                       load(high_, fmt::format("(2u * place{} + 1u)", suffix)));
  return text + fmt::format("{}let high{} = {};\n", indent, suffix, high);
}

std::string PackedReader::scale(const std::string& suffix, const std::string& chunk) const {
  const std::string half = form_.group == 32 ? "0u"
                           : chunks() == 8   ? fmt::format("({} >> 2u)", chunk)
                                             : fmt::format("(place{} & 1u)", suffix);
  return fmt::format("$scale_at{}({}, {})", mark_, divided("place" + suffix, form_.value_words() / 4), half);
}

std::string PackedReader::load(int handle, const std::string& index) const {
  return bindings_.load(handle, fmt::format("{} + {}u", index, bindings_.base(handle)));
}

}  // namespace weft::webgpu
