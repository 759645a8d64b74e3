// From a chain to machine code. Elementary functions are those of vector_math.inc.hpp, instruction by instruction.
#include "backend/cpu/loop/chain.hpp"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string_view>

#include "backend/cpu/isa.hpp"

namespace weft::cpu {
namespace {

using scalar::Op;

constexpr int kValues = 24;  // vector registers for values; those above are for the insides of functions
constexpr int kTemporary = kValues;
constexpr int kRest = 1, kChosen = 2;  // mask registers
constexpr std::int32_t kAhead = 1024;  // bytes
constexpr Gpr kCall = rdi;
constexpr Gpr kPlaces[kChainOperandsMax] = {rax, rdx, rsi, r8, r9, r10, r11, rbx, rbp, r13, r14, r15};
constexpr Gpr kSaved[] = {rbx, rbp, r12, r13, r14, r15};

constexpr std::uint8_t kNearestEven = 8, kDown = 9, kUp = 10, kToZero = 11;  // without exceptions
constexpr std::uint8_t kEqual = 0, kUnordered = 3, kNotEqual = 4, kLess = 1, kLessOrEqual = 2, kGreaterOrEqual = 13,
                       kGreater = 14;

VectorOperand literal(float x) { return VectorOperand::literal(std::bit_cast<std::uint32_t>(x)); }
VectorOperand reg(int r) { return VectorOperand::of(r); }
constexpr std::uint32_t kSignBit = 0x80000000u, kOtherBits = 0x7fffffffu;

/// How an op is written. The one list of those that chains have.
struct Form {
  enum class Kind : std::uint8_t { none, binary, extreme, masked, rounded, sqrt, rsqrt, copysign, function };
  Kind kind = Kind::none;
  VectorCode code{};
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

class Emitter {
 public:
  explicit Emitter(const Chain& chain) : chain_(chain) {}

  bool emit() {
    for (const Gpr r : kSaved) a_.push(r);
    a_.load_mask(kRest, kCall, offsetof(ChainCall, rest));
    for (std::size_t p = 0; p < chain_.varies.size(); ++p) a_.load(kPlaces[p], kCall, place(p));
    const std::size_t row = a_.here();
    a_.clear(rcx);
    a_.compare(rcx, kCall, offsetof(ChainCall, bytes));
    const std::size_t no_whole = a_.jump(Assembler::If::not_below);
    const std::size_t whole = a_.here();
    if (!body(0)) return false;
    a_.add(rcx, 64);
    a_.compare(rcx, kCall, offsetof(ChainCall, bytes));
    a_.jump_back(Assembler::If::below, whole);
    a_.land(no_whole);
    a_.load(r12, kCall, offsetof(ChainCall, rest));
    a_.test(r12);
    const std::size_t no_rest = a_.jump(Assembler::If::zero);
    if (!body(kRest)) return false;
    a_.land(no_rest);
    for (std::size_t p = 0; p < chain_.varies.size(); ++p)
      a_.add(kPlaces[p], kCall, place(p) + static_cast<std::int32_t>(offsetof(ChainCall::Place, row)));
    a_.decrement(kCall, offsetof(ChainCall, rows));
    a_.jump_back(Assembler::If::not_zero, row);
    for (std::size_t i = std::size(kSaved); i-- > 0;) a_.pop(kSaved[i]);
    a_.leave();
    return true;
  }
  std::vector<std::uint8_t> finish() { return a_.finish(); }

 private:
  static std::int32_t place(std::size_t p) {
    return static_cast<std::int32_t>(offsetof(ChainCall, places) + p * sizeof(ChainCall::Place));
  }

  /// One vector through the chain, with loads and stores in the lanes of `mask`.
  bool body(int mask) {
    mask_ = mask;
    held_in_.assign(chain_.varies.size(), -1);
    made_in_.assign(chain_.steps.size(), -1);
    uses_of_memory_.assign(chain_.varies.size(), 0);
    uses_of_step_.assign(chain_.steps.size(), 0);
    for (const Chain::Step& step : chain_.steps)
      for (int i = 0; i < step.arg_count; ++i) ++uses(step.args[i]);
    free_ = (1u << kValues) - 1;
    fits_ = true;
    if (chain_.far && mask == 0)
      for (std::size_t p = 0; p < chain_.varies.size(); ++p)
        if (chain_.varies[p] && uses_of_memory_[p] > 0) a_.prefetch(kPlaces[p], kAhead);
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
    const Gpr base = kPlaces[arg.index];
    if (chain_.varies[static_cast<std::size_t>(arg.index)])
      a_.vector(kLoadPs, r, 0, VectorOperand::at(base), mask_, mask_ != 0);
    else
      a_.vector(kBroadcastPs, r, 0, VectorOperand::all_of(base));
    return r;
  }
  /// An operand as an instruction's last one.
  VectorOperand last(const Chain::Arg& arg) {
    if (arg.memory && home(arg) < 0 && !chain_.varies[static_cast<std::size_t>(arg.index)])
      return VectorOperand::all_of(kPlaces[arg.index]);
    return reg(in_register(arg));
  }
  void release(const Chain::Step& step) {
    for (int i = 0; i < step.arg_count; ++i)
      if (--uses(step.args[i]) == 0 && home(step.args[i]) >= 0) give(home(step.args[i]));
  }
  void move(int to, int from) { a_.vector(kMovePs, to, 0, reg(from)); }
  void all(int to, float x) { a_.vector(kBroadcastPs, to, 0, literal(x)); }

  void run(std::size_t index) {
    const Chain::Step& step = chain_.steps[index];
    int to = 0;
    if (step.op == kChainCopy) {
      to = in_register(step.args[0]);
      if (step.store >= 0) a_.store(kPlaces[step.store], to, mask_);
      // A copied value that later steps read is the same register: copies only store.
      release(step);
      return;
    }
    // Sources first: the result's register must be none of theirs.
    switch (step.op.joined) {
      case Joined::mul_add: to = fused(step, kMulAdd213); break;
      case Joined::mul_sub: to = fused(step, kMulSub213); break;
      case Joined::sub_mul: to = fused(step, kNegMulAdd213); break;
      case Joined::compare_select: to = chosen(step, comparison_of(step.op.op)); break;
      case Joined::none: to = single(step, form_of(step.op.op)); break;
    }
    made_in_[index] = to;
    if (step.store >= 0) a_.store(kPlaces[step.store], to, mask_);
    release(step);
    if (uses_of_step_[index] == 0) give(to);
  }

  int fused(const Chain::Step& step, VectorCode code) {
    const int x = in_register(step.args[0]), y = in_register(step.args[1]);
    const VectorOperand z = last(step.args[2]);
    const int to = take();
    move(to, x);
    a_.vector(code, to, y, z);
    return to;
  }
  int chosen(const Chain::Step& step, std::uint8_t comparison) {
    const int x = in_register(step.args[0]);
    a_.immediate(kComparePs, kChosen, x, last(step.args[1]), comparison);
    const int otherwise = in_register(step.args[3]);
    const VectorOperand then = last(step.args[2]);
    const int to = take();
    a_.vector(kBlendPs, to, otherwise, then, kChosen);
    return to;
  }
  int single(const Chain::Step& step, const Form& form) {
    int to = 0;
    switch (form.kind) {
      case Form::Kind::none: fits_ = false; break;
      case Form::Kind::binary: {
        const int x = in_register(step.args[0]);
        const VectorOperand y = last(step.args[1]);
        a_.vector(form.code, to = take(), x, y);
        break;
      }
      case Form::Kind::extreme: {  // a NaN of either wins
        const VectorOperand x = last(step.args[0]);
        const int y = in_register(step.args[1]);
        a_.immediate(kComparePs, kChosen, y, reg(y), kUnordered);
        a_.vector(form.code, to = take(), y, x);
        a_.vector(kMovePs, to, 0, reg(y), kChosen);
        break;
      }
      case Form::Kind::masked: {
        const int x = in_register(step.args[0]);
        a_.vector(form.code, to = take(), x, VectorOperand::literal(form.bits));
        break;
      }
      case Form::Kind::rounded: {
        const VectorOperand x = last(step.args[0]);
        a_.immediate(kRoundPs, to = take(), 0, x, static_cast<std::uint8_t>(form.bits));
        break;
      }
      case Form::Kind::sqrt:
      case Form::Kind::rsqrt: {
        const VectorOperand x = last(step.args[0]);
        a_.vector(kSqrtPs, to = take(), 0, x);
        if (form.kind == Form::Kind::sqrt) break;
        all(kTemporary, 1);
        a_.vector(kDivPs, to, kTemporary, reg(to));
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
    a_.vector(kAndInt, t, sign, VectorOperand::literal(kSignBit));
    a_.vector(kAndInt, to, x, VectorOperand::literal(kOtherBits));
    a_.vector(kOrInt, to, to, reg(t));
  }
  void polynomial(int to, int x, std::initializer_list<float> coefficients) {
    const float* c = coefficients.begin();
    all(to, *c);
    while (++c != coefficients.end()) a_.vector(kMulAdd213, to, x, literal(*c));
  }
  /// n and r of x = n log 2 + r, and p with e^r = 1 + r + p r^2.
  void reduce(int x, int n, int r, int p) {
    a_.vector(kMulPs, n, x, literal(1.44269504088896341f));
    a_.immediate(kRoundPs, n, 0, reg(n), kNearestEven);
    move(r, x);
    a_.vector(kMulAdd231, r, n, literal(-0.693359375f));
    a_.vector(kMulAdd231, r, n, literal(2.12194440e-4f));
    polynomial(
        p, r,
        {1.39261835877134949e-3f, 8.36317905272257737e-3f, 4.16665546172045742e-2f, 1.66665769896987757e-1f, 0.5f});
  }
  void exp(int to, int x) {
    constexpr int n = kTemporary, r = n + 1, t = n + 2;
    all(t, -105.0f);
    a_.vector(kMaxPs, to, t, reg(x));  // of a NaN and a number the last operand comes out
    all(t, 89.0f);
    a_.vector(kMinPs, t, t, reg(to));
    reduce(t, n, r, to);
    a_.vector(kMulPs, t, r, reg(r));
    a_.vector(kMulAdd213, to, t, reg(r));
    a_.vector(kAddPs, to, to, literal(1.0f));
    a_.vector(kScalePs, to, to, reg(n));
  }
  /// e^x - 1 for |x| <= 80; `x` is a temporary from the fifth on, which it keeps.
  void expm1_bounded(int to, int x) {
    constexpr int n = kTemporary, r = n + 1, t = n + 2;
    reduce(x, n, r, to);
    a_.vector(kMulPs, t, r, reg(r));
    a_.vector(kMulAdd213, to, t, reg(r));
    a_.vector(kPsToIntTruncated, n, 0, reg(n));
    a_.vector(kAddInt, n, n, VectorOperand::literal(127));
    a_.shift_left(n, n, 23);
    a_.vector(kSubPs, t, n, literal(1.0f));
    a_.vector(kMulAdd213, to, n, reg(t));
  }
  void tanh(int to, int x) {
    constexpr int a = kTemporary + 4, t = a + 1;
    a_.vector(kAndInt, a, x, VectorOperand::literal(kOtherBits));
    a_.immediate(kComparePs, kChosen, a, literal(10.0f), kGreater);
    a_.vector(kAddPs, a, a, reg(a));
    a_.vector(kBroadcastPs, a, 0, literal(20.0f), kChosen);
    expm1_bounded(to, a);
    a_.vector(kAddPs, t, to, literal(2.0f));
    a_.vector(kDivPs, to, to, reg(t));
    copysign(to, to, x);
  }
  void erf(int to, int x) {
    constexpr int a = kTemporary + 4, q = a + 1;
    constexpr float kLast = 1.1283791716f;
    a_.vector(kAndInt, a, x, VectorOperand::literal(kOtherBits));
    a_.immediate(kComparePs, kChosen, a, literal(3.95f), kGreater);
    a_.vector(kBroadcastPs, a, 0, literal(3.95f), kChosen);
    polynomial(
        q, a,
        {-9.25816818269e-6f, 1.17657390043e-4f, -6.32891065936e-4f, 1.66712020979e-3f, -1.60481925614e-4f,
         -1.91530217368e-2f, 1.02777820561e-1f, 6.36619382844e-1f, static_cast<float>(1.1283791716 - double{kLast})});
    a_.vector(kMulPs, q, q, reg(a));
    a_.vector(kMulAdd231, q, a, literal(kLast));
    a_.vector(kXorInt, a, q, VectorOperand::literal(kSignBit));
    expm1_bounded(to, a);
    a_.vector(kXorInt, to, to, VectorOperand::literal(kSignBit));
    copysign(to, to, x);
  }
  void log(int to, int x) {
    constexpr int e = kTemporary, f = e + 1, z = e + 2, s = e + 3;
    // A denormal is scaled up, and its exponent made good.
    move(s, x);
    a_.immediate(kComparePs, kChosen, x, literal(0x1p-126f), kLess);
    a_.vector(kMulPs, s, x, literal(0x1p23f), kChosen);
    a_.vector(kSubInt, s, s, VectorOperand::literal(0x3f3504f3));
    a_.shift_right_signed(e, s, 23);
    a_.vector(kIntToPs, e, 0, reg(e));
    a_.vector(kSubPs, e, e, literal(23.0f), kChosen);
    a_.vector(kAndInt, f, s, VectorOperand::literal(0x7fffff));
    a_.vector(kAddInt, f, f, VectorOperand::literal(0x3f3504f3));
    a_.vector(kSubPs, f, f, literal(1.0f));
    a_.vector(kMulPs, z, f, reg(f));
    polynomial(to, f,
               {6.97161147145117783e-2f, -1.14797338466376356e-1f, 1.16854199234867393e-1f, -1.24256873314511061e-1f,
                1.42490576456974804e-1f, -1.66678023195012541e-1f, 2.00007157488921017e-1f, -2.4999996957950882e-1f,
                3.33333311800300481e-1f});
    a_.vector(kMulPs, to, to, reg(f));
    a_.vector(kMulPs, to, to, reg(z));
    a_.vector(kMulAdd231, to, e, literal(-2.12194440e-4f));
    a_.vector(kMulAdd231, to, z, literal(-0.5f));
    a_.vector(kAddPs, to, to, reg(f));
    a_.vector(kMulAdd231, to, e, literal(0.693359375f));
    const auto where = [&](std::uint8_t comparison, float bound) {
      a_.immediate(kComparePs, kChosen, x, literal(bound), comparison);
    };
    where(kGreater, 3.4028234e38f);
    a_.vector(kMovePs, to, 0, reg(x), kChosen);
    where(kEqual, 0.0f);
    a_.vector(kBroadcastPs, to, 0, VectorOperand::literal(0xff800000u), kChosen);
    where(kLess, 0.0f);
    a_.vector(kBroadcastPs, to, 0, VectorOperand::literal(0x7fc00000u), kChosen);
    a_.immediate(kComparePs, kChosen, x, reg(x), kUnordered);
    a_.vector(kMovePs, to, 0, reg(x), kChosen);
  }

  const Chain& chain_;
  Assembler a_;
  int mask_ = 0;
  std::vector<int> held_in_, made_in_, uses_of_memory_, uses_of_step_;
  std::uint32_t free_ = 0;
  bool fits_ = true;
};

std::atomic<bool>& enabled() {
  static std::atomic<bool> value = [] {
    const char* text = std::getenv("WEFT_CPU_JIT");
    return text == nullptr || std::string_view(text) != "0";
  }();
  return value;
}

}  // namespace

std::shared_ptr<const ChainCode::Code> ChainCode::assemble(const Chain& chain) {
  Emitter emitter(chain);
  if (!emitter.emit()) return nullptr;
  auto code = std::make_shared<Code>();
  const void* entry = Executable::make(emitter.finish(), &code->memory);
  if (entry == nullptr) return nullptr;
  code->function = reinterpret_cast<ChainFunction>(const_cast<void*>(entry));
  return code;
}

std::optional<ChainCode> ChainCode::make(const Chain& chain) {
  if (chain.varies.size() > kChainOperandsMax) return std::nullopt;
  // Code takes pages of its own, so the hundreds of equal chains of a deep model would take as many.
  static std::mutex mutex;
  static std::map<Chain, std::weak_ptr<const Code>> known;
  static std::size_t most = 256;
  const std::lock_guard lock(mutex);
  std::weak_ptr<const Code>& place = known[chain];
  ChainCode made;
  made.code_ = place.lock();
  if (!made.code_) place = made.code_ = assemble(chain);
  if (made.code_) made.function_ = made.code_->function;
  if (known.size() > most) {
    std::erase_if(known, [](const auto& each) { return each.second.expired(); });
    most = std::max<std::size_t>(256, 2 * known.size());
  }
  return made.code_ ? std::optional(std::move(made)) : std::nullopt;
}

bool is_chain_op(ChainOp op) {
  switch (op.joined) {
    case Joined::none: return form_of(op.op).kind != Form::Kind::none;
    case Joined::compare_select: return op.op >= Op::eq && op.op <= Op::ge;
    default: return true;
  }
}

bool chains_enabled() { return isa() >= Isa::avx512 && enabled().load(std::memory_order_relaxed); }
void set_chains_enabled(bool value) { enabled().store(value, std::memory_order_relaxed); }

}  // namespace weft::cpu
