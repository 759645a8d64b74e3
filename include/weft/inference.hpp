// Ops of text generation: caches that change in place, and attention over them. They have no gradients.
#pragma once

#include "weft/tensor.hpp"

namespace weft {

/// How a cache keeps its elements: as f32, as f16, or as blocks of 32 signed bytes with an f32 scale each.
enum class CacheType : std::uint8_t { f32, f16, q8 };

/// A zero cache: f32 or f16 [rows, width], or for q8 i8 [rows, width / 32 * 36] with four bytes of scale before each 32
/// elements. Errors: ShapeError: odd width (f16); a width (for attention: of a head) not a multiple of 32 (q8).
[[nodiscard]] Tensor empty_cache(Extent rows, Extent width, CacheType type = CacheType::f32,
                                 Device device = default_device(), Where where = Where::current());

/// `cache` with row at[t] replaced by rows[t], rounded to the cache's type. Places outside the cache are dropped; of equal
/// places the last counts. Assigned to the Variable whose value `cache` is, it writes in place.
///
/// Shapes    cache as `empty_cache` made it, rows [T, width], at [T] -> shape of cache
/// Dtypes    rows f32, at i32
/// Errors    ShapeError, DTypeError; rows must be finite for q8
[[nodiscard]] Tensor write_rows(const Tensor& cache, const Tensor& rows, const Tensor& at,
                                CacheType type = CacheType::f32, Where where = Where::current());

/// x W^T + b with weights in blocks, or packed. `linear` of such weights is this op with `exact`. Without `exact`, x may be
/// rounded: to eight bits, with a scale for each 32 elements of a row, or to f16, as W then is, with a scale for each row.
///
/// Shapes    x [..., k], W [n, k], b [n] or undefined -> [..., n]
/// Dtypes    x, b f32; W a type of blocks
/// Errors    ShapeError, DTypeError, DeviceError as `linear`
/// Gradient  none: weights in blocks do not train
[[nodiscard]] Tensor packed_linear(const Tensor& x, const Tensor& weight, const Tensor& bias = {}, bool exact = false,
                                   Where where = Where::current());
/// Each row of x times the matrix of its expert, for mixtures: y[..., s] = x[...] W[experts[..., s]]^T, with weights in blocks, or
/// packed, and `exact` as of `packed_linear`. Rows of a number outside [0, E) are zero. Weights of experts that no row has are not
/// read. Dense weights, and gradients: `grouped_matmul`.
///
/// Shapes    x [..., k], W [E, n, k] with n a multiple of 16, experts [..., s] -> [..., s, n]; or experts [...] -> [..., n]
/// Dtypes    x f32; W a type of blocks; experts i32 -> f32
/// Errors    ShapeError, DTypeError, DeviceError
/// Gradient  none: weights in blocks do not train
[[nodiscard]] Tensor expert_linear(const Tensor& x, const Tensor& weights, const Tensor& experts, bool exact = false,
                                   Where where = Where::current());
/// Rows of W [n, k], or of all matrices of [..., n, k] in order, by index, with the blocks' values as f32. An index out of range
/// reads zeros.
///
/// Shapes    W [..., n, k], indices [T] -> [T, k]
/// Dtypes    W a type of blocks; indices i32 -> f32
/// Errors    ShapeError, DTypeError, DeviceError. Gradient: none
[[nodiscard]] Tensor packed_rows(const Tensor& table, const Tensor& indices, Where where = Where::current());

struct CacheAttentionOptions {
  CacheType type = CacheType::f32;
  double scale = 0;     ///< 0: 1 / sqrt(D)
  Extent window = 0;    ///< most keys that a query sees, its own included; 0: all
  double soft_cap = 0;  ///< c: scores s become c tanh(s / c); 0: no cap
  Extent ring = 0;      ///< rows of a sequence, which its positions use in turn; at least the window. 0: no ring
  Tensor sinks = {};    ///< f32 [H], a logit of each head that takes weight and has no value; undefined: none
  Tensor slopes = {};   ///< f32 [H], what a score of a head loses for each position of distance; undefined: none
};
/// Attention of T queries, each over the rows of the cache that belong to its sequence: query t sees rows first[t] .. first[t]
/// + length[t] - 1, or the last `window` of them. With a ring, position p of a sequence is in row first[t] + p % ring, and a
/// query sees positions up to length[t] - 1. The work depends on these lengths, not on the cache's size. A query with length 0
/// (padding) gives zeros. If there are fewer key heads than query heads, neighbouring query heads share one.
///
///   s[j] = cap(scale q[t, h] . k[j, h / group]) - slopes[h] (t' - j), where t' is the query's own position
///   y[t, h] = sum_j exp(s[j]) v[j, h / group] / (exp(sinks[h]) + sum_j exp(s[j]))
///
/// Shapes    q [T, H, D], keys and values as `empty_cache(rows, Hkv * D)` made them, first [T], length [T] -> [T, H, D]
/// Dtypes    q f32; first, length i32
/// Errors    ShapeError unless H is a multiple of Hkv, and sinks and slopes are [H]; DTypeError; UsageError for a ring without a window that fits it
/// Source    Dao et al. 2022, arXiv:2205.14135; soft cap: Gemma 2, arXiv:2408.00118; sinks: gpt-oss, arXiv:2508.10925; slopes:
///           Press et al. 2021, arXiv:2108.12409
[[nodiscard]] Tensor cache_attention(const Tensor& q, const Tensor& keys, const Tensor& values, const Tensor& first,
                                     const Tensor& length, Extent kv_heads, const CacheAttentionOptions& options = {},
                                     Where where = Where::current());

/// Columns of the settings of `sample_token`, f32 [B, kSampleSettings]. A value in brackets turns the column off.
enum class SampleSetting : std::uint8_t {
  temperature,         ///< (0: the largest logit, ties to the smallest id; then only the penalties below apply)
  top_k,               ///< only this many of the most probable (0)
  typical,             ///< the most typical up to this mass (1)
  top_p,               ///< the most probable up to this mass (1)
  min_p,               ///< those at least this fraction of the most probable (0)
  repetition_penalty,  ///< l > 0 ? l / p : l p for tokens of the history (1)
  frequency_penalty,   ///< l - p * times in the history (0)
  presence_penalty,    ///< l - p for tokens of the history (0)
  log_probability,     ///< not 0: also the token's, before temperature and all that follows (0)
};
inline constexpr Extent kSampleSettings = 9;

/// The next token of each row of logits: bias and penalties, then temperature, then the filters top-k, typical, top-p and min-p
/// in this order, each on the tokens that the one before kept, and a draw by Philox. At least one token is always kept. Equal
/// probabilities rank by id. A row whose logits hold a NaN gives token -1.
///
/// Shapes    logits [B, V], settings [B, kSampleSettings], history [B, W] (-1: none), bias_tokens [B, M] (-1: none),
///           bias [B, M], draw [B, 4] (seed, position) -> [B, 2]: token, bits of its f32 log-probability
/// Dtypes    logits, settings, bias f32; history, bias_tokens i32; draw u32 -> i32
/// Errors    ShapeError, DTypeError; DeviceError on devices without a kernel for the op
/// Source    nucleus: Holtzman et al. 2020, arXiv:1904.09751; typical: Meister et al. 2023, arXiv:2202.00666; min-p:
///           Nguyen et al. 2024, arXiv:2407.01082; repetition penalty: Keskar et al. 2019, arXiv:1909.05858
[[nodiscard]] Tensor sample_token(const Tensor& logits, const Tensor& settings, const Tensor& history,
                                  const Tensor& bias_tokens, const Tensor& bias, const Tensor& draw,
                                  Where where = Where::current());

}  // namespace weft
