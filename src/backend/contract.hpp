// The backend contract: everything that the engine needs from a device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/function_ref.hpp"
#include "compile/capabilities.hpp"
#include "compile/kernel.hpp"
#include "tensor/block_format.hpp"

namespace weft::backend {

/// The description of a device.
struct Description : compiler::Capabilities {
  std::string hardware;  // "NVIDIA H200 (Vulkan, driver 580.159)"
  bool is_software = false;
  bool runs_beside_host = false;  // works on submitted programs while the host does other work
  std::vector<std::pair<std::string, std::string>> details;  // for `weft devices`
};

/// Device memory. Destroying it frees it (after the work that uses it).
class Buffer {
 public:
  virtual ~Buffer() = default;
  virtual std::size_t bytes() const = 0;
  /// Whether the memory belongs to somebody else, who lets it be read only.
  virtual bool is_borrowed() const { return false; }
};
using BufferPtr = std::shared_ptr<Buffer>;

/// A transfer of values to the host.
class Readback {
 public:
  virtual ~Readback() = default;
  /// Waits for the values. May be called once.
  virtual void finish(void* host) = 0;
};

/// Memory for matrices that are used together: each is a buffer, and the buffers are adjacent.
class SharedMemory {
 public:
  virtual ~SharedMemory() = default;
  /// Errors as `Backend::allocate`.
  virtual BufferPtr allocate(std::size_t bytes, std::string_view label) = 0;
};

/// How a device stores weights in the blocks of model files: matrices W [n, k] in a layout that its products read. An optional
/// part of a backend.
class WeightPacking {
 public:
  virtual ~WeightPacking() = default;
  /// Whether the device has products with matrices of this type.
  virtual bool supports(BlockType type) const = 0;
  /// Bytes of packed W, a multiple of 4. ShapeError for negative extents, or k not in whole blocks.
  virtual std::size_t packed_bytes(BlockType type, Extent n, Extent k) const = 0;
  /// Packs the blocks of a file, row by row, into a buffer of `packed_bytes`. `before` is called with each part of `blocks`, in
  /// order, before it is read; parts before it are not read again. ShapeError unless `blocks` are n rows.
  virtual void pack(BlockType type, std::span<const std::byte> blocks, Extent n, Extent k, Buffer& to,
                    FunctionRef<void(std::span<const std::byte> part)> before) const = 0;
  /// Restores the blocks that were packed, row by row, bit for bit, except that a -0 of MXFP4 may become 0. ShapeError unless
  /// `blocks` has the size of exactly n rows.
  virtual void unpack(BlockType type, Buffer& from, Extent n, Extent k, std::span<std::byte> blocks) const = 0;
  /// Optional: memory that matrices of `bytes` in total share, or null. `in_file`: they will be written to a file soon, and
  /// used from there the next time.
  virtual std::unique_ptr<SharedMemory> shared_memory(std::size_t /*bytes*/, bool /*in_file*/) const { return nullptr; }

  /// Optional: whether packed bytes may be kept in a file, for other processes. The functions below are only for this.
  virtual bool can_keep() const { return false; }
  /// A hash of a small packed matrix of this type; it differs if the layout differs.
  virtual std::uint64_t layout_digest(BlockType) const { return 0; }
  /// The bytes in the buffer.
  virtual std::span<const std::byte> view(Buffer&) const { return {}; }
  /// A buffer over packed bytes, which `owner` keeps; they begin at a multiple of 64 and are only read.
  virtual BufferPtr borrow(std::shared_ptr<const void> /*owner*/, std::span<const std::byte>) const { return nullptr; }
};

struct KernelTime {
  std::string name;
  double begin = 0;  // microseconds after the first one began
  double microseconds = 0;
  std::vector<int> kernels = {};  // that ran in this time: their positions in the plan
};

/// A compiled plan with allocated scratch buffers.
class Program {
 public:
  virtual ~Program() = default;
  /// Runs all kernels with these external buffers, in the order of their ordinals. May return before the device is done.
  virtual void run(std::span<const BufferPtr> externals) = 0;
  /// Optional: runs once and times each kernel. Empty if a backend cannot time kernels.
  virtual std::vector<KernelTime> profile(std::span<const BufferPtr>) { return {}; }
  /// The program text (WGSL, bytecode) for `explain`.
  virtual std::string source() const = 0;
  virtual std::size_t scratch_bytes() const = 0;
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual const Description& describe() const = 0;
  /// Bits that one element takes in this backend's buffers (a bool takes 8 on the CPU and 32 on a GPU).
  virtual int storage_bits(DType type) const = 0;
  /// Bytes of `count` elements in this backend's buffers.
  std::size_t storage_bytes(DType type, Extent count) const {
    return bytes_of_bits(storage_bits(type), static_cast<std::size_t>(count));
  }
  /// Throws DeviceError naming the label, the bytes and the limit.
  virtual BufferPtr allocate(std::size_t bytes, std::string_view label) = 0;
  /// Host elements (as in weft/dtype.hpp, a bool one byte) to `count` elements of the buffer from element `first`, and back.
  /// An upload of a packed type starts at a whole byte.
  /// Download waits for pending work.
  virtual void upload(Buffer& to, Extent first, Extent count, DType type, const void* host) = 0;
  virtual void download(Buffer& from, Extent first, Extent count, DType type, void* host) = 0;
  /// Starts to read a few i32, u32 or f32 elements after all work submitted so far; `finish` does not wait for later work. Null
  /// for devices without pending work: `download` does not wait there.
  virtual std::unique_ptr<Readback> start_download(Buffer&, Extent /*first*/, Extent /*count*/) { return nullptr; }
  virtual std::unique_ptr<Program> compile(const kernel::Plan& plan) = 0;
  /// Null if the device has no products with packed weights.
  virtual const WeightPacking* weight_packing() const { return nullptr; }
  /// Waits for all work; throws DeviceError if the device was lost.
  virtual void synchronize() = 0;
};

}  // namespace weft::backend
