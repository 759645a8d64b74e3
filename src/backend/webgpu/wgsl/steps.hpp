// The steps of a loop kernel as WGSL statements, for one element or for four neighbours ("lanes") at once.
#pragma once

#include <array>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "backend/webgpu/wgsl/index.hpp"
#include "backend/webgpu/wgsl/render.hpp"
#include "backend/webgpu/wgsl/scalar.hpp"

namespace weft::webgpu {

/// Placeholder for spaces whose inner variable has another name in each slot.
inline constexpr const char* kInnerVariable = "@j";

/// Writes steps and stores in the requested order; values are named once and remembered. The constructor adds the bindings of
/// all needed operands; the caller may add others before `resolve`.
class StepWriter {
 public:
  /// `inner_lanes`: inner-level values come four at a time; `outer_lanes`: outer-level ones too. `wanted`: steps that are
  /// written although no store needs them.
  StepWriter(const kernel::LoopKernel& kernel, Bindings& bindings, Helpers& helpers, Space outer, Space inner,
             std::span<const int> wanted = {});

  /// Number of loads and stores for which vectors of four work.
  int vector_accesses() const { return vector_accesses_; }

  /// The handle of the operand that a load or gather reads.
  int handle_of(int step) const { return loads_.at(step).handle; }
  /// The gather `step` picks from `array`, in workgroup memory, which has the elements along its axis.
  void stage(int step, std::string array) { staged_[step] = std::move(array); }
  /// The load `step` has a value of its own type that is already there.
  void replace(int step, const std::string& value) { values_[{step, ""}] = {value}; }

  /// Writes step `step` (of a slot: a suffix for the names of inner-level values) unless that was done before.
  void write(int step, const std::string& slot = "");
  /// Sets the value of a reduce or accumulator step: one text for all lanes, or four.
  void define(int step, std::vector<std::string> lanes, const std::string& slot = "");
  void write_store(const kernel::Store& store, const std::string& slot = "");
  /// Value of a written step in a lane.
  Scalar value(int step, int lane = 0, const std::string& slot = "") const;
  bool is_uniform(int step, const std::string& slot = "") const { return lanes_of(step, slot).size() == 1; }

  /// Sets the name that replaces kInnerVariable in the following lines.
  void set_inner_variable(const std::string& name) { inner_variable_ = name; }
  const std::string& inner_variable() const { return inner_variable_; }

  void line(const std::string& text);
  void indent() { indent_ += "  "; }
  void dedent() { indent_.resize(indent_.size() - 2); }
  std::string take_text() { return std::exchange(text_, {}); }
  /// Forgets the inner-level values of a slot, when their scope ends.
  void forget(const std::string& slot);

 private:
  struct Place {
    int handle = -1;
    Index index;
  };
  const std::vector<std::string>& lanes_of(int step, const std::string& slot) const;
  const Space& space_of(kernel::Level level) const { return level == kernel::Level::outer ? outer_ : inner_; }
  int lane_count(kernel::Level level) const { return space_of(level).vector_axis < 0 ? 1 : 4; }
  std::vector<std::string> pick(int step, const kernel::Step& s, const std::string& slot) const;
  std::vector<std::string> load(int step, const kernel::Step& s, const std::string& slot);
  std::string element(const kernel::Step& s, const Place& place, int lane, const std::string& shift,
                      const std::string& shift_guard);

  const kernel::LoopKernel& kernel_;
  Bindings& bindings_;
  Helpers& helpers_;
  Space outer_, inner_;
  std::map<int, std::string> staged_;
  std::map<int, Place> loads_, stores_;  // by step; by position in kernel.stores
  std::map<std::pair<int, std::string>, std::vector<std::string>> values_;
  int vector_accesses_ = 0;
  std::string text_, indent_ = "  ", inner_variable_ = "j";
};

/// The steps that a store or `wanted` needs.
std::vector<bool> needed_steps(const kernel::LoopKernel& kernel, std::span<const int> wanted = {});
/// Whether the needed steps make so long a text that a shader of four neighbours, which has it four times, would take drivers many
/// seconds to compile. Such a kernel computes for longer than it reads, so it takes one element at a time.
bool has_long_text(const kernel::LoopKernel& kernel, const std::vector<bool>& needed);
/// A step's operands, without the -1s.
std::vector<int> operands_of(const kernel::Step& step);

}  // namespace weft::webgpu
