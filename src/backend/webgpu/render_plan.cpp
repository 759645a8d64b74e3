#include "backend/webgpu/render_plan.hpp"

#include <algorithm>
#include <utility>

#include "backend/webgpu/merge.hpp"
#include "backend/webgpu/render.hpp"
#include "backend/webgpu/resident.hpp"
#include "backend/webgpu/wgsl/cache.hpp"
#include "backend/webgpu/wgsl/cache_attention.hpp"
#include "backend/webgpu/wgsl/quantised.hpp"
#include "compile/call_attributes.hpp"
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

/// Renders kernels of a plan that share dispatches.
class Joiner {
 public:
  Joiner(const kernel::Plan& plan, const std::vector<bool>& done, const Target& target)
      : plan_(plan), done_(done), target_(target) {}

  /// Renders the kernel at `at` with later ones that fit its dispatches, and returns those. If there are none, nothing is
  /// rendered.
  std::vector<std::size_t> render(std::size_t at, Rendered& rendered) const {
    const kernel::Kernel& first = plan_.kernels[at];
    if (const auto* product = std::get_if<kernel::PackedMatmulKernel>(&first)) {
      const auto* next =
          at + 1 < plan_.kernels.size() ? std::get_if<kernel::PackedMatmulKernel>(&plan_.kernels[at + 1]) : nullptr;
      if (next && !done_[at + 1] && render_pair(*product, *next, at, rendered)) return {at + 1};
      return render_with_tail(*product, at, rendered);
    }
    if (const auto* loop = std::get_if<kernel::LoopKernel>(&first)) return render_with_write(*loop, at, rendered);
    const auto* call = std::get_if<kernel::CallKernel>(&first);
    if (call && call->op == &graph::cache_attention_row()) return render_with_reader(*call, at, rendered);
    return {};
  }

 private:
  static constexpr std::size_t kFar = 16;

  /// Calls visit(place, kernel) for kernels after `at` until it returns true.
  void each_later(std::size_t at, std::size_t far, auto visit) const {
    for (std::size_t later = at + 1; later < std::min(at + far, plan_.kernels.size()); ++later)
      if (!done_[later] && visit(later, plan_.kernels[later])) return;
  }

  /// Whether the kernel at `later` can run at `at`, as those in `taken` do.
  bool can_move(std::size_t later, std::size_t at, const std::vector<std::size_t>& taken) const {
    bool conflicts = false;
    for (std::size_t between = at + 1; between < later; ++between) {
      if (done_[between] || std::find(taken.begin(), taken.end(), between) != taken.end()) continue;
      kernel::visit_operands(plan_.kernels[between], [&](const kernel::Operand& a, bool writes_a) {
        kernel::visit_operands(plan_.kernels[later], [&](const kernel::Operand& b, bool writes_b) {
          conflicts = conflicts || ((writes_a || writes_b) && overlap(a, b));
        });
      });
    }
    return !conflicts;
  }

  /// Whether a kernel after `at`, other than those in `taken`, reads these elements before they are written again.
  bool is_read_later(const kernel::Operand& operand, std::size_t at, const std::vector<std::size_t>& taken) const {
    if (plan_.buffers[static_cast<std::size_t>(operand.buffer)].external >= 0) return true;
    for (std::size_t later = at + 1; later < plan_.kernels.size(); ++later) {
      if (done_[later] || std::find(taken.begin(), taken.end(), later) != taken.end()) continue;
      bool is_read = false, is_written = false;
      kernel::visit_operands(plan_.kernels[later], [&](const kernel::Operand& o, bool writes) {
        if (overlap(o, operand)) (writes ? is_written : is_read) = true;
      });
      if (is_read || is_written) return is_read;
    }
    return false;
  }

  bool render_pair(const kernel::PackedMatmulKernel& first, const kernel::PackedMatmulKernel& second, std::size_t at,
                   Rendered& rendered) const {
    const std::vector<kernel::Operand>& made = first.epilogue.outputs;
    const bool keeps_first = made.size() != 1 || is_read_later(made[0], at, {at + 1});
    Scratch scratch(static_cast<int>(plan_.buffers.size()), rendered);
    return render_packed_pair(first, second, keeps_first, target_, scratch, rendered);
  }

  std::vector<std::size_t> render_with_tail(const kernel::PackedMatmulKernel& product, std::size_t at,
                                            Rendered& rendered) const {
    RowsTail tail(product, target_);
    std::vector<std::size_t> taken;
    if (!tail.suits()) return taken;
    each_later(at, kFar, [&](std::size_t later, const kernel::Kernel& kernel) {
      if (can_move(later, at, taken) && tail.try_add(kernel)) taken.push_back(later);
      return false;
    });
    if (!tail.finish([&](const kernel::Operand& o) { return is_read_later(o, at, taken); })) return {};
    RowsWriter(product, target_, {.tail = &tail}).render(rendered);
    return taken;
  }

  std::vector<std::size_t> render_with_write(const kernel::LoopKernel& loop, std::size_t at, Rendered& rendered) const {
    std::vector<std::size_t> taken;
    each_later(at, 6, [&](std::size_t later, const kernel::Kernel& kernel) {
      const auto* write = std::get_if<kernel::CallKernel>(&kernel);
      if (!write || write->op != &graph::write_rows_row()) return false;
      // The write moves earlier, so no kernel between may touch its cache or write its places.
      bool is_free = true;
      for (std::size_t between = at + 1; between < later; ++between)
        is_free = is_free && (done_[between] || (!touches(plan_.kernels[between], write->out().buffer) &&
                                                 !writes(plan_.kernels[between], write->reads[2].buffer)));
      if (!is_free || !render_written_loop(loop, kernel::with_words(*write), target_, rendered)) return false;
      taken = {later};
      return true;
    });
    return taken;
  }

  /// Attention in parts, and the product that joins them as it reads them.
  std::vector<std::size_t> render_with_reader(const kernel::CallKernel& attention, std::size_t at,
                                              Rendered& rendered) const {
    std::vector<std::size_t> taken;
    each_later(at, kFar, [&](std::size_t later, const kernel::Kernel& kernel) {
      const auto* product = std::get_if<kernel::PackedMatmulKernel>(&kernel);
      if (!product || product->a != attention.out() || !can_move(later, at, taken)) return false;
      if (is_read_later(attention.out(), at, {later})) return true;
      Scratch scratch(static_cast<int>(plan_.buffers.size()), rendered);
      const auto parts =
          render_attention_parts(kernel::with_words(attention), target_, scratch, rendered,
                                 [&](const AttentionParts& parts) { return RowsWriter::can_stage(*product, parts); });
      if (!parts) return true;
      RowsWriter(*product, target_, {.parts = &*parts}).render(rendered);
      taken = {later};
      return true;
    });
    return taken;
  }

  const kernel::Plan& plan_;
  const std::vector<bool>& done_;
  const Target& target_;
};

}  // namespace

bool is_short_pass(const kernel::Plan& plan) {
  constexpr Extent kRowsMax = 4;
  bool found = false;
  for (const kernel::Kernel& kernel : plan.kernels)
    if (const auto* product = std::get_if<kernel::PackedMatmulKernel>(&kernel)) {
      if (product->rows_of_a() > kRowsMax) return false;
      found = true;
    }
  return found;
}

RenderedPlan render_plan(const kernel::Plan& plan, const Target& target) {
  RenderedPlan result;
  const auto plan_buffers = static_cast<int>(plan.buffers.size());
  // Scratch of the kernels: small scratch is a separate buffer for each kernel, so that kernels can run side by side. All
  // kernels share the rest, and then run one after another.
  std::vector<int> shared;
  std::vector<bool> done(plan.kernels.size(), false);
  const Joiner joiner(plan, done, target);
  for (std::size_t at = 0; at < plan.kernels.size(); ++at) {
    if (done[at]) continue;
    Rendered rendered;
    done[at] = true;
    const std::vector<std::size_t> with = joiner.render(at, rendered);
    if (with.empty()) rendered = render(plan.kernels[at], plan_buffers, target);
    double operations = kernel::flops(plan.kernels[at]);
    for (const std::size_t other : with) {
      operations += kernel::flops(plan.kernels[other]);
      done[other] = true;
    }
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
      dispatch.operations = dispatch.is_aside ? 0 : operations;
      dispatch.kernels = {static_cast<int>(at)};
      for (const std::size_t other : with) dispatch.kernels.push_back(static_cast<int>(other));
      for (BoundRange& range : dispatch.bindings)
        if (range.buffer >= plan_buffers)
          range.buffer = plan_buffers + slots[static_cast<std::size_t>(range.buffer - plan_buffers)];
      result.dispatches.push_back(std::move(dispatch));
    }
  }
  // The compile time of software adapters grows faster than the text, so only small plans are merged there.
  if (target.unroll || result.dispatches.size() <= kMergedDispatchesMaxRolled)
    result.dispatches = merge_dispatches(std::move(result.dispatches), target);
  if (target.joins_phases()) result.dispatches = join_phases(std::move(result.dispatches), target);
  return result;
}

}  // namespace weft::webgpu
