// Products of few rows of A: weights are multiplied while they are read.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "backend/webgpu/wgsl/attention_parts.hpp"
#include "backend/webgpu/wgsl/quantised/gated_pair.hpp"
#include "backend/webgpu/wgsl/quantised/packed_reader.hpp"
#include "backend/webgpu/wgsl/quantised/rows_tail.hpp"
#include "backend/webgpu/wgsl/steps.hpp"
#include "base/function_ref.hpp"
#include "compile/kernel.hpp"

namespace weft::webgpu {

inline constexpr Extent kManyColumns = 8192;    // of the result, from which on products keep the whole memory busy
inline constexpr Extent kThreadsOfUnit = 1024;  // of a compute unit; they share the tiles
inline constexpr Extent kFewRows = 8;           // of A, up to which weights are multiplied while they are read

/// What a product of few rows does beside its own work.
struct RowsExtras {
  const kernel::PackedMatmulKernel* before = nullptr;  // the first product of a gated unit, of which this is the second
  const GatedPair* pair = nullptr;                     // of the two
  const RowsTail* tail = nullptr;                      // kernels that follow; not together with `before`
  const AttentionParts* parts = nullptr;               // A is the result of attention in these parts
};

class RowsWriter {
 public:
  /// Threads of a workgroup.
  static int threads_of(const Target& target, const kernel::PackedMatmulKernel& kernel);
  /// Threads that share a row of W, unless it is long.
  static int lanes_of(const Target& target) {
    return target.subgroup_size >= 2 ? static_cast<int>(std::min(target.subgroup_size, 32u)) : 32;
  }
  /// Whether the product can stage A from parts.
  static bool can_stage(const kernel::PackedMatmulKernel& kernel, const AttentionParts& parts);

  RowsWriter(const kernel::PackedMatmulKernel& kernel, const Target& target, const RowsExtras& extras = {});
  void render(Rendered& rendered);

 private:
  void line(const std::string& text) { text_ += "  " + text + "\n"; }

  /// The sums of a product: `s` of the kernel, `u` of the one before.
  struct Weights {
    const PackedReader* reader;
    const char *sum, *mark;
  };

  template <class Each>
  void each_sum(Each each) const {
    for (int r = 0; r < columns_; ++r)
      for (int i = 0; i < rows_; ++i) each(r, i);
  }

  /// Four elements of a row of A; beyond k they are zero.
  ShaderPieces::Function activation_function(int a, const Bindings& bindings) const;
  ShaderPieces::Function finish_function(const kernel::LoopKernel& epilogue, StepWriter& writer,
                                         Helpers& helpers) const;

  /// Chooses the threads that share a row of W, and how many units of it each of them reads at once.
  void choose_lanes(const PackedReader& reader);

  /// Of experts: `expert`, whose matrix the row has, or the last if it has none, and `has_expert`.
  void write_expert(int of_row, const Bindings& bindings);

  /// Rows of A pass through workgroup memory, in the order in which lanes read them: neighbours read neighbours.
  bool stages() const { return staged_fours_ > 0; }
  void choose_staging(const PackedReader& reader);
  void write_staging(const PackedReader& reader);
  void write_staged_floats(const PackedReader& reader);
  void write_staged_row(int i, FunctionRef<std::string(int, const std::string&)> place);
  /// The sums over rows of A, as yet without terms.
  void write_row_sums_start();
  /// Joins what threads have added up over rows of A, and waits for the staged rows.
  void write_row_sums();

  // --- Rows of A as integers (rows_integers.cpp) ---

  static bool may_have_integers(const Target& target, const kernel::PackedMatmulKernel& kernel);
  bool suits_integers(const PackedReader& reader) const;
  void share_integers(const PackedReader& reader, ShaderPieces& shader) const;
  void write_staged_integers(const PackedReader& reader);
  void write_integer_turn(const std::vector<Weights>& weights, int turn);

  /// Turns of all lanes over a row of W.
  int turns_of_phase() const { return static_cast<int>((units_ + lanes_ - 1) / lanes_); }

  void write_sums(const std::vector<Weights>& weights);
  void write_sums_of_phase(const std::vector<Weights>& weights);
  void write_reads(const std::vector<Weights>& weights, int turn);
  void write_turn(const std::vector<Weights>& weights, int turn);
  std::vector<std::string> sums_of(const char* sum) const;
  /// The sums over row i of A as arguments.
  std::string row_sums(int i, const char* name) const;

  /// The factors for results that were computed from rows of A without their factors.
  void write_factors();

  /// Sums of all lanes, in each of them.
  void write_joined(const std::vector<std::string>& names);

  /// One call of the epilogue in the text.
  void write_results();

  // --- The tail (rows_tail_writer.cpp) ---

  int teams() const { return threads_ / lanes_; }
  /// The column of team `team`.
  std::string column_of(const std::string& team) const;
  std::string held(int number, const std::string& slot) const;
  /// Declares a function for each kernel of the tail, after the epilogue's.
  struct TailLoop {
    std::size_t at;
    StepWriter writer;
  };
  std::vector<TailLoop> tail_writers(Bindings& bindings, Helpers& helpers) const;
  std::vector<std::pair<int, int>> tail_bindings(Bindings& bindings) const;
  void write_tail(std::vector<TailLoop>& loops, const std::vector<std::pair<int, int>>& writes,
                  const Bindings& bindings, ShaderPieces& shader);
  ShaderPieces::Function write_function(std::size_t at, const std::pair<int, int>& handles,
                                        const Bindings& bindings) const;

  const kernel::PackedMatmulKernel& kernel_;
  const RowsExtras extras_;
  const Target& target_;
  int threads_ = 128;                        // of a workgroup
  int sums_ = 0;                             // over each row of A, where it is computed
  int rows_ = 1, columns_ = 1, lanes_ = 32;  // of A and of W at a time; threads that share a row of W
  int ahead_ = 1;                            // units that a thread reads at once
  Extent units_ = 0;                         // of a row of W
  Extent staged_fours_ = 0;                  // groups of four elements of a row of A in workgroup memory
  bool by_fours_ = false;
  bool integers_ = false;  // rows of A are staged as integers
  bool strides_ = false;   // a workgroup has several tiles, and stages A for the first
  bool is_phase_ = false;  // of a resident dispatch: W is read before the results of earlier phases
  std::string text_;
};

}  // namespace weft::webgpu
