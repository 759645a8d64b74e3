// Scalar code as text of the expression language.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "ops/scalar.hpp"

namespace weft::scalar {
namespace {

// Strength of binding, low to high, as in `parse`.
enum Level : int {
  kSelect = 1,
  kOr,
  kAnd,
  kBitOr,
  kBitXor,
  kBitAnd,
  kEquality,
  kRelation,
  kShift,
  kSum,
  kProduct,
  kPrefix,
  kPrimary
};

struct Infix {
  Op op;
  std::string_view symbol;
  int level;
};
constexpr Infix kInfix[] = {
    {Op::logical_or, "||", kOr}, {Op::logical_and, "&&", kAnd}, {Op::bit_or, "|", kBitOr}, {Op::bit_xor, "^", kBitXor},
    {Op::bit_and, "&", kBitAnd}, {Op::eq, "==", kEquality},     {Op::ne, "!=", kEquality}, {Op::lt, "<", kRelation},
    {Op::le, "<=", kRelation},   {Op::gt, ">", kRelation},      {Op::ge, ">=", kRelation}, {Op::shl, "<<", kShift},
    {Op::shr, ">>", kShift},     {Op::add, "+", kSum},          {Op::sub, "-", kSum},      {Op::mul, "*", kProduct},
    {Op::div, "/", kProduct},    {Op::rem, "%", kProduct},
};

class Printer {
 public:
  Printer(const Expression& expression, std::span<const std::string> names)
      : code_(expression.code), names_(names.begin(), names.end()), uses_(code_.size(), 0), variable_(code_.size()) {
    for (int i = static_cast<int>(names_.size()); i < expression.inputs; ++i) names_.push_back(fmt::format("x{}", i));
    for (const Instruction& in : code_)
      for (int operand : {in.a, in.b, in.c})
        if (operand >= 0) ++uses_[static_cast<std::size_t>(operand)];
  }

  std::string run() {
    std::string out;
    const int last = static_cast<int>(code_.size()) - 1;
    for (int i = 0; i < last; ++i) {
      const auto at = static_cast<std::size_t>(i);
      if (uses_[at] < 2 || arity(code_[at].op) == 0 || is_truth(i)) continue;
      const std::string text = print(i, kSelect);
      variable_[at] = new_name();
      out += fmt::format("var {} = {}; ", variable_[at], text);
    }
    return out + print(last, kSelect);
  }

 private:
  const Instruction& at(int i) const { return code_[static_cast<std::size_t>(i)]; }

  bool is_truth(int i) const {
    return at(i).op == Op::cast && at(i).type == DType::boolean && at(at(i).a).op == Op::constant;
  }

  std::string new_name() {
    for (;;) {
      std::string name = fmt::format("t{}", next_++);
      if (std::find(names_.begin(), names_.end(), name) == names_.end()) return name;
    }
  }

  static std::string wrapped(std::string text, int level, int least) {
    return level < least ? fmt::format("({})", text) : text;
  }

  static std::string number(double value, int least) {
    if (std::isnan(value)) return "nan";
    if (std::isinf(value)) return value > 0 ? "inf" : wrapped("-inf", kPrefix, least);
    return wrapped(fmt::format("{}", value), std::signbit(value) ? kPrefix : kPrimary, least);
  }

  /// The text of value i, in parentheses if it binds less strongly than `least`.
  std::string print(int i, int least) const {
    const Instruction& in = at(i);
    if (!variable_[static_cast<std::size_t>(i)].empty()) return variable_[static_cast<std::size_t>(i)];
    if (in.op == Op::input) return names_[static_cast<std::size_t>(in.slot)];
    if (in.op == Op::constant && in.type == DType::boolean) return in.value != 0 ? "true" : "false";
    if (in.op == Op::constant) return number(in.value, least);
    if (is_truth(i)) return at(in.a).value != 0 ? "true" : "false";
    for (const Infix& infix : kInfix)
      if (infix.op == in.op)
        return wrapped(fmt::format("{} {} {}", print(in.a, infix.level), infix.symbol, print(in.b, infix.level + 1)),
                       infix.level, least);
    switch (in.op) {
      case Op::select:
        return wrapped(
            fmt::format("{} ? {} : {}", print(in.a, kSelect + 1), print(in.b, kSelect), print(in.c, kSelect)), kSelect,
            least);
      case Op::neg: return wrapped(fmt::format("-{}", print(in.a, kPrefix)), kPrefix, least);
      case Op::logical_not: return wrapped(fmt::format("!{}", print(in.a, kPrefix)), kPrefix, least);
      case Op::bit_not: return wrapped(fmt::format("~{}", print(in.a, kPrefix)), kPrefix, least);
      case Op::cast: return fmt::format("{}({})", name_of(in.type), print(in.a, kSelect));
      default: break;
    }
    std::string out = fmt::format("{}({}", name_of(in.op), print(in.a, kSelect));
    for (int operand : {in.b, in.c})
      if (operand >= 0) out += fmt::format(", {}", print(operand, kSelect));
    return out + ")";
  }

  const std::vector<Instruction>& code_;
  std::vector<std::string> names_;
  std::vector<int> uses_;
  std::vector<std::string> variable_;
  int next_ = 0;
};

}  // namespace

std::string to_text(const Expression& expression, std::span<const std::string> names) {
  return Printer(expression, names).run();
}

}  // namespace weft::scalar
