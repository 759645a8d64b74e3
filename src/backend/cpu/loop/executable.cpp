#include "backend/cpu/loop/executable.hpp"

#include <cstring>
#include <utility>

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace weft::cpu {

const void* Executable::make(std::span<const std::uint8_t> code, Executable* owner) {
#if defined(__linux__) && defined(__x86_64__)
  const std::size_t bytes = (code.size() + 4095) / 4096 * 4096;
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  std::memcpy(memory, code.data(), code.size());
  if (mprotect(memory, bytes, PROT_READ | PROT_EXEC) != 0) {
    munmap(memory, bytes);
    return nullptr;
  }
  *owner = Executable();
  owner->memory_ = memory;
  owner->bytes_ = bytes;
  return memory;
#else
  static_cast<void>(code);
  static_cast<void>(owner);
  return nullptr;
#endif
}

Executable::~Executable() {
#if defined(__linux__)
  if (memory_ != nullptr) munmap(memory_, bytes_);
#endif
}

Executable::Executable(Executable&& other) noexcept
    : memory_(std::exchange(other.memory_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

Executable& Executable::operator=(Executable&& other) noexcept {
  std::swap(memory_, other.memory_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

}  // namespace weft::cpu
