// The CPU as a backend.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "backend/contract.hpp"

namespace weft::cpu {

/// Supports every dtype and all of the machine's memory; programs have finished when `run` returns. The instruction set is
/// `isa()` when a plan is compiled, and the number of threads is `thread_count()` when it runs.
std::unique_ptr<backend::Backend> make_cpu_backend();

/// DeviceError as `Backend::allocate`.
backend::BufferPtr allocate_memory(std::size_t bytes, std::string_view label);

/// Streaming through huge pages does not miss the TLB. New huge pages may be slow to get: the host of a virtual machine takes
/// back free memory in pieces of that size, and 100 MB then take 0.3 s, or 0.05 s in usual pages.
enum class Pages : std::uint8_t { huge, usual };

/// Adjacent buffers, for weights. A piece of memory is freed with its last buffer.
class WeightMemory final : public backend::SharedMemory {
 public:
  /// A piece takes `piece_bytes`, ideally the total that will be allocated, or the size of the largest buffer.
  explicit WeightMemory(std::size_t piece_bytes = 0, Pages pages = Pages::huge)
      : piece_bytes_(piece_bytes), pages_(pages) {}
  /// At a multiple of 64. DeviceError as `Backend::allocate`.
  backend::BufferPtr allocate(std::size_t bytes, std::string_view label) override;

 private:
  std::size_t piece_bytes_, left_ = 0;
  Pages pages_;
  std::shared_ptr<char> next_;
};

/// A buffer over existing memory, such as a mapped file; it begins at a multiple of 64. It is only read, unless it is writable:
/// then updates in place write to it.
backend::BufferPtr borrow_memory(std::shared_ptr<const void> owner, std::span<const std::byte> bytes,
                                 bool is_writable = false);

/// The memory of a CPU buffer. InternalError for a buffer of another device.
std::span<std::byte> memory_of(backend::Buffer& buffer);

}  // namespace weft::cpu
