// The matrix product of the CPU backend: packed, cache-blocked, vectorised, on the process's thread pool.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "backend/cpu/widen.hpp"
#include "base/function_ref.hpp"
#include "compile/kernel.hpp"

namespace weft::cpu {

template <class T>
struct GemmKernels;
/// The kernels of `isa()`, for float and double.
template <class T>
const GemmKernels<T>& gemm_kernels_in_use();

/// The starts of the matrices of a batch, in elements from `data`: `each[i]`, or `i * stride` if `each` is null.
struct BatchOffsets {
  std::int64_t stride = 0;
  const std::int64_t* each = nullptr;

  std::int64_t operator[](std::int64_t i) const { return each != nullptr ? each[i] : i * stride; }
};

/// A source matrix, or a batch of them: element (i, j) at data[i * row + j * column]. One of the two strides is 1 (a dimension
/// of extent 1 may have any); the other may be anything, 0 and negative too, so transposed, broadcast and flipped sources need
/// no copy.
template <class T>
struct GemmSource {
  const T* data = nullptr;
  std::int64_t row = 0, column = 1;
  BatchOffsets batch;
  /// If set, packing finds elements through this view, for example windows of a convolution. One stride must still be 1, and
  /// says along which axis neighbours are adjacent more often. `batch` is not read.
  const kernel::MatrixView* view = nullptr;
  std::int64_t first = 0, first_step = 0;  // of k: matrix b of the batch begins at first + b * first_step
  /// For a float product: elements of a narrow type, which are converted during packing. `data` is not read then.
  NarrowElements narrow = {};
};

/// The result: element (i, j) at data[i * row + j]. It overlaps no source, and its matrices do not overlap.
template <class T>
struct GemmTarget {
  T* data = nullptr;
  std::int64_t row = 0;
  BatchOffsets batch;
};

/// C[m, n] = A[m, k] B[k, n], or C += A B, for each matrix of the batch.
template <class T>
struct GemmArgs {
  std::int64_t batch = 1, m = 0, n = 0, k = 0;
  GemmSource<T> a, b;
  GemmTarget<T> c;
  bool accumulate = false;
  /// Optional: called for a block of C (batch, rows [row_begin, row_end), columns [column_begin, column_end)) once it is final,
  /// by the thread that made it, while the block is in that thread's cache. The blocks are disjoint and cover C. Several calls
  /// may run at the same time. The callable must outlive the product and may not call gemm.
  FunctionRef<void(std::int64_t batch, std::int64_t row_begin, std::int64_t row_end, std::int64_t column_begin,
                   std::int64_t column_end)>
      after_block;
};

/// Computes the product. Defined for float, double, int32 and int64 (which wrap around, and are simple but not fast).
///
/// Shapes    any extent may be 0; k = 0 gives zeros (or C as it was, when accumulating) and after_block is still called
/// Numbers   0 * NaN and 0 * infinity are NaN; k is summed in blocks, in an order that depends on shapes, strides and the
///           instruction set only, so that any number of threads gives the same bits
/// Errors    InternalError for a source with neither stride 1
template <class T>
void gemm(const GemmArgs<T>& args);

template <>
void gemm<float>(const GemmArgs<float>& args);
template <>
void gemm<double>(const GemmArgs<double>& args);
template <>
void gemm<std::int32_t>(const GemmArgs<std::int32_t>& args);
template <>
void gemm<std::int64_t>(const GemmArgs<std::int64_t>& args);

/// A product as tasks that may run at the same time, for the caller's schedule.
template <class T>
class GemmTasks {
 public:
  /// Objects that `args` refers to must outlive the tasks.
  explicit GemmTasks(const GemmArgs<T>& args);
  ~GemmTasks();
  GemmTasks(GemmTasks&&) noexcept;
  GemmTasks& operator=(GemmTasks&&) noexcept;
  /// Number of tasks; 0 for a product in several steps, whose tasks depend on each other: use `gemm`. Depends on shapes and
  /// strides only.
  std::int64_t count() const;
  void run(std::int64_t task) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Small products in the calling thread, for other loops (attention): nothing is packed or split. The kernels are those of
/// `gemm`.
template <class T>
class SmallGemm {
 public:
  SmallGemm();
  /// The same for pairs of bf16, neighbours along k, in the memory of floats: depth and k count pairs, and C is of floats. None
  /// if the processor has no instructions for them. Only what is along k may be packed.
  static std::optional<SmallGemm> of_pairs();
  /// Columns that `pack_transposed` puts side by side.
  std::int64_t strip() const { return strip_; }
  /// Elements that it writes for `columns` columns.
  std::int64_t packed_size(std::int64_t depth, std::int64_t columns) const {
    return (columns + strip_ - 1) / strip_ * strip_ * depth;
  }
  /// B[depth, columns] with B(k, j) at from[j * row + k], as strips of strip() columns, one after another.
  void pack_transposed(std::int64_t depth, std::int64_t columns, const T* from, std::int64_t row, T* to) const;

  /// C[m, n] = A B, or += with `accumulate`. Element (i, k) of A is a[i * a_row + k * a_column], one of the two
  /// being 1; element (k, j) of B at b[k * b_row + j].
  void multiply(std::int64_t m, std::int64_t n, std::int64_t k, const T* a, std::int64_t a_row, std::int64_t a_column,
                const T* b, std::int64_t b_row, T* c, std::int64_t c_row, bool accumulate = false) const;
  /// The same with a packed B.
  void multiply_packed(std::int64_t m, std::int64_t n, std::int64_t k, const T* a, std::int64_t a_row, const T* b, T* c,
                       std::int64_t c_row) const;

 private:
  void run(std::int64_t m, std::int64_t n, std::int64_t k, const T* a, std::int64_t a_row, std::int64_t a_column,
           const T* b, std::int64_t b_row, std::int64_t b_strip, T* c, std::int64_t c_row, bool accumulate) const;

  explicit SmallGemm(const GemmKernels<T>& kernels);

  const GemmKernels<T>* kernels_;
  std::int64_t strip_;
};

extern template class GemmTasks<float>;
extern template class SmallGemm<float>;
extern template class SmallGemm<double>;

}  // namespace weft::cpu
