#include "runtime/host_memory.hpp"

#include <cstdint>

#include "backend/cpu/backend.hpp"
#include "base/checked.hpp"
#include "graph/node.hpp"
#include "runtime/devices.hpp"
#include "runtime/evaluate.hpp"

namespace weft::runtime {

Tensor borrow_host(std::shared_ptr<const void> owner, const void* data, const Shape& shape, DType type) {
  const auto count = static_cast<Extent>(checked_numel<ShapeError>(shape, "tensor"));
  const auto alignment = size_bytes(type);
  // Kernels rely on bools that are 0 or 1, and on unused bits of packed types that are 0.
  if (count == 0 || type == DType::boolean || is_packed(type) || is_block(type) ||
      reinterpret_cast<std::uintptr_t>(data) % alignment != 0)
    return tensor_from_bytes(data, shape, type, kCpu);
  checked_multiply<ShapeError>(count, static_cast<Extent>(alignment), "tensor");
  backend_of(kCpu);  // the session must have the device
  const std::span bytes(static_cast<const std::byte*>(data), bytes_of(type, static_cast<std::size_t>(count)));
  return Tensor(data_node(type, shape, kCpu, cpu::borrow_memory(std::move(owner), bytes)));
}

HostView view_host(const Tensor& tensor) {
  runtime::evaluate({&tensor.node(), 1});
  const graph::Node& node = *tensor.node();
  const bool shares = tensor.device() == kCpu && node.storage && !graph::has_packed_layout(node) &&
                      !is_packed(tensor.dtype()) && !is_block(tensor.dtype());
  if (shares) {
    const backend::BufferPtr buffer = buffer_of(node);
    return {buffer, cpu::memory_of(*buffer).data(), true};
  }
  const std::size_t bytes = bytes_of(tensor.dtype(), static_cast<std::size_t>(tensor.numel()));
  const std::shared_ptr<std::byte[]> copy(new std::byte[bytes + 1]);
  tensor.copy_to(copy.get(), bytes);
  return {copy, copy.get(), false};
}

}  // namespace weft::runtime
