// Instructions on vectors of 16 floats, and the elementary functions made of them: those of vector_math.inc.hpp, instruction by
// instruction.
#pragma once

#include <xbyak/xbyak.h>

#include <bit>
#include <cstdint>
#include <map>
#include <variant>

namespace weft::cpu::emitting {

inline constexpr int kTemporary = 24;  // functions use this vector register and all after it
inline const Xbyak::Opmask kRest(1), kChosen(2);

using Xbyak::Operand;
using Xbyak::Xmm;
using Xbyak::Zmm;

inline constexpr std::uint8_t kNearestEven = 8, kDown = 9, kUp = 10, kToZero = 11;  // without exceptions
inline constexpr std::uint8_t kEqual = 0, kUnordered = 3, kNotEqual = 4, kLess = 1, kLessOrEqual = 2,
                              kGreaterOrEqual = 13, kGreater = 14;

/// The last operand of an instruction: a register, or one float of memory in all lanes.
class Last {
 public:
  Last(int reg) : operand_(Zmm(reg)) {}
  Last(const Xbyak::Address& address) : operand_(address) {}
  operator const Operand&() const {
    return std::visit([](const auto& each) -> const Operand& { return each; }, operand_);
  }

 private:
  std::variant<Zmm, Xbyak::Address> operand_;
};

inline constexpr std::uint32_t kSignBit = 0x80000000u, kOtherBits = 0x7fffffffu;

// Instructions of three operands, whose second is declared as Xmm in some and as Operand in others.
using Code = void (*)(Xbyak::CodeGenerator&, const Xmm&, const Xmm&, const Operand&);
#define WEFT_CODE(constant, name)                                                                              \
  inline constexpr Code constant = [](Xbyak::CodeGenerator& a, const Xmm& x, const Xmm& y, const Operand& z) { \
    a.name(x, y, z);                                                                                           \
  }
WEFT_CODE(kAddPs, vaddps);
WEFT_CODE(kSubPs, vsubps);
WEFT_CODE(kMulPs, vmulps);
WEFT_CODE(kDivPs, vdivps);
WEFT_CODE(kMinPs, vminps);
WEFT_CODE(kMaxPs, vmaxps);
WEFT_CODE(kAndInt, vpandd);
WEFT_CODE(kOrInt, vpord);
WEFT_CODE(kXorInt, vpxord);
WEFT_CODE(kAddInt, vpaddd);
WEFT_CODE(kSubInt, vpsubd);
WEFT_CODE(kScalePs, vscalefps);
WEFT_CODE(kBlendPs, vblendmps);
WEFT_CODE(kMulAdd213, vfmadd213ps);
WEFT_CODE(kMulSub213, vfmsub213ps);
WEFT_CODE(kNegMulAdd213, vfnmadd213ps);
WEFT_CODE(kMulAdd231, vfmadd231ps);
#undef WEFT_CODE

// Code is emitted to plain memory: it runs elsewhere (Executable), and maps and protections of pages cost more than it does.
struct Heap : Xbyak::Allocator {
  bool useProtect() const override { return false; }
};

class VectorAssembler {
 protected:
  /// Registers that the code has used are noted, because constants may stay in the others.
  Zmm zmm(int reg) {
    used_ |= 1u << reg;
    return Zmm(reg);
  }
  Xbyak::Ymm ymm(int reg) {
    used_ |= 1u << reg;
    return Xbyak::Ymm(reg);
  }
  Last bits(std::uint32_t value) {
    ++uses_of_literal_[value];
    if (const auto found = pinned_.find(value); found != pinned_.end()) return found->second;
    return a_.ptr_b[a_.rip + literals_[value]];
  }
  Last literal(float x) { return bits(std::bit_cast<std::uint32_t>(x)); }
  void op(Code code, int to, int x, const Last& y) { code(a_, zmm(to), zmm(x), y); }
  /// The same in the chosen lanes; the others stay.
  void op_chosen(Code code, int to, int x, const Last& y) { code(a_, zmm(to) | kChosen, zmm(x), y); }
  void choose(int x, const Last& y, std::uint8_t comparison) { a_.vcmpps(kChosen, zmm(x), y, comparison); }
  void round(int to, const Last& x, std::uint8_t how) { a_.vrndscaleps(zmm(to), x, how); }
  void move(int to, int from) { a_.vmovaps(zmm(to), zmm(from)); }
  void move_chosen(int to, int from) { a_.vmovaps(zmm(to) | kChosen, zmm(from)); }
  void all(int to, float x) { all(zmm(to), std::bit_cast<std::uint32_t>(x)); }
  void all_chosen(int to, std::uint32_t value) { all(zmm(to) | kChosen, value); }
  void all(const Zmm& to, std::uint32_t value) {
    ++uses_of_literal_[value];
    if (const auto found = pinned_.find(value); found != pinned_.end())
      a_.vmovaps(to, Zmm(found->second));
    else
      a_.vbroadcastss(to, a_.ptr[a_.rip + literals_[value]]);
  }
  /// From here on the literal is read from a register.
  void pin(std::uint32_t value, int reg) {
    a_.vbroadcastss(Zmm(reg), a_.ptr[a_.rip + literals_[value]]);
    pinned_[value] = reg;
  }
  void copysign(int to, int x, int sign) {
    constexpr int t = kTemporary + 7;
    op(kAndInt, t, sign, bits(kSignBit));
    op(kAndInt, to, x, bits(kOtherBits));
    op(kOrInt, to, to, t);
  }
  void polynomial(int to, int x, std::initializer_list<float> coefficients) {
    const float* c = coefficients.begin();
    all(to, *c);
    while (++c != coefficients.end()) op(kMulAdd213, to, x, literal(*c));
  }
  /// n and r of x = n log 2 + r, and p with e^r = 1 + r + p r^2.
  void reduce(int x, int n, int r, int p) {
    op(kMulPs, n, x, literal(1.44269504088896341f));
    round(n, n, kNearestEven);
    move(r, x);
    op(kMulAdd231, r, n, literal(-0.693359375f));
    op(kMulAdd231, r, n, literal(2.12194440e-4f));
    polynomial(
        p, r,
        {1.39261835877134949e-3f, 8.36317905272257737e-3f, 4.16665546172045742e-2f, 1.66665769896987757e-1f, 0.5f});
  }
  void exp(int to, int x) {
    constexpr int n = kTemporary, r = n + 1, t = n + 2;
    all(t, -105.0f);
    op(kMaxPs, to, t, x);  // with a NaN and a number, the result is the last operand
    all(t, 89.0f);
    op(kMinPs, t, t, to);
    reduce(t, n, r, to);
    op(kMulPs, t, r, r);
    op(kMulAdd213, to, t, r);
    op(kAddPs, to, to, literal(1.0f));
    op(kScalePs, to, to, n);
  }
  /// e^x - 1 for |x| <= 80; `x` is the fifth temporary or a later one, and is kept.
  void expm1_bounded(int to, int x) {
    constexpr int n = kTemporary, r = n + 1, t = n + 2;
    reduce(x, n, r, to);
    op(kMulPs, t, r, r);
    op(kMulAdd213, to, t, r);
    a_.vcvttps2dq(zmm(n), zmm(n));
    op(kAddInt, n, n, bits(127));
    a_.vpslld(zmm(n), zmm(n), 23);
    op(kSubPs, t, n, literal(1.0f));
    op(kMulAdd213, to, n, t);
  }
  void tanh(int to, int x) {
    constexpr int a = kTemporary + 4, t = a + 1;
    op(kAndInt, a, x, bits(kOtherBits));
    choose(a, literal(10.0f), kGreater);
    op(kAddPs, a, a, a);
    all_chosen(a, std::bit_cast<std::uint32_t>(20.0f));
    expm1_bounded(to, a);
    op(kAddPs, t, to, literal(2.0f));
    op(kDivPs, to, to, t);
    copysign(to, to, x);
  }
  void erf(int to, int x) {
    constexpr int a = kTemporary + 4, q = a + 1;
    constexpr float kLast = 1.1283791716f;
    op(kAndInt, a, x, bits(kOtherBits));
    choose(a, literal(3.95f), kGreater);
    all_chosen(a, std::bit_cast<std::uint32_t>(3.95f));
    polynomial(
        q, a,
        {-9.25816818269e-6f, 1.17657390043e-4f, -6.32891065936e-4f, 1.66712020979e-3f, -1.60481925614e-4f,
         -1.91530217368e-2f, 1.02777820561e-1f, 6.36619382844e-1f, static_cast<float>(1.1283791716 - double{kLast})});
    op(kMulPs, q, q, a);
    op(kMulAdd231, q, a, literal(kLast));
    op(kXorInt, a, q, bits(kSignBit));
    expm1_bounded(to, a);
    op(kXorInt, to, to, bits(kSignBit));
    copysign(to, to, x);
  }
  void log(int to, int x) {
    constexpr int e = kTemporary, f = e + 1, z = e + 2, s = e + 3;
    // A denormal is scaled up, and its exponent is corrected.
    move(s, x);
    choose(x, literal(0x1p-126f), kLess);
    op_chosen(kMulPs, s, x, literal(0x1p23f));
    op(kSubInt, s, s, bits(0x3f3504f3));
    a_.vpsrad(zmm(e), zmm(s), 23);
    a_.vcvtdq2ps(zmm(e), zmm(e));
    op_chosen(kSubPs, e, e, literal(23.0f));
    op(kAndInt, f, s, bits(0x7fffff));
    op(kAddInt, f, f, bits(0x3f3504f3));
    op(kSubPs, f, f, literal(1.0f));
    op(kMulPs, z, f, f);
    polynomial(to, f,
               {6.97161147145117783e-2f, -1.14797338466376356e-1f, 1.16854199234867393e-1f, -1.24256873314511061e-1f,
                1.42490576456974804e-1f, -1.66678023195012541e-1f, 2.00007157488921017e-1f, -2.4999996957950882e-1f,
                3.33333311800300481e-1f});
    op(kMulPs, to, to, f);
    op(kMulPs, to, to, z);
    op(kMulAdd231, to, e, literal(-2.12194440e-4f));
    op(kMulAdd231, to, z, literal(-0.5f));
    op(kAddPs, to, to, f);
    op(kMulAdd231, to, e, literal(0.693359375f));
    const auto where = [&](std::uint8_t comparison, float bound) { choose(x, literal(bound), comparison); };
    where(kGreater, 3.4028234e38f);
    move_chosen(to, x);
    where(kEqual, 0.0f);
    all_chosen(to, 0xff800000u);
    where(kLess, 0.0f);
    all_chosen(to, 0x7fc00000u);
    choose(x, x, kUnordered);
    move_chosen(to, x);
  }

  Heap heap_;
  Xbyak::CodeGenerator a_{4096, Xbyak::AutoGrow, &heap_};
  std::map<std::uint32_t, Xbyak::Label> literals_;
  std::map<std::uint32_t, int> uses_of_literal_, pinned_;  // pinned: in registers
  std::uint32_t used_ = 0;                                 // registers
};

}  // namespace weft::cpu::emitting
