// The expression language, for rows of the op table and for ops that users register.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ops/scalar.hpp"

namespace weft::scalar {

/// Names that a text may use.
struct Names {
  std::vector<std::string> operands;                      // operand i of the expression
  std::vector<std::pair<std::string, int>> aliases = {};  // further names of operands
  std::vector<std::string> results = {};                  // names that the text may assign to without `var`
};

/// Parses an expression text.
///
/// From low to high: `c ? a : b`, `||`, `&&`, `|`, `^`, `&`, `== !=`, `< <= > >=`, `<< >>`, `+ -`, `* / %`, prefix
/// `- + ! ~`, calls `f(a, b)`, parentheses. Statements: `var n = e;`, `n = e;`, `if (c) {...} else {...}`, `return e;`,
/// `{...}`, `e`; the value is what `return` gives, else that of the last statement. `if` and `?:` evaluate both sides.
/// Numbers are decimal, with fraction, exponent and suffix `f` if wanted. Constants: pi, e, inf, nan, true, false.
/// Functions: every scalar op by name (exp, atan2, is_nan, ...), casts f32 f64 i32 u32 bool, `select(b, a, c)` = c ? a : b
/// as in WGSL, and those of `derived_functions()`. `%` has the sign of the dividend; `/` of two integers truncates;
/// arithmetic on constants alone is that of real numbers (1 / 2 is 0.5).
///
/// Throws UsageError with the text, a caret under the column, what was expected, and the nearest known name. Text beyond 64
/// KiB, 128 levels of nesting or 4096 instructions is refused. With result names, the value is the one that the text assigns to
/// the first name, if it does.
Expression parse(std::string_view text, std::span<const std::string> operands);
Expression parse(std::string_view text, const Names& names);

/// One expression for each of `names.results`: the value assigned to it last. Throws UsageError if one is never assigned.
std::vector<Expression> parse_results(std::string_view text, const Names& names);

/// A call of a function that stays a call. Its arguments are over the operands of its text and the calls before it.
struct OpCall {
  std::string function;
  std::vector<Expression> arguments;
};
/// `parse`, but calls of `functions` are not written out: call k is the operand names.operands.size() + k. Calls inside of derived
/// functions are written out.
Expression parse_with_calls(std::string_view text, const Names& names, std::span<const std::string_view> functions,
                            std::vector<OpCall>& calls);

/// Functions of the language that are defined by text.
struct DerivedFunction {
  std::string_view name;
  std::vector<std::string_view> parameters;
  std::string_view text;
};
std::span<const DerivedFunction> derived_functions();

}  // namespace weft::scalar
