// Checks of a parsed template that need its whole tree.
#include <fmt/format.h>

#include "base/quote.hpp"
#include "jinja/ast.hpp"
#include "jinja/library.hpp"

namespace weft::jinja {
namespace {

// Finds whether a body reads a name before it assigns it, in the order of the text: then the caller sets the name.
class NameSearch {
 public:
  explicit NameSearch(std::string_view name) : name_(name) {}
  bool in(const Block& body) {
    search(body);
    return found_;
  }

 private:
  bool done() const { return found_ || assigned_; }
  void search(const Block& block) {
    for (const auto& statement : block)
      if (!done()) search(*statement);
  }
  void search(const Statement& node) {
    target(node.target.get());
    for (const auto& each : node.targets) target(each.get());
    for (const Parameter& parameter : node.parameters)
      if (!done() && parameter.name == name_) assigned_ = true;
    for (const Parameter& parameter : node.parameters) search(parameter.default_value.get());
    for (const auto& value : node.values) search(value.get());
    // A loop's test comes after its body here, as in Jinja2.
    search(node.expression.get());
    for (const auto& branch : node.branches) {
      search(branch.test.get());
      search(branch.body);
    }
    search(node.body);
    search(node.otherwise);
    search(node.test.get());
  }
  void target(const Expression* node) {
    if (!node || done()) return;
    if (node->kind == ExpressionKind::name && node->name == name_) assigned_ = true;
    for (const auto& part : node->parts) target(part.get());
  }
  void search(const Expression* node) {
    if (!node || done()) return;
    if (node->kind == ExpressionKind::name && node->name == name_) found_ = true;
    for (const auto& part : node->parts) search(part.get());
    for (const Argument& argument : node->arguments) search(argument.value.get());
  }

  std::string_view name_;
  bool found_ = false, assigned_ = false;
};

class Checker {
 public:
  void check(Block& block, bool optional, bool in_loop, bool in_for) {
    for (auto& statement : block) check(*statement, optional, in_loop, in_for);
  }

 private:
  [[noreturn]] static void fail(std::size_t position, std::string fact, std::string cure) {
    throw SyntaxFault{position, std::move(fact), std::move(cure)};
  }

  // optional: inside an if, where an unknown filter is an error only when it is reached. in_loop: break has a loop to leave.
  // in_for: somewhere inside a loop's body.
  void check(Statement& node, bool optional, bool in_loop, bool in_for) {
    const bool is_loop = node.kind == StatementKind::loop;
    if (node.kind == StatementKind::break_loop || node.kind == StatementKind::continue_loop) {
      if (!in_loop) fail(node.position, "break and continue are allowed inside a for loop only", "remove it");
      return;
    }
    check_target(node.target.get(), in_for || is_loop);
    for (const auto& target : node.targets) check_target(target.get(), in_for);
    for (const auto& value : node.values) check(value.get(), optional);
    for (const Parameter& parameter : node.parameters) check(parameter.default_value.get(), false);
    if (node.kind == StatementKind::condition) {
      for (auto& branch : node.branches) {
        check(branch.test.get(), true);
        check(branch.body, true, in_loop, in_for);
      }
      return check(node.otherwise, true, in_loop, in_for);
    }
    const bool own_scope = node.kind != StatementKind::print && node.kind != StatementKind::set;
    check(node.expression.get(), optional && (!own_scope || is_loop || node.kind == StatementKind::call_block));
    check(node.test.get(), false);
    switch (node.kind) {
      case StatementKind::loop:
        check(node.body, false, true, true);
        check(node.otherwise, false, in_loop, true);
        break;
      case StatementKind::macro:
      case StatementKind::call_block: {
        check_caller_parameter(node);
        node.uses_caller = NameSearch("caller").in(node.body);
        node.uses_kwargs = NameSearch("kwargs").in(node.body);
        node.uses_varargs = NameSearch("varargs").in(node.body);
        check(node.body, false, false, in_for);
        break;
      }
      case StatementKind::generation: check(node.body, false, false, in_for); break;
      default: check(node.body, false, in_loop, in_for);
    }
  }

  static void check_caller_parameter(const Statement& node) {
    for (const Parameter& parameter : node.parameters)
      if (parameter.name == "caller" && !parameter.default_value && NameSearch("caller").in(node.body))
        fail(node.position, "the parameter caller has no default", "remove it: every macro may call caller()");
  }

  void check_target(const Expression* node, bool in_for) {
    if (!node) return;
    if (in_for && node->kind == ExpressionKind::name && node->name == "loop")
      fail(node->position, "loop cannot be assigned to inside a for loop", "choose another name");
    for (const auto& part : node->parts) check_target(part.get(), in_for);
  }

  void check(const Expression* node, bool optional) {
    if (!node) return;
    if (node->kind == ExpressionKind::conditional) optional = true;
    if (!optional && node->kind == ExpressionKind::filter && !find_filter(node->name)) {
      const UnknownName unknown = unknown_filter(node->name);
      fail(node->position, unknown.fact, unknown.cure);
    }
    if (!optional && node->kind == ExpressionKind::test && !find_test(node->name)) {
      const UnknownName unknown = unknown_test(node->name);
      fail(node->position, unknown.fact, unknown.cure);
    }
    for (const auto& part : node->parts) check(part.get(), optional);
    for (const Argument& argument : node->arguments) check(argument.value.get(), optional);
  }
};

}  // namespace

void check_tree(Tree& tree) { Checker().check(tree.body, false, false, false); }

}  // namespace weft::jinja
