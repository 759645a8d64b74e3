// Matrices in blocks, which products and row gathers read directly (`has_packed_layout`).
#pragma once

#include "graph/node.hpp"
#include "weft/tensor.hpp"

namespace weft::graph {

struct OpRow;

/// The rows of each expert's matrix in [E, n, k] are a multiple of this, which devices store together.
inline constexpr Extent kRowsOfExperts = 16;

struct PackedMatmul {
  bool exact = false;
};
struct PackRows {
  DType type = DType::q8_0;
};

const OpRow& packed_matmul_row();
const OpRow& unpack_rows_row();
const OpRow& pack_rows_row();

/// The values of a packed tensor as f32.
Tensor unpacked(const Tensor& packed, Where where);
/// A tensor rounded to blocks. ShapeError unless the last axis divides into them.
Tensor in_blocks(const Tensor& x, DType type, Where where);

/// Throws ShapeError for `context` unless a tensor of blocks may have this shape: its last axis divides into blocks.
void check_block_shape(std::string_view context, DType type, const Shape& shape);

}  // namespace weft::graph
