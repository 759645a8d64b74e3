// The product that each step of a recurrence begins with: the rows of the step before, times a weight. A workgroup makes a tile of it.
#pragma once

#include <functional>
#include <string>

#include "backend/webgpu/wgsl/render.hpp"

namespace weft::webgpu {

/// Sums[n, u, c] = sum over k < inner of A[n, k] * W[row of (u, c), k], for n < rows and u < units.
struct StepProduct {
  Extent rows = 0, units = 0, inner = 0;
  /// Columns of a unit: the gates of a cell.
  Extent columns = 1;
};

/// A workgroup's part of the product. Each thread has some rows and some columns, and a share of k; the shares are added in the order
/// of their numbers, so sums have the same bits however many workgroups there are.
struct StepTile {
  Extent rows = 1, units = 1;            // of a workgroup
  Extent rows_each = 1, units_each = 1;  // of a thread, with all columns of these units
  Extent parts = 1;                      // shares of k
  Extent stretch = 4;                    // groups of four k that workgroup memory has at once
  bool keeps_weights = false;            // workgroup memory has the weights for all k
  Extent row_tiles = 1, unit_tiles = 1;  // of the product
  static constexpr Extent kThreads = kPhaseThreads;

  Extent tiles() const { return row_tiles * unit_tiles; }
  Extent row_lanes() const { return rows / rows_each; }
  Extent unit_lanes() const { return units / units_each; }
  Extent lanes() const { return row_lanes() * unit_lanes() * parts; }
};

/// `alone`: a workgroup takes all units of its rows, one tile after another. Otherwise tiles are for workgroups side by side.
StepTile choose_step_tile(const StepProduct& product, bool alone, const Target& target);

/// Writes the statements. They use the variables `thread`, `tile`, and `i`, the number of the step. The last two must be uniform.
class StepProductWriter {
 public:
  /// Text of an element of A or W, by texts of n (or a row of W) and k.
  using Load = std::function<std::string(const std::string& row, const std::string& k)>;
  struct Source {
    Load first, later;     // of A in the first step that has a product, and in the others
    std::string is_first;  // a condition; empty: `later` is for all
    Load weight;
    Load four_weights = {};  // a vec4f of four neighbours along k, where the binding has those
    /// The row of W for column `column` of a unit (texts).
    std::function<std::string(const std::string& unit, const std::string& column)> weight_row;
    std::string stages_weights;  // a condition under which weights that are kept have to be read
  };

  StepProductWriter(const StepProduct& product, const StepTile& tile) : product_(product), tile_(tile) {}

  /// Declares the workgroup array.
  void share(ShaderPieces& shader) const;
  /// `top` and `left`: the first row and unit of the tile.
  std::string declare_tile() const;
  /// Computes the tile. `sums` can then be read between begin_results and end_results.
  std::string compute(const Source& source) const;
  /// The begin of a loop over the tile's rows and units that are there: declares `n` and `u`.
  std::string begin_results() const;
  /// Declares `sum0`, `sum1` ... of the columns; they are 0 unless the condition holds.
  std::string sums(const std::string& condition) const;
  std::string end_results() const;

  /// Bytes of workgroup memory.
  static Extent bytes(const StepProduct& product, const StepTile& tile);

 private:
  Extent sums_each() const { return tile_.rows_each * tile_.units_each * product_.columns; }

  const StepProduct product_;
  const StepTile tile_;
};

}  // namespace weft::webgpu
