#include "backend/webgpu/wgsl/cache_rows.hpp"

#include <fmt/format.h>

#include <utility>

#include "backend/webgpu/wgsl/steps.hpp"

namespace weft::webgpu {

void declare_row_function(ShaderPieces& shader, const char* name, CacheType type, const Bindings& bindings, int handle,
                          Extent words, Extent width) {
  const Extent base = bindings.base(handle);
  const auto load = [&](const std::string& at) { return bindings.load(handle, fmt::format("{} + {}u", at, base)); };
  const std::string parameters = "(row: u32, head: u32, c: u32) -> vec4f {\n";
  if (width % 4 == 0) {
    std::string text = parameters;
    if (type == CacheType::f32 && bindings.has_vectors(handle)) {
      text += fmt::format("  return {};\n", bindings.vector(handle, fmt::format("row * {}u + head * {}u + c + {}u",
                                                                                words / 4, width / 4, base / 4)));
    } else if (type == CacheType::f32) {
      text += fmt::format("  let at = row * {}u + head * {}u + c * 4u;\n", words, width);
      text += fmt::format("  return vec4f({}, {}, {}, {});\n", load("at"), load("at + 1u"), load("at + 2u"),
                          load("at + 3u"));
    } else if (type == CacheType::f16) {
      text += fmt::format("  let at = row * {}u + head * {}u + c * 2u;\n", words, width / 2);
      text += fmt::format("  return vec4f(unpack2x16float({}), unpack2x16float({}));\n", load("at"), load("at + 1u"));
    } else {
      text += fmt::format("  let e = head * {}u + c * 4u;\n", width);
      text += fmt::format("  let at = row * {}u + (e >> 5u) * 9u;\n", words);
      text += fmt::format("  return vec4f(unpack4xI8({})) * bitcast<f32>({});\n", load("at + 1u + ((e & 31u) >> 2u)"),
                          load("at"));
    }
    shader.functions.push_back({name, text + "}\n"});
    return;
  }
  const std::string one = fmt::format("{}_of", name);
  std::string text = "(row: u32, e: u32) -> f32 {\n";
  if (type == CacheType::f32) text += fmt::format("  return {};\n", load(fmt::format("row * {}u + e", words)));
  if (type == CacheType::f16)
    text += fmt::format("  return unpack2x16float({})[e & 1u];\n", load(fmt::format("row * {}u + (e >> 1u)", words)));
  if (type == CacheType::q8) {
    text += fmt::format("  let at = row * {}u + (e >> 5u) * 9u;\n", words);
    text += fmt::format("  return f32(extractBits(bitcast<i32>({}), (e & 3u) * 8u, 8u)) * bitcast<f32>({});\n",
                        load("at + 1u + ((e & 31u) >> 2u)"), load("at"));
  }
  shader.functions.push_back({one, text + "}\n"});
  text = fmt::format(
      "{0}  let e = head * {1}u;\n  var v = vec4f();\n"
      "  for (var i = 0u; i < 4u; i++) {{ if (c * 4u + i < {1}u) {{ v[i] = ${2}(row, e + c * 4u + i); }} }}\n"
      "  return v;\n}}\n",
      parameters, width, one);
  shader.functions.push_back({name, std::move(text)});
}

std::string cached_halves(const std::string& pair) {
  return fmt::format("pack2x16float(clamp({}, vec2f(-65504f), vec2f(65504f)))", pair);
}

}  // namespace weft::webgpu
