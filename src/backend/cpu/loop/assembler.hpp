// A small assembler: the few AVX-512 and integer instructions that chains of elementwise work need (chain.cpp), and
// memory to run them from.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

namespace weft::cpu {

/// Machine code in memory of its own, which is never writable and executable at once.
class Executable {
 public:
  /// Null where the system allows no such memory.
  static const void* make(std::span<const std::uint8_t> code, Executable* owner);
  Executable() = default;
  ~Executable();
  Executable(Executable&& other) noexcept;
  Executable& operator=(Executable&& other) noexcept;

 private:
  void* memory_ = nullptr;
  std::size_t bytes_ = 0;
};

/// Integer registers by their number in the encoding.
enum Gpr : std::uint8_t { rax, rcx, rdx, rbx, rsp, rbp, rsi, rdi, r8, r9, r10, r11, r12, r13, r14, r15 };

/// The last operand of a vector instruction: a register, a place in memory, or a constant in all lanes.
struct VectorOperand {
  enum class Kind : std::uint8_t { reg, memory, broadcast, constant };
  Kind kind = Kind::reg;
  std::uint8_t reg = 0;    // a vector register, or the base of a place in memory
  bool indexed = false;    // memory: rcx is added
  std::uint32_t bits = 0;  // of a constant

  static VectorOperand of(int reg) { return {Kind::reg, static_cast<std::uint8_t>(reg), false, 0}; }
  static VectorOperand at(Gpr base) { return {Kind::memory, base, true, 0}; }          // 16 floats at [base + rcx]
  static VectorOperand all_of(Gpr base) { return {Kind::broadcast, base, false, 0}; }  // the float at [base]
  static VectorOperand literal(std::uint32_t bits) { return {Kind::constant, 0, false, bits}; }
};

/// What an instruction is: opcode map, prefix, opcode.
struct VectorCode {
  std::uint8_t map, prefix, opcode;
};
inline constexpr VectorCode kAddPs{1, 0, 0x58}, kMulPs{1, 0, 0x59}, kSubPs{1, 0, 0x5c}, kMinPs{1, 0, 0x5d},
    kDivPs{1, 0, 0x5e}, kMaxPs{1, 0, 0x5f}, kSqrtPs{1, 0, 0x51}, kComparePs{1, 0, 0xc2}, kLoadPs{1, 0, 0x10},
    kStorePs{1, 0, 0x11}, kMovePs{1, 0, 0x28}, kAndInt{1, 1, 0xdb}, kOrInt{1, 1, 0xeb}, kXorInt{1, 1, 0xef},
    kAddInt{1, 1, 0xfe}, kSubInt{1, 1, 0xfa}, kIntToPs{1, 0, 0x5b}, kPsToIntTruncated{1, 2, 0x5b},
    kBroadcastPs{2, 1, 0x18}, kBlendPs{2, 1, 0x65}, kMulAdd213{2, 1, 0xa8}, kMulSub213{2, 1, 0xaa},
    kNegMulAdd213{2, 1, 0xac}, kMulAdd231{2, 1, 0xb8}, kScalePs{2, 1, 0x2c}, kRoundPs{3, 1, 0x08},
    kShiftInt{1, 1, 0x72};  // by an immediate; the first register says which way

class Assembler {
 public:
  /// first = code(second, last), in the lanes of `mask` (0: all); the others keep what they hold, or become 0.
  void vector(VectorCode code, int first, int second, VectorOperand last, int mask = 0, bool zero = false);
  /// The same with an immediate operand, in all lanes.
  void immediate(VectorCode code, int first, int second, VectorOperand last, std::uint8_t value);
  void shift_left(int to, int from, std::uint8_t count);
  void shift_right_signed(int to, int from, std::uint8_t count);
  void store(Gpr base, int from, int mask = 0);
  void prefetch(Gpr base, std::int32_t distance);

  void load(Gpr to, Gpr base, std::int32_t offset);      // 8 bytes
  void add(Gpr to, Gpr base, std::int32_t offset);       // to += [base + offset]
  void decrement(Gpr base, std::int32_t offset);         // [base + offset] -= 1, and the flags
  void compare(Gpr reg, Gpr base, std::int32_t offset);  // flags of reg - [base + offset]
  void add(Gpr to, std::int32_t value);
  void clear(Gpr to);
  void test(Gpr reg);                                       // the flags of a register
  void load_mask(int mask, Gpr base, std::int32_t offset);  // 16 bits to a mask register
  void push(Gpr reg);
  void pop(Gpr reg);
  void leave();  // vzeroupper, ret

  enum class If : std::uint8_t { always, below, not_below, zero, not_zero };
  std::size_t here() const { return code_.size(); }
  std::size_t jump(If condition);  // to a place that is told later; returns what `land` wants
  void land(std::size_t jump);     // the jump goes here
  void jump_back(If condition, std::size_t to);

  /// The code with its constants behind it.
  std::vector<std::uint8_t> finish();

 private:
  void byte(std::uint8_t b) { code_.push_back(b); }
  void word(std::uint32_t w);
  void integer(std::uint8_t opcode, int reg, Gpr base, std::int32_t offset, bool wide = true);
  void encode(VectorCode code, int first, int second, VectorOperand last, int immediate, int mask, bool zero);

  std::vector<std::uint8_t> code_;
  std::map<std::uint32_t, std::vector<std::size_t>> literals_;  // bits -> where displacements to them stand
  std::map<std::size_t, std::size_t> ends_;                     // of such an instruction, by its displacement
};

}  // namespace weft::cpu
