#include "compile/trim.hpp"

#include <algorithm>
#include <limits>

namespace weft::compiler {
namespace {

using kernel::LoopKernel;
using kernel::MatmulKernel;
using kernel::Operand;
using kernel::Step;
using kernel::StepKind;
using kernel::View;

/// First and last element, from the operand's begin; empty where first > last.
struct Reach {
  Extent first = std::numeric_limits<Extent>::max(), last = std::numeric_limits<Extent>::min();
  bool empty() const { return first > last; }
  void join(const Reach& other) {
    first = std::min(first, other.first);
    last = std::max(last, other.last);
  }
  void add(Extent extent, Extent stride) {
    if (extent <= 0) *this = {};
    if (empty()) return;
    (stride < 0 ? first : last) += (extent - 1) * stride;
  }
};

Reach reach_of(const View& view) {
  Reach reach{view.offset, view.offset};
  for (std::size_t d = 0; d < view.extents.size(); ++d) {
    const Extent lo = view.bounds.empty() ? 0 : std::max<Extent>(0, view.bounds[d].lo);
    const Extent hi = view.bounds.empty() ? view.extents[d] : std::min(view.extents[d], view.bounds[d].hi);
    if (reach.empty() || hi <= lo) return {};
    reach.first += lo * view.strides[d];
    reach.last += lo * view.strides[d];
    reach.add(hi - lo, view.strides[d]);
  }
  return reach;
}

Reach of_input(const LoopKernel& loop, int input) {
  Reach reach;
  for (const Step& step : loop.steps) {
    if ((step.kind != StepKind::load && step.kind != StepKind::gather) || step.operand != input) continue;
    Reach of_step = reach_of(step.view);
    if (step.kind == StepKind::gather) of_step.add(step.axis_extent, step.axis_stride);
    reach.join(of_step);
  }
  return reach;
}

Reach of_output(const LoopKernel& loop, int output) {
  Reach reach;
  for (const kernel::Store& store : loop.stores)
    if (store.output == output) reach.join(reach_of(store.view));
  return reach;
}

/// Whether the operand can be cut to `reach`: `reach` is not empty, and inside the operand.
bool can_cut(const Operand& operand, const Reach& reach) {
  return !reach.empty() && reach.first >= 0 && reach.last < operand.count;
}

void cut(Operand& operand, const Reach& reach) {
  operand.offset += reach.first;
  operand.count = reach.last - reach.first + 1;
}

/// Moves the start of an operand of a packed type back to a whole byte. Returns the elements that its views must then skip.
Extent shift(Operand& operand) {
  constexpr Extent kElements = 8;  // this many elements fill whole bytes, whatever their bits
  const Extent by = is_packed(operand.type) ? operand.offset % kElements : 0;
  operand.offset -= by;
  operand.count += by;
  return by;
}

void align(LoopKernel& loop) {
  for (std::size_t i = 0; i < loop.inputs.size(); ++i)
    if (const Extent by = shift(loop.inputs[i]); by != 0)
      for (Step& step : loop.steps)
        if ((step.kind == StepKind::load || step.kind == StepKind::gather) && step.operand == static_cast<int>(i))
          step.view.offset += by;
  for (std::size_t o = 0; o < loop.outputs.size(); ++o)
    if (const Extent by = shift(loop.outputs[o]); by != 0)
      for (kernel::Store& store : loop.stores)
        if (store.output == static_cast<int>(o)) store.view.offset += by;
}

void trim(LoopKernel& loop) {
  std::vector<Reach> inputs, outputs;
  for (std::size_t i = 0; i < loop.inputs.size(); ++i) inputs.push_back(of_input(loop, static_cast<int>(i)));
  for (std::size_t o = 0; o < loop.outputs.size(); ++o) outputs.push_back(of_output(loop, static_cast<int>(o)));
  // An operand that is updated in place stays one range.
  for (std::size_t i = 0; i < inputs.size(); ++i)
    for (std::size_t o = 0; o < outputs.size(); ++o)
      if (loop.inputs[i] == loop.outputs[o]) {
        inputs[i].join(outputs[o]);
        outputs[o].join(inputs[i]);
      }
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (!can_cut(loop.inputs[i], inputs[i])) continue;
    cut(loop.inputs[i], inputs[i]);
    for (Step& step : loop.steps)
      if ((step.kind == StepKind::load || step.kind == StepKind::gather) && step.operand == static_cast<int>(i))
        step.view.offset -= inputs[i].first;
  }
  for (std::size_t o = 0; o < outputs.size(); ++o) {
    if (!can_cut(loop.outputs[o], outputs[o])) continue;
    cut(loop.outputs[o], outputs[o]);
    for (kernel::Store& store : loop.stores)
      if (store.output == static_cast<int>(o)) store.view.offset -= outputs[o].first;
  }
}

void trim(Operand& operand, kernel::MatrixView& view) {
  Reach reach = reach_of(view.at.batch);
  for (const View* axis : {&view.at.rows, &view.at.columns})
    for (std::size_t d = 0; d < axis->extents.size(); ++d) reach.add(axis->extents[d], axis->strides[d]);
  if (!view.edges.empty() && !reach.empty()) {  // the edges keep views inside the operand
    reach.first = std::max<Extent>(reach.first, 0);
    reach.last = std::min(reach.last, operand.count - 1);
  }
  if (can_cut(operand, reach)) {
    cut(operand, reach);
    view.at.batch.offset -= reach.first;
  }
  view.at.batch.offset += shift(operand);
}

}  // namespace

void trim_operands(kernel::Kernel& kernel) {
  kernel::visit_loops(kernel, [](LoopKernel& loop) {
    trim(loop);
    align(loop);
  });
  if (auto* product = std::get_if<MatmulKernel>(&kernel)) {
    trim(product->a, product->a_view);
    trim(product->b, product->b_view);
  }
  if (auto* product = std::get_if<kernel::PackedMatmulKernel>(&kernel)) {  // the weights are read whole
    const Reach rows = reach_of({{product->rows_of_a(), product->k}, {product->a_row, 1}, 0, {}});
    if (!product->rows && can_cut(product->a, rows)) cut(product->a, rows);
    if (product->experts) product->experts->of_row.count = std::min(product->experts->of_row.count, product->m);
  }
}

}  // namespace weft::compiler
