// The CPU as a backend.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "backend/contract.hpp"

namespace weft::cpu {

/// Every dtype, all of the machine's memory; programs run to their end before `run` returns. The instruction set is what
/// `isa()` says when a plan is compiled, the number of threads what `thread_count()` says when it runs.
std::unique_ptr<backend::Backend> make_cpu_backend();

/// DeviceError as `Backend::allocate`.
backend::BufferPtr allocate_memory(std::size_t bytes, std::string_view label);

/// Huge pages are streamed through without missing the address cache. Fresh ones may be slow to come by: the host of a
/// virtual machine takes back what is free in pieces of that size, and 100 MB then take 0.3 s, in usual pages 0.05.
enum class Pages : std::uint8_t { huge, usual };

/// Buffers side by side, for weights. Memory goes with the last buffer of a piece.
class WeightMemory final : public backend::SharedMemory {
 public:
  /// Pieces take `piece_bytes`, best all that will be asked for, or the largest buffer.
  explicit WeightMemory(std::size_t piece_bytes = 0, Pages pages = Pages::huge)
      : piece_bytes_(piece_bytes), pages_(pages) {}
  /// At a multiple of 64. DeviceError as `Backend::allocate`.
  backend::BufferPtr allocate(std::size_t bytes, std::string_view label) override;

 private:
  std::size_t piece_bytes_, left_ = 0;
  Pages pages_;
  std::shared_ptr<char> next_;
};

/// A buffer over memory that stands already and is only read, as that of a mapped file; it begins at a multiple of 64.
backend::BufferPtr borrow_memory(std::shared_ptr<const void> owner, std::span<const std::byte> bytes);

/// Where a buffer of the CPU lies. InternalError for another device's.
std::span<std::byte> memory_of(backend::Buffer& buffer);

}  // namespace weft::cpu
