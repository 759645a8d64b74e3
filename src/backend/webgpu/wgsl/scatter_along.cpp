#include "backend/webgpu/wgsl/scatter_along.hpp"

#include <fmt/format.h>

#include "backend/webgpu/wgsl/loop.hpp"
#include "backend/webgpu/wgsl/scalar.hpp"
#include "backend/webgpu/wgsl/steps.hpp"
#include "compile/call_attributes.hpp"
#include "graph/scatter.hpp"

namespace weft::webgpu {
namespace {

/// [outer, extent, inner], and the indices that choose places, [outer, taken, inner].
struct Lines {
  Extent outer = 1, extent = 0, inner = 1, taken = 0;
};
Lines lines_of(const kernel::CallKernel& kernel) {
  const auto a = kernel::attributes_of<graph::ScatterAlongAttributes>(kernel);
  const Shape& shape = kernel.shape();
  const int axis = static_cast<int>(a.axis < 0 ? a.axis + shape.rank() : a.axis);
  Lines lines{.extent = shape[axis], .taken = kernel.shapes[0][axis]};
  for (int d = 0; d < shape.rank(); ++d)
    if (d != axis) (d < axis ? lines.outer : lines.inner) *= shape[d];
  return lines;
}

/// A negative index is large as u32, so it is outside of all places.
std::string as_place(const kernel::Operand& indices, const std::string& index) {
  return indices.type == DType::u32 ? index : fmt::format("bitcast<u32>({})", index);
}

}  // namespace

void render_scatter_along(const kernel::CallKernel& kernel, const Target& target, Scratch&, Rendered& rendered) {
  if (kernel.shape().numel() == 0) return;
  constexpr int kThreads = 64;  // of a workgroup: a line each
  const auto [outer, extent, inner, taken] = lines_of(kernel);
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

void render_last_along(const kernel::CallKernel& kernel, const Target& target, Scratch& scratch, Rendered& rendered) {
  if (kernel.shape().numel() == 0) return;
  constexpr int kThreads = 256;
  const auto [outer, extent, inner, taken] = lines_of(kernel);
  const kernel::Operand& result = kernel.out();
  const kernel::Operand words{result.buffer, DType::u32, result.offset, result.count};
  kernel::LoopKernel zeros;
  zeros.name = kernel.name + ".clear";
  zeros.outer = words.count;
  zeros.outputs = {words};
  zeros.steps = {kernel::Step{kernel::StepKind::constant, DType::u32, kernel::Level::outer}};
  zeros.stores = {{0, 0, {{words.count}, {1}, 0, {}}}};
  webgpu::render(zeros, target, scratch, rendered);
  const Extent count = outer * taken * inner;
  if (count == 0) return;

  Bindings bindings(target, kernel.name);
  const int indices = bindings.add(kernel.reads[0], false), out = bindings.add(words, true);
  bindings.want_atomics(out);
  bindings.resolve();
  std::string body;
  const auto line = [&](const std::string& statement) { body += "  " + statement + "\n"; };
  line(fmt::format("let update = group * {}u + thread;", kThreads));
  line(fmt::format("if (update < {}u) {{", count));
  const std::string index = bindings.load(indices, fmt::format("update + {}u", bindings.base(indices)));
  line(fmt::format("  let place = {};", as_place(kernel.reads[0], index)));
  line(fmt::format("  if (place < {}u) {{", extent));
  line(fmt::format("    let row = {};", divided("update", inner)));
  line(fmt::format("    let line = {};", divided("row", taken)));
  line(fmt::format("    let at = (line * {}u + place) * {}u + {};", extent, inner, modulo("update", inner)));
  line(fmt::format("    atomicMax(&{}[at + {}u], {} + 1u);", bindings.array_of(out), bindings.base(out),
                   modulo("row", taken)));
  line("  }");
  line("}");
  ShaderPieces shader{.threads = kThreads, .body = std::move(body)};
  rendered.dispatches.push_back(dispatch_of(kernel.name, std::move(shader), bindings,
                                            static_cast<std::uint64_t>(divide_up(count, kThreads)), target));
}

}  // namespace weft::webgpu
