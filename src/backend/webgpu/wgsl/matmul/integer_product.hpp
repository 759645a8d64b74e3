// Products of eight-bit integers with sums of 32 bits, exact modulo 2^32: on subgroup matrices of i8, or by dot4I8Packed.
//
// A dispatch packs each operand with neighbours along k, zeros behind, and u8 as i8: x - 128. What that takes from the sums is
// added again, from the sums of the other operand's rows or columns, which another dispatch finds.
#pragma once

#include "backend/webgpu/wgsl/render.hpp"
#include "compile/kernel.hpp"

namespace weft::webgpu {

enum class IntegerForm { matrices, dots };

/// Whether the operands can be packed: both of i8 or u8, plain views.
bool suits_integers(const kernel::MatmulKernel& kernel);

/// Rows and columns of results that a workgroup makes, and `depth` bytes of k at a time.
struct IntegerTile {
  int rows, columns, depth;
  int subgroup_rows, subgroup_columns;  // of matrices
  int threads() const { return 32 * (rows / subgroup_rows) * (columns / subgroup_columns); }
};

void render_integers(const kernel::MatmulKernel& kernel, IntegerForm form, const Target& target, Scratch& scratch,
                     Rendered& rendered);

}  // namespace weft::webgpu
