#include "ops/builder.hpp"

#include <cmath>
#include <limits>
#include <optional>

#include "base/hash.hpp"
#include "ops/evaluate.hpp"
#include "tensor/element.hpp"

namespace weft::scalar {
namespace {

bool same_bits(double a, double b) { return std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b); }

bool is_commutative(Op op) {
  switch (op) {
    case Op::add:
    case Op::mul:
    case Op::eq:
    case Op::ne:
    case Op::logical_and:
    case Op::logical_or:
    case Op::bit_and:
    case Op::bit_or:
    case Op::bit_xor: return true;
    default: return false;
  }
}

/// x / c is x * (1 / c) exactly.
bool has_exact_reciprocal(double c) {
  int exponent = 0;
  return std::isfinite(c) && std::fabs(std::frexp(c, &exponent)) == 0.5 && exponent > -100 && exponent < 100;
}

}  // namespace

std::size_t Builder::Hash::operator()(const Instruction& in) const {
  Hasher hasher;
  hasher.add(static_cast<std::uint64_t>(in.op) << 8 | static_cast<std::uint64_t>(in.type));
  hasher.add(static_cast<std::uint64_t>(static_cast<std::uint32_t>(in.a)) << 32 | static_cast<std::uint32_t>(in.b));
  hasher.add(static_cast<std::uint64_t>(static_cast<std::uint32_t>(in.c)) << 32 | static_cast<std::uint32_t>(in.slot));
  hasher.add_double(in.value);
  return hasher.digest();
}

int Builder::add(Instruction in) {
  if (auto found = index_.find(in); found != index_.end()) return found->second;
  if (is_commutative(in.op)) {
    Instruction swapped = in;
    std::swap(swapped.a, swapped.b);
    if (auto found = index_.find(swapped); found != index_.end()) return found->second;
  }
  code_.push_back(in);
  index_.emplace(in, size() - 1);
  return size() - 1;
}

int Builder::input(int slot, DType type) { return add({.op = Op::input, .type = type, .slot = slot}); }

int Builder::constant(double value, DType type) {
  if (std::isnan(value)) value = std::numeric_limits<double>::quiet_NaN();  // all NaNs become one
  if (mode_ == Mode::untyped)
    type = DType::f32;
  else
    value = rounded_to(type, value);
  return add({.op = Op::constant, .type = type, .value = value});
}

int Builder::boolean(bool value) {
  if (mode_ == Mode::typed) return constant(value, DType::boolean);
  return add({.op = Op::cast, .type = DType::boolean, .a = constant(value)});
}

int Builder::cast(int a, DType type) { return simplify({.op = Op::cast, .type = type, .a = a}); }

int Builder::make(Op op, int a, int b, int c, DType type) {
  if (mode_ == Mode::untyped) type = DType::f32;
  return simplify({.op = op, .type = type, .a = a, .b = b, .c = c});
}

int Builder::inlined(const Expression& expression, std::span<const int> arguments) {
  std::vector<int> map(expression.code.size());
  auto at = [&](int index) { return index < 0 ? -1 : map[static_cast<std::size_t>(index)]; };
  for (std::size_t i = 0; i < map.size(); ++i) {
    const Instruction& in = expression.code[i];
    if (in.op == Op::input)
      map[i] = arguments[static_cast<std::size_t>(in.slot)];
    else if (in.op == Op::constant)
      map[i] = constant(in.value, in.type);
    else if (in.op == Op::cast)
      map[i] = cast(at(in.a), in.type);
    else
      map[i] = make(in.op, at(in.a), at(in.b), at(in.c), in.type);
  }
  return map.back();
}

bool Builder::is_constant(int index, double value) const {
  return index >= 0 && (*this)[index].op == Op::constant && same_bits((*this)[index].value, value);
}

bool Builder::is_bool(int index) const {
  const Instruction& in = (*this)[index];
  if (mode_ == Mode::typed) return in.type == DType::boolean;
  return gives_bool(in.op) || (in.op == Op::cast && in.type == DType::boolean);
}

bool Builder::is_number(int index) const {
  if (mode_ == Mode::typed) return (*this)[index].type != DType::boolean;
  switch ((*this)[index].op) {
    case Op::input:
    case Op::select:
    case Op::min:
    case Op::max:
    case Op::bit_and:
    case Op::bit_or:
    case Op::bit_xor:
    case Op::bit_not: return false;
    default: return !is_bool(index);
  }
}

int Builder::simplify(const Instruction& in) {
  const int a = in.a, b = in.b, c = in.c;
  const bool typed = mode_ == Mode::typed;

  // In untyped code a truth value is a constant under a cast.
  auto known = [&](int index) -> std::optional<double> {
    const Instruction& value = (*this)[index];
    if (value.op == Op::constant) return value.value;
    if (!typed && value.op == Op::cast && value.type == DType::boolean && (*this)[value.a].op == Op::constant)
      return (*this)[value.a].value != 0;
    return std::nullopt;
  };
  const std::optional<double> va = known(a), vb = b < 0 ? 0.0 : known(b), vc = c < 0 ? 0.0 : known(c);
  const bool carries_type = in.op == Op::philox || (!typed && in.op == Op::cast);  // more than a number
  if (va && vb && vc && !carries_type) {
    const double value = apply(in.op, in.type, (*this)[a].type, *va, *vb, *vc);
    // Beyond 2^53 a double may represent several integers, so the device computes instead.
    const bool is_exact = !typed || element(in.type).bits < 64 || is_float(in.type) || std::fabs(value) < 0x1p53;
    if (!typed && (gives_bool(in.op) || (in.op == Op::select && is_bool(b) && is_bool(c)))) return boolean(value != 0);
    if (is_exact) return constant(value, in.type);
  }

  const bool floats = typed && is_float(in.type);
  switch (in.op) {
    case Op::cast: {
      const Instruction& from = (*this)[a];
      if (typed && from.type == in.type) return a;
      if (!typed && ((from.op == Op::cast && from.type == in.type) || (in.type == DType::boolean && is_bool(a))))
        return a;
      if (!typed && in.type == DType::boolean && from.op == Op::constant) return boolean(from.value != 0);
      break;
    }
    case Op::neg:
      if ((*this)[a].op == Op::neg && is_number((*this)[a].a)) return (*this)[a].a;
      break;
    case Op::abs:
      if ((*this)[a].op == Op::abs) return a;
      if (floats && (*this)[a].op == Op::neg) return make(Op::abs, (*this)[a].a, -1, -1, in.type);
      break;
    case Op::logical_not:
      if ((*this)[a].op == Op::logical_not && is_bool((*this)[a].a)) return (*this)[a].a;
      if ((*this)[a].op == Op::eq) return make(Op::ne, (*this)[a].a, (*this)[a].b, -1, in.type);
      if ((*this)[a].op == Op::ne) return make(Op::eq, (*this)[a].a, (*this)[a].b, -1, in.type);
      break;
    case Op::add:
      if (is_constant(b, -0.0) && is_number(a)) return a;
      if (is_constant(a, -0.0) && is_number(b)) return b;
      if (typed && is_integer(in.type) && is_constant(b, 0)) return a;
      if (typed && is_integer(in.type) && is_constant(a, 0)) return b;
      if ((*this)[b].op == Op::neg) return make(Op::sub, a, (*this)[b].a, -1, in.type);
      if ((*this)[a].op == Op::neg) return make(Op::sub, b, (*this)[a].a, -1, in.type);
      break;
    case Op::sub:
      if (is_constant(b, 0) && is_number(a)) return a;
      if ((*this)[b].op == Op::neg) return make(Op::add, a, (*this)[b].a, -1, in.type);
      break;
    case Op::mul:
      if (is_constant(b, 1) && is_number(a)) return a;
      if (is_constant(a, 1) && is_number(b)) return b;
      if (is_constant(b, -1) && floats) return make(Op::neg, a, -1, -1, in.type);
      if (is_constant(a, -1) && floats) return make(Op::neg, b, -1, -1, in.type);
      if ((*this)[a].op == Op::neg && (*this)[b].op == Op::neg)
        return make(Op::mul, (*this)[a].a, (*this)[b].a, -1, in.type);
      // Signs move outwards, where they can cancel or merge into an addition.
      if ((*this)[a].op == Op::neg) return make(Op::neg, make(Op::mul, (*this)[a].a, b, -1, in.type), -1, -1, in.type);
      if ((*this)[b].op == Op::neg) return make(Op::neg, make(Op::mul, a, (*this)[b].a, -1, in.type), -1, -1, in.type);
      break;
    case Op::div:
      if (is_constant(b, 1) && is_number(a)) return a;
      if (floats && (*this)[b].op == Op::constant && has_exact_reciprocal((*this)[b].value))
        return make(Op::mul, a, constant(1 / (*this)[b].value, in.type), -1, in.type);
      break;
    case Op::pow:
      if (!typed) break;  // of integers the result is a float, so its operand cannot replace it
      if (is_constant(b, 0) || is_constant(b, -0.0)) return constant(1, in.type);
      if (is_constant(b, 1)) return a;
      if (is_constant(b, 2)) return make(Op::mul, a, a, -1, in.type);
      if (is_constant(b, -1)) return make(Op::div, constant(1, in.type), a, -1, in.type);
      break;
    case Op::min:
    case Op::max:
      if (a == b) return a;
      break;
    case Op::logical_and:
      if (va) return *va != 0 ? cast(b, DType::boolean) : boolean(false);
      if (vb) return *vb != 0 ? cast(a, DType::boolean) : boolean(false);
      if (a == b) return cast(a, DType::boolean);
      break;
    case Op::logical_or:
      if (va) return *va != 0 ? boolean(true) : cast(b, DType::boolean);
      if (vb) return *vb != 0 ? boolean(true) : cast(a, DType::boolean);
      if (a == b) return cast(a, DType::boolean);
      break;
    case Op::select:
      if (b == c) return b;
      if (va) {
        const int taken = *va != 0 ? b : c, other = *va != 0 ? c : b;
        // In untyped code the side not taken affects the type, unless it is a small whole number beside a number.
        const Instruction& left_out = (*this)[other];
        const bool is_small = left_out.op == Op::constant && left_out.value >= 0 && left_out.value <= 1000 &&
                              std::trunc(left_out.value) == left_out.value;
        if (typed || (is_bool(b) && is_bool(c)) || (is_small && is_number(taken))) return taken;
      }
      if (vb && vc && is_bool(b) && is_bool(c)) {
        const int condition = cast(a, DType::boolean);
        return *vb != 0 ? condition : make(Op::logical_not, condition, -1, -1, DType::boolean);
      }
      if ((*this)[a].op == Op::logical_not) return make(Op::select, (*this)[a].a, c, b, in.type);
      break;
    default: break;
  }
  return add(in);
}

Expression Builder::finish(int result) const {
  Expression out{.inputs = inputs_};
  std::vector<int> place(code_.size(), -1);
  std::vector<int> stack = {result};
  while (!stack.empty()) {
    const int index = stack.back();
    const Instruction& in = (*this)[index];
    auto placed = [&](int operand) { return operand < 0 || place[static_cast<std::size_t>(operand)] >= 0; };
    if (placed(index)) {
      stack.pop_back();
    } else if (!placed(in.a)) {
      stack.push_back(in.a);
    } else if (!placed(in.b)) {
      stack.push_back(in.b);
    } else if (!placed(in.c)) {
      stack.push_back(in.c);
    } else {
      auto at = [&](int operand) { return operand < 0 ? -1 : place[static_cast<std::size_t>(operand)]; };
      Instruction copy = in;
      copy.a = at(in.a), copy.b = at(in.b), copy.c = at(in.c);
      place[static_cast<std::size_t>(index)] = static_cast<int>(out.code.size());
      out.code.push_back(copy);
      stack.pop_back();
    }
  }
  return out;
}

Expression simplified(const Expression& expression) {
  // In untyped code only casts have types. Typed code that looks the same is all f32, and there the untyped rules hold too.
  bool typed = false;
  for (const Instruction& in : expression.code) typed = typed || (in.type != DType::f32 && in.op != Op::cast);
  Builder builder(expression.inputs, typed ? Builder::Mode::typed : Builder::Mode::untyped);
  std::vector<int> operands(static_cast<std::size_t>(expression.inputs), -1);
  std::vector<int> map(expression.code.size());
  for (const Instruction& in : expression.code)
    if (in.op == Op::input) operands[static_cast<std::size_t>(in.slot)] = builder.input(in.slot, in.type);
  return builder.finish(builder.inlined(expression, operands));
}

Expression compose(const Expression& outer, std::span<const Expression> arguments) {
  Builder builder(arguments.empty() ? 0 : arguments[0].inputs);
  std::vector<int> operands(static_cast<std::size_t>(builder.inputs()));
  for (std::size_t i = 0; i < operands.size(); ++i) operands[i] = builder.input(static_cast<int>(i));
  std::vector<int> values;
  for (const Expression& argument : arguments) values.push_back(builder.inlined(argument, operands));
  return builder.finish(builder.inlined(outer, values));
}

}  // namespace weft::scalar
