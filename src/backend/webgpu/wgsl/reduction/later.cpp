// What depends on the first reductions of rows that workgroups share: a kernel of its own, which loads their results.
#include <algorithm>
#include <optional>

#include "backend/webgpu/wgsl/reduction/writer.hpp"

namespace weft::webgpu {
using kernel::Level;
using kernel::LoopKernel;
using kernel::Step;
using kernel::StepKind;

namespace {

// Points from which workgroups share rows: where results are one a row, and where other values depend on whole rows.
constexpr Extent kSharedPoints = Extent{1} << 20, kSharedColumns = Extent{1} << 22, kSharedRows = Extent{1} << 23;

/// A view over outer x inner as one over inner x outer; nothing if a dimension belongs to both.
std::optional<kernel::View> swapped_view(const kernel::View& view, Extent outer) {
  Extent points = 1;
  std::size_t dims = 0;
  while (dims < view.extents.size() && points < outer) points *= view.extents[dims++];
  if (points != outer) return {};
  kernel::View swapped = view;
  const auto at = static_cast<std::ptrdiff_t>(dims);
  std::rotate(swapped.extents.begin(), swapped.extents.begin() + at, swapped.extents.end());
  std::rotate(swapped.strides.begin(), swapped.strides.begin() + at, swapped.strides.end());
  if (!swapped.bounds.empty()) std::rotate(swapped.bounds.begin(), swapped.bounds.begin() + at, swapped.bounds.end());
  return swapped;
}

}  // namespace

bool ReductionWriter::is_later(int s) const {
  const auto step = static_cast<std::size_t>(s);
  return kernel_.steps[step].level == Level::inner || passes_.ready[step] > 1;
}

bool ReductionWriter::stores_later_values() const {
  return std::any_of(kernel_.stores.begin(), kernel_.stores.end(),
                     [&](const kernel::Store& store) { return is_later(store.value); });
}

std::vector<bool> ReductionWriter::later_steps() const {
  std::vector<bool> later(kernel_.steps.size(), false);
  for (const kernel::Store& store : kernel_.stores) later[static_cast<std::size_t>(store.value)] = true;
  for (std::size_t s = kernel_.steps.size(); s-- > 0;) {
    later[s] = later[s] && is_later(static_cast<int>(s));
    if (later[s])
      for (const int operand : operands_of(kernel_.steps[s])) later[static_cast<std::size_t>(operand)] = true;
  }
  return later;
}

std::vector<int> ReductionWriter::crossing_steps() const {
  std::vector<bool> crosses(kernel_.steps.size(), false);
  const std::vector<bool> later = later_steps();
  for (std::size_t s = 0; s < kernel_.steps.size(); ++s)
    if (later[s])
      for (const int operand : operands_of(kernel_.steps[s]))
        if (!is_later(operand) && kernel_.steps[static_cast<std::size_t>(operand)].kind != StepKind::constant)
          crosses[static_cast<std::size_t>(operand)] = true;
  std::vector<int> crossing;
  for (std::size_t s = 0; s < crosses.size(); ++s)
    if (crosses[s]) crossing.push_back(static_cast<int>(s));
  return crossing;
}

bool ReductionWriter::reduces_later() const {
  const std::vector<bool> later = later_steps();
  for (std::size_t s = 0; s < kernel_.steps.size(); ++s)
    if (later[s] && kernel_.steps[s].kind == StepKind::reduce) return true;
  return false;
}

// Without reductions it is a flat loop, in the order of memory. Values of rows come from `crossed`.
LoopKernel ReductionWriter::later_kernel(const std::vector<int>& crossing,
                                         const std::vector<kernel::Operand>& crossed) const {
  const bool flat = !reduces_later(), swapped = flat && layout_.columns;
  LoopKernel rest;
  rest.name = kernel_.name + ".rest";
  rest.outer = flat ? kernel_.outer * kernel_.inner : kernel_.outer;
  rest.inner = flat ? 1 : kernel_.inner;
  rest.inputs = kernel_.inputs;
  rest.outputs = kernel_.outputs;
  const std::vector<bool> later = later_steps();
  std::vector<int> place(kernel_.steps.size(), -1);
  for (std::size_t s = 0; s < kernel_.steps.size(); ++s) {
    Step step = kernel_.steps[s];
    const auto crosses = std::find(crossing.begin(), crossing.end(), static_cast<int>(s));
    if (crosses != crossing.end()) {
      step = {StepKind::load, step.type, Level::outer};
      step.operand = static_cast<int>(rest.inputs.size());
      rest.inputs.push_back(crossed[static_cast<std::size_t>(crosses - crossing.begin())]);
      step.view = swapped ? kernel::View{{kernel_.inner, kernel_.outer}, {0, 1}, 0, {}}
                  : flat  ? kernel::View{{kernel_.outer, kernel_.inner}, {1, 0}, 0, {}}
                          : kernel::View{{kernel_.outer}, {1}, 0, {}};
    } else if (later[s]) {
      if (flat) step.level = Level::outer;
      if (swapped && !step.view.extents.empty()) step.view = *swapped_view(step.view, kernel_.outer);
    } else if (step.kind != StepKind::constant) {
      continue;
    }
    for (int* operand : {&step.a, &step.b, &step.c})
      if (*operand >= 0) *operand = place[static_cast<std::size_t>(*operand)];
    rest.steps.push_back(std::move(step));
    place[s] = static_cast<int>(rest.steps.size()) - 1;
  }
  for (kernel::Store store : kernel_.stores) {
    if (!is_later(store.value)) continue;
    store.value = place[static_cast<std::size_t>(store.value)];
    if (swapped) store.view = *swapped_view(store.view, kernel_.outer);
    rest.stores.push_back(store);
  }
  return rest;
}

bool ReductionWriter::later_views_can_be_swapped() const {
  const std::vector<bool> later = later_steps();
  for (std::size_t s = 0; s < kernel_.steps.size(); ++s)
    if (later[s] && !kernel_.steps[s].view.extents.empty() && !swapped_view(kernel_.steps[s].view, kernel_.outer))
      return false;
  return std::all_of(kernel_.stores.begin(), kernel_.stores.end(), [&](const kernel::Store& store) {
    return !is_later(store.value) || swapped_view(store.view, kernel_.outer);
  });
}

bool ReductionWriter::is_worth_sharing() const {
  if (layout_.chunks <= 1) return false;
  const Extent points = kernel_.outer * kernel_.inner;
  std::size_t parts = 0, loaded = 0;
  for (std::size_t s = 0; s < kernel_.steps.size(); ++s) {
    if (is_reduced_in(s, 0)) parts += static_cast<std::size_t>(components(static_cast<int>(s)));
    loaded += needed_[s] && kernel_.steps[s].kind == StepKind::load && kernel_.steps[s].level == Level::outer;
  }
  const std::size_t inputs = kernel_.inputs.size(), outputs = kernel_.outputs.size(),
                    crossing = crossing_steps().size();
  if (std::max({inputs + parts, parts + loaded + crossing + outputs, inputs + crossing + outputs}) >
      target_.limits.storage_buffers)
    return false;
  if (!stores_later_values()) return points >= kSharedPoints;
  if (points < (layout_.columns ? kSharedColumns : kSharedRows)) return false;
  if (layout_.columns && !reduces_later() && !later_views_can_be_swapped()) return false;
  // The later kernel would read what the one before it has overwritten.
  for (const kernel::Store& store : kernel_.stores)
    if (!is_later(store.value))
      for (const kernel::Operand& input : kernel_.inputs)
        if (input.buffer == kernel_.outputs[static_cast<std::size_t>(store.output)].buffer) return false;
  return true;
}

}  // namespace weft::webgpu
