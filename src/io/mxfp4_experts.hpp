// Experts of Hugging Face folders in MXFP4 (gpt-oss), as one matrix in blocks for each expert.
#pragma once

#include <unordered_set>

#include "io/tensor_source.hpp"

namespace weft::io {

/// For each pair NAME_blocks [E, rows, groups, 16] and NAME_scales [E, rows, groups], both U8: bytes of two elements of e2m1, the
/// first in the low bits, and an exponent e for each 32 elements: 2^(e - 127) q. Adds matrices of MXFP4 for each expert, whose
/// blocks are made when they are asked for: PREFIX.{e}.down_proj.weight for PREFIX.down_proj, and two for PREFIX.gate_up_proj, whose
/// rows take turns: PREFIX.{e}.gate_proj.weight and PREFIX.{e}.up_proj.weight. What they are made of joins `used`.
/// Errors: FileError for blocks without scales, other shapes and types.
void add_mxfp4_experts(const TensorSource& source, std::vector<SourceTensor>& tensors,
                       std::unordered_set<const SourceTensor*>& used);

}  // namespace weft::io
