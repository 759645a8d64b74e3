#include "backend/webgpu/wgsl/attention_parts.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace weft::webgpu {

std::string joined_parts_function(const AttentionParts& parts, Extent rows, int binding, const Bindings& bindings,
                                  const Target& target) {
  const Extent pitch = parts.pitch / 4, fours = parts.width / 4;
  std::string text = "(i: u32, e: u32) -> vec4f {\n";
  const auto line = [&](const std::string& statement) { text += "  " + statement + "\n"; };
  const auto part = [&](int s, const std::string& at) {
    return bindings.vector(binding, fmt::format("part + {}u + {}", s * pitch, at));
  };
  line(fmt::format("let at = min(i, {}u) * {}u + (e >> 2u);", rows - 1, parts.heads * fours));
  line(fmt::format("let part = {} * {}u + {}u;", divided("at", fours), parts.splits * pitch,
                   bindings.base(binding) / 4));
  line(fmt::format("let c = {};", modulo("at", fours)));
  line("var top = -3e38f;");
  line("var total = 0f;");
  line("var sum = vec4f();");
  // Parts after one without keys have none, and are not read.
  const int kTogether = target.joins_phases() ? 8 : 4;
  const int splits = static_cast<int>(parts.splits);
  std::string ends;
  for (int first = 0; first < splits; first += kTogether) {
    const int end = std::min(first + kTogether, splits);
    if (first > 0) {
      line(fmt::format("if (weight{}.y > 0f) {{", first - 1));
      ends += "}";
    }
    for (int s = first; s < end; ++s) {
      line(fmt::format("let weight{} = {}.xy;", s, part(s, fmt::format("{}u", fours))));
      line(fmt::format("let value{} = {};", s, part(s, "c")));
    }
    line(fmt::format("var top{} = top;", first));
    for (int s = first; s < end; ++s) line(fmt::format("top{0} = max(top{0}, weight{1}.x);", first, s));
    line(fmt::format("let before{0} = exp(top - top{0});", first));
    line(fmt::format("total *= before{};", first));
    line(fmt::format("sum *= before{};", first));
    line(fmt::format("top = top{};", first));
    for (int s = first; s < end; ++s) {
      line(fmt::format("let fade{0} = exp(weight{0}.x - top);", s));
      line(fmt::format("total += fade{0} * weight{0}.y;", s));
      line(fmt::format("sum += fade{0} * value{0};", s));
    }
  }
  if (!ends.empty()) line(ends);
  line("return select(vec4f(), sum / total, total > 0f);");
  return text + "}\n";
}

}  // namespace weft::webgpu
