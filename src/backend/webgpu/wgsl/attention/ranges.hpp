// Exponents of bf16 operands, by which attention on subgroup matrices scales them to f16.
//
// A half has more digits than a number of bf16, and a narrower range of exponents. So the operands of the query heads that
// share one key head (a group) are scaled by powers of two, which are exact: the largest number of an operand becomes a half
// in [2^14, 2^15). A group whose numbers are too far apart for that, too large, too small, infinite or NaN, is left to the
// kernels in f32.
#pragma once

#include <string>

#include "backend/webgpu/wgsl/attention/place.hpp"
#include "backend/webgpu/wgsl/render.hpp"
#include "compile/kernel.hpp"

namespace weft::webgpu::attention {

/// Whether the operands are of bf16, and so have to be scaled.
bool is_scaled(const kernel::AttentionKernel& kernel);

/// For each group and chunk of its rows one word for each of q, k, v and dO: the largest exponent, and 255 minus the exponent
/// of the row whose largest number is the smallest. Rows of zeros do not count.
struct Ranges {
  kernel::Operand words;  // u32
  Extent chunks = 0;

  /// Whether there are any: attention of other types has none.
  bool exist() const { return chunks > 0; }
};

/// Whether the kernels can bind the ranges beside all else.
bool can_bind_ranges(const kernel::AttentionKernel& kernel, const Target& target);

/// Memory for the ranges of q, k and v, and going backward of dO.
Ranges ranges_of(const kernel::AttentionKernel& kernel, const Target& target, Scratch& scratch);
/// Appends the dispatch that finds them.
void render_ranges(const kernel::AttentionKernel& kernel, const Ranges& ranges, const Target& target,
                   Rendered& rendered);

/// Declares `exponents`, the biased exponents of the largest numbers, and `fits_halves`: whether the group `kv_head` of `batch`
/// may be scaled. `words` is the handle of the ranges.
Lines range_lines(const kernel::AttentionKernel& kernel, const Ranges& ranges, const Bindings& bindings, int words);

/// Text of 2^x as an f32, for an i32 text.
std::string power_of_two(const std::string& x);
/// The exponent x of the factor 2^x that scales operand 'q', 'k', 'v' or 'g' (dO) to halves.
std::string scale_of(char name);

}  // namespace weft::webgpu::attention
