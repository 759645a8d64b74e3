#include "backend/webgpu/wgsl/put_along.hpp"

#include <fmt/format.h>

#include <optional>
#include <utility>

#include "backend/webgpu/wgsl/line_block.hpp"
#include "backend/webgpu/wgsl/scalar.hpp"
#include "backend/webgpu/wgsl/turned_lines.hpp"
#include "backend/webgpu/wgsl/zeros.hpp"
#include "compile/call_attributes.hpp"
#include "graph/scatter.hpp"

namespace weft::webgpu {
namespace {

constexpr Extent kPutBytesMost = 32768;  // of places in workgroup memory; several workgroups then share a compute unit
constexpr Extent kPutBits = 32;
constexpr int kPutThreads = 256;

constexpr BlockNeeds kPutNeeds{.bytes_most = kPutBytesMost};

/// `indices` is the operand that has them; x and updates are the others of a put.
RenderedDispatch put_in_workgroup_memory(const kernel::CallKernel& kernel, const Target& target, const AxisLines& along,
                                         const LineBlock& block, std::size_t indices) {
  const bool puts = indices > 0, reads = along.taken > 0;
  LineBlockWriter w(kernel, along, block, target);
  const int x = puts ? w.bind(kernel.reads[0], false) : -1, from = reads ? w.bind(kernel.reads[indices], false) : -1,
            updates = puts && reads ? w.bind(kernel.reads[2], false) : -1;
  w.resolve(from, updates, w.bind(kernel.out(), true));
  w.each_slot("atomicStore(&$last[s], 0u);");
  w.barrier();
  w.each_update("atomicMax(&$last[s], t + 1u);");
  w.barrier();
  const Extent items = block.lines * along.taken * block.columns;
  if (!puts) {
    w.each_place(w.store("atomicLoad(&$last[s])"));
  } else if (items <= kPutBits * block.threads && block.slots() <= kPutBits * block.threads) {
    // A place has one update, so values may take the positions' place, to be written in order.
    w.line("var kept = 0u;");
    w.line("var stays = 0u;");
    w.each_place("kept |= u32(atomicLoad(&$last[s]) == 0u) << bit;");
    w.each_update("stays |= u32(atomicLoad(&$last[s]) == t + 1u) << bit;");
    w.barrier();
    w.each_place(fmt::format("if (((kept >> bit) & 1u) != 0u) {{ atomicStore(&$last[s], {}); }}", w.load(x, "at")));
    w.each_update("if (((stays >> bit) & 1u) != 0u) { atomicStore(&$last[s], value); }", true);
    w.barrier();
    w.each_place(w.store("atomicLoad(&$last[s])"));
  } else {
    const std::string update = w.load(updates, w.update_place("l", "c", "(last - 1u)"));
    w.each_place(
        fmt::format("let last = atomicLoad(&$last[s]); var value = 0u; if (last > 0u) {{ value = {}; }} else {{ "
                    "value = {}; }} {}",
                    update, w.load(x, "at"), w.store("value")));
  }
  w.shader.share("last", "atomic<u32>", block.slots());
  return w.dispatch();
}

/// Positions in memory: zeros, and then a thread for each index.
void render_last_in_memory(const std::string& name, const kernel::Operand& indices, const kernel::Operand& result,
                           const AxisLines& along, const Target& target, Scratch& scratch, Rendered& rendered) {
  const kernel::Operand words = words_of(result);
  render_zeros(name + ".clear", words, target, scratch, rendered);
  const Extent count = along.outer * along.taken * along.inner;
  if (count == 0) return;

  Bindings bindings(target, name);
  const int from = bindings.add(indices, false), out = bindings.add(words, true);
  bindings.want_atomics(out);
  bindings.resolve();
  std::string body;
  const auto line = [&](const std::string& statement) { body += "  " + statement + "\n"; };
  line(fmt::format("let update = group * {}u + thread;", kPutThreads));
  line(fmt::format("if (update < {}u) {{", count));
  const std::string index = bindings.load(from, fmt::format("update + {}u", bindings.base(from)));
  line(fmt::format("  let place = {};", as_place(indices, index)));
  line(fmt::format("  if (place < {}u) {{", along.extent));
  line(fmt::format("    let row = {};", divided("update", along.inner)));
  line(fmt::format("    let line = {};", divided("row", along.taken)));
  line(fmt::format("    let at = (line * {}u + place) * {}u + {};", along.extent, along.inner,
                   modulo("update", along.inner)));
  line(fmt::format("    atomicMax(&{}[at + {}u], {} + 1u);", bindings.array_of(out), bindings.base(out),
                   modulo("row", along.taken)));
  line("  }");
  line("}");
  ShaderPieces shader{.threads = kPutThreads, .body = std::move(body)};
  rendered.dispatches.push_back(dispatch_of(name, std::move(shader), bindings,
                                            static_cast<std::uint64_t>(divide_up(count, kPutThreads)), target));
}

/// Updates by their positions in memory.
RenderedDispatch put_by_positions(const kernel::CallKernel& kernel, const kernel::Operand& positions,
                                  const AxisLines& along, const Target& target) {
  Bindings bindings(target, kernel.name);
  const int x = bindings.add(kernel.reads[0], false), updates = bindings.add(kernel.reads[2], false),
            last = bindings.add(positions, false), out = bindings.add(kernel.out(), true);
  for (const int handle : {x, updates, last, out}) bindings.forbid_vectors(handle);
  bindings.resolve();
  const auto at = [&](int handle, const std::string& index) {
    return fmt::format("{} + {}u", index, bindings.base(handle));
  };
  const Extent count = kernel.shape().numel();
  std::string body;
  const auto line = [&](const std::string& statement) { body += "  " + statement + "\n"; };
  line(fmt::format("let i = group * {}u + thread;", kPutThreads));
  line(fmt::format("if (i < {}u) {{", count));
  line(fmt::format("  let last = {};", bindings.load(last, at(last, "i"))));
  line("  if (last > 0u) {");
  line(fmt::format("    let source = ({} * {}u + last - 1u) * {}u + {};", divided("i", along.extent * along.inner),
                   along.taken, along.inner, modulo("i", along.inner)));
  line("    " + bindings.store(out, at(out, "i"), bindings.load(updates, at(updates, "source"))));
  line("  } else {");
  line("    " + bindings.store(out, at(out, "i"), bindings.load(x, at(x, "i"))));
  line("  }");
  line("}");
  ShaderPieces shader{.threads = kPutThreads, .body = std::move(body)};
  return dispatch_of(kernel.name, std::move(shader), bindings,
                     static_cast<std::uint64_t>(divide_up(count, kPutThreads)), target);
}

}  // namespace

void render_last_along(const kernel::CallKernel& kernel, const Target& target, Scratch& scratch, Rendered& rendered) {
  if (kernel.shape().numel() == 0) return;
  const auto a = kernel::attributes_of<graph::ScatterAlongAttributes>(kernel);
  const AxisLines along = axis_lines(kernel.shape(), a.axis, kernel.shapes[0]);
  if (turns_columns(along, target, kPutNeeds)) {
    render_turned_lines(kernel, along, target, scratch, rendered, render_last_along);
  } else if (const std::optional<LineBlock> block = line_block(along, target, kPutNeeds)) {
    rendered.dispatches.push_back(put_in_workgroup_memory(kernel, target, along, *block, 0));
  } else {
    render_last_in_memory(kernel.name, kernel.reads[0], kernel.out(), along, target, scratch, rendered);
  }
}

void render_put_along(const kernel::CallKernel& kernel, const Target& target, Scratch& scratch, Rendered& rendered) {
  if (kernel.shape().numel() == 0) return;
  const AxisLines along = axis_lines(kernel.shape(), kernel.attributes[0], kernel.shapes[1]);
  if (turns_columns(along, target, kPutNeeds))
    return render_turned_lines(kernel, along, target, scratch, rendered, render_put_along);
  if (const std::optional<LineBlock> block = line_block(along, target, kPutNeeds)) {
    rendered.dispatches.push_back(put_in_workgroup_memory(kernel, target, along, *block, 1));
    return;
  }
  const kernel::Operand positions = scratch.add(DType::u32, kernel.shape().numel());
  render_last_in_memory(kernel.name + ".last", kernel.reads[1], positions, along, target, scratch, rendered);
  rendered.dispatches.push_back(put_by_positions(kernel, positions, along, target));
}

}  // namespace weft::webgpu
