#include "backend/webgpu/wgsl/scatter_along.hpp"

#include <fmt/format.h>

#include "backend/webgpu/wgsl/axis_lines.hpp"
#include "backend/webgpu/wgsl/scalar.hpp"
#include "compile/call_attributes.hpp"
#include "graph/scatter.hpp"

namespace weft::webgpu {

void render_scatter_along(const kernel::CallKernel& kernel, const Target& target, Scratch&, Rendered& rendered) {
  if (kernel.shape().numel() == 0) return;
  constexpr int kThreads = 64;  // of a workgroup: a line each
  const auto a = kernel::attributes_of<graph::ScatterAlongAttributes>(kernel);
  const auto [outer, extent, inner, taken] = axis_lines(kernel.shape(), a.axis, kernel.shapes[0]);
  const Extent lines = outer * inner;

  Bindings bindings(target, kernel.name);
  const bool reads = taken > 0;
  const int indices = reads ? bindings.add(kernel.reads[0], false) : -1;
  const int updates = reads ? bindings.add(kernel.reads[1], false) : -1;
  const int out = bindings.add(kernel.out(), true);
  bindings.forbid_vectors(out);
  bindings.resolve();
  const auto place = [&](int handle, const std::string& at) {
    return fmt::format("{} + {}u", at, bindings.base(handle));
  };
  std::string body;
  const auto line = [&](const std::string& statement) { body += "  " + statement + "\n"; };
  line(fmt::format("let number = group * {}u + thread;", kThreads));
  line(fmt::format("if (number < {}u) {{", lines));
  line(fmt::format("  let before = {};", divided("number", inner)));
  line(fmt::format("  let after = {};", modulo("number", inner)));
  line(fmt::format("  let to = before * {}u + after;", extent * inner));
  line(fmt::format("  for (var r = 0u; r < {}u; r++) {{ {} }}", extent,
                   bindings.store(out, place(out, fmt::format("to + r * {}u", inner)),
                                  fmt::format("{}()", wgsl_type(kernel.out().type)))));
  if (reads) {
    line(fmt::format("  for (var t = 0u; t < {}u; t++) {{", taken));
    line(fmt::format("    let at = before * {}u + t * {}u + after;", taken * inner, inner));
    const std::string index = bindings.load(indices, place(indices, "at"));
    line(fmt::format("    let r = {};", as_place(kernel.reads[0], index)));
    line(fmt::format("    if (r < {}u) {{", extent));
    const std::string target_at = place(out, fmt::format("to + r * {}u", inner));
    line("      " + bindings.store(out, target_at,
                                   fmt::format("{} + {}", bindings.load(out, target_at),
                                               bindings.load(updates, place(updates, "at")))));
    line("    }");
    line("  }");
  }
  line("}");
  const auto groups = static_cast<std::uint64_t>(divide_up(lines, kThreads));
  ShaderPieces shader{.threads = kThreads, .body = std::move(body)};
  rendered.dispatches.push_back(dispatch_of(kernel.name, std::move(shader), bindings, groups, target));
}

}  // namespace weft::webgpu
