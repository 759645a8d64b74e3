// Weights in blocks as an operand of subgroup matrices: words are read as they are, and become halves as they are staged.
#pragma once

#include <string>

#include "backend/webgpu/quantised_pack.hpp"
#include "backend/webgpu/wgsl/render.hpp"
#include "tensor/block_format.hpp"

namespace weft::webgpu {

/// A packed matrix [rows, k], read as B: its row j is column j of B. With a batch, matrix b of n columns begins at row b n.
struct PackedOperand {
  BlockType type = BlockType::q4_0;
  kernel::Operand words;
  Extent rows = 0;

  /// Whether weights of the type can be read this way: integers with scales, which f16 holds.
  static bool suits(BlockType type);
  /// Blocks of a row.
  static Extent blocks(Extent k) { return k / kQuantBlock; }
  /// `(block: u32, part: u32) -> vec4<u32>`: the words of eight neighbours, the part-th quarter of a block, with its scale.
  ShaderPieces::Function words_function(const char* name, int handle, Extent k, const Bindings& bindings) const;
  /// `(words: vec4<u32>, part: u32) -> vec4<u32>`: those as halves. Halves saturate.
  ShaderPieces::Function halves_function(const char* name, Helpers& helpers) const;
};

}  // namespace weft::webgpu
