// Elementary functions are those of vector_math.inc.hpp, instruction by instruction.
#include "backend/cpu/loop/chain_emitter.hpp"

#if defined(__x86_64__)

#include <xbyak/xbyak.h>

#include <bit>
#include <cstddef>
#include <map>
#include <variant>

namespace weft::cpu {
namespace {

using scalar::Op;

constexpr int kValues = 24;  // vector registers for values; functions use the others
constexpr int kTemporary = kValues;
const Xbyak::Opmask kRest(1), kChosen(2);
constexpr std::int32_t kAhead = 1024;  // bytes
using Xbyak::Operand;
using Xbyak::Reg64;
using Xbyak::Xmm;
using Xbyak::Zmm;
const Reg64 kCall(Operand::RDI), kOffset(Operand::RCX), kCount(Operand::R12);
constexpr int kPlaces[kChainOperandsMax] = {Operand::RAX, Operand::RDX, Operand::RSI, Operand::R8,
                                            Operand::R9,  Operand::R10, Operand::R11, Operand::RBX,
                                            Operand::RBP, Operand::R13, Operand::R14, Operand::R15};
constexpr int kSaved[] = {Operand::RBX, Operand::RBP, Operand::R12, Operand::R13, Operand::R14, Operand::R15};

constexpr std::uint8_t kNearestEven = 8, kDown = 9, kUp = 10, kToZero = 11;  // without exceptions
constexpr std::uint8_t kEqual = 0, kUnordered = 3, kNotEqual = 4, kLess = 1, kLessOrEqual = 2, kGreaterOrEqual = 13,
                       kGreater = 14;

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

constexpr std::uint32_t kSignBit = 0x80000000u, kOtherBits = 0x7fffffffu;

// Instructions of three operands, whose second is declared as Xmm in some and as Operand in others.
using Code = void (*)(Xbyak::CodeGenerator&, const Xmm&, const Xmm&, const Operand&);
#define WEFT_CODE(constant, name)                                                                       \
  constexpr Code constant = [](Xbyak::CodeGenerator& a, const Xmm& x, const Xmm& y, const Operand& z) { \
    a.name(x, y, z);                                                                                    \
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

/// How an op is emitted. This is the list of all ops that chains support.
struct Form {
  enum class Kind : std::uint8_t { none, binary, extreme, masked, rounded, sqrt, rsqrt, copysign, function };
  Kind kind = Kind::none;
  Code code = nullptr;
  std::uint32_t bits = 0;  // masked: what x is combined with; rounded: how
};
Form form_of(Op op) {
  using Kind = Form::Kind;
  switch (op) {
    case Op::neg: return {Kind::masked, kXorInt, kSignBit};
    case Op::abs: return {Kind::masked, kAndInt, kOtherBits};
    case Op::floor: return {Kind::rounded, {}, kDown};
    case Op::ceil: return {Kind::rounded, {}, kUp};
    case Op::round: return {Kind::rounded, {}, kNearestEven};
    case Op::trunc: return {Kind::rounded, {}, kToZero};
    case Op::sqrt: return {Kind::sqrt};
    case Op::rsqrt: return {Kind::rsqrt};
    case Op::exp:
    case Op::log:
    case Op::tanh:
    case Op::erf: return {Kind::function};
    case Op::add: return {Kind::binary, kAddPs};
    case Op::sub: return {Kind::binary, kSubPs};
    case Op::mul: return {Kind::binary, kMulPs};
    case Op::div: return {Kind::binary, kDivPs};
    case Op::min: return {Kind::extreme, kMinPs};
    case Op::max: return {Kind::extreme, kMaxPs};
    case Op::copysign: return {Kind::copysign};
    default: return {};
  }
}

std::uint8_t comparison_of(Op op) {
  switch (op) {
    case Op::eq: return kEqual;
    case Op::ne: return kNotEqual;
    case Op::lt: return kLess;
    case Op::le: return kLessOrEqual;
    case Op::gt: return kGreater;
    default: return kGreaterOrEqual;
  }
}

// Code is emitted to plain memory: it runs elsewhere (Executable), and maps and protections of pages cost more than it does.
struct Heap : Xbyak::Allocator {
  bool useProtect() const override { return false; }
};

class ChainEmitter {
 public:
  explicit ChainEmitter(const Chain& chain) : chain_(chain) {}

  bool emit() {
    Xbyak::Label row, whole, no_whole, no_rest;
    for (const int r : kSaved) a_.push(Reg64(r));
    a_.kmovw(kRest, a_.ptr[kCall + offsetof(ChainCall, rest)]);
    for (std::size_t p = 0; p < chain_.varies.size(); ++p) a_.mov(Reg64(kPlaces[p]), a_.ptr[kCall + place(p)]);
    a_.L(row);
    a_.xor_(kOffset, kOffset);
    a_.cmp(kOffset, a_.ptr[kCall + offsetof(ChainCall, bytes)]);
    a_.jae(no_whole, a_.T_NEAR);
    a_.L(whole);
    if (!body(nullptr)) return false;
    a_.add(kOffset, 64);
    a_.cmp(kOffset, a_.ptr[kCall + offsetof(ChainCall, bytes)]);
    a_.jb(whole, a_.T_NEAR);
    a_.L(no_whole);
    a_.mov(kCount, a_.ptr[kCall + offsetof(ChainCall, rest)]);
    a_.test(kCount, kCount);
    a_.jz(no_rest, a_.T_NEAR);
    if (!body(&kRest)) return false;
    a_.L(no_rest);
    for (std::size_t p = 0; p < chain_.varies.size(); ++p)
      a_.add(Reg64(kPlaces[p]), a_.ptr[kCall + place(p) + offsetof(ChainCall::Place, row)]);
    a_.dec(a_.qword[kCall + offsetof(ChainCall, rows)]);
    a_.jnz(row, a_.T_NEAR);
    for (std::size_t i = std::size(kSaved); i-- > 0;) a_.pop(Reg64(kSaved[i]));
    a_.vzeroupper();
    a_.ret();
    return true;
  }

  /// The code, followed by its constants.
  std::vector<std::uint8_t> finish() {
    a_.align(64, false);
    for (auto& [bits, label] : literals_) {
      a_.L(label);
      a_.dd(bits);
    }
    a_.ready();
    return {a_.getCode(), a_.getCode() + a_.getSize()};
  }

 private:
  static std::size_t place(std::size_t p) { return offsetof(ChainCall, places) + p * sizeof(ChainCall::Place); }

  /// One vector through the chain, with loads and stores in the lanes of `mask`.
  bool body(const Xbyak::Opmask* mask) {
    mask_ = mask;
    held_in_.assign(chain_.varies.size(), -1);
    made_in_.assign(chain_.steps.size(), -1);
    uses_of_memory_.assign(chain_.varies.size(), 0);
    uses_of_step_.assign(chain_.steps.size(), 0);
    for (const Chain::Link& step : chain_.steps)
      for (int i = 0; i < step.arg_count; ++i) ++uses(step.args[i]);
    free_ = (1u << kValues) - 1;
    fits_ = true;
    if (chain_.far && mask == nullptr)
      for (std::size_t p = 0; p < chain_.varies.size(); ++p)
        if (chain_.varies[p] && uses_of_memory_[p] > 0) a_.prefetcht0(a_.ptr[Reg64(kPlaces[p]) + kOffset + kAhead]);
    if (mask == nullptr)
      for (const int p : chain_.prefetched) a_.prefetcht1(row_of(p));
    for (std::size_t s = 0; s < chain_.steps.size() && fits_; ++s) run(s);
    return fits_;
  }

  int& uses(const Chain::Arg& arg) {
    return (arg.memory ? uses_of_memory_ : uses_of_step_)[static_cast<std::size_t>(arg.index)];
  }
  int& home(const Chain::Arg& arg) { return (arg.memory ? held_in_ : made_in_)[static_cast<std::size_t>(arg.index)]; }
  int take() {
    if (free_ == 0) {
      fits_ = false;
      return 0;
    }
    const int r = std::countr_zero(free_);
    free_ &= free_ - 1;
    return r;
  }
  void give(int r) { free_ |= 1u << r; }
  /// The register that holds an operand; memory is loaded on its first use.
  int in_register(const Chain::Arg& arg) {
    int& r = home(arg);
    if (r >= 0) return r;
    r = take();
    if (!chain_.varies[static_cast<std::size_t>(arg.index)])
      a_.vbroadcastss(Zmm(r), a_.ptr[Reg64(kPlaces[arg.index])]);
    else if (mask_)
      a_.vmovups(Zmm(r) | *mask_ | a_.T_z, row_of(arg.index));
    else
      a_.vmovups(Zmm(r), row_of(arg.index));
    return r;
  }
  /// An operand as an instruction's last one.
  Last last(const Chain::Arg& arg) {
    if (arg.memory && home(arg) < 0 && !chain_.varies[static_cast<std::size_t>(arg.index)])
      return a_.ptr_b[Reg64(kPlaces[arg.index])];
    return in_register(arg);
  }
  void release(const Chain::Link& step) {
    for (int i = 0; i < step.arg_count; ++i)
      if (--uses(step.args[i]) == 0 && home(step.args[i]) >= 0) give(home(step.args[i]));
  }
  Xbyak::Address row_of(int place) { return a_.ptr[Reg64(kPlaces[place]) + kOffset]; }
  void store(int place, int from, bool streams) {
    if (streams && !mask_)
      a_.vmovntps(row_of(place), Zmm(from));
    else if (mask_)
      a_.vmovups(row_of(place) | *mask_, Zmm(from));
    else
      a_.vmovups(row_of(place), Zmm(from));
  }
  Last bits(std::uint32_t value) { return a_.ptr_b[a_.rip + literals_[value]]; }
  Last literal(float x) { return bits(std::bit_cast<std::uint32_t>(x)); }
  void op(Code code, int to, int x, const Last& y) { code(a_, Zmm(to), Zmm(x), y); }
  /// The same in the chosen lanes; the others stay.
  void op_chosen(Code code, int to, int x, const Last& y) { code(a_, Zmm(to) | kChosen, Zmm(x), y); }
  void choose(int x, const Last& y, std::uint8_t comparison) { a_.vcmpps(kChosen, Zmm(x), y, comparison); }
  void round(int to, const Last& x, std::uint8_t how) { a_.vrndscaleps(Zmm(to), x, how); }
  void move(int to, int from) { a_.vmovaps(Zmm(to), Zmm(from)); }
  void move_chosen(int to, int from) { a_.vmovaps(Zmm(to) | kChosen, Zmm(from)); }
  void all(int to, float x) { a_.vbroadcastss(Zmm(to), a_.ptr[a_.rip + literals_[std::bit_cast<std::uint32_t>(x)]]); }
  void all_chosen(int to, std::uint32_t value) {
    a_.vbroadcastss(Zmm(to) | kChosen, a_.ptr[a_.rip + literals_[value]]);
  }

  void run(std::size_t index) {
    const Chain::Link& step = chain_.steps[index];
    int to = 0;
    if (step.op == kChainCopy) {
      to = in_register(step.args[0]);
      if (step.store >= 0) store(step.store, to, step.streams);
      // A copied value that later steps read is the same register: copies only store.
      release(step);
      return;
    }
    // Sources first: the result's register must differ from theirs.
    switch (step.op.joined) {
      case Joined::mul_add: to = fused(step, kMulAdd213); break;
      case Joined::mul_sub: to = fused(step, kMulSub213); break;
      case Joined::sub_mul: to = fused(step, kNegMulAdd213); break;
      case Joined::compare_select: to = chosen(step, comparison_of(step.op.op)); break;
      case Joined::none: to = single(step, form_of(step.op.op)); break;
    }
    made_in_[index] = to;
    if (step.store >= 0) store(step.store, to, step.streams);
    release(step);
    if (uses_of_step_[index] == 0) give(to);
  }

  int fused(const Chain::Link& step, Code code) {
    const int x = in_register(step.args[0]), y = in_register(step.args[1]);
    const Last z = last(step.args[2]);
    const int to = take();
    move(to, x);
    op(code, to, y, z);
    return to;
  }
  int chosen(const Chain::Link& step, std::uint8_t comparison) {
    const int x = in_register(step.args[0]);
    choose(x, last(step.args[1]), comparison);
    const int otherwise = in_register(step.args[3]);
    const Last then = last(step.args[2]);
    const int to = take();
    op_chosen(kBlendPs, to, otherwise, then);
    return to;
  }
  int single(const Chain::Link& step, const Form& form) {
    int to = 0;
    switch (form.kind) {
      case Form::Kind::none: fits_ = false; break;
      case Form::Kind::binary: {
        const int x = in_register(step.args[0]);
        const Last y = last(step.args[1]);
        op(form.code, to = take(), x, y);
        break;
      }
      case Form::Kind::extreme: {  // a NaN in either wins
        const Last x = last(step.args[0]);
        const int y = in_register(step.args[1]);
        choose(y, y, kUnordered);
        op(form.code, to = take(), y, x);
        move_chosen(to, y);
        break;
      }
      case Form::Kind::masked: {
        const int x = in_register(step.args[0]);
        op(form.code, to = take(), x, bits(form.bits));
        break;
      }
      case Form::Kind::rounded: {
        const Last x = last(step.args[0]);
        round(to = take(), x, static_cast<std::uint8_t>(form.bits));
        break;
      }
      case Form::Kind::sqrt:
      case Form::Kind::rsqrt: {
        const Last x = last(step.args[0]);
        a_.vsqrtps(Zmm(to = take()), x);
        if (form.kind == Form::Kind::sqrt) break;
        all(kTemporary, 1);
        op(kDivPs, to, kTemporary, to);
        break;
      }
      case Form::Kind::copysign: {
        const int x = in_register(step.args[0]), y = in_register(step.args[1]);
        copysign(to = take(), x, y);
        break;
      }
      case Form::Kind::function: {
        const int x = in_register(step.args[0]);
        to = take();
        switch (step.op.op) {
          case Op::exp: exp(to, x); break;
          case Op::log: log(to, x); break;
          case Op::tanh: tanh(to, x); break;
          default: erf(to, x); break;
        }
        break;
      }
    }
    return to;
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
    a_.vcvttps2dq(Zmm(n), Zmm(n));
    op(kAddInt, n, n, bits(127));
    a_.vpslld(Zmm(n), Zmm(n), 23);
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
    a_.vpsrad(Zmm(e), Zmm(s), 23);
    a_.vcvtdq2ps(Zmm(e), Zmm(e));
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

  const Chain& chain_;
  Heap heap_;
  Xbyak::CodeGenerator a_{4096, Xbyak::AutoGrow, &heap_};
  std::map<std::uint32_t, Xbyak::Label> literals_;
  const Xbyak::Opmask* mask_ = nullptr;
  std::vector<int> held_in_, made_in_, uses_of_memory_, uses_of_step_;
  std::uint32_t free_ = 0;
  bool fits_ = true;
};

}  // namespace

std::vector<std::uint8_t> machine_code_of(const Chain& chain) {
  ChainEmitter emitter(chain);
  return emitter.emit() ? emitter.finish() : std::vector<std::uint8_t>();
}

bool is_chain_op(ChainOp op) {
  switch (op.joined) {
    case Joined::none: return form_of(op.op).kind != Form::Kind::none;
    case Joined::compare_select: return op.op >= Op::eq && op.op <= Op::ge;
    default: return true;
  }
}

}  // namespace weft::cpu

#else

namespace weft::cpu {
std::vector<std::uint8_t> machine_code_of(const Chain&) { return {}; }
bool is_chain_op(ChainOp) { return false; }
}  // namespace weft::cpu

#endif
