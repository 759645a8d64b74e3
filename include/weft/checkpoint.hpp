// Activation checkpointing: memory for time.
#pragma once

#include <functional>
#include <initializer_list>
#include <span>

#include "weft/tensor.hpp"

namespace weft {

/// function(inputs). When gradients are taken, what the function computes from its inputs is computed once more then, so
/// that only the inputs are kept from the forward pass:
///
///     for (const Block& block : blocks) x = checkpoint([&](std::span<const Tensor> in) { return block(in[0]); }, {x});
///
/// The function runs once, here; its ops are repeated, and random draws are the same ones. Variables that it reads get their
/// gradients as ever. Gradients are computed by the same ops from the same values as without a checkpoint, so on the CPU they
/// are the same bits, but for two cases: sums over rows that a plan fuses with other neighbours, and a value that is read
/// outside of the function too, whose gradients may be summed in another order.
///
/// Errors  UsageError: an input or the result has no value; else those of the function.
Tensor checkpoint(const std::function<Tensor(std::span<const Tensor>)>& function, std::span<const Tensor> inputs,
                  Where where = Where::current());
inline Tensor checkpoint(const std::function<Tensor(std::span<const Tensor>)>& function,
                         std::initializer_list<Tensor> inputs, Where where = Where::current()) {
  return checkpoint(function, std::span<const Tensor>(inputs.begin(), inputs.size()), where);
}

}  // namespace weft
