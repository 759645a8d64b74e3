// Tile kernels: each does the work of one instruction of a loop program on a rectangle of `slow` x `fast` values, `fast`
// contiguous. Each instruction set has its own; `tile_table` gives those in use.
#pragma once

#include <cstdint>

#include "backend/cpu/isa.hpp"
#include "backend/cpu/state_scan_run.hpp"
#include "backend/cpu/widen.hpp"
#include "ops/scalar.hpp"
#include "weft/dtype.hpp"

namespace weft::cpu {

/// A source: value (s, f) at data + s * slow_stride bytes, then + f elements, or + 0 when it is constant along `fast`.
struct TileArg {
  const void* data = nullptr;
  std::int64_t slow_stride = 0;
  bool broadcast = false;
};

/// How many bytes ahead loops with much work between their loads ask for memory: hardware looks ahead only within a page of 4 KiB. The
/// lines of a whole number of pages ahead would be in the same sets of the cache.
inline constexpr std::int64_t kStreamAhead = 6144;

struct TileCall {
  void* out = nullptr;
  std::int64_t out_stride = 0;  // bytes
  std::int64_t slow = 1, fast = 0;
  TileArg args[4];
};
using TileFunction = void (*)(const TileCall&);

/// Combines a tile into accumulators, one for each slow index (along fast) or for each fast index (along slow). Sums and
/// products of f32 are accumulated in f64 between tiles; accumulators of i64 and u64 hold their bits; positions (argmax,
/// argmin) count from `base`.
struct TileReduction {
  TileArg arg;
  std::int64_t slow = 1, fast = 0;
  double* accumulators = nullptr;
  std::int64_t* positions = nullptr;
  std::int64_t base = 0;
};
using ReduceFunction = void (*)(const TileReduction&);

/// Joins a tile's values to sums and to sums of squared differences from the mean, for each slow index or for each fast one;
/// `before` values of each line have been joined.
struct TileMoments {
  TileArg arg;  // varies along both axes
  std::int64_t slow = 1, fast = 0;
  double *sums = nullptr, *means = nullptr, *squares = nullptr;
  std::int64_t before = 0;
};
using MomentsFunction = void (*)(const TileMoments&);

/// What hides scores of a row: only those in [first, end) are seen. `values`, if given, has a bool or a T for each score, or one
/// for all; a value that is not above `hidden` hides.
struct AttentionMaskRow {
  std::int64_t first = 0, end = 0;
  const void* values = nullptr;
  bool are_bools = false, is_one = false;
  double hidden = 0;
};
/// Which shares of a row are kept: those whose byte of Philox is at least `dropped`. The keys begin at `first_key`; a word has
/// the bytes of two keys, and `word` is that of key 0. `place`: the bit of the byte of an even key.
struct AttentionKeepRow {
  std::uint32_t seed = 0, stream = 0, word = 0;
  int place = 0;
  std::int64_t first_key = 0;
  std::uint32_t dropped = 0;
};

/// Operations of attention on scores: `rows` rows of `size` at x. In row r the first visible[r] count; the others become
/// 0.
template <class T>
struct AttentionParts {
  /// x_j becomes exp(scale * x_j - max), total their sum, and logsumexp = max + log(total).
  void (*softmax)(T* x, std::int64_t rows, std::int64_t size, const std::int64_t* visible, T scale, T* total,
                  T* logsumexp) = nullptr;
  /// Row r of x, `width` elements from r * row on, divided by total[r], or 0 where that is 0.
  void (*divide)(T* x, std::int64_t rows, std::int64_t row, std::int64_t width, const T* total) = nullptr;
  /// For one row: p_j, a score, becomes the probability exp(p_scale * p_j - logsumexp); d_j becomes the gradient of the
  /// score, p_j * (d_j - dot(o, d_o)) * scale.
  void (*gradient)(T* p, T* d, std::int64_t visible, std::int64_t size, T p_scale, T scale, T logsumexp, const T* o,
                   const T* d_o, std::int64_t width) = nullptr;
  /// For one row of scores: x_j becomes scale * x_j, plus its value in the mask, or -infinity where the mask hides it.
  void (*mask)(T* x, std::int64_t size, T scale, const AttentionMaskRow& mask) = nullptr;
  /// x_j becomes x_j * factor where keep_j is 1, else 0.
  void (*drop)(T* x, const std::uint8_t* keep, std::int64_t size, T factor) = nullptr;
};

/// One step of a recurrent cell for one sequence, with `width` channels. `x` and `product` are the products with the input and
/// with the state before, a row of `width` for each gate. The functions for the way back take the gradient `d_h` of this step's
/// state beside `carry`, that from the step after.
template <class T>
struct RecurrentParts {
  void (*lstm)(std::int64_t width, const T* x, const T* product, const T* c_before, T* gates, T* c, T* h) = nullptr;
  /// carry_c: from the gradient of this step's c to that of the step before.
  void (*lstm_back)(std::int64_t width, const T* gates, const T* c, const T* c_before, const T* d_h, const T* carry,
                    T* carry_c, T* d_gates) = nullptr;
  void (*gru)(std::int64_t width, const T* x, const T* product, const T* bias, const T* h_before, T* saved,
              T* h) = nullptr;
  /// carry becomes what goes to the state before without passing a gate.
  void (*gru_back)(std::int64_t width, const T* saved, const T* h_before, const T* d_h, T* carry, T* d_gates,
                   T* d_products) = nullptr;
  void (*rnn)(std::int64_t width, bool relu, const T* x, const T* product, T* h) = nullptr;
  void (*rnn_back)(std::int64_t width, bool relu, const T* h, const T* d_h, const T* carry, T* d_gates) = nullptr;
};

/// Operations of attention with few queries on the rows of a cache, and functions that read rows. Rows are `row` floats apart.
struct CacheParts {
  /// scores[g * stride + j] = q[g] . keys[j] for `group` queries and `count` keys.
  void (*dots)(const float* q, std::int64_t group, std::int64_t width, const float* keys, std::int64_t row,
               std::int64_t count, float* scores, std::int64_t stride) = nullptr;
  /// out[g] += sum over j of weights[g * stride + j] values[j].
  void (*mix)(const float* weights, std::int64_t group, std::int64_t stride, std::int64_t width, const float* values,
              std::int64_t row, std::int64_t count, float* out) = nullptr;
  void (*pack_f16)(const float* from, std::uint16_t* to, std::int64_t count) = nullptr;
  void (*unpack_f16)(const std::uint16_t* from, float* to, std::int64_t count) = nullptr;
  void (*unpack_q8)(const std::uint32_t* from, float* to, std::int64_t count) = nullptr;  // whole blocks
};

inline constexpr int kTypeCount = kDTypeCount;  // an index is the number of the type
inline constexpr int kOpCount = static_cast<int>(scalar::Op::philox) + 1;
inline constexpr int kReductionCount = 6;

/// Elements of a row of 32-bit words by index; words with an index outside of the row are zero. Meanwhile the bytes that are
/// needed next are prefetched: memory cannot guess which elements come.
struct TakeCall {
  const std::uint32_t* row;
  std::uint32_t extent;
  const std::uint32_t* indices;
  std::uint32_t* to;
  std::int64_t count;
  bool streams;  // past the caches
  const char* next;
  std::int64_t next_bytes;
};
using TakeFunction = void (*)(const TakeCall&);

/// to = base + the sum of some of the rows, `count` elements; the row of order[k] begins order[k] * row elements from `rows` on.
/// Meanwhile those of `later` are prefetched: memory cannot guess which rows come.
struct SumRowsCall {
  const void* rows;
  std::int64_t row;
  const std::uint32_t* order;
  std::int64_t chosen;
  const void* base;  // or null
  void* to;
  std::int64_t count;
  bool streams;  // past the caches, if `to` begins at a cache line
  const std::uint32_t* later;
  std::int64_t later_count;
};
using SumRowsFunction = void (*)(const SumRowsCall&);

/// Copies words that lie before each other in the source: to[i] = from[-i]. At the end those from `next` on, as many, are prefetched,
/// if it is not null. `streams`: past the caches.
using ReverseFunction = void (*)(const std::uint32_t* from, std::uint32_t* to, std::int64_t count,
                                 const std::uint32_t* next, bool streams);

/// Copies cache lines past the caches, to the beginning of a line, while those of `next` (if not null) are on their way.
using CopyLinesFunction = void (*)(const char* from, char* to, std::int64_t lines, const char* next);

/// A transposition of words: to[c * to_row + r] = from[r * from_row + c]. Rows are as many elements apart.
struct TurnCall {
  const void* from;
  std::int64_t from_row;
  void* to;
  std::int64_t to_row;
  std::int64_t rows, columns;
  bool streams;                 // past the caches, where whole lines are written
  std::int64_t rows_ahead = 0;  // how far ahead rows are prefetched; 0: the same rows are, further on
  const void* next = nullptr;   // where the next call reads as many rows; they are prefetched at the end of these
};
using TurnFunction = void (*)(const TurnCall&);

/// Rows of picks from some columns: to[r, c] = near[indices[r, c], c], or zero if the index is not below `extent`. Meanwhile other
/// columns are copied from `extent` rows. Rows of `near` and of the copy have no gaps; the other rows begin as many words apart.
struct ColumnGatherCall {
  std::int64_t extent;
  const void* from;  // may be null, with `copied` 0
  std::int64_t from_row, copied;
  void* copy;
  const void* near;  // may be null, with `rows` 0
  const std::uint32_t* indices;
  std::int64_t index_row, rows, width;
  void* to;
  std::int64_t to_row;
  bool streams;  // past the caches, where rows begin at cache lines
};
using ColumnGatherFunction = void (*)(const ColumnGatherCall&);

/// Some neighbouring columns of a matrix of floats, and their place in the result; at least a vector of the widest kind.
struct SoftmaxStrip {
  const float* x;
  float* y;
  std::int64_t width;
};
/// Softmax down the columns of strips, or its logarithm. Rows of all strips begin as many floats apart.
struct ColumnSoftmaxCall {
  const SoftmaxStrip* strips;
  std::int64_t count, rows, x_row, y_row, width;  // width: of the widest strip
  void* scratch;                                  // column_softmax_bytes(rows, width), at a cache line
  bool is_log;
  bool streams;  // past the caches; then all strips of y begin at cache lines
};
using ColumnSoftmaxFunction = void (*)(const ColumnSoftmaxCall&);
inline constexpr std::int64_t kSoftmaxGroup = 8, kSoftmaxAhead = 48;  // rows that are worked on, and prefetched
inline constexpr std::int64_t column_softmax_bytes(std::int64_t rows, std::int64_t width) {
  const std::int64_t groups = rows / kSoftmaxGroup + rows % kSoftmaxGroup;
  return (rows + groups + 8 + 2 * kSoftmaxGroup) * ((width + 15) / 16 * 64) + 512;
}

/// Running sums or products of elements of one type. Carries are of the type that totals are held in: double for floats, and
/// otherwise the unsigned integer of the results' size.
struct ScanParts {
  /// [exclusive][reverse]: the scan of a run that follows the carry, which becomes the total so far. x and y may be the same.
  /// Meanwhile it prefetches as many elements from `ahead` on. With `streams`, the results are written past the caches; only where
  /// the parts say that they can.
  void (*run[2][2])(const void* x, const void* ahead, void* y, std::int64_t count, void* carry, bool streams) = {};
  void (*total)(const void* x, std::int64_t count, void* total) = nullptr;
  /// [exclusive]: one element of each of `count` scans side by side; prefetches what lies at `ahead`.
  void (*step[2])(const void* x, const void* ahead, void* y, std::int64_t count, void* carries, bool streams) = {};
  bool overflows = false;  // totals of parts may overflow where the scan does not
  bool streams = false;
};

/// Running extremes of a line with the positions of the last of equal ones; a NaN is beyond all numbers.
struct ExtremeRun {
  const float* x;
  float* values;
  std::int32_t* positions;
  std::int64_t count;
  bool streams;                // past the caches
  std::int64_t begin = 0;      // position of the first element
  float value = 0;             // so far
  std::int32_t position = -1;  // of the value; negative if there is none yet
};
using ExtremeFunction = void (*)(ExtremeRun&);

/// Functions by op and by the common type of the operands; null if an op does not support the type.
struct TileTable {
  TileFunction map[kOpCount][kTypeCount] = {};
  /// From, to; from == to copies. Narrow types and storage types have casts only from and to the types that they compute in;
  /// other casts take two steps (`cast_step`).
  TileFunction cast[kTypeCount][kTypeCount] = {};
  TileFunction mul_add[kTypeCount] = {};                   // a * b + c, fused where the hardware can; floats
  TileFunction mul_sub[kTypeCount] = {};                   // a * b - c
  TileFunction sub_mul[kTypeCount] = {};                   // c - a * b
  TileFunction compare_select[kOpCount][kTypeCount] = {};  // op(a, b) ? c : d, by the type of all four
  TileFunction stream[kTypeCount] = {};                    // copies bypassing the caches, for outputs larger than them
  TakeFunction take = nullptr;
  SumRowsFunction sum_rows[kTypeCount] = {};  // the types that scatters add up in
  CopyLinesFunction copy_lines = nullptr;
  ReverseFunction reverse32 = nullptr;                                        // words of 32 bits
  ColumnGatherFunction column_gather32 = nullptr, column_gather64 = nullptr;  // words of 32 and of 64 bits
  ColumnSoftmaxFunction column_softmax = nullptr;
  TurnFunction turn32 = nullptr, turn64 = nullptr;  // words of 32 and of 64 bits
  WidenFunction widen[kTypeCount] = {};             // narrow types and types of storage that compute in f32
  ReduceFunction reduce_fast[kReductionCount][kTypeCount] = {};
  ReduceFunction reduce_slow[kReductionCount][kTypeCount] = {};
  MomentsFunction moments_fast[kTypeCount] = {}, moments_slow[kTypeCount] = {};  // floats
  AttentionParts<float> attention_f32;
  AttentionParts<double> attention_f64;
  void (*attention_keep)(std::uint8_t* keep, std::int64_t size, const AttentionKeepRow& row) = nullptr;
  ScanParts running_sum[kTypeCount], running_product[kTypeCount];
  ExtremeFunction running_min = nullptr, running_max = nullptr;  // null if there is nothing better than a loop
  RecurrentParts<float> recurrent_f32;
  RecurrentParts<double> recurrent_f64;
  StateScanParts<float> state_scan_f32;
  StateScanParts<double> state_scan_f64;
  CacheParts cache;
};

/// The functions of `isa()`.
const TileTable& tile_table();
/// The function that reads elements of this type as f32; null if the type is not narrower.
inline WidenFunction widen_function(DType type) { return tile_table().widen[static_cast<std::size_t>(type)]; }
/// The next type in a cast between two types: the target itself, or a type between them.
DType cast_step(DType from, DType to);
const TileTable& tile_table(Isa isa);
template <class T>
const AttentionParts<T>& attention_parts();
template <class T>
const RecurrentParts<T>& recurrent_parts();
template <class T>
const StateScanParts<T>& state_scan_parts();

}  // namespace weft::cpu
