// Elementary functions are those of vector_math.inc.hpp, instruction by instruction.
#include "backend/cpu/loop/chain_emitter.hpp"

#if defined(__x86_64__)

#include <cstddef>
#include <limits>

#include "backend/cpu/loop/chain_forms.hpp"
#include "backend/cpu/loop/narrow_assembler.hpp"

namespace weft::cpu {
namespace emitting {
namespace {

using scalar::Op;

constexpr int kValues = kTemporary;    // vector registers for values
constexpr int kPartials = 4;           // results of a fold, of every fourth vector of a row
constexpr std::int32_t kAhead = 1024;  // bytes
using Xbyak::Reg64;
const Reg64 kCall(Operand::RDI), kOffset(Operand::RCX), kCount(Operand::R12);
constexpr int kPlaces[kChainOperandsMax] = {Operand::RAX, Operand::RDX, Operand::RSI, Operand::R8,
                                            Operand::R9,  Operand::R10, Operand::R11, Operand::RBX,
                                            Operand::RBP, Operand::R13, Operand::R14, Operand::R15};
constexpr int kSaved[] = {Operand::RBX, Operand::RBP, Operand::R12, Operand::R13, Operand::R14, Operand::R15};

class ChainEmitter : NarrowAssembler {
 public:
  explicit ChainEmitter(const Chain& chain) : chain_(chain), pinned_place_(chain.varies.size(), -1) {
    values_ = (1u << (kValues - kPartials * static_cast<int>(chain.folds.size()))) - 1;
  }

  /// Emits the code. What `trial` does not use keeps constants in registers.
  bool emit(const ChainEmitter& trial) {
    Xbyak::Label row, no_rest;
    for (const int r : kSaved) a_.push(Reg64(r));
    a_.kmovw(kRest, a_.ptr[kCall + offsetof(ChainCall, rest)]);
    for (std::size_t p = 0; p < chain_.varies.size(); ++p) a_.mov(Reg64(kPlaces[p]), a_.ptr[kCall + place(p)]);
    pin_constants(trial);
    a_.L(row);
    a_.xor_(kOffset, kOffset);
    for (std::size_t p = 0; p < chain_.varies.size(); ++p)
      if (pinned_place_[p] >= 0) broadcast(pinned_place_[p], static_cast<int>(p));
    begin_folds();
    // A fold has four partial results, so that a vector does not wait for the one before it.
    const bool whole = (chain_.folds.empty() || each_vector(offsetof(ChainCall, fours), kPartials)) &&
                       each_vector(offsetof(ChainCall, whole), 1);
    if (!whole) return false;
    a_.mov(kCount, a_.ptr[kCall + offsetof(ChainCall, rest)]);
    a_.test(kCount, kCount);
    a_.jz(no_rest, a_.T_NEAR);
    if (!body(&kRest, 0, 1)) return false;
    a_.L(no_rest);
    end_folds();
    for (std::size_t p = 0; p < chain_.varies.size(); ++p)
      a_.add(Reg64(kPlaces[p]), a_.ptr[kCall + place(p) + offsetof(ChainCall::Place, row)]);
    a_.dec(a_.qword[kCall + offsetof(ChainCall, rows)]);
    a_.jnz(row, a_.T_NEAR);
    for (std::size_t i = std::size(kSaved); i-- > 0;) a_.pop(Reg64(kSaved[i]));
    a_.vzeroupper();
    a_.ret();
    return true;
  }

  /// One vector, only to see which registers and constants it needs.
  bool emit_trial() { return body(&kRest, 0, 1) && body(nullptr, 0, 0); }

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

  /// Vectors up to the offset that the call gives at `end`, some of them one after another.
  bool each_vector(std::size_t end, int some) {
    Xbyak::Label again, none;
    a_.cmp(kOffset, a_.ptr[kCall + end]);
    a_.jae(none, a_.T_NEAR);
    a_.L(again);
    for (int i = 0; i < some; ++i)
      if (!body(nullptr, i, i)) return false;
    a_.add(kOffset, some * kChainVectorBytes);
    a_.cmp(kOffset, a_.ptr[kCall + end]);
    a_.jb(again, a_.T_NEAR);
    a_.L(none);
    return true;
  }

  /// One vector through the chain, `shift` vectors further on, with loads and stores in the lanes of `mask`. Folds take it to
  /// their result number `partial`.
  bool body(const Xbyak::Opmask* mask, int shift, int partial) {
    mask_ = mask;
    shift_ = shift;
    partial_ = partial;
    held_in_ = pinned_place_;
    made_in_.assign(chain_.steps.size(), -1);
    uses_of_memory_.assign(chain_.varies.size(), 0);
    uses_of_step_.assign(chain_.steps.size(), 0);
    for (const Chain::Link& step : chain_.steps)
      for (int i = 0; i < step.arg_count; ++i) ++uses(step.args[i]);
    free_ = values_;
    fits_ = true;
    if (chain_.far && mask == nullptr)
      for (std::size_t p = 0; p < chain_.varies.size(); ++p)
        if (chain_.varies[p] && uses_of_memory_[p] > 0) a_.prefetcht0(row_of(static_cast<int>(p), kAhead));
    if (mask == nullptr)
      for (const int p : chain_.prefetched) a_.prefetcht1(row_of(p));
    for (std::size_t s = 0; s < chain_.steps.size() && fits_; ++s) run(s);
    return fits_;
  }

  /// Row constants first, because literals are operands of instructions anyway.
  void pin_constants(const ChainEmitter& trial) {
    std::uint32_t unused = ~trial.used_;
    const std::uint32_t pinnable = unused;
    for (int f = 0; f < static_cast<int>(chain_.folds.size()); ++f)
      for (int i = 0; i < kPartials; ++i) unused &= ~(1u << partial_result(f, i));
    const auto next = [&] {
      const int r = std::countr_zero(unused);
      unused &= unused - 1;
      return r;
    };
    for (std::size_t p = 0; p < chain_.varies.size() && unused != 0; ++p)
      if (!chain_.varies[p]) pinned_place_[p] = next();
    for (const auto& [value, uses] : trial.uses_of_literal_)
      if (unused != 0) pin(value, next());
    values_ &= ~(pinnable & ~unused);
  }
  bool is_pinned(const Chain::Arg& arg) const {
    return arg.memory && pinned_place_[static_cast<std::size_t>(arg.index)] >= 0;
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
    if (chain_.varies[static_cast<std::size_t>(arg.index)])
      load(r, arg.index);
    else
      broadcast(r, arg.index);
    return r;
  }
  /// An operand as an instruction's last one.
  Last last(const Chain::Arg& arg) {
    if (arg.memory && home(arg) < 0 && !chain_.varies[static_cast<std::size_t>(arg.index)] &&
        type_of(arg.index) == DType::f32)
      return a_.ptr_b[Reg64(kPlaces[arg.index])];
    return in_register(arg);
  }
  void release(const Chain::Link& step) {
    for (int i = 0; i < step.arg_count; ++i)
      if (--uses(step.args[i]) == 0 && home(step.args[i]) >= 0 && !is_pinned(step.args[i])) give(home(step.args[i]));
  }
  DType type_of(int place) const { return chain_.types[static_cast<std::size_t>(place)]; }
  /// The offset counts elements of 16 bits; floats are at twice that.
  Xbyak::Address row_of(int place, int ahead = 0) {
    const int scale = type_of(place) == DType::f32 ? 2 : 1;
    return a_.ptr[Reg64(kPlaces[place]) + kOffset * scale + scale * shift_ * kChainVectorBytes + ahead];
  }
  void load(int r, int place) { load_vector(type_of(place), r, row_of(place), mask_); }
  void broadcast(int r, int place) { load_element(type_of(place), r, a_.ptr[Reg64(kPlaces[place])]); }
  void store(int place, int from, bool streams) {
    store_vector(type_of(place), row_of(place), from, mask_, streams && !mask_);
  }
  int cast(const Chain::Link& step) {
    const int x = in_register(step.args[0]), to = take();
    round_to(step.op.to, to, x);
    return to;
  }
  void run(std::size_t index) {
    const Chain::Link& step = chain_.steps[index];
    int to = 0;
    if (step.fold >= 0) {
      const int value = in_register(step.args[0]);
      combine(chain_.folds[static_cast<std::size_t>(step.fold)], partial_result(step.fold, partial_), value, mask_);
      release(step);
      return;
    }
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
      case Joined::none: to = step.op.op == Op::cast ? cast(step) : single(step, form_of(step.op.op)); break;
    }
    made_in_[index] = to;
    if (step.store >= 0) store(step.store, to, step.streams);
    release(step);
    if (uses_of_step_[index] == 0) give(to);
  }

  // ---- Folds: what tile_kernels.inc.hpp does in reduce_row, in the same order --------------------------------------------

  static int partial_result(int fold, int partial) { return kValues - 1 - kPartials * fold - partial; }

  void begin_folds() {
    for (std::size_t f = 0; f < chain_.folds.size(); ++f)
      for (int i = 0; i < kPartials; ++i) {
        const Op op = chain_.folds[f];
        const int r = partial_result(static_cast<int>(f), i);
        if (op == Op::add)
          a_.vxorps(Xmm(r), Xmm(r), Xmm(r));
        else
          all(r, op == Op::mul   ? 1.0f
                 : op == Op::max ? -std::numeric_limits<float>::infinity()
                                 : std::numeric_limits<float>::infinity());
      }
  }

  /// `to` becomes to combined with `value`, in the lanes of `mask`; for extremes, a NaN in either wins.
  void combine(Op op, int to, int value, const Xbyak::Opmask* mask) {
    const Zmm result = mask ? zmm(to) | *mask : zmm(to);
    switch (op) {
      case Op::add: a_.vaddps(result, zmm(to), zmm(value)); break;
      case Op::mul: a_.vmulps(result, zmm(to), zmm(value)); break;
      default:
        if (op == Op::max)
          a_.vmaxps(result, zmm(value), zmm(to));
        else
          a_.vminps(result, zmm(value), zmm(to));
        a_.vcmpps(mask ? kChosen | *mask : kChosen, zmm(value), zmm(value), kUnordered);
        move_chosen(to, value);
    }
  }

  /// The result of each fold joins the accumulator of the row, a double.
  void end_folds() {
    for (std::size_t f = 0; f < chain_.folds.size(); ++f) {
      const Op op = chain_.folds[f];
      const auto partial = [&](int i) { return partial_result(static_cast<int>(f), i); };
      combine(op, partial(0), partial(1), nullptr);
      combine(op, partial(2), partial(3), nullptr);
      combine(op, partial(0), partial(2), nullptr);
      const int x = partial(0), other = partial(1);
      const auto fold = [&](auto turn) {
        turn();
        combine(op, x, other, nullptr);
      };
      fold([&] { a_.vshuff64x2(zmm(other), zmm(x), zmm(x), 0b01001110); });
      fold([&] { a_.vshuff64x2(zmm(other), zmm(x), zmm(x), 0b10110001); });
      fold([&] { a_.vpermilps(zmm(other), zmm(x), 0b01001110); });
      fold([&] { a_.vpermilps(zmm(other), zmm(x), 0b10110001); });
      const std::size_t pointer = offsetof(ChainCall, folds) + f * sizeof(double*);
      a_.mov(kCount, a_.ptr[kCall + pointer]);
      const Xmm before(other), result(x);
      a_.vmovsd(before, a_.ptr[kCount]);
      if (op == Op::add || op == Op::mul) {
        a_.vcvtss2sd(result, result, result);
        if (op == Op::add)
          a_.vaddsd(result, before, result);
        else
          a_.vmulsd(result, before, result);
      } else {  // an extreme of floats is a float
        a_.vcvtsd2ss(before, before, before);
        combine(op, other, x, nullptr);
        a_.vcvtss2sd(result, before, before);
      }
      a_.vmovsd(a_.ptr[kCount], result);
      a_.add(a_.qword[kCall + pointer], 8);
    }
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
        a_.vsqrtps(zmm(to = take()), x);
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

  const Chain& chain_;
  const Xbyak::Opmask* mask_ = nullptr;
  int shift_ = 0, partial_ = 0;
  std::vector<int> held_in_, made_in_, uses_of_memory_, uses_of_step_;
  std::vector<int> pinned_place_;        // registers of row constants, or -1
  std::uint32_t values_ = 0, free_ = 0;  // registers for values: all, and those that hold none
  bool fits_ = true;
};

}  // namespace
}  // namespace emitting

std::vector<std::uint8_t> machine_code_of(const Chain& chain) {
  emitting::ChainEmitter trial(chain), emitter(chain);
  return trial.emit_trial() && emitter.emit(trial) ? emitter.finish() : std::vector<std::uint8_t>();
}

bool is_chain_op(ChainOp op) {
  switch (op.joined) {
    case Joined::none: return op.op == scalar::Op::cast || emitting::form_of(op.op).kind != emitting::Form::Kind::none;
    case Joined::compare_select: return op.op >= scalar::Op::eq && op.op <= scalar::Op::ge;
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
