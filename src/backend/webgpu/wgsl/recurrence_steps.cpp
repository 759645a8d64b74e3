#include "backend/webgpu/wgsl/recurrence_steps.hpp"

#include <fmt/format.h>

#include <utility>

#include "backend/webgpu/wgsl/meeting.hpp"
#include "backend/webgpu/wgsl/zeros.hpp"

namespace weft::webgpu {
namespace {

constexpr Extent kWeightsAlone =
    1 << 14;                          // elements of a weight that a workgroup reads in each step without much delay
constexpr Extent kLineElements = 32;  // of the 128 bytes that a compute unit may keep together

}  // namespace

bool has_whole_lines(const kernel::Operand& operand, Extent elements_of_step) {
  return operand.offset % kLineElements == 0 && elements_of_step % kLineElements == 0;
}

RecurrenceSteps choose_steps(const StepProduct& product, Extent count, bool has_lines, std::size_t operands,
                             const Target& target) {
  RecurrenceSteps steps{.order = StepOrder::alone, .tile = choose_step_tile(product, true, target), .count = count};
  if (count > 1) {
    const bool is_small = product.units * product.columns * product.inner <= kWeightsAlone;
    const bool fills_device = steps.tile.row_tiles >= static_cast<Extent>(target.profile.compute_units);
    if (is_small || fills_device || operands + 1 > target.limits.storage_buffers) return steps;
  }
  steps.tile = choose_step_tile(product, false, target);
  steps.order = count == 1                            ? StepOrder::once
                : target.tested.meetings && has_lines ? StepOrder::meeting
                                                      : StepOrder::tickets;
  // A workgroup of a dispatch of its own reads the weights of a tile once.
  if (steps.order != StepOrder::meeting) steps.tile.keeps_weights = false;
  return steps;
}

std::string StepDispatch::stages_weights(Extent first) const {
  const std::string is_first = fmt::format("i == {}u", first);
  // A workgroup that takes several tiles keeps the weights of none.
  return steps_.order == StepOrder::meeting ? fmt::format("{} || groups < {}u", is_first, steps_.tile.tiles())
                                            : is_first;
}

void StepDispatch::render(const std::string& name, ShaderPieces shader, const std::string& body, Scratch& scratch,
                          Rendered& rendered) const {
  const StepTile& tile = steps_.tile;
  shader.threads = static_cast<int>(StepTile::kThreads);
  const std::string all_steps = fmt::format("  for (var i = 0u; i < {}u; i++) {{\n", steps_.count);
  auto workgroups = static_cast<std::uint64_t>(tile.tiles());
  switch (steps_.order) {
    case StepOrder::alone:
      workgroups = static_cast<std::uint64_t>(tile.row_tiles);
      shader.body =
          all_steps +
          fmt::format("  for (var tile = group * {0}u; tile < (group + 1u) * {0}u; tile++) {{\n", tile.unit_tiles) +
          body + "  }\n  storageBarrier();\n  workgroupBarrier();\n  }\n";
      break;
    case StepOrder::meeting:
      shader.resident = true;
      shader.verbatim = std::string(kMeetingDeclarations);
      shader.functions.push_back({"meet", meeting_function(fmt::format("$data{}", bindings_.ranges().size()))});
      shader.body = "  resident = Resident(group, groups, tests, true);\n  if (tests) { $meet(thread); return; }\n" +
                    all_steps + fmt::format("  for (var tile = group; tile < {}u; tile += groups) {{\n", tile.tiles()) +
                    body + "  }\n  resident.waits = true;\n  $meet(thread);\n  }\n";
      break;
    case StepOrder::once: shader.body = "  let i = 0u;\n  let tile = group;\n" + body; break;
    case StepOrder::tickets:
      shader.share("ticket", "u32", 1);
      shader.body = fmt::format(
                        "  if (thread == 0u) {{ $ticket[0] = atomicAdd(&{}[0], 1u); }}\n"
                        "  let ticket = workgroupUniformLoad(&$ticket[0]);\n"
                        "  let i = {};\n  let tile = {};\n",
                        bindings_.array_of(counter_), divided("ticket", tile.tiles()), modulo("ticket", tile.tiles())) +
                    body;
      render_zeros(name + ".tickets", counter_operand_, target_, scratch, rendered);
      rendered.set_aside(rendered.dispatches.size() - 1);
      break;
  }
  RenderedDispatch dispatch = dispatch_of(name, std::move(shader), bindings_, workgroups, target_);
  if (steps_.order == StepOrder::tickets) dispatch.repeats = static_cast<std::uint32_t>(steps_.count);
  if (steps_.order == StepOrder::meeting) {
    dispatch.shader.storage.push_back({"atomic<u32>", true});
    dispatch.bindings.push_back({kMeetingBuffer, 0, kMeetingBytes, true});
  }
  rendered.dispatches.push_back(std::move(dispatch));
}

}  // namespace weft::webgpu
