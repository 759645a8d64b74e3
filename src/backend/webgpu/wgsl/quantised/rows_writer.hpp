// Products of few rows of A: weights are multiplied while they are read.
#pragma once

#include <string>
#include <vector>

#include "backend/webgpu/wgsl/quantised/packed_reader.hpp"
#include "backend/webgpu/wgsl/steps.hpp"
#include "compile/kernel.hpp"

namespace weft::webgpu {

class RowsWriter {
 public:
  /// `before`: a product of the same rows, computed beside `kernel`, whose epilogue reads it.
  RowsWriter(const kernel::PackedMatmulKernel& kernel, const Target& target,
             const kernel::PackedMatmulKernel* before = nullptr);
  void render(Rendered& rendered);

 private:
  void line(const std::string& text) { text_ += "  " + text + "\n"; }

  template <class Each>
  void each_sum(Each each) const {
    for (int r = 0; r < columns_; ++r)
      for (int i = 0; i < rows_; ++i) each(r, i);
  }

  /// Four elements of a row of A; beyond k they are zero.
  ShaderPieces::Function activation_function(int a, const Bindings& bindings) const;
  ShaderPieces::Function finish_function(const kernel::LoopKernel& epilogue, StepWriter& writer,
                                         Helpers& helpers) const;

  /// Units of W to read: 0 if no row is chosen. The loop then ends at once; an early return would skip later barriers.
  void write_units(const PackedReader& reader);

  /// `sum`: the first letter of the sums' names, 's' or 'u'. Other names are in a separate scope.
  void write_sums(const PackedReader& reader, const std::string& sum);
  std::vector<std::string> sums_of(const char* sum) const;
  /// The sums over row i of A as arguments, from the first product.
  std::string row_sums(int i, const char* name) const;

  /// The factors for results that were computed from rows of A without their factors.
  void write_factors();

  /// Sums of all lanes, in each of them.
  void write_joined(const std::vector<std::string>& names);

  /// One call of the epilogue in the text.
  void write_results();

  /// Both epilogues as one: the second reads the first's result directly. The first still stores it.
  kernel::LoopKernel epilogue_of_both();

  const kernel::PackedMatmulKernel& kernel_;
  const kernel::PackedMatmulKernel* before_;
  const Target& target_;
  std::size_t steps_before_ = 0;             // of both epilogues, those of `before_`
  int sums_ = 0;                             // over each row of A, where it is computed
  int rows_ = 1, columns_ = 1, lanes_ = 32;  // of A and of W at a time; threads that share a row of W
  bool by_fours_ = false;
  std::string text_;
};

}  // namespace weft::webgpu
