// Types and casts of scalar code.
#include <fmt/format.h>

#include <array>
#include <cmath>
#include <utility>

#include "ops/builder.hpp"
#include "weft/error.hpp"

namespace weft::scalar {
namespace {

enum class Family {
  leaf,
  any_number,
  number,
  floating,
  comparison,
  logic,
  nan_test,
  bits,
  shift,
  rounding,
  select,
  cast,
  random
};

Family family_of(Op op) {
  switch (op) {
    case Op::input:
    case Op::constant: return Family::leaf;
    case Op::min:
    case Op::max: return Family::any_number;  // bools stay
    case Op::neg:
    case Op::abs:
    case Op::sign:
    case Op::add:
    case Op::sub:
    case Op::mul:
    case Op::div:
    case Op::rem: return Family::number;
    case Op::floor:
    case Op::ceil:
    case Op::round:
    case Op::trunc: return Family::rounding;
    case Op::eq:
    case Op::ne:
    case Op::lt:
    case Op::le:
    case Op::gt:
    case Op::ge: return Family::comparison;
    case Op::logical_not:
    case Op::logical_and:
    case Op::logical_or: return Family::logic;
    case Op::is_nan: return Family::nan_test;
    case Op::bit_not:
    case Op::bit_and:
    case Op::bit_or:
    case Op::bit_xor: return Family::bits;
    case Op::shl:
    case Op::shr: return Family::shift;
    case Op::select: return Family::select;
    case Op::cast: return Family::cast;
    case Op::philox: return Family::random;
    default: return Family::floating;
  }
}

/// Integer types that hold a weak value.
struct Fit {
  bool i32 = true, u32 = true, i64 = true, u64 = true;
  Fit operator&(const Fit& other) const {
    return {i32 && other.i32, u32 && other.u32, i64 && other.i64, u64 && other.u64};
  }
};

/// A value before and after it has a type. Constants, and values made only of constants, are weak: they take the type of the
/// other operand, and may get several types.
struct Value {
  bool weak = false;
  Fit fits = {};                            // weak: integer types that can hold it
  DType type = DType::f32;                  // strong
  int index = -1;                           // strong: in the typed builder
  std::array<int, kDTypeCount> made = [] {  // weak: as an instruction of each type so far
    std::array<int, kDTypeCount> none;
    none.fill(-1);
    return none;
  }();
};

/// The common type of two types, if they have one. Types that are never combined, such as a condition and a choice, need none.
DType common(DType a, DType b) {
  try {
    return promote(a, b);
  } catch (const DTypeError&) {
    return a;
  }
}

/// The common type of a value and a weak number: a negative number makes an unsigned type signed.
DType meet_number(DType type, DType number) {
  if (is_integer(type) && is_integer(number) && element(type).bits == element(number).bits)
    return element(type).is_signed ? type : number;
  return promote(type, number);
}

class Typing {
 public:
  Typing(const Expression& from, std::span<const DType> inputs)
      : from_(from), inputs_(inputs), builder_(from.inputs, Builder::Mode::typed), values_(from.code.size()) {
    if (!inputs.empty()) default_ = inputs[0];
    for (DType type : inputs) default_ = common(default_, type);
    if (default_ == DType::boolean) default_ = DType::i32;
  }

  Expression run() {
    for (int i = 0; i < static_cast<int>(values_.size()); ++i) value(i) = visit(i);
    const int last = static_cast<int>(values_.size()) - 1;
    return builder_.finish(as(last, type_alone(last)));
  }

 private:
  Value& value(int i) { return values_[static_cast<std::size_t>(i)]; }
  const Instruction& instruction(int i) const { return from_.code[static_cast<std::size_t>(i)]; }

  Value strong(int index) { return {.type = builder_[index].type, .index = index}; }

  /// The type for weak value i beside `type`, large enough to hold it.
  DType holding(int i, DType type) {
    const Value& v = value(i);
    if (type == DType::boolean) type = DType::i32;
    switch (type) {
      case DType::u32: return v.fits.u32 ? type : v.fits.i32 ? DType::i32 : DType::f32;
      case DType::i32: return v.fits.i32 ? type : DType::f32;
      case DType::u64: return v.fits.u64 ? type : v.fits.i64 ? DType::i64 : DType::f32;
      case DType::i64: return v.fits.i64 ? type : DType::f32;
      default: return type;
    }
  }

  DType type_alone(int i) { return value(i).weak ? holding(i, default_) : value(i).type; }

  /// The common type of the operands.
  DType meeting(std::span<const int> operands) {
    bool any = false;
    DType type = default_;
    for (int i : operands) {
      if (value(i).weak) continue;
      type = any ? promote(type, value(i).type) : value(i).type;
      any = true;
    }
    const DType met = type;
    for (int i : operands)
      if (value(i).weak) type = meet_number(type, holding(i, met));
    return type;
  }

  /// Value i as an instruction of this type.
  int as(int i, DType type) {
    Value& v = value(i);
    if (!v.weak) return builder_.cast(v.index, type);
    int& made = v.made[static_cast<std::size_t>(type)];
    return made >= 0 ? made : made = make_weak(i, type);
  }

  int make_weak(int i, DType type) {
    const Instruction& in = instruction(i);
    if (type == DType::boolean || (is_integer(type) && holding(i, type) != type))
      return builder_.cast(as(i, holding(i, DType::i32)), type);
    if (in.op == Op::constant) return builder_.constant(in.value, type);
    if (in.op == Op::select)
      return builder_.make(in.op, as(in.a, DType::boolean), as(in.b, type), as(in.c, type), type);
    return builder_.make(in.op, as(in.a, type), in.b < 0 ? -1 : as(in.b, type), -1, type);
  }

  Value visit(int i) {
    const Instruction& in = instruction(i);
    const int all[] = {in.a, in.b, in.c};
    const std::span<const int> operands(all, static_cast<std::size_t>(arity(in.op)));
    bool weak = true;
    for (int operand : operands) weak = weak && value(operand).weak;

    auto unary_or_binary = [&](DType operand_type, DType type) {
      return strong(builder_.make(in.op, as(in.a, operand_type), in.b < 0 ? -1 : as(in.b, operand_type), -1, type));
    };
    auto weak_of = [&](std::span<const int> parts, bool keeps_whole) {
      Value v{.weak = true, .fits = {keeps_whole, false, keeps_whole, false}};
      for (int part : parts) v.fits = v.fits & value(part).fits;
      return v;
    };

    switch (family_of(in.op)) {
      case Family::leaf: {
        if (in.op == Op::input) return strong(builder_.input(in.slot, inputs_[static_cast<std::size_t>(in.slot)]));
        const bool whole = std::trunc(in.value) == in.value;
        const auto fits = [&](DType type) {
          return whole && in.value >= element(type).lowest && in.value <= element(type).highest &&
                 in.value < 0x1p63;  // the rounded bound of i64 is one too large
        };
        return {.weak = true,
                .fits = {fits(DType::i32), fits(DType::u32), fits(DType::i64),
                         fits(DType::u64) || (whole && in.value >= 0x1p63 && in.value < 0x1p64)}};
      }
      case Family::any_number:
      case Family::number: {
        if (weak) return weak_of(operands, in.op != Op::div && in.op != Op::rem);
        DType type = meeting(operands);
        if (type == DType::boolean && in.op == Op::min) return strong(logic(Op::logical_and, in));
        if (type == DType::boolean && in.op == Op::max) return strong(logic(Op::logical_or, in));
        if (type == DType::boolean) type = DType::i32;
        if (in.op == Op::abs && type == DType::u32) return strong(as(in.a, type));
        return unary_or_binary(type, type);
      }
      case Family::rounding: {
        if (weak) return weak_of(operands, false);
        DType type = value(in.a).type == DType::boolean ? DType::i32 : value(in.a).type;
        return is_integer(type) ? strong(as(in.a, type)) : unary_or_binary(type, type);
      }
      case Family::floating: {
        if (weak) return weak_of(operands, false);
        DType type = meeting(operands);
        if (!is_float(type)) type = DType::f32;
        return unary_or_binary(type, type);
      }
      case Family::comparison: {
        DType type = meeting(operands);
        if (type == DType::boolean) type = DType::i32;
        return unary_or_binary(type, DType::boolean);
      }
      case Family::logic: return strong(logic(in.op, in));
      case Family::nan_test: {
        const DType type = type_alone(in.a);
        if (!is_float(type)) return strong(builder_.boolean(false));
        return unary_or_binary(type, DType::boolean);
      }
      case Family::bits:
      case Family::shift: {
        DType type = meeting(operands);
        if (weak && is_float(type)) type = DType::i32;
        for (int operand : operands)
          if (is_float(value(operand).weak ? holding(operand, DType::i32) : value(operand).type))
            refuse(in.op, operand);
        if (type == DType::boolean && family_of(in.op) == Family::shift) type = DType::i32;
        if (type != DType::boolean) return unary_or_binary(type, type);
        switch (in.op) {
          case Op::bit_not: return strong(logic(Op::logical_not, in));
          case Op::bit_and: return strong(logic(Op::logical_and, in));
          case Op::bit_or: return strong(logic(Op::logical_or, in));
          default: return strong(builder_.make(Op::ne, as(in.a, DType::i32), as(in.b, DType::i32), -1, DType::boolean));
        }
      }
      case Family::select: {
        const int sides[] = {in.b, in.c};
        if (value(in.b).weak && value(in.c).weak) {
          Value v{.weak = true};
          for (int side : sides) v.fits = v.fits & value(side).fits;
          return v;
        }
        const DType type = meeting(sides);
        return strong(builder_.make(in.op, as(in.a, DType::boolean), as(in.b, type), as(in.c, type), type));
      }
      case Family::cast: {
        if (!value(in.a).weak) return strong(builder_.cast(value(in.a).index, in.type));
        return strong(as(in.a, in.type));
      }
      case Family::random:
        return strong(
            builder_.make(in.op, as(in.a, DType::u32), as(in.b, DType::u32), as(in.c, DType::u32), DType::u32));
    }
    throw InternalError("typed: unknown family of ops");
  }

  int logic(Op op, const Instruction& in) {
    return builder_.make(op, as(in.a, DType::boolean), in.b < 0 ? -1 : as(in.b, DType::boolean), -1, DType::boolean);
  }

  [[noreturn]] void refuse(Op op, int operand) {
    const std::string what =
        value(operand).weak ? std::string("a fraction") : std::string(name_of(value(operand).type));
    throw DTypeError(
        fmt::format("{} takes integers and bool, and was given {}; cast it, as in i32(x)", name_of(op), what));
  }

  const Expression& from_;
  std::span<const DType> inputs_;
  Builder builder_;
  std::vector<Value> values_;
  DType default_ = DType::f32;
};

}  // namespace

Expression typed(const Expression& expression, std::span<const DType> inputs, std::optional<DType> meet) {
  if (inputs.size() != static_cast<std::size_t>(expression.inputs))
    throw InternalError(fmt::format("typed: {} types for {} operands", inputs.size(), expression.inputs));
  bool narrow = false;
  for (DType type : inputs) {
    if (is_storage(type))
      throw DTypeError(fmt::format("{} is for storage, and nothing is computed in it; cast it to f32", name_of(type)));
    narrow = narrow || is_narrow(type);
  }
  if (!narrow) return Typing(expression, inputs).run();

  // Narrow operands are widened, and the result is rounded or truncated to the type that follows from the narrow types.
  if (!meet) meet = result_type(expression, inputs);
  DType integer = DType::i32;
  for (bool first = true; DType type : inputs)
    if (is_integer(type)) integer = std::exchange(first, false) ? type : common(integer, type);
  std::vector<DType> wide(inputs.begin(), inputs.end());
  for (DType& type : wide)
    if (is_narrow(type)) type = compute_type(is_integer(type) ? integer : type);
  const Expression body = Typing(expression, wide).run();
  Builder builder(expression.inputs, Builder::Mode::typed);
  std::vector<int> operands;
  for (int i = 0; i < expression.inputs; ++i) {
    const auto k = static_cast<std::size_t>(i);
    operands.push_back(builder.cast(builder.input(i, inputs[k]), wide[k]));
  }
  return builder.finish(builder.cast(builder.inlined(body, operands), *meet));
}

DType result_type(const Expression& expression, std::span<const DType> inputs) {
  return Typing(expression, inputs).run().type();
}

}  // namespace weft::scalar
