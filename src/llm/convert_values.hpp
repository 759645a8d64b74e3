// Values of tensors on the way from one kind of file to another.
#pragma once

#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "io/tensor_source.hpp"

namespace weft::llm {

/// The values in a type, F32, F16 or BF16. FileError for one that is too large for it.
void put_as(BlockType type, const std::vector<float>& values, const io::TensorSource& source, std::string_view name,
            const std::function<void(std::span<const std::byte>)>& put);
/// Of queries or keys: rows 2i and 2i + 1 of a head turn together, or rows i and i + D/2. `dims`: rows of a head that turn.
std::vector<float> with_rows_turned(const std::vector<float>& values, Extent heads, Extent dims, std::size_t width,
                                    bool to_neighbours);

}  // namespace weft::llm
