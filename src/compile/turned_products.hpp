// Products whose result is only read transposed, as transposed products.
#pragma once

#include "compile/compile.hpp"
#include "compile/rewrite.hpp"

namespace weft::compiler {

/// (A B)^T = B^T A^T where nothing reads A B itself, as in gradients of weights. The product then writes whole rows, which
/// matters to a device with many threads; other targets are left as they are. Sums have the same order. Rule
/// "turned_products".
OrderedGraph with_turned_products(OrderedGraph graph, const Target& target, const Settings& settings);

}  // namespace weft::compiler
