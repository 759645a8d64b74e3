// Reductions as WGSL, in passes over rows or columns.
#pragma once

#include <fmt/format.h>

#include <string>
#include <vector>

#include "backend/webgpu/wgsl/passes.hpp"
#include "backend/webgpu/wgsl/reduction/layout.hpp"
#include "backend/webgpu/wgsl/steps.hpp"
#include "compile/kernel.hpp"

namespace weft::webgpu {

class ReductionWriter {
 public:
  ReductionWriter(const kernel::LoopKernel& kernel, const Target& target, Scratch& scratch, Rendered& rendered);
  void render();

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
  bool can_split() const;
  void choose_layout();
  void render_split();
  void write_kernel(const std::vector<kernel::Operand>* partials);
  bool is_reduced_in(std::size_t s, int pass) const {
    return kernel_.steps[s].kind == kernel::StepKind::reduce && needed_[s] && passes_.ready[s] - 1 == pass;
  }

  /// Separate accumulators of a thread for one reduction: one for each of its rows.
  int accumulators() const { return layout_.columns ? layout_.width : 1; }
  /// The name of the accumulator, or of the position beside an argmax's key.
  static std::string accumulator(int step, int lane, bool position) {
    return fmt::format("a{}{}{}", step, "xyzw"[lane], position ? "p" : "");
  }

  void write_pass(const kernel::LoopKernel& source, StepWriter& writer, Helpers& helpers, int pass, bool all_rows);
  void write_items(bool stores, StepWriter& writer, Helpers& helpers, int pass, const std::string& slot, Extent number,
                   bool whole, bool all_rows);
  void write_values(bool stores, StepWriter& writer, Helpers& helpers, int pass, const std::string& slot,
                    const std::string& at, const std::string& valid);
  void write_stores(bool stores, StepWriter& writer, int pass, const std::string& slot, const std::string& at,
                    const std::string& valid, bool all_rows);
  void accumulate(int s, StepWriter& writer, Helpers& helpers, const std::string& slot, const std::string& valid);
  static std::string to_word(DType type, const std::string& value) {
    return type == DType::u32 ? value : type == DType::boolean ? "u32(" + value + ")" : "bitcast<u32>(" + value + ")";
  }
  static std::string from_word(DType type, const std::string& word);

  /// Statement that combines another thread's partial result with this thread's.
  std::string combine_statement(int s, int lane, const std::string& other, const std::string& other_position,
                                Helpers& helpers) const;
  bool has_position(int s) const { return gives_position(kernel_.steps[static_cast<std::size_t>(s)].reduction); }
  int components(int s) const { return has_position(s) ? 2 : 1; }
  /// Type of a reduction's accumulators.
  DType type_of(int s) const;
  void join(const std::vector<int>& steps, StepWriter& writer, Helpers& helpers);
  void join_through_memory(const std::vector<int>& steps, int joined, StepWriter& writer, Helpers& helpers);
  void write_results(StepWriter& writer, bool all_rows);

  const kernel::LoopKernel& kernel_;
  const Target& target_;
  Scratch& scratch_;
  Rendered& rendered_;
  std::vector<bool> needed_;
  Passes passes_;
  ReductionLayout layout_;
  std::vector<std::string> declared_;
  bool uses_subgroups_ = false;
  int shared_words_ = 0;
};

}  // namespace weft::webgpu
