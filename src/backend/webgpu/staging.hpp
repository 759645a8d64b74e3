// Host memory that the device can copy from and to. It is kept, because making it costs far more than using it.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "backend/webgpu/device.hpp"

namespace weft::webgpu {

class Buffer;
class Staging;

struct StagingPiece {
  BufferHandle buffer;
  std::uint64_t bytes = 0;
  Pending map;               // the last request to map; no outcome: mapped at creation
  bool has_watched = false;  // the watched word is behind the bytes
};

/// A download that was started and has not been read yet.
class Reading {
 public:
  Reading(const Reading&) = delete;
  ~Reading();
  /// Waits for the bytes, once. The caller holds the device's mutex.
  void finish(void* data);

 private:
  friend class Staging;
  Reading(Staging& staging, std::uint64_t bytes) : staging_(staging), bytes_(bytes) {}

  Staging& staging_;
  std::uint64_t bytes_;
  StagingPiece piece_;
};

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
  /// Starts a download after all work submitted before; read it later.
  std::unique_ptr<Reading> start_download(WGPUBuffer from, std::uint64_t offset, std::uint64_t bytes);

  /// From now on, downloads also read the word at `offset` of the buffer, as long as there is one, and the device fails if it is
  /// not 0: workgroups then did not run at the same time.
  void watch(std::weak_ptr<const Buffer> buffer, std::uint64_t offset);

  static constexpr std::uint64_t kSmallBytes = 64 << 10;  // enough to read a loss

 private:
  friend class Reading;
  static constexpr std::uint64_t kLargeBytes = 8 << 20;
  static constexpr std::uint64_t kQueueWriteBytesMax = 1 << 20;  // above this the library makes a new buffer each time

  void create(StagingPiece& piece, std::uint64_t bytes, bool upload);
  void request_map(StagingPiece& piece, WGPUMapMode mode, std::uint64_t bytes);
  void finish_map(StagingPiece& piece);
  void copy_out(StagingPiece& piece, WGPUBuffer from, std::uint64_t offset, std::uint64_t bytes);
  /// Waits for what `copy_out` has copied.
  void take(StagingPiece& piece, void* data, std::uint64_t bytes);

  Device& device_;
  std::array<StagingPiece, 3> uploads_;
  std::size_t next_upload_ = 0;
  StagingPiece small_download_;
  std::array<StagingPiece, 2> downloads_;
  std::weak_ptr<const Buffer> watched_;
  std::uint64_t watched_offset_ = 0;
  std::vector<StagingPiece> idle_readings_;  // of powers of two
};

}  // namespace weft::webgpu
