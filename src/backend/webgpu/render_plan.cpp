#include "backend/webgpu/render_plan.hpp"

#include <algorithm>
#include <utility>

#include "backend/webgpu/merge.hpp"
#include "backend/webgpu/render.hpp"
#include "backend/webgpu/wgsl/cache.hpp"
#include "backend/webgpu/wgsl/quantised.hpp"
#include "graph/cache.hpp"

namespace weft::webgpu {
namespace {

constexpr std::uint64_t kOwnScratchBytes = 8 << 20;
constexpr std::size_t kMergedDispatchesMaxRolled = 64;

bool touches(const kernel::Kernel& kernel, int buffer) {
  bool found = false;
  kernel::visit_operands(kernel, [&](const kernel::Operand& o, bool) { found |= o.buffer == buffer; });
  return found;
}

bool writes(const kernel::Kernel& kernel, int buffer) {
  bool found = false;
  kernel::visit_operands(kernel,
                         [&](const kernel::Operand& o, bool is_written) { found |= is_written && o.buffer == buffer; });
  return found;
}

/// Renders the kernel at `at` together with a later one if both fit one dispatch; returns the later one's index, or `at`.
std::size_t render_with_another(const kernel::Plan& plan, std::size_t at, const Target& target, Rendered& rendered) {
  constexpr std::size_t kFar = 6;
  const std::vector<kernel::Kernel>& kernels = plan.kernels;
  if (const auto* product = std::get_if<kernel::PackedMatmulKernel>(&kernels[at])) {
    const auto* next = at + 1 < kernels.size() ? std::get_if<kernel::PackedMatmulKernel>(&kernels[at + 1]) : nullptr;
    return next && render_packed_pair(*product, *next, target, rendered) ? at + 1 : at;
  }
  const auto* loop = std::get_if<kernel::LoopKernel>(&kernels[at]);
  if (!loop) return at;
  for (std::size_t later = at + 1; later < std::min(at + kFar, kernels.size()); ++later) {
    const auto* write = std::get_if<kernel::CallKernel>(&kernels[later]);
    if (!write || write->op != &graph::write_rows_row()) continue;
    // The write moves earlier, so no kernel between may touch its cache or write its places.
    bool is_free = true;
    for (std::size_t between = at + 1; between < later; ++between)
      is_free = is_free && !touches(kernels[between], write->out().buffer) &&
                !writes(kernels[between], write->reads[2].buffer);
    if (is_free && render_written_loop(*loop, *write, target, rendered)) return later;
  }
  return at;
}

}  // namespace

RenderedPlan render_plan(const kernel::Plan& plan, const Target& target) {
  RenderedPlan result;
  const auto plan_buffers = static_cast<int>(plan.buffers.size());
  // Scratch of the kernels: small scratch is a separate buffer for each kernel, so that kernels can run side by side. All
  // kernels share the rest, and then run one after another.
  std::vector<int> shared;
  std::vector<bool> done(plan.kernels.size(), false);
  for (std::size_t at = 0; at < plan.kernels.size(); ++at) {
    if (done[at]) continue;
    Rendered rendered;
    const std::size_t with = render_with_another(plan, at, target, rendered);
    if (with == at) rendered = render(plan.kernels[at], plan_buffers, target);
    double operations = kernel::flops(plan.kernels[at]);
    if (with != at) operations += kernel::flops(plan.kernels[with]);
    done[with] = true;
    std::vector<int> slots;
    for (std::size_t i = 0; i < rendered.scratch_bytes.size(); ++i) {
      const std::uint64_t bytes = rendered.scratch_bytes[i];
      int& slot = slots.emplace_back(static_cast<int>(result.scratch_bytes.size()));
      if (bytes > kOwnScratchBytes) {
        if (i >= shared.size()) shared.resize(i + 1, -1);
        if (shared[i] < 0) shared[i] = slot;
        slot = shared[i];
      }
      if (slot == static_cast<int>(result.scratch_bytes.size())) result.scratch_bytes.push_back(0);
      std::uint64_t& all = result.scratch_bytes[static_cast<std::size_t>(slot)];
      all = std::max(all, bytes);
    }
    for (RenderedDispatch& dispatch : rendered.dispatches) {
      dispatch.operations = operations;
      dispatch.kernels = {static_cast<int>(at)};
      if (with != at) dispatch.kernels.push_back(static_cast<int>(with));
      for (BoundRange& range : dispatch.bindings)
        if (range.buffer >= plan_buffers)
          range.buffer = plan_buffers + slots[static_cast<std::size_t>(range.buffer - plan_buffers)];
      result.dispatches.push_back(std::move(dispatch));
    }
  }
  // The compile time of software adapters grows faster than the text, so only small plans are merged there.
  if (target.unroll || result.dispatches.size() <= kMergedDispatchesMaxRolled)
    result.dispatches = merge_dispatches(std::move(result.dispatches), target);
  return result;
}

}  // namespace weft::webgpu
