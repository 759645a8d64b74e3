#include "backend/webgpu/wgsl/turned_lines.hpp"

#include <fmt/format.h>

#include <utility>

#include "backend/webgpu/wgsl/loop.hpp"

namespace weft::webgpu {

void render_copy(std::string name, const kernel::Operand& from, kernel::View view, const kernel::Operand& to,
                 const Target& target, Scratch& scratch, Rendered& rendered) {
  const auto words = [](const kernel::Operand& o) { return kernel::Operand{o.buffer, DType::u32, o.offset, o.count}; };
  kernel::LoopKernel copy;
  copy.name = std::move(name);
  copy.outer = to.count;
  copy.inputs = {words(from)};
  copy.outputs = {words(to)};
  kernel::Step load{kernel::StepKind::load, DType::u32, kernel::Level::outer};
  load.operand = 0;
  load.view = std::move(view);
  copy.steps = {load};
  copy.stores = {{0, 0, {{to.count}, {1}, 0, {}}}};
  render(copy, target, scratch, rendered);
}

kernel::View turned_view(Extent outer, Extent rows, Extent columns) {
  return {{outer, columns, rows}, {rows * columns, 1, columns}, 0, {}};
}

void render_turned_lines(const kernel::CallKernel& kernel, const AxisLines& along, const Target& target,
                         Scratch& scratch, Rendered& rendered,
                         void (*render)(const kernel::CallKernel&, const Target&, Scratch&, Rendered&)) {
  const Extent lines = along.outer * along.inner;
  kernel::CallKernel turned = kernel;
  turned.attributes[0] = 1;
  for (std::size_t r = 0; r < kernel.reads.size(); ++r) {
    const Extent extent = kernel.shapes[r].numel() / lines;
    const kernel::Operand& from = kernel.reads[r];
    turned.reads[r] = scratch.add(from.type, lines * extent);
    turned.shapes[r] = {lines, extent};
    render_copy(fmt::format("{}.turn{}", kernel.name, r), from, turned_view(along.outer, extent, along.inner),
                turned.reads[r], target, scratch, rendered);
  }
  turned.outs = {scratch.add(kernel.out().type, lines * along.extent)};
  turned.out_shapes = {{lines, along.extent}};
  render(turned, target, scratch, rendered);
  render_copy(kernel.name + ".turn_back", turned.out(), turned_view(along.outer, along.inner, along.extent),
              kernel.out(), target, scratch, rendered);
}

}  // namespace weft::webgpu
