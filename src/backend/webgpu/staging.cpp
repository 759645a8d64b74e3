#include "backend/webgpu/staging.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "backend/webgpu/buffer.hpp"
#include "base/copy_bytes.hpp"
#include "weft/error.hpp"

namespace weft::webgpu {
namespace {

constexpr std::uint64_t kWatchedBytes = 4;

}  // namespace

Staging::~Staging() {
  for (StagingPiece& piece : uploads_)
    if (piece.buffer) library().BufferDestroy(piece.buffer.get());
  for (StagingPiece& piece : downloads_)
    if (piece.buffer) library().BufferDestroy(piece.buffer.get());
  if (small_download_.buffer) library().BufferDestroy(small_download_.buffer.get());
  for (const StagingPiece& piece : idle_readings_) library().BufferDestroy(piece.buffer.get());
}

void Staging::create(StagingPiece& piece, std::uint64_t bytes, bool upload) {
  WGPUBufferDescriptor descriptor{};
  descriptor.label = view_of(upload ? "upload staging" : "download staging");
  descriptor.size = bytes + (upload ? 0 : kWatchedBytes);
  descriptor.usage =
      upload ? WGPUBufferUsage_MapWrite | WGPUBufferUsage_CopySrc : WGPUBufferUsage_MapRead | WGPUBufferUsage_CopyDst;
  descriptor.mappedAtCreation = upload;
  ErrorScope out_of_memory(device_, WGPUErrorFilter_OutOfMemory);
  piece.bytes = bytes;
  piece.buffer = BufferHandle(library().DeviceCreateBuffer(device_.handle(), &descriptor));
  if (const std::string error = out_of_memory.text(); !error.empty() || !piece.buffer) {
    piece.buffer.reset();
    throw DeviceError(
        fmt::format("{}: no memory for {} bytes of staging between host and device: {}", device_.name(), bytes, error));
  }
}

void Staging::request_map(StagingPiece& piece, WGPUMapMode mode, std::uint64_t bytes) {
  auto outcome = std::make_shared<Outcome>();
  WGPUBufferMapCallbackInfo callback{};
  callback.mode = device_.callback_mode();
  callback.userdata1 = Outcome::give(outcome);
  callback.callback = [](WGPUMapAsyncStatus status, WGPUStringView message, void* user, void*) {
    const auto given = Outcome::take(user);
    given->ok = status == WGPUMapAsyncStatus_Success;
    given->message = to_string(message);
    given->done = true;
  };
  piece.map = {library().BufferMapAsync(piece.buffer.get(), mode, 0, bytes, callback), outcome};
}

void Staging::finish_map(StagingPiece& piece) {
  if (!piece.map.outcome) return;
  device_.wait(piece.map);
  device_.check();
  if (!piece.map.outcome->ok)
    throw DeviceError(
        fmt::format("{}: staging memory could not be mapped: {}", device_.name(), piece.map.outcome->message));
}

void Staging::upload(WGPUBuffer to, std::uint64_t offset, const void* data, std::uint64_t bytes) {
  const Library& api = library();
  if (bytes <= kQueueWriteBytesMax) {
    api.QueueWriteBuffer(device_.queue(), to, offset, data, bytes);
    return;
  }
  const auto* source = static_cast<const std::byte*>(data);
  for (std::uint64_t done = 0; done < bytes;) {
    StagingPiece& piece = uploads_[next_upload_++ % uploads_.size()];
    const std::uint64_t count = std::min(kLargeBytes, bytes - done);
    if (!piece.buffer) create(piece, kLargeBytes, true);
    finish_map(piece);
    copy_bytes(api.BufferGetMappedRange(piece.buffer.get(), 0, kLargeBytes), source + done, count);
    api.BufferUnmap(piece.buffer.get());
    EncoderHandle encoder = device_.encoder();
    api.CommandEncoderCopyBufferToBuffer(encoder.get(), piece.buffer.get(), 0, to, offset + done, count);
    device_.submit(std::move(encoder));
    request_map(piece, WGPUMapMode_Write, kLargeBytes);
    done += count;
  }
}

void Staging::watch(std::weak_ptr<const Buffer> buffer, std::uint64_t offset) {
  watched_ = std::move(buffer);
  watched_offset_ = offset;
}

void Staging::copy_out(StagingPiece& piece, WGPUBuffer from, std::uint64_t offset, std::uint64_t bytes) {
  const Library& api = library();
  EncoderHandle encoder = device_.encoder();
  api.CommandEncoderCopyBufferToBuffer(encoder.get(), from, offset, piece.buffer.get(), 0, bytes);
  const std::shared_ptr<const Buffer> watched = watched_.lock();
  piece.has_watched = watched != nullptr;
  if (watched)
    api.CommandEncoderCopyBufferToBuffer(encoder.get(), watched->handle(), watched_offset_, piece.buffer.get(), bytes,
                                         kWatchedBytes);
  device_.submit(std::move(encoder));
  request_map(piece, WGPUMapMode_Read, bytes + (watched ? kWatchedBytes : 0));
}

void Staging::take(StagingPiece& piece, void* data, std::uint64_t bytes) {
  const Library& api = library();
  finish_map(piece);
  const std::uint64_t mapped = bytes + (piece.has_watched ? kWatchedBytes : 0);
  const auto* source = static_cast<const std::byte*>(api.BufferGetConstMappedRange(piece.buffer.get(), 0, mapped));
  copy_bytes(data, source, bytes);
  std::uint32_t watched = 0;
  if (piece.has_watched) std::memcpy(&watched, source + bytes, kWatchedBytes);
  api.BufferUnmap(piece.buffer.get());
  if (watched == 0) return;
  device_.fail(
      "workgroups of a dispatch that meet did not run at the same time; set WEFT_WEBGPU_RESIDENT=off to do without "
      "such "
      "dispatches");
  device_.check();
}

void Staging::download(WGPUBuffer from, std::uint64_t offset, void* data, std::uint64_t bytes) {
  auto* target = static_cast<std::byte*>(data);
  if (bytes <= kSmallBytes) {
    if (!small_download_.buffer) create(small_download_, kSmallBytes, false);
    copy_out(small_download_, from, offset, bytes);
    take(small_download_, data, bytes);
    return;
  }
  // Two pieces alternate: the device copies the next while the host reads the last.
  for (StagingPiece& piece : downloads_)
    if (!piece.buffer) create(piece, kLargeBytes, false);
  const auto size_at = [&](std::uint64_t at) { return std::min(kLargeBytes, bytes - at); };
  copy_out(downloads_[0], from, offset, size_at(0));
  std::size_t current = 0;
  for (std::uint64_t at = 0; at < bytes; at += kLargeBytes, current ^= 1) {
    const std::uint64_t next = at + kLargeBytes;
    if (next < bytes) copy_out(downloads_[current ^ 1], from, offset + next, size_at(next));
    take(downloads_[current], target + at, size_at(at));
  }
}

std::unique_ptr<Reading> Staging::start_download(WGPUBuffer from, std::uint64_t offset, std::uint64_t bytes) {
  const std::uint64_t size = std::bit_ceil(std::max(bytes, kSmallBytes));
  std::unique_ptr<Reading> reading(new Reading(*this, bytes));
  const auto idle = std::find_if(idle_readings_.begin(), idle_readings_.end(),
                                 [&](const StagingPiece& piece) { return piece.bytes == size; });
  if (idle == idle_readings_.end()) {
    create(reading->piece_, size, false);
  } else {
    reading->piece_ = std::move(*idle);
    idle_readings_.erase(idle);
  }
  copy_out(reading->piece_, from, offset, bytes);
  return reading;
}

void Reading::finish(void* data) {
  staging_.take(piece_, data, bytes_);
  staging_.idle_readings_.push_back(std::move(piece_));
}

// An abandoned reading may still have a map request pending, so its buffer is destroyed.
Reading::~Reading() {
  if (piece_.buffer) library().BufferDestroy(piece_.buffer.get());
}

}  // namespace weft::webgpu
