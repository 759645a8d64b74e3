// The devices of this thread's session: one backend each, made when first used, and buffers that are kept for reuse.
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
/// Puts another backend in the place of a device that nothing has used yet, such as one that only records its programs.
/// Throws UsageError if the device has a backend already.
void use_backend(Device device, std::unique_ptr<backend::Backend> backend);
/// What the compiler must know of it.
compiler::Target target_of(Device device);

/// A buffer, perhaps one that was given back before; it returns to the pool when the last handle goes. The label is asked
/// for when the memory is new.
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

/// A buffer with the elements of a constant of few elements, made without a plan (a plan would be one a value); else null.
backend::BufferPtr small_constant(const graph::Node& node);
/// Adds one element in host form.
void append_element(std::vector<std::byte>& bytes, DType type, double value);
/// Elements in host form.
std::vector<std::byte> constant_bytes(const graph::Node& constant);

}  // namespace weft::runtime
