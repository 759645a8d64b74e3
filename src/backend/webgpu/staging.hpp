// Host memory that the device can copy from and to, kept because making it costs far more than using it.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "backend/webgpu/device.hpp"

namespace weft::webgpu {

/// Moves bytes between the host and buffers. Offsets and sizes are multiples of 4. Callers hold the device's mutex.
class Staging {
 public:
  explicit Staging(Device& device) : device_(device) {}
  Staging(const Staging&) = delete;
  ~Staging();

  /// Returns when `data` may be reused; the device sees the bytes before anything submitted later.
  void upload(WGPUBuffer to, std::uint64_t offset, const void* data, std::uint64_t bytes);
  /// Returns with the bytes, after all work submitted before.
  void download(WGPUBuffer from, std::uint64_t offset, void* data, std::uint64_t bytes);

 private:
  static constexpr std::uint64_t kSmallBytes = 64 << 10;  // a read of a loss needs no more
  static constexpr std::uint64_t kLargeBytes = 8 << 20;
  static constexpr std::uint64_t kQueueWriteBytesMax = 1 << 20;  // above this the library makes a new buffer each time

  struct Piece {
    BufferHandle buffer;
    Pending map;  // the last request to map; no outcome: mapped at creation
  };

  void create(Piece& piece, std::uint64_t bytes, bool upload);
  void request_map(Piece& piece, WGPUMapMode mode, std::uint64_t bytes);
  void finish_map(Piece& piece);
  void copy_out(Piece& piece, WGPUBuffer from, std::uint64_t offset, std::uint64_t bytes);

  Device& device_;
  std::array<Piece, 3> uploads_;
  std::size_t next_upload_ = 0;
  Piece small_download_;
  std::array<Piece, 2> downloads_;
};

}  // namespace weft::webgpu
