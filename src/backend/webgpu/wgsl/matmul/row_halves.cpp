#include "backend/webgpu/wgsl/matmul/row_halves.hpp"

#include <fmt/format.h>

#include <utility>

#include "backend/webgpu/wgsl/matmul/scaled_product.hpp"

namespace weft::webgpu {

std::string largest_size(const char* name, const std::string& lane, int lanes) {
  return fmt::format(
      "  $sizes[thread] = max(max(most.x, most.y), max(most.z, most.w));\n"
      "  workgroupBarrier();\n"
      "  for (var distance = {0}u; distance > 0u; distance >>= 1u) {{\n"
      "    if ({1} < distance) {{ $sizes[thread] = max($sizes[thread], $sizes[thread + distance]); }}\n"
      "    workgroupBarrier();\n"
      "  }}\n"
      "  let {2} = bitcast<f32>($sizes[thread - {1}]);\n",
      lanes / 2, lane, name);
}

void render_row_halves(const std::string& name, const kernel::Operand& a, Extent a_row, Extent m, Extent k,
                       const kernel::Operand& largest, const kernel::Operand& halves, const Target& target,
                       Rendered& rendered, const RowGroups* groups) {
  constexpr int kThreads = 256;
  Bindings bindings(target, name);
  const int from = bindings.add(a, false), largest_at = bindings.add(largest, true), to = bindings.add(halves, true);
  const int order = groups ? bindings.add(groups->order, false) : -1;
  bindings.want_vectors(from);
  bindings.want_vectors(to);
  bindings.resolve();
  Helpers helpers;
  std::string body;
  const auto line = [&](const std::string& text) { body += "  " + text + "\n"; };
  const auto each_four = [&](const std::string& work) {
    line(fmt::format("for (var e = thread; e < {}u; e += {}u) {{", k / 4, kThreads));
    if (bindings.has_vectors(from)) {
      line("  let four = " + bindings.load_vec4f(from, "row_at / 4u + e", helpers) + ";");
    } else {
      std::string four;
      for (int c = 0; c < 4; ++c)
        four += (c ? ", " : "") + bindings.load_f32(from, fmt::format("row_at + e * 4u + {}u", c), helpers);
      line(fmt::format("  let four = vec4f({});", four));
    }
    line("  " + work);
    line("}");
  };
  if (groups) body += group_of_tile(*groups, divided("group", groups->tile), "number");
  line(fmt::format("let row_at = {} * {}u + {}u;", groups ? "$row_at(group)" : "group",
                   static_cast<std::uint32_t>(a_row), bindings.base(from)));
  line("var most = vec4<u32>();");
  each_four("most = max(most, bitcast<vec4<u32>>(four) & vec4<u32>(0x7fffffffu));");
  body += largest_size("largest", "thread", kThreads);
  line(fmt::format("if (thread == 0u) {{ {} }}",
                   bindings.store(largest_at, fmt::format("group + {}u", bindings.base(largest_at)), "largest")));
  line(fmt::format("let scale = bitcast<f32>((127 + {}) << 23u);", scale_exponent("largest")));
  each_four(fmt::format("let x = four * scale; {0}[group * {1}u + e + {2}u] = vec2<u32>({3}(x.x, x.y), {3}(x.z, x.w));",
                        bindings.array_of(to), k / 4, bindings.base(to) / 4, helpers.use("halves_from_f32")));
  ShaderPieces shader{.threads = kThreads, .helpers = std::move(helpers), .body = std::move(body)};
  shader.share("sizes", "u32", kThreads);
  if (groups) declare_row_groups(*groups, order, bindings, shader);
  rendered.dispatches.push_back(
      dispatch_of(name + ".halves", std::move(shader), bindings, static_cast<std::uint64_t>(m), target));
}

}  // namespace weft::webgpu
