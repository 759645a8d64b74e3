// The steps of a recurrence as dispatches. A step needs the results of the step before, from all workgroups that have units of the same
// rows. There are these ways:
//
// - once: there is one step, and nobody waits.
// - alone: a workgroup takes all units of its rows through all steps. It waits for no other, but a device is full only if there are
//   many rows, and a step takes long if there are many units.
// - meeting: a resident dispatch (resident.hpp), whose workgroups meet after each step.
// - tickets: a dispatch that is repeated for each step. Repeats have the same text and bindings, so a plan does not grow with the
//   steps. A workgroup takes a ticket from a counter; the ticket's number gives the step and the tile.
#pragma once

#include <string>

#include "backend/webgpu/wgsl/step_product.hpp"

namespace weft::webgpu {

enum class StepOrder { once, alone, meeting, tickets };

struct RecurrenceSteps {
  StepOrder order = StepOrder::alone;
  StepTile tile;
  Extent count = 0;  // of steps
};

/// The way for `count` steps with such a product. `has_lines`: has_whole_lines of what one step writes for the next. `operands`: their
/// number in the dispatch; meetings and tickets need a binding more.
RecurrenceSteps choose_steps(const StepProduct& product, Extent count, bool has_lines, std::size_t operands,
                             const Target& target);

/// Whether each step's part of an array begins and ends with a line of memory. A compute unit keeps lines that it has read, so
/// workgroups may meet only if no step writes into a line that an earlier step has read.
bool has_whole_lines(const kernel::Operand& operand, Extent elements_of_step);

/// The dispatches of a shader whose body computes `tile` of step `i` in all threads of a workgroup. Is made before the bindings are
/// resolved, to which it may add one.
class StepDispatch {
 public:
  StepDispatch(const RecurrenceSteps& steps, const Target& target, Bindings& bindings, Scratch& scratch)
      : steps_(steps), target_(target), bindings_(bindings) {
    if (steps.order != StepOrder::tickets) return;
    counter_operand_ = scratch.add(DType::u32, 1);
    counter_ = bindings.add(counter_operand_, true);
    bindings.want_atomics(counter_);
  }

  /// A condition under which weights that are kept have to be read, where `first` is the first step with a product.
  std::string stages_weights(Extent first) const;
  void render(const std::string& name, ShaderPieces shader, const std::string& body, Scratch& scratch,
              Rendered& rendered) const;

 private:
  const RecurrenceSteps& steps_;
  const Target& target_;
  Bindings& bindings_;
  kernel::Operand counter_operand_;
  int counter_ = -1;
};

}  // namespace weft::webgpu
