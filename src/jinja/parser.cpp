// Turns tokens into a tree: recursive descent with Jinja2's grammar.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <unordered_map>

#include "base/quote.hpp"
#include "jinja/ast.hpp"
#include "jinja/lexer.hpp"
#include "jinja/unicode.hpp"

namespace weft::jinja {
namespace {

using Kind = ExpressionKind;
using NameList = std::vector<std::string_view>;

class Parser {
 public:
  Parser(std::string source, const ParseLimits& limits) : limits_(limits) { tree_.source = std::move(source); }

  Tree run() {
    tokens_ = tokenize(tree_.source);
    tree_.body = parse_block({});
    return std::move(tree_);
  }

 private:
  // ---- Tokens ---------------------------------------------------------------------------------------------------------

  const Token& token() const { return tokens_[at_]; }
  const Token& following() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  const Token& take() { return tokens_[at_ + 1 < tokens_.size() ? at_++ : at_]; }

  bool is(TokenKind kind) const { return token().kind == kind; }
  bool is_symbol(std::string_view symbol) const { return is(TokenKind::symbol) && token().text == symbol; }
  bool is_name(std::string_view name) const { return is(TokenKind::name) && token().text == name; }
  bool is_any_name(const NameList& names) const {
    return is(TokenKind::name) && std::find(names.begin(), names.end(), token().text) != names.end();
  }
  bool skip_symbol(std::string_view symbol) { return is_symbol(symbol) && (take(), true); }
  bool skip_name(std::string_view name) { return is_name(name) && (take(), true); }

  [[noreturn]] static void fail(std::size_t position, std::string fact, std::string cure = {}) {
    throw SyntaxFault{position, std::move(fact), std::move(cure)};
  }
  [[noreturn]] void fail_expecting(std::string_view wanted) const {
    fail(token().position, fmt::format("expected {}, found {}", wanted, shown(token())));
  }
  static std::string shown(const Token& token) {
    switch (token.kind) {
      case TokenKind::end: return "the end of the template";
      case TokenKind::data: return "text";
      case TokenKind::variable_begin: return "{{";
      case TokenKind::variable_end: return "the end }} of the print";
      case TokenKind::block_begin: return "{%";
      case TokenKind::block_end: return "the end %} of the block";
      case TokenKind::string: return fmt::format("the string {}", quote(token.text, 40));
      case TokenKind::integer: return fmt::format("the number {}", token.integer);
      case TokenKind::real: return fmt::format("the number {}", token.real);
      default: return quote(token.text, 40);
    }
  }
  void expect_symbol(std::string_view symbol) {
    if (!skip_symbol(symbol)) fail_expecting(quote(symbol));
  }
  void expect_name(std::string_view name) {
    if (!skip_name(name)) fail_expecting(quote(name));
  }
  std::string expect_identifier(std::string_view what) {
    if (!is(TokenKind::name)) fail_expecting(what);
    return take().text;
  }

  // ---- Nodes ----------------------------------------------------------------------------------------------------------

  // Bounds the recursion of this parser, and of all code that later walks the tree.
  class Nesting {
   public:
    explicit Nesting(Parser& parser) : parser_(parser) {
      if (++parser.nesting_ > parser.limits_.depth)
        fail(parser.token().position, fmt::format("the template is nested deeper than {} levels", parser.limits_.depth),
             "split it up with {% set %}");
    }
    ~Nesting() { --parser_.nesting_; }

   private:
    Parser& parser_;
  };

  template <class... Parts>
  ExpressionPointer make(Kind kind, std::size_t position, Parts... parts) {
    auto node = std::make_unique<Expression>(Expression{.kind = kind, .position = position});
    (node->parts.push_back(std::move(parts)), ...);
    return sized(std::move(node));
  }
  // Sets the depth of a node whose parts and arguments are complete.
  ExpressionPointer sized(ExpressionPointer node) {
    int below = 0;
    for (const auto& part : node->parts)
      if (part) below = std::max(below, part->depth);
    for (const Argument& argument : node->arguments) below = std::max(below, argument.value->depth);
    node->depth = below + 1;
    if (node->depth > limits_.depth)
      fail(node->position, fmt::format("the expression is nested deeper than {} levels", limits_.depth),
           "split it up with {% set %}");
    return node;
  }
  ExpressionPointer constant(std::size_t position, Value value) {
    auto node = make(Kind::constant, position);
    node->constant = std::move(value);
    return node;
  }
  NameId intern(const std::string& name) {
    const auto [found, added] = ids_.emplace(name, static_cast<NameId>(tree_.names.size()));
    if (added) tree_.names.push_back(name);
    return found->second;
  }
  ExpressionPointer named(std::size_t position, const std::string& name) {
    auto node = make(Kind::name, position);
    node->name = name;
    node->id = intern(name);
    return node;
  }
  static std::unique_ptr<Statement> statement(StatementKind kind, std::size_t position) {
    return std::make_unique<Statement>(Statement{.kind = kind, .position = position});
  }

  // ---- Statements -----------------------------------------------------------------------------------------------------

  // Statements up to a block that begins with one of `ends`, whose name is then the current token; an empty list: up to
  // the end of the template.
  Block parse_block(const NameList& ends) {
    const Nesting nesting(*this);
    Block block;
    while (!is(TokenKind::end)) {
      const std::size_t position = token().position;
      if (is(TokenKind::data)) {
        block.push_back(statement(StatementKind::data, position));
        block.back()->data = make_text(take().text);
      } else if (is(TokenKind::variable_begin)) {
        take();
        block.push_back(statement(StatementKind::print, position));
        block.back()->expression = parse_tuple();
        if (!is(TokenKind::variable_end)) fail_expecting("}}");
        take();
      } else {
        take();  // {%
        if (is_any_name(ends)) return block;
        parse_statement(block, ends);
        if (!is(TokenKind::block_end)) fail_expecting("%}");
        take();
      }
    }
    if (!ends.empty())
      fail(open_.back(),
           fmt::format("what begins here does not end: there is no {{% {} %}}", fmt::join(ends, " %} or {% ")),
           "close it");
    return block;
  }
  // The body of a statement: after its opening block, up to one of `ends`.
  Block parse_body(const NameList& ends) {
    skip_symbol(":");
    if (!is(TokenKind::block_end)) fail_expecting("%}");
    take();
    return parse_block(ends);
  }
  Block parse_body_and_end(std::string_view end) {
    Block body = parse_body({end});
    take();
    return body;
  }

  void parse_statement(Block& block, const NameList& ends) {
    const std::size_t position = token().position;
    const std::string tag = expect_identifier("the name of a statement");
    open_.push_back(position);
    parse_statement(block, ends, tag, position);
    open_.pop_back();
  }
  void parse_statement(Block& block, const NameList& ends, const std::string& tag, std::size_t position) {
    const auto add = [&](StatementKind kind) -> Statement& {
      block.push_back(statement(kind, position));
      return *block.back();
    };
    if (tag == "set") return parse_set(add(StatementKind::set));
    if (tag == "if") return parse_if(add(StatementKind::condition));
    if (tag == "for") return parse_for(add(StatementKind::loop));
    if (tag == "macro") return parse_macro(add(StatementKind::macro));
    if (tag == "call") return parse_call_block(add(StatementKind::call_block));
    if (tag == "with") return parse_with(add(StatementKind::with));
    if (tag == "print") return parse_print(block, position);
    if (tag == "filter") {
      Statement& node = add(StatementKind::filter_block);
      node.expression = parse_filters(nullptr, true);
      node.body = parse_body_and_end("endfilter");
    } else if (tag == "generation") {
      add(StatementKind::generation).body = parse_body_and_end("endgeneration");
    } else if (tag == "break") {
      add(StatementKind::break_loop);
    } else if (tag == "continue") {
      add(StatementKind::continue_loop);
    } else {
      fail_unknown_tag(tag, position, ends);
    }
  }

  [[noreturn]] static void fail_unknown_tag(const std::string& tag, std::size_t position, const NameList& ends) {
    for (const std::string_view other :
         {"extends", "include", "import", "from", "block", "endblock", "autoescape", "endautoescape", "do"})
      if (tag == other)
        fail(position, fmt::format("the statement {} is not supported", tag),
             "a chat template is one file: write its text here, or a macro");
    fail(position, fmt::format("no statement is called {}", quote(tag, 40)),
         ends.empty() ? "there are if, for, set, macro, call, filter, with, raw, break, continue and generation"
                      : fmt::format("the block that is open ends with {{% {} %}}", fmt::join(ends, " %} or {% ")));
  }

  void parse_set(Statement& node) {
    node.target = parse_target({}, true);
    if (skip_symbol("=")) {
      node.expression = parse_tuple();
      return;
    }
    node.kind = StatementKind::set_block;
    node.expression = parse_filters(nullptr, false);
    node.body = parse_body_and_end("endset");
  }

  void parse_if(Statement& node) {
    while (true) {
      ExpressionPointer test = parse_tuple(false);
      node.branches.push_back({std::move(test), parse_body({"elif", "else", "endif"})});
      const std::string end = take().text;
      if (end == "elif") continue;
      if (end == "else") node.otherwise = parse_body_and_end("endif");
      return;
    }
  }

  void parse_for(Statement& node) {
    node.target = parse_target({"in"}, false);
    expect_name("in");
    node.expression = parse_tuple(false, {"recursive"});
    if (skip_name("if")) node.test = parse_expression();
    node.recursive = skip_name("recursive");
    node.body = parse_body({"endfor", "else"});
    if (take().text == "else") node.otherwise = parse_body_and_end("endfor");
  }

  void parse_macro(Statement& node) {
    node.name = expect_identifier("the name of the macro");
    node.id = intern(node.name);
    node.parameters = parse_signature();
    node.body = parse_body_and_end("endmacro");
  }

  void parse_call_block(Statement& node) {
    if (is_symbol("(")) node.parameters = parse_signature();
    node.expression = parse_expression();
    if (node.expression->kind != Kind::call)
      fail(node.expression->position, "a call block needs a call", "write {% call name() %}");
    node.body = parse_body_and_end("endcall");
  }

  void parse_with(Statement& node) {
    while (!is(TokenKind::block_end)) {
      if (!node.targets.empty()) expect_symbol(",");
      node.targets.push_back(parse_target({}, false));
      expect_symbol("=");
      node.values.push_back(parse_expression());
    }
    node.body = parse_body_and_end("endwith");
  }

  void parse_print(Block& block, std::size_t position) {
    for (bool first = true; !is(TokenKind::block_end); first = false) {
      if (!first) expect_symbol(",");
      block.push_back(statement(StatementKind::print, position));
      block.back()->expression = parse_expression();
    }
  }

  std::vector<Parameter> parse_signature() {
    std::vector<Parameter> parameters;
    expect_symbol("(");
    while (!is_symbol(")")) {
      if (!parameters.empty()) expect_symbol(",");
      const std::size_t position = token().position;
      std::string name = expect_identifier("the name of a parameter");
      check_assignable(name, position);
      ExpressionPointer value;
      if (skip_symbol("=")) {
        value = parse_expression();
      } else if (!parameters.empty() && parameters.back().default_value) {
        fail(position, fmt::format("parameter {} has no default but the one before it has", quote(name, 40)),
             "give it one, or move it to the front");
      }
      if (std::any_of(parameters.begin(), parameters.end(), [&](const Parameter& p) { return p.name == name; }))
        fail(position, fmt::format("two parameters are called {}", quote(name, 40)), "rename one");
      const NameId id = intern(name);
      parameters.push_back({std::move(name), id, std::move(value)});
    }
    take();
    return parameters;
  }

  // ---- Targets of assignments -----------------------------------------------------------------------------------------

  static void check_assignable(std::string_view name, std::size_t position) {
    for (const std::string_view word : {"true", "false", "none", "True", "False", "None"})
      if (name == word) fail(position, fmt::format("{} cannot be assigned to", word), "choose another name");
  }

  // A name, ns.attribute, or a tuple of targets.
  ExpressionPointer parse_target(const NameList& ends, bool with_namespace) {
    const std::size_t position = token().position;
    std::vector<ExpressionPointer> items;
    bool is_tuple = false;
    while (true) {
      if (!items.empty()) expect_symbol(",");
      if (is_tuple_end() || is_any_name(ends)) break;
      items.push_back(parse_one_target(with_namespace));
      if (!is_symbol(",")) break;
      is_tuple = true;
    }
    if (items.empty()) fail_expecting("a name to assign to");
    if (!is_tuple) return std::move(items.front());
    return target_tuple(position, std::move(items));
  }
  ExpressionPointer target_tuple(std::size_t position, std::vector<ExpressionPointer> items) {
    auto node = make(Kind::tuple, position);
    node->parts = std::move(items);
    return sized(std::move(node));
  }
  ExpressionPointer parse_one_target(bool with_namespace) {
    const Nesting nesting(*this);
    const std::size_t position = token().position;
    if (skip_symbol("(")) {
      std::vector<ExpressionPointer> items;
      bool is_tuple = false;
      while (!is_symbol(")")) {
        items.push_back(parse_one_target(false));
        if (!skip_symbol(",")) break;
        is_tuple = true;
      }
      expect_symbol(")");
      if (is_tuple || items.empty()) return target_tuple(position, std::move(items));
      return std::move(items.front());
    }
    const std::string name = expect_identifier("a name to assign to");
    check_assignable(name, position);
    auto node = named(position, name);
    if (with_namespace && skip_symbol(".")) {
      node->kind = Kind::namespace_attribute;
      node->attribute = expect_identifier("the name of an attribute");
    }
    return node;
  }

  // ---- Expressions ----------------------------------------------------------------------------------------------------

  bool is_tuple_end() const { return is(TokenKind::variable_end) || is(TokenKind::block_end) || is_symbol(")"); }

  // One expression, or several with commas between them.
  ExpressionPointer parse_tuple(bool with_condition = true, const NameList& ends = {}, bool in_parentheses = false) {
    const std::size_t position = token().position;
    std::vector<ExpressionPointer> items;
    bool is_tuple = false;
    while (true) {
      if (!items.empty()) expect_symbol(",");
      if (is_tuple_end() || is_any_name(ends)) break;
      items.push_back(parse_expression(with_condition));
      if (!is_symbol(",")) break;
      is_tuple = true;
    }
    if (!is_tuple) {
      if (!items.empty()) return std::move(items.front());
      if (!in_parentheses) fail_expecting("an expression");
    }
    return target_tuple(position, std::move(items));
  }

  ExpressionPointer parse_expression(bool with_condition = true) {
    const Nesting nesting(*this);
    return with_condition ? parse_conditional() : parse_or();
  }

  ExpressionPointer parse_conditional() {
    const std::size_t position = token().position;
    ExpressionPointer value = parse_or();
    while (skip_name("if")) {
      ExpressionPointer test = parse_or();
      ExpressionPointer otherwise = skip_name("else") ? parse_expression() : nullptr;
      value = make(Kind::conditional, position, std::move(value), std::move(test), std::move(otherwise));
    }
    return value;
  }

  ExpressionPointer parse_or() { return parse_logical("or", Kind::logical_or, &Parser::parse_and); }
  ExpressionPointer parse_and() { return parse_logical("and", Kind::logical_and, &Parser::parse_not); }
  /// Operands with the word between them, grouped from the left.
  ExpressionPointer parse_logical(std::string_view word, Kind kind, ExpressionPointer (Parser::*operand)()) {
    ExpressionPointer left = (this->*operand)();
    while (is_name(word)) {
      const std::size_t position = take().position;
      ExpressionPointer right = (this->*operand)();
      left = make(kind, position, std::move(left), std::move(right));
    }
    return left;
  }
  ExpressionPointer parse_not() {
    if (!is_name("not")) return parse_compare();
    const Nesting nesting(*this);
    const std::size_t position = take().position;
    return make(Kind::logical_not, position, parse_not());
  }

  ExpressionPointer parse_compare() {
    static const std::unordered_map<std::string_view, CompareOperator> kOperators = {
        {"==", CompareOperator::eq}, {"!=", CompareOperator::ne}, {"<", CompareOperator::lt},
        {"<=", CompareOperator::le}, {">", CompareOperator::gt},  {">=", CompareOperator::ge}};
    const std::size_t position = token().position;
    ExpressionPointer first = parse_sum();
    std::vector<ExpressionPointer> parts;
    std::vector<CompareOperator> operators;
    while (true) {
      const auto found = is(TokenKind::symbol) ? kOperators.find(token().text) : kOperators.end();
      if (found != kOperators.end()) {
        take();
        operators.push_back(found->second);
      } else if (skip_name("in")) {
        operators.push_back(CompareOperator::in);
      } else if (is_name("not") && following().kind == TokenKind::name && following().text == "in") {
        take();
        take();
        operators.push_back(CompareOperator::not_in);
      } else {
        break;
      }
      parts.push_back(parse_sum());
    }
    if (operators.empty()) return first;
    auto node = make(Kind::compare, position, std::move(first));
    for (ExpressionPointer& part : parts) node->parts.push_back(std::move(part));
    node->operators = std::move(operators);
    return sized(std::move(node));
  }

  ExpressionPointer parse_sum() {
    ExpressionPointer left = parse_concatenation();
    while (is_symbol("+") || is_symbol("-")) {
      const Token& sign = take();
      const Kind kind = sign.text == "+" ? Kind::add : Kind::subtract;
      const std::size_t position = sign.position;
      ExpressionPointer right = parse_concatenation();
      left = make(kind, position, std::move(left), std::move(right));
    }
    return left;
  }
  ExpressionPointer parse_concatenation() {
    ExpressionPointer first = parse_product();
    if (!is_symbol("~")) return first;
    auto node = make(Kind::concatenate, token().position, std::move(first));
    while (skip_symbol("~")) node->parts.push_back(parse_product());
    return sized(std::move(node));
  }
  ExpressionPointer parse_product() {
    ExpressionPointer left = parse_power();
    while (is_symbol("*") || is_symbol("/") || is_symbol("//") || is_symbol("%")) {
      const Token& sign = take();
      const Kind kind = sign.text == "*"    ? Kind::multiply
                        : sign.text == "/"  ? Kind::divide
                        : sign.text == "//" ? Kind::floor_divide
                                            : Kind::modulo;
      const std::size_t position = sign.position;
      ExpressionPointer right = parse_power();
      left = make(kind, position, std::move(left), std::move(right));
    }
    return left;
  }
  // Left-associative, unlike Python's.
  ExpressionPointer parse_power() {
    ExpressionPointer left = parse_unary(true);
    while (is_symbol("**")) {
      const std::size_t position = take().position;
      ExpressionPointer right = parse_unary(true);
      left = make(Kind::power, position, std::move(left), std::move(right));
    }
    return left;
  }

  ExpressionPointer parse_unary(bool with_filters) {
    const Nesting nesting(*this);
    const std::size_t position = token().position;
    ExpressionPointer node;
    if (skip_symbol("-")) {
      node = make(Kind::negative, position, parse_unary(false));
    } else if (skip_symbol("+")) {
      node = make(Kind::positive, position, parse_unary(false));
    } else {
      node = parse_primary();
    }
    node = parse_postfix(std::move(node));
    return with_filters ? parse_filters_and_tests(std::move(node)) : std::move(node);
  }

  ExpressionPointer parse_primary() {
    const std::size_t position = token().position;
    switch (token().kind) {
      case TokenKind::name: return parse_word();
      case TokenKind::string: {
        std::string text;
        while (is(TokenKind::string)) text += take().text;
        return constant(position, Value(make_text(text)));
      }
      case TokenKind::integer: return constant(position, Value(take().integer));
      case TokenKind::real: return constant(position, Value(take().real));
      default: break;
    }
    if (skip_symbol("(")) {
      ExpressionPointer node = parse_tuple(true, {}, true);
      expect_symbol(")");
      return node;
    }
    if (is_symbol("[")) return parse_list();
    if (is_symbol("{")) return parse_dict();
    fail_expecting("a value");
  }

  ExpressionPointer parse_word() {
    const Token& word = take();
    if (word.text == "true" || word.text == "True") return constant(word.position, Value(true));
    if (word.text == "false" || word.text == "False") return constant(word.position, Value(false));
    if (word.text == "none" || word.text == "None") return constant(word.position, Value());
    return named(word.position, word.text);
  }

  ExpressionPointer parse_list() {
    auto node = make(Kind::list, take().position);
    while (!is_symbol("]")) {
      if (!node->parts.empty()) expect_symbol(",");
      if (is_symbol("]")) break;
      node->parts.push_back(parse_expression());
    }
    expect_symbol("]");
    return sized(std::move(node));
  }
  ExpressionPointer parse_dict() {
    auto node = make(Kind::dict, take().position);
    while (!is_symbol("}")) {
      if (!node->parts.empty()) expect_symbol(",");
      if (is_symbol("}")) break;
      node->parts.push_back(parse_expression());
      expect_symbol(":");
      node->parts.push_back(parse_expression());
    }
    expect_symbol("}");
    return sized(std::move(node));
  }

  ExpressionPointer parse_postfix(ExpressionPointer node) {
    while (true) {
      if (is_symbol(".")) {
        node = parse_attribute(std::move(node));
      } else if (is_symbol("[")) {
        node = parse_subscript(std::move(node));
      } else if (is_symbol("(")) {
        node = parse_call(std::move(node));
      } else {
        return node;
      }
    }
  }
  ExpressionPointer parse_attribute(ExpressionPointer object) {
    const std::size_t position = take().position;
    if (is(TokenKind::integer)) {
      auto index = constant(token().position, Value(token().integer));
      take();
      return make(Kind::subscript, position, std::move(object), std::move(index));
    }
    auto node = make(Kind::attribute, position, std::move(object));
    node->name = expect_identifier("a name or a number");
    return node;
  }
  ExpressionPointer parse_subscript(ExpressionPointer object) {
    const std::size_t position = take().position;
    std::vector<ExpressionPointer> indices;
    while (!is_symbol("]")) {
      if (!indices.empty()) expect_symbol(",");
      indices.push_back(parse_index());
    }
    take();
    ExpressionPointer index =
        indices.size() == 1 ? std::move(indices.front()) : target_tuple(position, std::move(indices));
    if (index->kind == Kind::tuple)
      for (const auto& part : index->parts)
        if (part->kind == Kind::slice) fail(part->position, "a slice is one of several indices", "use one slice");
    return make(Kind::subscript, position, std::move(object), std::move(index));
  }
  ExpressionPointer parse_index() {
    const std::size_t position = token().position;
    const auto bound = [&]() -> ExpressionPointer {
      return is_symbol(":") || is_symbol("]") || is_symbol(",") ? nullptr : parse_expression();
    };
    ExpressionPointer start;
    if (!is_symbol(":")) {
      start = parse_expression();
      if (!is_symbol(":")) return start;
    }
    take();
    ExpressionPointer stop = bound();
    ExpressionPointer step = skip_symbol(":") ? bound() : nullptr;
    return make(Kind::slice, position, std::move(start), std::move(stop), std::move(step));
  }

  ExpressionPointer parse_call(ExpressionPointer callee) {
    auto node = make(Kind::call, token().position, std::move(callee));
    node->arguments = parse_arguments();
    return sized(std::move(node));
  }

  std::vector<Argument> parse_arguments() {
    using ArgumentKind = Argument::Kind;
    std::vector<Argument> arguments;
    const auto has = [&](ArgumentKind kind) {
      return std::any_of(arguments.begin(), arguments.end(), [&](const Argument& a) { return a.kind == kind; });
    };
    expect_symbol("(");
    while (!is_symbol(")")) {
      if (!arguments.empty()) {
        expect_symbol(",");
        if (is_symbol(")")) break;
      }
      const std::size_t position = token().position;
      Argument argument{ArgumentKind::positional, {}, nullptr};
      if (skip_symbol("*")) {
        argument.kind = ArgumentKind::star;
      } else if (skip_symbol("**")) {
        argument.kind = ArgumentKind::double_star;
      } else if (is(TokenKind::name) && following().kind == TokenKind::symbol && following().text == "=") {
        argument.kind = ArgumentKind::named;
        argument.name = take().text;
        take();
        if (std::any_of(arguments.begin(), arguments.end(), [&](const Argument& a) { return a.name == argument.name; }))
          fail(position, fmt::format("argument {} is given twice", quote(argument.name, 40)), "keep one");
      }
      const bool in_order = argument.kind == ArgumentKind::positional
                                ? !has(ArgumentKind::named) && !has(ArgumentKind::star)
                            : argument.kind == ArgumentKind::star ? !has(ArgumentKind::star)
                                                                  : true;
      if (!in_order || has(ArgumentKind::double_star))
        fail(position, "the arguments of a call are out of order",
             "write those without a name first, then *list, those with a name, **dict");
      argument.value = parse_expression();
      arguments.push_back(std::move(argument));
    }
    take();
    return arguments;
  }

  ExpressionPointer parse_filters_and_tests(ExpressionPointer node) {
    while (true) {
      if (is_symbol("|")) {
        node = parse_filters(std::move(node), false);
      } else if (is_name("is")) {
        node = parse_test(std::move(node));
      } else if (is_symbol("(")) {
        node = parse_call(std::move(node));
      } else {
        return node;
      }
    }
  }

  std::string parse_dotted_name(std::string_view what) {
    std::string name = expect_identifier(what);
    while (skip_symbol(".")) name += "." + expect_identifier(what);
    return name;
  }

  // Filters after `subject`; at the start of a block (`inline_first`) the first has no bar.
  ExpressionPointer parse_filters(ExpressionPointer subject, bool inline_first) {
    while (is_symbol("|") || inline_first) {
      if (!inline_first) take();
      inline_first = false;
      auto node = make(Kind::filter, token().position);
      node->name = parse_dotted_name("the name of a filter");
      node->parts.push_back(std::move(subject));
      if (is_symbol("(")) node->arguments = parse_arguments();
      subject = sized(std::move(node));
    }
    return subject;
  }

  ExpressionPointer parse_test(ExpressionPointer subject) {
    const std::size_t position = take().position;
    const bool negated = skip_name("not");
    auto node = make(Kind::test, position, std::move(subject));
    node->name = parse_dotted_name("the name of a test");
    if (is_symbol("(")) {
      node->arguments = parse_arguments();
    } else if (begins_operand() && !is_any_name({"else", "or", "and"})) {
      if (is_name("is")) fail(token().position, "a test follows a test", "join the two with and");
      ExpressionPointer operand = parse_postfix(parse_primary());
      node->arguments.push_back({Argument::Kind::positional, {}, std::move(operand)});
    }
    node = sized(std::move(node));
    return negated ? make(Kind::logical_not, position, std::move(node)) : std::move(node);
  }
  bool begins_operand() const {
    return is(TokenKind::name) || is(TokenKind::string) || is(TokenKind::integer) || is(TokenKind::real) ||
           is_symbol("(") || is_symbol("[") || is_symbol("{");
  }

  ParseLimits limits_;
  Tree tree_;
  std::vector<Token> tokens_;
  std::size_t at_ = 0;
  int nesting_ = 0;
  std::vector<std::size_t> open_;  // starts of the statements that are being parsed
  std::unordered_map<std::string, NameId> ids_;
};

}  // namespace

Place place_of(std::string_view source, std::size_t position) {
  const std::string_view before = source.substr(0, std::min(position, source.size()));
  const auto newline = before.rfind('\n');
  const std::string_view row = newline == std::string_view::npos ? before : before.substr(newline + 1);
  return {1 + static_cast<std::size_t>(std::count(before.begin(), before.end(), '\n')), 1 + count_characters(row)};
}

Tree parse_template(std::string_view source, const ParseLimits& limits) {
  if (source.size() > limits.source_bytes)
    throw SyntaxFault{
        0, fmt::format("the template holds {} bytes, over the limit of {}", source.size(), limits.source_bytes),
        "use a shorter one"};
  Tree tree = Parser(normalized_source(source), limits).run();
  check_tree(tree);
  return tree;
}

}  // namespace weft::jinja
