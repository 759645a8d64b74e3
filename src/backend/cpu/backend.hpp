// The CPU as a backend.
#pragma once

#include <cstddef>
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

/// Buffers side by side on huge pages, for weights: products stream through many small matrices without missing the
/// address cache. Memory goes with the last buffer of a piece.
class WeightMemory {
 public:
  /// Pieces take `piece_bytes`, best all that will be asked for, or the largest buffer.
  explicit WeightMemory(std::size_t piece_bytes = 0) : piece_bytes_(piece_bytes) {}
  /// At a multiple of 64. DeviceError as `Backend::allocate`.
  backend::BufferPtr allocate(std::size_t bytes, std::string_view label);

 private:
  std::size_t piece_bytes_, left_ = 0;
  std::shared_ptr<char> next_;
};

/// Where a buffer of the CPU lies. InternalError for another device's.
std::span<std::byte> memory_of(backend::Buffer& buffer);

}  // namespace weft::cpu
