// A model with other values in its constants, as its files would hold them.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "io/tensor_source.hpp"
#include "llm/ir.hpp"

namespace weft::llm {

/// The values of a constant that are at [first, first + count) of its first axis, row-major as the graph has it; nothing for a constant
/// that stays, whatever the part.
using ConstantValues =
    std::function<std::optional<std::vector<float>>(const std::string& constant, Extent first, Extent count)>;

/// The tensors of the model's files with these values of the constants of its graph in their places. Each tensor is made when its data is
/// asked for, in its own type, or as F16 where that is one of blocks; tensors that no constant is made of stay.
io::TensorSource with_values(const io::TensorSource& source, const ModelGraph& graph, ConstantValues values_of);
/// The same with these values added to those that are there. Only experts are asked for.
io::TensorSource with_added_values(const io::TensorSource& source, const ModelGraph& graph, ConstantValues values_of);

/// How many numbers the constants of a graph have.
std::int64_t constant_count(const ModelGraph& graph);

}  // namespace weft::llm
