// The families of ops, with a file for each: rows and public functions side by side.
#pragma once

#include <vector>

namespace weft::graph {

struct OpRow;
using OpRows = std::vector<const OpRow*>;

OpRows making_rows();     // ops/making.cpp: full, arange, cast, ...
OpRows view_rows();       // ops/views.cpp: reshape, slice, concat, ...
OpRows product_rows();    // ops/products.cpp: matmul, linear
OpRows gather_rows();     // ops/gathers.cpp: embedding, scatter_add, one_hot, ...
OpRows norm_rows();       // ops/norms.cpp: softmax, layer_norm, ...
OpRows attention_rows();  // ops/attention.cpp: attention, rope, swiglu
OpRows loss_rows();       // ops/losses.cpp: cross_entropy, mse_loss, ...
OpRows cache_rows();      // ops/cache.cpp: write_rows, cache_attention, ...
OpRows block_rows();      // ops/packed.cpp: packed_matmul, unpack_rows, pack_rows
OpRows window_rows();     // ops/windows.cpp: unfold, overlap_add
OpRows scan_rows();       // ops/scans.cpp: cumsum

/// Adds a family from a folder that comes after graph/. Its rows enter the table when the table is first used, so a program
/// that does not use it does not wait for them. Returns true, for initialisers of globals.
bool add_family(OpRows (*family)());

}  // namespace weft::graph
