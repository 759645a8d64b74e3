// Products and attention that read operands of narrow types directly.
#pragma once

#include "compile/compile.hpp"
#include "compile/rewrite.hpp"

namespace weft::compiler {

/// If an input of a product or an attention only converts a value to the type that the kernel computes in, the kernel reads
/// that value directly, if the device can (Capabilities::product_reads, attention_reads, integer_product_reads). The views on both sides of the
/// conversion become one chain of views. The conversion is exact, so the results stay the same, unless the device has
/// instructions for two operands of this type, which may sum in another order. A conversion that must copy its
/// input anyway, because no strides describe the chain, stays.
///
/// Nodes of the result may have inputs of a narrower type than their own. `narrow_operands` in
/// Settings::disabled_rewrites switches this off.
OrderedGraph with_narrow_operands(OrderedGraph graph, const Target& target, const Settings& settings);

}  // namespace weft::compiler
