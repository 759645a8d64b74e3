// Reductions as WGSL, in passes over rows or columns.
#pragma once

#include <fmt/format.h>

#include <string>
#include <vector>

#include "backend/webgpu/wgsl/passes.hpp"
#include "backend/webgpu/wgsl/reduction/joint.hpp"
#include "backend/webgpu/wgsl/reduction/layout.hpp"
#include "backend/webgpu/wgsl/steps.hpp"
#include "base/function_ref.hpp"
#include "compile/kernel.hpp"

namespace weft::webgpu {

class ReductionWriter {
 public:
  /// `kinds` (of each step): the kernel is one of JointReductions. `shares`: workgroups may share rows although values of the
  /// kernel depend on whole rows.
  ReductionWriter(const kernel::LoopKernel& kernel, const Target& target, Scratch& scratch, Rendered& rendered,
                  std::vector<Joint> kinds = {}, bool shares = false);
  void render();
  /// Whether each thread keeps its values between passes, and whether workgroups share rows.
  bool keeps_values() const { return layout_.registers; }
  bool is_split() const { return layout_.chunks > 1; }
  /// How often rows are read, unless threads keep them.
  int passes() const { return passes_.count; }
  /// Whether workgroups that have a whole row each leave few compute units without work. Such a workgroup reads its row again
  /// soon, so a cache may still have it.
  bool fills_units() const;
  /// Whether workgroups should share rows although values of the kernel depend on whole rows: a dispatch reduces chunks, one
  /// joins them, and one computes those values, reading the rows again. The row of a workgroup of its own would be read more
  /// often, or by few workgroups.
  bool is_worth_sharing() const;

 private:
  Space outer_space(const ReductionLayout& layout) const {
    return {{{"r", kernel_.outer}}, layout.columns && layout.width == 4 ? 0 : -1};
  }
  Space inner_space(const ReductionLayout& layout) const {
    return {{{"r", kernel_.outer}, {kInnerVariable, kernel_.inner}}, layout.width == 1 ? -1 : layout.columns ? 0 : 1};
  }

  int vector_accesses(const ReductionLayout& layout) const;
  bool memory_runs_along_outer() const;

  /// Number of values that a thread keeps for later passes, for each item of the row.
  int kept_values() const;
  /// Whether workgroups may share a row.
  bool can_split() const;
  void choose_layout();
  void keep_columns();
  void render_split();
  /// Whether a step is for the kernel behind the first reductions: an inner value, or one that needs further reductions.
  bool is_later(int s) const;
  bool stores_later_values() const;
  /// The steps of that kernel, the row's values that it loads, whether it reduces, and the kernel.
  std::vector<bool> later_steps() const;
  std::vector<int> crossing_steps() const;
  bool reduces_later() const;
  bool later_views_can_be_swapped() const;
  kernel::LoopKernel later_kernel(const std::vector<int>& crossing, const std::vector<kernel::Operand>& crossed) const;
  /// The steps that reduce the partial results of a joint reduction; `load` adds a step that loads partial result `part`.
  /// For sums of exponentials, `maximum` becomes the step of the maximum.
  int push_joined(Joint kind, kernel::LoopKernel& rest, FunctionRef<int(int part)> load, int* maximum) const;
  /// The sum of exponentials that a maximum is a part of, so that it needs no accumulator of its own; -1: none.
  int sum_beside(int s) const;
  void write_kernel(const std::vector<kernel::Operand>* partials);
  bool is_reduced_in(std::size_t s, int pass) const {
    return kernel_.steps[s].kind == kernel::StepKind::reduce && needed_[s] && passes_.ready[s] - 1 == pass &&
           sum_beside(static_cast<int>(s)) < 0;
  }

  /// Separate accumulators of a thread for one reduction: one for each of its rows.
  int accumulators() const { return layout_.columns ? layout_.width : 1; }
  /// The name of the accumulator, or of a number kept with it: the position of an argmax's key, the other numbers of a joint one.
  static std::string accumulator(int step, int lane, int part) {
    constexpr const char* kParts[] = {"", "p", "n"};
    return fmt::format("a{}{}{}", step, "xyzw"[lane], kParts[part]);
  }

  void write_pass(const kernel::LoopKernel& source, StepWriter& writer, Helpers& helpers, int pass, bool all_rows);
  void write_items(bool stores, StepWriter& writer, Helpers& helpers, int pass, const std::string& slot, Extent number,
                   bool whole, bool all_rows);
  void write_values(bool stores, StepWriter& writer, Helpers& helpers, int pass, const std::string& slot,
                    const std::string& at, const std::string& valid);
  void write_stores(bool stores, StepWriter& writer, int pass, const std::string& slot, const std::string& at,
                    const std::string& valid, bool all_rows);
  void accumulate(int s, StepWriter& writer, Helpers& helpers, const std::string& slot, const std::string& valid);
  void declare_joint(int s, StepWriter& writer, Helpers& helpers);
  void accumulate_joint(int s, StepWriter& writer, Helpers& helpers, const std::vector<std::string>& slots);
  /// Names the results of a joint reduction, if a workgroup has whole rows.
  void define_joint(int s, StepWriter& writer, Helpers& helpers);
  std::string combine_joint(int s, int lane, const std::string& other, Helpers& helpers) const;
  static std::string to_word(DType type, const std::string& value) {
    return type == DType::u32 ? value : type == DType::boolean ? "u32(" + value + ")" : "bitcast<u32>(" + value + ")";
  }
  static std::string from_word(DType type, const std::string& word);

  /// Statement that combines another thread's partial result with this thread's. Its parts are `other`, `other`p, `other`n.
  std::string combine_statement(int s, int lane, const std::string& other, Helpers& helpers) const;
  bool has_position(int s) const { return gives_position(kernel_.steps[static_cast<std::size_t>(s)].reduction); }
  Joint joint(int s) const { return kinds_.empty() ? Joint::none : kinds_[static_cast<std::size_t>(s)]; }
  int components(int s) const {
    return joint(s) == Joint::squares ? 3 : joint(s) != Joint::none || has_position(s) ? 2 : 1;
  }
  /// Type of a reduction's accumulators, and of the numbers kept with them.
  DType type_of(int s, int part = 0) const;
  void join(const std::vector<int>& steps, StepWriter& writer, Helpers& helpers);
  void join_through_memory(const std::vector<int>& steps, int joined, StepWriter& writer, Helpers& helpers);
  void write_results(StepWriter& writer, bool all_rows);

  const kernel::LoopKernel& kernel_;
  const Target& target_;
  Scratch& scratch_;
  Rendered& rendered_;
  const std::vector<Joint> kinds_;
  const bool shares_;
  std::vector<bool> needed_;
  Passes passes_;
  ReductionLayout layout_;
  std::vector<std::string> declared_;
  bool uses_subgroups_ = false;
  int shared_words_ = 0;
};

}  // namespace weft::webgpu
