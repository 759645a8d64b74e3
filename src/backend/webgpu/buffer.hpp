// Device memory.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "backend/contract.hpp"
#include "backend/webgpu/device.hpp"

namespace weft::webgpu {

/// A storage buffer that can be copied from and to. Initially zero. The device's memory is freed when the last handle is gone
/// and the submitted work that uses it is done.
class Buffer final : public backend::Buffer {
 public:
  /// `bytes` may be 0; the allocation is rounded up to 16. Throws DeviceError naming the label, the bytes and the
  /// limit if it is larger than the device allows, or if the device has no memory left.
  static std::shared_ptr<Buffer> create(std::shared_ptr<Device> device, std::uint64_t bytes, std::string_view label);
  ~Buffer() override;

  std::size_t bytes() const override { return bytes_; }
  std::uint64_t allocated_bytes() const { return allocated_bytes_; }
  const std::string& label() const { return label_; }
  /// Never used twice in a process, unlike an address.
  std::uint64_t id() const { return id_; }
  WGPUBuffer handle() const { return handle_.get(); }
  const std::shared_ptr<Device>& device() const { return device_; }

  /// Any byte range inside the buffer; whole words are fast, an edge inside a word costs a round trip. Throws InternalError for
  /// a range outside.
  void upload(std::uint64_t offset, const void* data, std::uint64_t bytes);
  void download(std::uint64_t offset, void* data, std::uint64_t bytes) const;
  void clear();

 private:
  Buffer(std::shared_ptr<Device> device, std::uint64_t bytes, std::string_view label);
  void check_range(std::string_view doing, std::uint64_t offset, std::uint64_t bytes) const;

  std::shared_ptr<Device> device_;
  std::uint64_t bytes_, allocated_bytes_, id_;
  std::string label_;
  BufferHandle handle_;
};

}  // namespace weft::webgpu
