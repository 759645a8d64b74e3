// Gradients in few long tensors, which travel between devices faster than many short ones.
#pragma once

#include <span>
#include <vector>

#include "weft/tensor.hpp"

namespace weft::train {

/// The values one after another as `type`, in vectors of at most 2^24 elements; a longer value is a vector of its own. All of one
/// dtype.
std::vector<Tensor> join_in_buckets(std::span<const Tensor> values, DType type);
/// The values of these shapes as f32, from their buckets.
std::vector<Tensor> split_buckets(std::span<const Tensor> buckets, std::span<const Shape> shapes);

}  // namespace weft::train
