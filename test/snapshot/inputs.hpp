// Inputs of snapshot graphs. No kernel runs, so that values only matter where the host reads them back.
#pragma once

#include <cstdint>
#include <vector>

#include "weft/weft.hpp"

namespace weft::snapshot {

/// In memory on the default device, so that the compiler sees a leaf and not a constant.
inline Tensor leaf(const Shape& shape, DType type = DType::f32) {
  const std::vector<std::byte> bytes(static_cast<std::size_t>(shape.numel()) * size_bytes(type));
  return tensor_from_bytes(bytes.data(), shape, type, default_device());
}
inline Tensor indices(const Shape& shape) { return leaf(shape, DType::i32); }

/// The values, and then the gradients of the first to the inputs, as two evaluations.
inline void with_gradients(const std::vector<Tensor>& outputs, const std::vector<Tensor>& inputs) {
  eval(outputs);
  eval(grad(sum(square(outputs[0])), inputs));
}

}  // namespace weft::snapshot
