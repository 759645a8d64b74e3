// Memory to run machine code from.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace weft::cpu {

/// Machine code in separate memory, which is never writable and executable at once.
class Executable {
 public:
  /// Null if the system does not allow such memory.
  static const void* make(std::span<const std::uint8_t> code, Executable* owner);
  Executable() = default;
  ~Executable();
  Executable(Executable&& other) noexcept;
  Executable& operator=(Executable&& other) noexcept;

 private:
  void* memory_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace weft::cpu
