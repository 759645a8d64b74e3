#include "ops/derivative.hpp"

#include <numbers>

#include "ops/builder.hpp"

namespace weft::scalar {
namespace {

// Uses tangents, not adjoints: the derivative of a select is the select of the derivatives, so the side not taken (0 *
// infinity) never reaches the result. The resulting expressions are the same, because `scaled` pushes g inwards.
class Derivation {
 public:
  explicit Derivation(const Expression& forward)
      : forward_(forward),
        out_(forward.inputs + 2),
        values_(forward.code.size()),
        tangents_(forward.code.size(), kZero) {
    const std::size_t last = forward.code.size() - 1;
    for (std::size_t i = 0; i <= last; ++i) {
      const Instruction& in = forward.code[i];
      if (in.op == Op::input)
        values_[i] = out_.input(in.slot);
      else if (i == last)
        values_[i] = out_.input(forward.inputs);  // `output`
      else if (in.op == Op::constant)
        values_[i] = out_.constant(in.value);
      else if (in.op == Op::cast)
        values_[i] = out_.cast(value(in.a), in.type);
      else
        values_[i] = out_.make(in.op, value(in.a), in.b < 0 ? -1 : value(in.b), in.c < 0 ? -1 : value(in.c));
    }
  }

  Expression with_respect_to(int slot) {
    for (std::size_t i = 0; i < tangents_.size(); ++i) {
      const Instruction& in = forward_.code[i];
      tangents_[i] = in.op == Op::input ? (in.slot == slot ? constant(1) : kZero) : tangent(in, values_[i]);
    }
    const int result =
        tangents_.back() == kZero ? constant(0) : scaled(out_.input(forward_.inputs + 1), tangents_.back());
    return out_.finish(result);
  }

 private:
  static constexpr int kZero = -1;  // a tangent known to be zero

  int value(int index) const { return values_[static_cast<std::size_t>(index)]; }
  int constant(double number) { return out_.constant(number); }
  int make(Op op, int a, int b = -1, int c = -1) { return out_.make(op, a, b, c); }

  // Arithmetic on tangents.
  int plus(int a, int b) { return a == kZero ? b : b == kZero ? a : make(Op::add, a, b); }
  int minus(int a) { return a == kZero ? kZero : scaled(constant(-1), a); }
  int times(int a, int factor) { return a == kZero ? kZero : scaled(factor, a); }
  int over(int a, int divisor) {
    if (a == kZero) return kZero;
    if (out_[a].op == Op::neg) return negated(make(Op::div, out_[a].a, divisor));
    return make(Op::div, a, divisor);
  }
  int choose(int condition, int a, int b) {
    if (a == kZero && b == kZero) return kZero;
    return make(Op::select, condition, a == kZero ? constant(0) : a, b == kZero ? constant(0) : b);
  }

  /// factor * t, with the factor moved into t if t is a choice, a sign, a quotient or 1: g * (c ? 1 : 0) becomes c ? g : 0.
  int scaled(int factor, int t) {
    const Instruction in = out_[t];
    if (in.op == Op::constant) {
      if (in.value == 0) return t;
      if (in.value == 1) return factor;
      if (in.value == -1) return negated(factor);
    }
    if (out_.is_constant(factor, -1)) return negated(t);
    if (out_[factor].op == Op::neg && in.op != Op::select) return negated(scaled(out_[factor].a, t));
    switch (in.op) {
      case Op::select:
        if (in.b == t || in.c == t) break;
        return make(Op::select, in.a, scaled(factor, in.b), scaled(factor, in.c));
      case Op::neg: return negated(scaled(factor, in.a));
      case Op::div: return make(Op::div, scaled(factor, in.a), in.b);
      case Op::mul: return make(Op::mul, scaled(factor, in.a), in.b);
      default: break;
    }
    return make(Op::mul, factor, t);
  }

  int negated(int t) {
    const Instruction in = out_[t];
    if (in.op == Op::neg) return in.a;
    if (in.op == Op::select) return make(Op::select, in.a, negated(in.b), negated(in.c));
    if (in.op == Op::constant) return in.value == 0 ? t : constant(-in.value);
    return make(Op::neg, t);
  }

  int square(int a) { return make(Op::mul, a, a); }

  /// Slope of max (or of min, with the comparison reversed) of a and b, whose tangents are da and db.
  int extreme(Op loses, Op wins, int a, int b, int da, int db) {
    const int tie = make(Op::eq, a, b);
    if (da == kZero) {  // a NaN flows back to the requested operand, whichever it is
      if (db == kZero) return kZero;
      return choose(make(wins, a, b), kZero, choose(tie, times(db, constant(0.5)), db));
    }
    return choose(make(loses, a, b), db, choose(tie, times(plus(da, db), constant(0.5)), da));
  }

  int tangent(const Instruction& in, int result) {
    if (in.op == Op::constant) return kZero;
    const int a = value(in.a), b = in.b < 0 ? -1 : value(in.b);
    const int da = tangents_[static_cast<std::size_t>(in.a)];
    const int db = in.b < 0 ? kZero : tangents_[static_cast<std::size_t>(in.b)];
    const int dc = in.c < 0 ? kZero : tangents_[static_cast<std::size_t>(in.c)];
    if (da == kZero && db == kZero && dc == kZero) return kZero;
    auto one_minus_square = [&](int x) {  // (1 - x)(1 + x): no digits lost near 1
      return make(Op::mul, make(Op::sub, constant(1), x), make(Op::add, constant(1), x));
    };
    switch (in.op) {
      case Op::neg: return minus(da);
      case Op::abs: return times(da, make(Op::sign, a));
      case Op::sqrt: return over(da, make(Op::mul, constant(2), result));
      case Op::rsqrt: return over(times(da, make(Op::mul, constant(-0.5), result)), a);
      case Op::exp: return times(da, result);
      case Op::exp2: return times(times(da, result), constant(std::numbers::ln2));
      case Op::expm1: return times(da, make(Op::exp, a));  // result + 1 loses digits for x << 0
      case Op::log: return over(da, a);
      case Op::log2: return over(da, make(Op::mul, a, constant(std::numbers::ln2)));
      case Op::log10: return over(da, make(Op::mul, a, constant(std::numbers::ln10)));
      case Op::log1p: return over(da, make(Op::add, constant(1), a));
      case Op::sin: return times(da, make(Op::cos, a));
      case Op::cos: return minus(times(da, make(Op::sin, a)));
      case Op::tan: return times(da, make(Op::add, constant(1), square(result)));
      case Op::asin: return times(da, make(Op::rsqrt, one_minus_square(a)));
      case Op::acos: return minus(times(da, make(Op::rsqrt, one_minus_square(a))));
      case Op::atan: return over(da, make(Op::add, constant(1), square(a)));
      case Op::sinh: return times(da, make(Op::cosh, a));
      case Op::cosh: return times(da, make(Op::sinh, a));
      case Op::tanh: return times(da, one_minus_square(result));
      case Op::asinh: return times(da, make(Op::rsqrt, make(Op::add, constant(1), square(a))));
      case Op::acosh:
        return times(da, make(Op::rsqrt, make(Op::mul, make(Op::sub, a, constant(1)), make(Op::add, a, constant(1)))));
      case Op::atanh: return over(da, one_minus_square(a));
      case Op::erf:
        return times(times(da, make(Op::exp, make(Op::neg, square(a)))), constant(2 * std::numbers::inv_sqrtpi));
      case Op::cast: return is_float(in.type) ? da : kZero;
      case Op::add: return plus(da, db);
      case Op::sub: return plus(da, minus(db));
      case Op::mul: return a == b ? times(times(da, a), constant(2)) : plus(times(da, b), times(db, a));
      case Op::div: return plus(over(da, b), minus(over(times(db, result), b)));
      // (a - result) / b is the quotient within rounding; a / b may be rounded up to the next whole number.
      case Op::rem: return plus(da, minus(times(db, make(Op::round, make(Op::div, make(Op::sub, a, result), b)))));
      case Op::pow: {
        int slope = kZero;
        if (da != kZero) {
          const int power = make(Op::mul, b, make(Op::pow, a, make(Op::sub, b, constant(1))));
          // 0 where b is 0, whatever a is. Elsewhere than at a = 0 the product says so, and knows how it changes with b.
          const int vanishes = make(Op::eq, b, constant(0));
          const bool is_fixed = out_[b].op == Op::constant;
          const int undefined = is_fixed ? vanishes
                                         : make(Op::logical_and, vanishes,
                                                make(Op::logical_not, make(Op::gt, make(Op::abs, a), constant(0))));
          slope = choose(undefined, kZero, times(da, power));
        }
        if (db == kZero) return slope;
        const int flat = make(Op::logical_and, make(Op::eq, a, constant(0)), make(Op::ge, b, constant(0)));
        return plus(slope, choose(flat, kZero, times(db, make(Op::mul, result, make(Op::log, a)))));
      }
      case Op::atan2: {
        const int radius = make(Op::add, square(a), square(b));
        return plus(over(times(da, b), radius), minus(over(times(db, a), radius)));
      }
      case Op::max: return extreme(Op::lt, Op::gt, a, b, da, db);
      case Op::min: return extreme(Op::gt, Op::lt, a, b, da, db);
      case Op::copysign: return times(da, make(Op::mul, make(Op::sign, a), make(Op::copysign, constant(1), b)));
      case Op::select: return choose(a, db, dc);
      default: return kZero;  // steps, comparisons, logic, bits
    }
  }

  const Expression& forward_;
  Builder out_;
  std::vector<int> values_;
  std::vector<int> tangents_;
};

}  // namespace

std::vector<Expression> gradient(const Expression& forward) {
  Derivation derivation(forward);
  std::vector<Expression> out;
  for (int slot = 0; slot < forward.inputs; ++slot) out.push_back(derivation.with_respect_to(slot));
  return out;
}

bool is_zero(const Expression& expression) {
  return expression.code.size() == 1 && expression.code[0].op == Op::constant && expression.code[0].value == 0;
}

}  // namespace weft::scalar
