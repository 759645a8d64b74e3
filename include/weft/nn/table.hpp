// The contents of a module as a table: layer, shape, parameters, megabytes.
#pragma once

#include <string>
#include <vector>

#include "weft/nn/module.hpp"

namespace weft::nn {

struct TableRow {
  std::string name;   // "blocks.0-3.mlp.up": equal neighbours are one row
  std::string layer;  // "Linear 128 -> 512"
  std::string shape;  // "[512, 128] + [512]"
  int repeats = 1;
  Extent parameters = 0;  // of all repeats
  double flops = 0;       // of one row of a forward pass, all repeats
};

/// Modules that hold parameters or do arithmetic, in order.
std::vector<TableRow> table_of(const Module& module);
/// The rows as text with their totals, at most `columns` wide.
std::string to_text(const std::vector<TableRow>& rows, int columns = 100);

}  // namespace weft::nn
