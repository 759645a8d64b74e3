// A model with other values in its constants, as its files would hold them.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "io/tensor_source.hpp"
#include "llm/ir.hpp"

namespace weft::llm {

/// The tensors of the model's files with the values that `values_of` gives each constant of its graph, row-major as the graph has it.
/// Each tensor is made when its data is asked for, in its own type, or as F16 where that is one of blocks; tensors that no constant is
/// made of stay.
io::TensorSource with_values(const io::TensorSource& source, const ModelGraph& graph,
                             std::function<std::vector<float>(const std::string& constant)> values_of);

/// How many numbers the constants of a graph have.
std::int64_t constant_count(const ModelGraph& graph);

}  // namespace weft::llm
