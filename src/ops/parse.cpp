#include "ops/parse.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <limits>
#include <numbers>

#include "ops/builder.hpp"
#include "ops/names.hpp"
#include "weft/error.hpp"

namespace weft::scalar {
namespace {

constexpr std::size_t kTextBytesMax = 64 << 10;
constexpr int kDepthMax = 128;
constexpr int kInstructionsMax = 4096;
constexpr std::size_t kVariablesMax = 256;

enum class TokenKind : std::uint8_t { number, name, symbol, end };
struct Token {
  TokenKind kind = TokenKind::end;
  std::string_view text;
  std::size_t begin = 0;
  double value = 0;
};

struct BinaryOperator {
  std::string_view symbol;
  int level;
  Op op;
};
constexpr int kUnaryLevel = 11;
constexpr BinaryOperator kBinaryOperators[] = {
    {"||", 1, Op::logical_or}, {"&&", 2, Op::logical_and}, {"|", 3, Op::bit_or}, {"^", 4, Op::bit_xor},
    {"&", 5, Op::bit_and},     {"==", 6, Op::eq},          {"!=", 6, Op::ne},    {"<", 7, Op::lt},
    {"<=", 7, Op::le},         {">", 7, Op::gt},           {">=", 7, Op::ge},    {"<<", 8, Op::shl},
    {">>", 8, Op::shr},        {"+", 9, Op::add},          {"-", 9, Op::sub},    {"*", 10, Op::mul},
    {"/", 10, Op::div},        {"%", 10, Op::rem},
};

struct Constant {
  std::string_view name;
  double value;
};
constexpr Constant kConstants[] = {
    {"pi", std::numbers::pi},
    {"e", std::numbers::e},
    {"inf", std::numeric_limits<double>::infinity()},
    {"nan", std::numeric_limits<double>::quiet_NaN()},
};

struct OpAlias {
  std::string_view name;
  Op op;
};
constexpr OpAlias kOpAliases[] = {{"isnan", Op::is_nan}, {"inverseSqrt", Op::rsqrt}, {"fmod", Op::rem}};

/// The op of a function name; Op::input if there is none.
Op op_of_function(std::string_view name) {
  for (int i = 0; i < kOpCount; ++i) {
    const Op op = static_cast<Op>(i);
    if (arity(op) > 0 && op != Op::cast && op != Op::select && name_of(op) == name) return op;
  }
  for (const OpAlias& alias : kOpAliases)
    if (alias.name == name) return alias.op;
  return Op::input;
}

const DerivedFunction* find_derived(std::string_view name) {
  for (const DerivedFunction& function : derived_functions())
    if (function.name == name) return &function;
  return nullptr;
}

struct Variable {
  std::string_view name;
  int value = -1;  // -1: not assigned yet
  bool is_operand = false;
};

// Whether `return` was executed: never, on every path so far, or if the bool value with this index is true.
constexpr int kNever = -1, kAlways = -2;

/// The state that statements change. Branches of `if` work on copies, which are merged by select.
struct State {
  std::vector<Variable> variables;
  int done = kNever;
  int returned = -1;  // value given by `return`
  int last = -1;      // value of the last statement
};

class Parser {
 public:
  Parser(std::string_view text, Builder& builder, int depth) : text_(text), builder_(builder), depth_(depth) {
    advance();
  }

  State state;

  /// Calls that become operands.
  struct Kept {
    std::span<const std::string_view> functions;
    int first;  // the operand that the first of them is
    std::vector<OpCall>& calls;
  };
  const Kept* kept = nullptr;

  /// Parses the whole text; the value is in `state`.
  void run() {
    if (token_.kind == TokenKind::end) fail("the text is empty; expected an expression");
    while (token_.kind != TokenKind::end) statement();
  }

  /// The value of `return`, or of the last statement.
  int value() {
    if (state.done == kAlways) return state.returned;
    if (state.last < 0) fail("the text gives no value; expected an expression at the end");
    if (state.done == kNever) return state.last;
    return builder_.make(Op::select, state.done, state.returned, state.last);
  }

  [[noreturn]] void fail(std::string_view what) const { fail(what, token_.begin); }

  [[noreturn]] void fail(std::string_view what, std::size_t column) const {
    // The line of the mistake, cut to fit a terminal.
    std::size_t begin = text_.rfind('\n', column == 0 ? 0 : column - 1);
    begin = begin == std::string_view::npos || begin >= column ? 0 : begin + 1;
    std::size_t end = std::min(text_.find('\n', column), text_.size());
    if (column - begin > 60) begin = column - 60;
    end = std::min(end, column + 40);
    std::string line(text_.substr(begin, end - begin));
    for (char& c : line)
      if (static_cast<unsigned char>(c) < 32 || static_cast<unsigned char>(c) > 126) c = '?';
    throw UsageError(fmt::format("expression: {}\n  {}\n  {}^", what, line, std::string(column - begin, ' ')));
  }

 private:
  // Tokens.

  void advance() {
    auto space = [](char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; };
    while (at_ < text_.size() && space(text_[at_])) ++at_;
    token_ = {.kind = TokenKind::end, .text = "", .begin = at_};
    if (at_ == text_.size()) return;
    auto digit = [&](std::size_t i) { return i < text_.size() && text_[i] >= '0' && text_[i] <= '9'; };
    auto letter = [&](std::size_t i) {
      return i < text_.size() && (std::isalpha(static_cast<unsigned char>(text_[i])) || text_[i] == '_');
    };
    std::size_t end = at_;
    if (digit(at_) || (text_[at_] == '.' && digit(at_ + 1))) {
      token_.kind = TokenKind::number;
      const auto [rest, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), token_.value);
      end = static_cast<std::size_t>(rest - text_.data());
      if (error == std::errc::result_out_of_range) fail("this number is beyond what f64 holds", at_);
      if (end < text_.size() && text_[end] == 'f' && !letter(end + 1) && !digit(end + 1)) ++end;
      if (letter(end) || digit(end) || (end < text_.size() && text_[end] == '.')) fail("this is not a number", at_);
    } else if (letter(at_)) {
      token_.kind = TokenKind::name;
      while (letter(end) || digit(end)) ++end;
    } else {
      token_.kind = TokenKind::symbol;
      constexpr std::string_view two[] = {"||", "&&", "==", "!=", "<=", ">=", "<<", ">>"};
      constexpr std::string_view one = "+-*/%^~!&|<>?:(){};,=";
      for (std::string_view symbol : two)
        if (text_.substr(at_, 2) == symbol) end = at_ + 2;
      if (end == at_ && one.find(text_[at_]) != std::string_view::npos) end = at_ + 1;
      if (end == at_) fail("this character is not allowed here", at_);
    }
    token_.text = text_.substr(at_, end - at_);
    at_ = end;
  }

  bool is(std::string_view symbol) const { return token_.kind != TokenKind::end && token_.text == symbol; }
  bool accept(std::string_view symbol) {
    if (!is(symbol)) return false;
    advance();
    return true;
  }
  std::string found() const {
    return token_.kind == TokenKind::end ? "the end of the text" : fmt::format("'{}'", token_.text.substr(0, 40));
  }
  void expect(std::string_view symbol) {
    if (!accept(symbol)) fail(fmt::format("expected '{}', found {}", symbol, found()));
  }

  /// Counts the nesting depth while the object exists.
  struct Nested {
    explicit Nested(Parser& parser) : parser(parser) {
      if (++parser.depth_ > kDepthMax) parser.fail(fmt::format("nested more than {} levels deep", kDepthMax));
    }
    ~Nested() { --parser.depth_; }
    Parser& parser;
  };

  int checked(int value) {
    if (builder_.size() > kInstructionsMax)
      fail(fmt::format("the text makes more than {} instructions", kInstructionsMax));
    return value;
  }

  // Statements.

  void end_of_statement() {
    if (accept(";") || is("}") || token_.kind == TokenKind::end) return;
    fail(fmt::format("expected an operator, ';' or the end of the text, found {}", found()));
  }

  void statement() {
    const Nested nested(*this);
    if (accept(";")) return;
    if (is("{")) return block();
    if (is("if")) return if_statement();
    if (is("else")) fail("this 'else' has no 'if' before it");
    if (is("}")) fail("this '}' closes nothing");
    if (accept("var")) return declaration();
    if (accept("return")) {
      const int given = expression();
      state.returned = state.done == kNever    ? given
                       : state.done == kAlways ? state.returned
                                               : checked(builder_.make(Op::select, state.done, state.returned, given));
      state.done = kAlways;
      return end_of_statement();
    }
    if (token_.kind == TokenKind::name && peek_is_assignment()) return assignment();
    state.last = expression();
    end_of_statement();
  }

  bool peek_is_assignment() const {
    std::size_t i = at_;
    while (i < text_.size() && std::isspace(static_cast<unsigned char>(text_[i]))) ++i;
    return i < text_.size() && text_[i] == '=' && (i + 1 == text_.size() || text_[i + 1] != '=');
  }

  void block() {
    expect("{");
    const std::size_t outer = state.variables.size();
    while (!is("}")) {
      if (token_.kind == TokenKind::end) fail("expected '}', found the end of the text");
      statement();
    }
    advance();
    state.variables.resize(outer);
  }

  /// A branch of `if`, with variables of its own.
  void branch() {
    const std::size_t outer = state.variables.size();
    statement();
    state.variables.resize(outer);
  }

  void if_statement() {
    advance();
    expect("(");
    const int condition = expression();
    expect(")");
    const State before = state;
    branch();
    State then = std::move(state);
    state = before;
    if (accept("else")) branch();
    merge(condition, then);
  }

  /// Sets `state` to select(condition, `then`, `state`): `then` holds if the condition is true.
  void merge(int condition, const State& then) {
    auto choose = [&](int a, int b) { return a == b ? a : checked(builder_.make(Op::select, condition, a, b)); };
    auto flag = [&](int done) {
      return done == kNever ? builder_.boolean(false) : done == kAlways ? builder_.boolean(true) : done;
    };
    for (std::size_t i = 0; i < state.variables.size(); ++i) {
      int& value = state.variables[i].value;
      const int other = then.variables[i].value;
      value = value < 0 || other < 0 ? -1 : choose(other, value);
    }
    if (then.done != state.done) state.done = choose(flag(then.done), flag(state.done));
    state.returned = then.returned < 0    ? state.returned
                     : state.returned < 0 ? then.returned
                                          : choose(then.returned, state.returned);
    state.last = then.last < 0 ? state.last : state.last < 0 ? then.last : choose(then.last, state.last);
  }

  std::string_view new_name() {
    if (token_.kind != TokenKind::name) fail(fmt::format("expected a name, found {}", found()));
    const std::string_view name = token_.text;
    for (std::string_view word : {"if", "else", "var", "return", "true", "false"})
      if (name == word) fail(fmt::format("expected a name; '{}' is a word of the language", word));
    for (const Variable& variable : state.variables)
      if (variable.name == name && variable.is_operand)
        fail(fmt::format("'{}' is an operand already; choose another name", name));
    if (state.variables.size() >= kVariablesMax) fail(fmt::format("more than {} variables", kVariablesMax));
    advance();
    return name;
  }

  void declaration() {
    const std::string_view name = new_name();
    expect("=");
    const int value = expression();
    state.variables.push_back({.name = name, .value = value});
    end_of_statement();
  }

  void assignment() {
    const Token target = token_;
    Variable* variable = nullptr;
    for (Variable& candidate : state.variables)
      if (candidate.name == target.text) variable = &candidate;
    if (variable == nullptr) fail(fmt::format("'{0}' is not declared; write 'var {0} = ...'", target.text));
    if (variable->is_operand) fail(fmt::format("'{}' is an operand and cannot be assigned", target.text));
    const auto index = variable - state.variables.data();
    advance();
    expect("=");
    const int value = expression();
    state.variables[static_cast<std::size_t>(index)].value = value;
    end_of_statement();
  }

  // Expressions.

  int expression() {
    const Nested nested(*this);
    const int condition = binary(1);
    if (!accept("?")) return condition;
    const int yes = expression();
    expect(":");
    const int no = expression();
    return checked(builder_.make(Op::select, condition, yes, no));
  }

  /// Operators of at least this level, by precedence climbing.
  int binary(int level) {
    int left = prefix();
    for (;;) {
      const BinaryOperator* found = nullptr;
      if (token_.kind == TokenKind::symbol)
        for (const BinaryOperator& candidate : kBinaryOperators)
          if (token_.text == candidate.symbol && candidate.level >= level) found = &candidate;
      if (found == nullptr) return left;
      advance();
      const int right = binary(found->level + 1);
      left = checked(builder_.make(found->op, left, right));
    }
  }

  int prefix() {
    const Nested nested(*this);
    if (accept("-")) return checked(builder_.make(Op::neg, prefix()));
    if (accept("+")) return prefix();
    if (accept("!")) return checked(builder_.make(Op::logical_not, prefix()));
    if (accept("~")) return checked(builder_.make(Op::bit_not, prefix()));
    return primary();
  }

  int primary() {
    const Token token = token_;
    if (token.kind == TokenKind::number) {
      advance();
      return checked(builder_.constant(token.value));
    }
    if (accept("(")) {
      const int inner = expression();
      expect(")");
      return inner;
    }
    if (token.kind == TokenKind::name) {
      advance();
      return is("(") ? call(token) : named(token);
    }
    fail(fmt::format("expected a number, a name, a call or '(', found {}", found()));
  }

  int named(const Token& token) {
    for (auto variable = state.variables.rbegin(); variable != state.variables.rend(); ++variable) {
      if (variable->name != token.text) continue;
      if (variable->value < 0)
        fail(fmt::format("'{}' is read before every path has assigned it", token.text), token.begin);
      return variable->value;
    }
    for (const Constant& constant : kConstants)
      if (constant.name == token.text) return checked(builder_.constant(constant.value));
    if (token.text == "true" || token.text == "false") return builder_.boolean(token.text == "true");
    std::vector<std::string_view> known;
    for (const Variable& variable : state.variables) known.push_back(variable.name);
    for (const Constant& constant : kConstants) known.push_back(constant.name);
    std::string message = fmt::format("unknown name '{}'", token.text.substr(0, 40));
    if (const std::string_view near = nearest_name(token.text, known); !near.empty())
      message += fmt::format("; did you mean '{}'?", near);
    else
      message += fmt::format("; the operands are {}", fmt::join(operand_names(), ", "));
    fail(message, token.begin);
  }

  std::vector<std::string_view> operand_names() const {
    std::vector<std::string_view> names;
    for (const Variable& variable : state.variables)
      if (variable.is_operand) names.push_back(variable.name);
    return names;
  }

  int call(const Token& token) {
    expect("(");
    std::vector<int> arguments;
    if (!is(")")) {
      do {
        if (arguments.size() == 8) fail("a call takes at most 8 arguments");
        arguments.push_back(expression());
      } while (accept(","));
    }
    expect(")");
    auto wants = [&](std::size_t count) {
      if (arguments.size() != count)
        fail(fmt::format("{} takes {} argument{}, and was given {}", token.text, count, count == 1 ? "" : "s",
                         arguments.size()),
             token.begin);
    };
    if (const auto type = dtype_from_name(token.text); type && !is_block(*type)) {
      wants(1);
      return checked(builder_.cast(arguments[0], *type));
    }
    if (token.text == "select") {  // false value, true value, condition, as in WGSL
      wants(3);
      return checked(builder_.make(Op::select, arguments[2], arguments[1], arguments[0]));
    }
    if (const Op op = op_of_function(token.text); op != Op::input) {
      wants(static_cast<std::size_t>(arity(op)));
      arguments.resize(3, -1);
      return checked(builder_.make(op, arguments[0], arguments[1], arguments[2]));
    }
    if (const DerivedFunction* function = find_derived(token.text)) {
      wants(function->parameters.size());
      if (kept && std::find(kept->functions.begin(), kept->functions.end(), token.text) != kept->functions.end())
        return kept_call(token.text, arguments);
      Parser body(function->text, builder_, depth_);
      for (std::size_t i = 0; i < arguments.size(); ++i)
        body.state.variables.push_back({.name = function->parameters[i], .value = arguments[i], .is_operand = true});
      body.run();
      return checked(body.value());
    }
    std::vector<std::string_view> known = {"select"};
    for (int i = 0; i < kOpCount; ++i)
      if (const Op op = static_cast<Op>(i); arity(op) > 0) known.push_back(name_of(op));
    for (const DerivedFunction& function : derived_functions()) known.push_back(function.name);
    for (const OpAlias& alias : kOpAliases) known.push_back(alias.name);
    for (DType type : kAllDTypes)
      if (!is_block(type)) known.push_back(weft::name_of(type));
    std::string message = fmt::format("unknown function '{}'", token.text.substr(0, 40));
    if (const std::string_view near = nearest_name(token.text, known); !near.empty())
      message += fmt::format("; did you mean '{}'?", near);
    fail(message, token.begin);
  }

  int kept_call(std::string_view function, std::span<const int> arguments) {
    OpCall call{std::string(function), {}};
    for (const int argument : arguments) call.arguments.push_back(builder_.finish(argument));
    kept->calls.push_back(std::move(call));
    return builder_.input(kept->first + static_cast<int>(kept->calls.size()) - 1);
  }

  std::string_view text_;
  Builder& builder_;
  int depth_;
  std::size_t at_ = 0;
  Token token_;
};

void check_size(std::string_view text) {
  if (text.size() > kTextBytesMax)
    throw UsageError(fmt::format("expression: the text has {} bytes; at most {} are read", text.size(), kTextBytesMax));
}

void declare(Parser& parser, Builder& builder, const Names& names) {
  auto& variables = parser.state.variables;
  for (std::size_t i = 0; i < names.operands.size(); ++i)
    variables.push_back({.name = names.operands[i], .value = builder.input(static_cast<int>(i)), .is_operand = true});
  for (const auto& [alias, operand] : names.aliases)
    variables.push_back({.name = alias, .value = builder.input(operand), .is_operand = true});
  for (const std::string& result : names.results) variables.push_back({.name = result});
}

}  // namespace

Expression parse(std::string_view text, std::span<const std::string> operands) {
  return parse(text, Names{.operands = {operands.begin(), operands.end()}});
}

Expression parse(std::string_view text, const Names& names) {
  std::vector<OpCall> calls;
  return parse_with_calls(text, names, {}, calls);
}

Expression parse_with_calls(std::string_view text, const Names& names, std::span<const std::string_view> functions,
                            std::vector<OpCall>& calls) {
  check_size(text);
  const int count = static_cast<int>(names.operands.size());
  Builder builder(count);
  Parser parser(text, builder, 0);
  const Parser::Kept kept{functions, count, calls};
  parser.kept = &kept;
  declare(parser, builder, names);
  parser.run();
  // A text may assign its result (`output = ...`), or end with it.
  int value = -1;
  for (const Variable& variable : parser.state.variables)
    if (!names.results.empty() && variable.name == names.results[0] && variable.value >= 0) value = variable.value;
  Expression whole = builder.finish(value >= 0 ? value : parser.value());
  whole.inputs = count + static_cast<int>(calls.size());
  for (std::size_t k = 0; k < calls.size(); ++k)
    for (Expression& argument : calls[k].arguments) argument.inputs = count + static_cast<int>(k);
  return whole;
}

std::vector<Expression> parse_results(std::string_view text, const Names& names) {
  check_size(text);
  Builder builder(static_cast<int>(names.operands.size()));
  Parser parser(text, builder, 0);
  declare(parser, builder, names);
  parser.run();
  std::vector<Expression> out;
  for (const std::string& result : names.results)
    for (const Variable& variable : parser.state.variables) {
      if (variable.name != result) continue;
      if (variable.value < 0)
        parser.fail(fmt::format("'{}' is not assigned on every path; expected '{} = ...'", result, result));
      out.push_back(builder.finish(variable.value));
    }
  return out;
}

}  // namespace weft::scalar
