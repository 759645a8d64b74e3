// Encoding of instructions, and memory to run them from.
#include "backend/cpu/loop/assembler.hpp"

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

void Assembler::word(std::uint32_t w) {
  for (int shift = 0; shift < 32; shift += 8) byte(static_cast<std::uint8_t>(w >> shift));
}

// EVEX: four bytes of prefix hold the high bits of the registers (inverted), the mask and the length (512 bits here).
void Assembler::encode(VectorCode code, int first, int second, VectorOperand last, int immediate, int mask, bool zero) {
  using Kind = VectorOperand::Kind;
  const bool is_register = last.kind == Kind::reg;
  const auto bit = [](int value, int index) { return static_cast<std::uint8_t>(~value >> index & 1); };
  const bool base_high = last.kind != Kind::constant && (last.reg & 8) != 0;
  byte(0x62);
  byte(static_cast<std::uint8_t>(bit(first, 3) << 7 | (is_register ? bit(last.reg, 4) : 1) << 6 |
                                 (base_high ? 0 : 1) << 5 | bit(first, 4) << 4 | code.map));
  byte(static_cast<std::uint8_t>((~second & 15) << 3 | 4 | code.prefix));
  const bool broadcasts = last.kind == Kind::constant || last.kind == Kind::broadcast;
  // The broadcast instruction itself reads one float, and has no bit for it.
  const bool broadcast_bit = broadcasts && !(code.map == kBroadcastPs.map && code.opcode == kBroadcastPs.opcode);
  byte(static_cast<std::uint8_t>((zero ? 1 : 0) << 7 | 2 << 5 | (broadcast_bit ? 1 : 0) << 4 | bit(second, 4) << 3 |
                                 mask));
  byte(code.opcode);
  const int reg = first & 7;
  std::size_t displacement = 0;
  switch (last.kind) {
    case Kind::reg: byte(static_cast<std::uint8_t>(0xc0 | reg << 3 | (last.reg & 7))); break;
    case Kind::memory:
    case Kind::broadcast: {
      // With a byte of displacement, which every base takes; an index of 4 is none.
      byte(static_cast<std::uint8_t>(0x40 | reg << 3 | 4));
      byte(static_cast<std::uint8_t>((last.indexed ? rcx : 4) << 3 | (last.reg & 7)));
      byte(0);
      break;
    }
    case Kind::constant:
      byte(static_cast<std::uint8_t>(reg << 3 | 5));  // relative to the next instruction
      displacement = here();
      literals_[last.bits].push_back(displacement);
      word(0);
      break;
  }
  if (immediate >= 0) byte(static_cast<std::uint8_t>(immediate));
  if (displacement != 0) ends_[displacement] = here();
}

void Assembler::vector(VectorCode code, int first, int second, VectorOperand last, int mask, bool zero) {
  encode(code, first, second, last, -1, mask, zero);
}
void Assembler::immediate(VectorCode code, int first, int second, VectorOperand last, std::uint8_t value) {
  encode(code, first, second, last, value, 0, false);
}
void Assembler::shift_left(int to, int from, std::uint8_t count) {
  encode(kShiftInt, 6, to, VectorOperand::of(from), count, 0, false);
}
void Assembler::shift_right_signed(int to, int from, std::uint8_t count) {
  encode(kShiftInt, 4, to, VectorOperand::of(from), count, 0, false);
}
void Assembler::store(Gpr base, int from, int mask) {
  encode(kStorePs, from, 0, VectorOperand::at(base), -1, mask, false);
}
void Assembler::prefetch(Gpr base, std::int32_t distance) {
  if (base >= r8) byte(0x41);
  byte(0x0f);
  byte(0x18);
  byte(static_cast<std::uint8_t>(0x80 | 1 << 3 | 4));  // to the nearest cache
  byte(static_cast<std::uint8_t>(rcx << 3 | (base & 7)));
  word(static_cast<std::uint32_t>(distance));
}

void Assembler::integer(std::uint8_t opcode, int reg, Gpr base, std::int32_t offset, bool wide) {
  byte(static_cast<std::uint8_t>(0x40 | (wide ? 8 : 0) | (reg >= 8 ? 4 : 0) | (base >= r8 ? 1 : 0)));
  byte(opcode);
  byte(static_cast<std::uint8_t>(0x80 | (reg & 7) << 3 | (base & 7)));  // bases rsp and r12 are not used
  word(static_cast<std::uint32_t>(offset));
}
void Assembler::load(Gpr to, Gpr base, std::int32_t offset) { integer(0x8b, to, base, offset); }
void Assembler::add(Gpr to, Gpr base, std::int32_t offset) { integer(0x03, to, base, offset); }
void Assembler::decrement(Gpr base, std::int32_t offset) { integer(0xff, 1, base, offset); }
void Assembler::compare(Gpr reg, Gpr base, std::int32_t offset) { integer(0x3b, reg, base, offset); }
void Assembler::add(Gpr to, std::int32_t value) {
  byte(static_cast<std::uint8_t>(0x48 | (to >= r8 ? 1 : 0)));
  byte(0x81);
  byte(static_cast<std::uint8_t>(0xc0 | (to & 7)));
  word(static_cast<std::uint32_t>(value));
}
void Assembler::clear(Gpr to) {
  byte(static_cast<std::uint8_t>(0x48 | (to >= r8 ? 5 : 0)));
  byte(0x31);
  byte(static_cast<std::uint8_t>(0xc0 | (to & 7) << 3 | (to & 7)));
}
void Assembler::test(Gpr reg) {
  byte(static_cast<std::uint8_t>(0x48 | (reg >= r8 ? 5 : 0)));
  byte(0x85);
  byte(static_cast<std::uint8_t>(0xc0 | (reg & 7) << 3 | (reg & 7)));
}
void Assembler::load_mask(int mask, Gpr base, std::int32_t offset) {
  // kmovw; the two-byte prefix reaches the low bases only, so the long one.
  byte(0xc4);
  byte(static_cast<std::uint8_t>(0xc1 | (base >= r8 ? 0 : 0x20)));
  byte(0x78);
  byte(0x90);
  byte(static_cast<std::uint8_t>(0x80 | mask << 3 | (base & 7)));
  word(static_cast<std::uint32_t>(offset));
}
void Assembler::push(Gpr reg) {
  if (reg >= r8) byte(0x41);
  byte(static_cast<std::uint8_t>(0x50 | (reg & 7)));
}
void Assembler::pop(Gpr reg) {
  if (reg >= r8) byte(0x41);
  byte(static_cast<std::uint8_t>(0x58 | (reg & 7)));
}
void Assembler::leave() {
  for (const std::uint8_t b : {0xc5, 0xf8, 0x77, 0xc3}) byte(b);
}

namespace {

std::uint8_t condition_code(Assembler::If condition) {
  switch (condition) {
    case Assembler::If::below: return 0x82;
    case Assembler::If::not_below: return 0x83;
    case Assembler::If::zero: return 0x84;
    case Assembler::If::not_zero: return 0x85;
    case Assembler::If::always: break;
  }
  return 0;
}

}  // namespace

std::size_t Assembler::jump(If condition) {
  if (condition == If::always) {
    byte(0xe9);
  } else {
    byte(0x0f);
    byte(condition_code(condition));
  }
  word(0);
  return here();
}
void Assembler::land(std::size_t jump) {
  const auto distance = static_cast<std::uint32_t>(here() - jump);
  std::memcpy(code_.data() + jump - 4, &distance, 4);
}
void Assembler::jump_back(If condition, std::size_t to) {
  const std::size_t from = jump(condition);
  const auto distance = static_cast<std::uint32_t>(to - from);
  std::memcpy(code_.data() + from - 4, &distance, 4);
}

std::vector<std::uint8_t> Assembler::finish() {
  while (code_.size() % 64 != 0) byte(0x90);
  for (const auto& [bits, places] : literals_) {
    const std::size_t at = here();
    word(bits);
    for (const std::size_t place : places) {
      const auto distance = static_cast<std::uint32_t>(at - ends_.at(place));
      std::memcpy(code_.data() + place, &distance, 4);
    }
  }
  return std::move(code_);
}

}  // namespace weft::cpu
