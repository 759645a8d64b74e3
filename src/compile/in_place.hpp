// Results that overwrite a value that the same kernel reads.
#pragma once

#include <functional>

#include "compile/draft.hpp"

namespace weft::compiler {

/// True if the kernel can write `output` over `leaf`: it reads the leaf, if at all, only where it writes the output.
bool can_overwrite(const DraftKernel& draft, const graph::Node* leaf, const graph::Node* output);

/// The value that the result of a large product with packed weights can overwrite: the epilogue reads the value only where it
/// writes, and by `is_read_later` nothing reads it afterwards. The gate of a gated unit is such a value. Null if there is
/// none.
const graph::Node* replaced_by_product(const DraftKernel& draft,
                                       const std::function<bool(const graph::Node*)>& is_read_later,
                                       const std::function<std::size_t(const graph::Node*)>& bytes_of);

}  // namespace weft::compiler
