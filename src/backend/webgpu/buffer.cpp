#include "backend/webgpu/buffer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstring>

#include "backend/webgpu/staging.hpp"
#include "weft/error.hpp"

namespace weft::webgpu {
namespace {

std::uint64_t next_id() {
  static std::atomic<std::uint64_t> last = 0;
  return ++last;
}

std::uint64_t round_up(std::uint64_t value, std::uint64_t step) { return (value + step - 1) / step * step; }

}  // namespace

std::shared_ptr<Buffer> Buffer::create(std::shared_ptr<Device> device, std::uint64_t bytes, std::string_view label) {
  const std::lock_guard lock(device->mutex());
  return std::shared_ptr<Buffer>(new Buffer(device, bytes, label));
}

Buffer::Buffer(std::shared_ptr<Device> device, std::uint64_t bytes, std::string_view label)
    : device_(std::move(device)),
      bytes_(bytes),
      allocated_bytes_(std::max<std::uint64_t>(16, round_up(bytes, 16))),
      id_(next_id()),
      label_(label) {
  device_->check();
  const std::uint64_t limit = device_->info().limits.buffer_bytes;
  if (bytes > limit || allocated_bytes_ > limit)
    throw DeviceError(
        fmt::format("{}: \"{}\" takes {} bytes, and one buffer of this device holds at most {}; split it or "
                    "use a smaller batch",
                    device_->name(), label_, bytes, limit));
  WGPUBufferDescriptor descriptor{};
  descriptor.label = view_of(label_);
  descriptor.size = allocated_bytes_;
  descriptor.usage = WGPUBufferUsage_Storage | WGPUBufferUsage_CopySrc | WGPUBufferUsage_CopyDst;
  ErrorScope out_of_memory(*device_, WGPUErrorFilter_OutOfMemory);
  ErrorScope invalid(*device_, WGPUErrorFilter_Validation);
  handle_ = BufferHandle(library().DeviceCreateBuffer(device_->handle(), &descriptor));
  // wgpu-native reports a lack of memory as a validation error, so both mean the same to the caller.
  const std::string errors = invalid.text() + out_of_memory.text();
  device_->check();
  if (errors.empty() && handle_) return;
  throw DeviceError(fmt::format("{}: \"{}\": no memory for {} bytes; use a smaller batch or model, or free tensors: {}",
                                device_->name(), label_, bytes, errors));
}

Buffer::~Buffer() {
  const std::lock_guard lock(device_->mutex());
  // Bind groups of programs may still refer to this buffer; destroying it frees the memory anyway.
  if (handle_) library().BufferDestroy(handle_.get());
  handle_.reset();
}

void Buffer::check_range(std::string_view doing, std::uint64_t offset, std::uint64_t bytes) const {
  if (offset > bytes_ || bytes > bytes_ - offset)
    throw InternalError(fmt::format("webgpu: {} of bytes [{}, {} + {}) of \"{}\", which has {}", doing, offset, offset,
                                    bytes, label_, bytes_));
}

void Buffer::upload(std::uint64_t offset, const void* data, std::uint64_t bytes) {
  check_range("upload", offset, bytes);
  const std::lock_guard lock(device_->mutex());
  device_->check();
  if (bytes == 0) return;
  const auto* source = static_cast<const std::byte*>(data);
  Staging& staging = device_->staging();

  // WebGPU moves whole words. A partly covered word is read first, except past the end, where its content does not matter.
  const auto merge = [&](std::uint64_t word, std::uint64_t first, std::uint64_t count) {
    std::byte merged[4]{};
    const bool others_behind = first + count < 4 && word + first + count < bytes_;
    if (first > 0 || others_behind) staging.download(handle_.get(), word, merged, 4);
    std::memcpy(merged + first, source, count);
    staging.upload(handle_.get(), word, merged, 4);
    source += count;
  };
  const std::uint64_t end = offset + bytes;
  if (const std::uint64_t first = offset % 4; first != 0) {
    const std::uint64_t count = std::min(4 - first, bytes);
    merge(offset - first, first, count);
    offset += count;
  }
  const std::uint64_t whole = (end - offset) / 4 * 4;
  if (whole > 0) staging.upload(handle_.get(), offset, source, whole);
  source += whole;
  if (offset + whole < end) merge(offset + whole, 0, end - offset - whole);
}

void Buffer::download(std::uint64_t offset, void* data, std::uint64_t bytes) const {
  check_range("download", offset, bytes);
  const std::lock_guard lock(device_->mutex());
  device_->check();
  if (bytes == 0) return;
  auto* target = static_cast<std::byte*>(data);
  Staging& staging = device_->staging();
  const auto part = [&](std::uint64_t word, std::uint64_t first, std::uint64_t count) {
    std::byte bytes_of_word[4];
    staging.download(handle_.get(), word, bytes_of_word, 4);
    std::memcpy(target, bytes_of_word + first, count);
    target += count;
  };
  const std::uint64_t end = offset + bytes;
  if (const std::uint64_t first = offset % 4; first != 0) {
    const std::uint64_t count = std::min(4 - first, bytes);
    part(offset - first, first, count);
    offset += count;
  }
  const std::uint64_t whole = (end - offset) / 4 * 4;
  if (whole > 0) staging.download(handle_.get(), offset, target, whole);
  target += whole;
  if (offset + whole < end) part(offset + whole, 0, end - offset - whole);
  device_->check();
}

void Buffer::clear() {
  const std::lock_guard lock(device_->mutex());
  device_->check();
  EncoderHandle encoder = device_->encoder();
  library().CommandEncoderClearBuffer(encoder.get(), handle_.get(), 0, allocated_bytes_);
  device_->submit(std::move(encoder));
}

}  // namespace weft::webgpu
