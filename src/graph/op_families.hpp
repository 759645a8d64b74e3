// The families of ops, a file each: rows and the public functions side by side.
#pragma once

#include <vector>

namespace weft::graph {

struct OpRow;
using Rows = std::vector<const OpRow*>;

Rows making_rows();     // ops/making.cpp: full, arange, cast, ...
Rows view_rows();       // ops/views.cpp: reshape, slice, concat, ...
Rows product_rows();    // ops/products.cpp: matmul, linear
Rows gather_rows();     // ops/gathers.cpp: embedding, scatter_add, one_hot, ...
Rows norm_rows();       // ops/norms.cpp: softmax, layer_norm, ...
Rows attention_rows();  // ops/attention.cpp: attention, rope, swiglu
Rows loss_rows();       // ops/losses.cpp: cross_entropy, mse_loss, ...
Rows cache_rows();      // ops/cache.cpp: write_rows, cache_attention, ...
Rows scan_rows();       // ops/scans.cpp: cumsum

/// Adds a family from a folder that comes after graph/. Its rows enter the table when that is first asked for, so that a
/// program which never asks does not wait for them. Always true, for initialisers of globals.
bool add_family(Rows (*family)());

}  // namespace weft::graph
