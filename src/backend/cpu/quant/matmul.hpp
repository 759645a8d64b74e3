// Products of f32 activations with weights that stay in their blocks: packed once for the CPU, read once per product.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "backend/cpu/quant/format.hpp"
#include "base/function_ref.hpp"

namespace weft::cpu {

struct QuantKernels;

/// W[n, k] in the layout of format.hpp, which is the same for every instruction set, so it may be kept in a file. The values
/// are exactly those of the blocks. A cheap handle; copies share the memory.
class QuantisedMatrix {
 public:
  /// Every block type, F16, BF16 and F32; not F64 and integers.
  static bool supports(BlockType type);
  /// Bytes of packed W: about those of its blocks. Formats of 2 and 3 bits take 4.
  ///
  /// Errors    DTypeError for a type that is not supported; ShapeError for negative extents, or k not in whole blocks
  static std::int64_t packed_bytes(BlockType type, std::int64_t n, std::int64_t k);

  QuantisedMatrix() = default;
  /// Packs into new memory, on all threads. Errors as `packed_bytes`, and ShapeError unless `blocks` are n rows.
  static QuantisedMatrix pack(BlockType type, std::span<const std::byte> blocks, std::int64_t n, std::int64_t k);
  /// Packs into the caller's memory, `packed_bytes` at a multiple of 64, else UsageError. `before` is called with each part of
  /// `blocks`, in order, before it is read; parts before it are not read again.
  static void pack_into(BlockType type, std::span<const std::byte> blocks, std::int64_t n, std::int64_t k,
                        std::span<std::byte> packed, FunctionRef<void(std::span<const std::byte> part)> before = {});
  /// The blocks that `pack_into` was given. Errors as of `packed_bytes`; ShapeError unless `blocks` are n rows, UsageError for
  /// fewer packed bytes.
  static void restore(BlockType type, std::span<const std::byte> packed, std::int64_t n, std::int64_t k,
                      std::span<std::byte> blocks);
  /// Type and extents without data. Errors as `packed_bytes`.
  static QuantisedMatrix without_data(BlockType type, std::int64_t n, std::int64_t k);
  /// Rows from `first` on, `count` of them, as a matrix that this one outlives. UsageError unless both are whole groups of rows,
  /// but for the end.
  QuantisedMatrix rows(std::int64_t first, std::int64_t count) const;
  /// A handle to the result of `pack_into`; `packed` must outlive it.
  static QuantisedMatrix view(BlockType type, std::span<const std::byte> packed, std::int64_t n, std::int64_t k);
  /// A hash of a small packed matrix of this type; it differs if the layout differs.
  static std::uint64_t layout_digest(BlockType type);

  BlockType type() const { return type_; }
  std::int64_t n() const { return n_; }
  std::int64_t k() const { return k_; }
  std::int64_t bytes() const { return bytes_; }
  const std::byte* data() const { return data_; }

 private:
  BlockType type_ = BlockType::f32;
  std::int64_t n_ = 0, k_ = 0, bytes_ = 0;
  const std::byte* data_ = nullptr;
  std::shared_ptr<const void> owner_;
};

/// `eight_bit` rounds each 32 elements of a row of x to multiples of the largest / 128 (/ 127 for weights of eight bits
/// where the processor has no dot products), and multiplies integers; plain weights take x as it is. `exact` takes x as it is with all weights.
enum class Activations : std::uint8_t { eight_bit, exact };

/// y[m, n] = x[m, k] W^T, y(i, j) at y[i * y_row + j]. It overlaps neither x nor another y. If y is null, each block of y is in
/// memory of the thread that made it, until `after_tile` has seen it.
struct QuantProduct {
  const QuantisedMatrix* weights = nullptr;
  float* y = nullptr;
  std::int64_t y_row = 0;
  /// Like GemmArgs::after_block (the batch is 0): called for disjoint blocks of y that cover it, once each is final, by the
  /// thread that made it.
  FunctionRef<void(std::int64_t batch, std::int64_t row_begin, std::int64_t row_end, std::int64_t column_begin,
                   std::int64_t column_end)>
      after_block;
  /// The same if y is null, with the y and y_row of this block.
  FunctionRef<void(const float* y, std::int64_t y_row, std::int64_t row_begin, std::int64_t row_end,
                   std::int64_t column_begin, std::int64_t column_end)>
      after_tile;
};

/// `at` plus this many floats. The result may be outside the memory of `at`, for example the start that a whole matrix would
/// have.
inline float* shifted(const void* at, std::int64_t floats) {
  return reinterpret_cast<float*>(reinterpret_cast<std::uintptr_t>(at) +
                                  static_cast<std::uintptr_t>(floats) * sizeof(float));
}

/// The products of one x with several matrices of the same k (queries, keys and values; gate and up), as one set of tasks. x(i,
/// l) is at x[i * x_row + l], and is rounded once.
///
/// Shapes    any extent may be 0; k = 0 gives zeros, and after_block is still called
/// Numbers   a row of y depends on its row of x, the weights and the instruction set only: neither on the number of
///           threads nor on the other rows. Rounding of eight bits: |error of y_ij| <= sum over blocks of
///           max|x| / 254 * sum |w|, beside f32 sums. A row of x with NaN or infinity in a block gives NaN (in `exact`
///           what the sums give); a block whose largest element is below 4e-37 counts as zero in eight bits
/// Errors    ShapeError if the k differ
/// `kernels`: an instruction set other than the best for `isa()`, for tests.
class QuantTasks {
 public:
  /// Needs only types and extents. `products` must outlive this object; their pointers may change between runs.
  QuantTasks(std::span<const QuantProduct> products, std::int64_t m, Activations activations,
             const QuantKernels* kernels = nullptr);
  ~QuantTasks();
  /// Whether x is so small that each thread packs it when needed.
  bool is_small() const;
  std::int64_t count() const;
  /// Sets x for the following tasks. Packs it on all threads, unless it is small.
  void start(const float* x, std::int64_t x_row);
  /// May be called at the same time for different tasks.
  void run(std::int64_t task) const;
  /// Prefetches a piece, counted from 0, of the first weights of a task; false if there is no such piece.
  bool ask_ahead(std::int64_t task, int piece) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Runs the products on all threads.
void quant_matmul(std::span<const QuantProduct> products, const float* x, std::int64_t m, std::int64_t x_row,
                  Activations activations, const QuantKernels* kernels = nullptr);

/// y[i, :] = W[rows[i], :], the same bits as de-quantised blocks. UsageError for a row outside [0, n).
void quant_gather(const QuantisedMatrix& weights, std::span<const std::int32_t> rows, float* y, std::int64_t y_row);

}  // namespace weft::cpu
