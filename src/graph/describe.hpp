// Operands in error messages: one line each, with dtype, shape and label.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "weft/tensor.hpp"

namespace weft::graph {

/// "op: fact\n  a  f32 [2, 3]  \"label\"\n  ...\n  called at file:line (function)".
std::string describe(std::string_view op, std::string_view fact,
                     const std::vector<std::pair<std::string, Tensor>>& operands, Where where);

}  // namespace weft::graph
