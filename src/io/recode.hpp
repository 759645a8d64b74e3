// Converts a tensor of a model to another type.
#pragma once

#include <cstddef>
#include <span>

#include "base/function_ref.hpp"
#include "io/tensor_source.hpp"

namespace weft::io {

/// Passes the data of `tensor` as `type` to `put`, in pieces of whole blocks and a few MiB, made on all threads; unchanged if
/// the type is the tensor's own. FileError, with `source`'s path, for types that cannot be read, for values that are not
/// finite, and for values that `type` (F16) cannot hold; UsageError for types without `quantise`.
void recode(const TensorSource& source, const SourceTensor& tensor, BlockType type,
            FunctionRef<void(std::span<const std::byte>)> put);

}  // namespace weft::io
