// Tensors that share memory with the program around Weft, without copies.
#pragma once

#include <memory>

#include "weft/tensor.hpp"

namespace weft::runtime {

/// A tensor on the CPU over elements in host form, row-major, that `owner` keeps. They are only read, and must not change while
/// the tensor or a value made of it is in use. Copies elements where sharing is impossible: bools, packed types and blocks,
/// memory that is not aligned to its elements, no elements. Errors: as `tensor_from_bytes`.
Tensor borrow_host(std::shared_ptr<const void> owner, const void* data, const Shape& shape, DType type);

/// Elements of a tensor in host form, row-major; only read.
struct HostView {
  std::shared_ptr<const void> owner;  // keeps the memory
  const void* data = nullptr;
  bool is_shared = false;  // the tensor's own memory, not a copy of it
};
/// Evaluates the tensor. Its own memory if it is on the CPU, unless it is packed or in blocks.
HostView view_host(const Tensor& tensor);

}  // namespace weft::runtime
