// The devices of this thread's session: a backend for each, made on first use, and buffers that are kept for reuse.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "backend/contract.hpp"
#include "base/function_ref.hpp"
#include "compile/compile.hpp"
#include "graph/node.hpp"
#include "weft/device.hpp"

namespace weft::runtime {

/// Throws DeviceError when there is no such device.
backend::Backend& backend_of(Device device);
/// Sets the backend of a device that nothing has used yet, for example to one that only records its programs. Throws UsageError
/// if the device has a backend already.
void use_backend(Device device, std::unique_ptr<backend::Backend> backend);
/// What the compiler must know of the device.
compiler::Target target_of(Device device);

/// A new buffer or one from the pool; it returns to the pool with its last handle. `label` is called only for new
/// memory.
backend::BufferPtr allocate(Device device, std::size_t bytes, FunctionRef<std::string()> label);
backend::BufferPtr allocate(Device device, std::size_t bytes, std::string_view label);

/// The value of an evaluated node.
struct BufferStorage : graph::Storage {
  explicit BufferStorage(backend::BufferPtr buffer) : buffer(std::move(buffer)) {}
  std::unique_ptr<Storage> shared() const override { return std::make_unique<BufferStorage>(buffer); }
  backend::BufferPtr buffer;
};
const backend::BufferPtr& buffer_of(const graph::Node& node);
/// A data node over a buffer.
graph::NodeRef data_node(DType type, const Shape& shape, Device device, backend::BufferPtr buffer);

/// Uploads a small constant directly, because each value would need its own plan. Null if the constant is large.
backend::BufferPtr small_constant(const graph::Node& node);
/// Adds one element in host form.
void append_element(std::vector<std::byte>& bytes, DType type, double value);
/// Elements in host form.
std::vector<std::byte> constant_bytes(const graph::Node& constant);

}  // namespace weft::runtime
