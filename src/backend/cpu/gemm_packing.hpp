// The operands of a product in memory, and packing of their parts in the order in which the kernels read them.
#pragma once

#include <cstdint>

#include "backend/cpu/gemm_split.hpp"
#include "backend/cpu/gemm_view.hpp"

namespace weft::cpu::blocked {

/// Rows, columns, panels or steps of k from `begin` up to `end`.
struct Range {
  int64_t begin, end;
  int64_t size() const { return end - begin; }
};

/// Defined for float and double.
template <class T>
class Packing {
 public:
  /// `panels`: into how many panels the rows of A are divided.
  Packing(const GemmArgs<T>& args, const GemmKernels<T>& kernels, int64_t panels);

  /// The elements of k that the kernels take as one, and all of k in these units.
  int64_t unit() const { return unit_; }
  int64_t depth() const { return depth_; }
  Range rows_of(int64_t panel) const { return {args_.m * panel / panels_, args_.m * (panel + 1) / panels_}; }
  /// Columns that a strip of `count` columns takes in packed B.
  int64_t packed_width(int64_t count) const { return ceil_divide(count, kernels_.lanes) * kernels_.lanes; }

  /// Elements of a packed panel of A over `depth` steps of k.
  int64_t panel_size(int64_t depth) const {
    const int64_t step = kernels_.reads_blocks() ? kernels_.depth_step : 1;
    return packed_width(kernels_.rows) * ceil_divide(depth, step) * step;
  }
  /// The distance in it from one step of k, or from one block of them, to the next.
  int64_t panel_stride() const {
    return packed_width(kernels_.rows) * (kernels_.reads_blocks() ? kernels_.depth_step : 1);
  }

  /// The place in A of this row at this k, in elements.
  int64_t place_in_a(int64_t batch, int64_t row, int64_t k) const {
    return args_.a.batch[batch] + row * args_.a.row + k * unit_ * args_.a.column;
  }
  int64_t place_in_b(int64_t batch, int64_t k, int64_t column) const {
    return args_.b.batch[batch] + k * unit_ * args_.b.row + column * args_.b.column;
  }
  /// A in memory, as the kernels read it; null if its elements are converted or combined first.
  const T* plain_a() const { return args_.a.view != nullptr || args_.a.narrow ? pairs_of_a_ : args_.a.data; }

  /// Packs rows of B, of those in `depth`, for these columns, strip after strip; each holds depth.size() rows.
  void pack_b(int64_t batch, Range depth, Range rows_of_b, Range columns, T* to) const;
  /// Packs columns of A, of those in `depth`, for these panels, panel after panel; each holds depth.size() columns.
  void pack_a(int64_t batch, Range depth, Range columns_of_a, Range panels, T* to) const;
  /// Converts a part of a narrow A in memory order, with rows or columns `stride` apart.
  void convert_a(int64_t batch, Range depth, Range panels, T* to, int64_t stride) const;
  /// Elements from one row of converted numbers to the next, so that rows fall on different sets of the cache.
  static int64_t spread_row(int64_t count) {
    constexpr auto kLine = static_cast<int64_t>(64 / sizeof(T));
    return (ceil_divide(count, kLine) | 1) * kLine;
  }

 private:
  static const std::uint16_t* halves_of(const GemmSource<T>& source) {
    return static_cast<const std::uint16_t*>(source.narrow.data) + source.narrow.first;
  }
  /// Whether every row of A begins at a whole pair and ends with one.
  bool is_whole_pairs(const GemmSource<T>& a) const;
  /// Runs of pairs; the last one of an odd number of `elements` gets a zero.
  static void copy_pairs(const std::uint16_t* from, int64_t stride, int64_t rows, int64_t pairs, int64_t elements,
                         T* to, int64_t to_stride);
  /// The matrix of a view that matrix `batch` of the product reads: parts of k are all of one.
  static int64_t matrix_of(const GemmSource<T>& source, int64_t batch) { return source.first_step != 0 ? 0 : batch; }
  /// Like GemmKernels::pack for a source whose rows are across k, from k on, at element `from` of the source.
  void pack(const GemmSource<T>& source, int64_t k, int64_t depth, int64_t count, int64_t from, int64_t stride, T* to,
            int64_t to_stride) const;
  /// Rows along k, from k on, as they are.
  void copy(const GemmSource<T>& source, int64_t k, int64_t rows, int64_t depth, int64_t from, int64_t stride, T* to,
            int64_t to_stride) const;
  void pack_transposed(const GemmSource<T>& source, int64_t k, int64_t depth, int64_t count, int64_t from,
                       int64_t stride, T* to, int64_t to_stride) const;
  /// A few elements of each run are converted at a time, and transposed while they are in L1.
  void pack_narrow_transposed(const GemmSource<T>& source, int64_t k, int64_t depth, int64_t count, int64_t from,
                              int64_t stride, T* to, int64_t to_stride) const;
  /// Packs elements of k in `depth`, which is in units, for these lanes of a source that is read through its view.
  template <MatrixAxis kAxis>
  void pack_view_of(const GemmSource<T>& source, int64_t batch, MatrixRange lanes, Range depth, T* to,
                    int64_t width) const;
  /// The blocks of a panel of A, see GemmKernels::by_depth, from the columns or the rows of A in memory.
  void pack_blocks(int64_t batch, Range depth, Range rows, T* to) const;

  const GemmArgs<T>& args_;
  const GemmKernels<T>& kernels_;
  const int64_t unit_, depth_, panels_;
  const T* pairs_of_a_ = nullptr;  // if the kernels can read pairs of bf16 where they are
};

}  // namespace weft::cpu::blocked
