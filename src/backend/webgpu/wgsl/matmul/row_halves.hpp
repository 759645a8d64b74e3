// Rows of f32 as scaled halves: what a product on subgroup matrices reads where its other operand is of halves already.
#pragma once

#include <string>

#include "backend/webgpu/wgsl/matmul/row_groups.hpp"
#include "backend/webgpu/wgsl/render.hpp"

namespace weft::webgpu {

/// Statements that set `name` to the largest size in a row which `lanes` neighbouring threads read, thread `lane` of them: each has
/// `most`, the largest sizes that it read, as bits, so that NaN is the largest. All threads of a workgroup run them. They use
/// `$sizes`, a u32 of workgroup memory for each thread.
std::string largest_size(const char* name, const std::string& lane, int lanes);

/// Appends a dispatch. Each of the `m` rows of `a` (f32, `k` elements, `a_row` apart, all multiples of 8) is scaled by the power
/// of two of scale_exponent (scaled_product.hpp), and rounded to `halves`, f16 [m, k]. `largest`, f32 [m], receives the largest
/// size in each row. With `groups`, `m` is the number of slots, and the rows are those of the slots; empty slots get nothing.
void render_row_halves(const std::string& name, const kernel::Operand& a, Extent a_row, Extent m, Extent k,
                       const kernel::Operand& largest, const kernel::Operand& halves, const Target& target,
                       Rendered& rendered, const RowGroups* groups = nullptr);

}  // namespace weft::webgpu
