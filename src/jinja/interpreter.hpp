// Runs the tree of a template.
#pragma once

#include <cstddef>
#include <memory>
#include <string_view>
#include <vector>

#include "jinja/ast.hpp"
#include "jinja/library.hpp"

namespace weft::jinja {

/// The variables of one part of a template: a loop's turn, a macro's call, the whole template.
struct Scope {
  explicit Scope(std::shared_ptr<Scope> parent_) : parent(std::move(parent_)) {}
  std::shared_ptr<Scope> parent;
  std::vector<std::pair<NameId, Value>> variables;
  Charge charge{sizeof(Scope)};

  const Value* find(NameId id) const;
  void set(NameId id, Value value);
};
using ScopePointer = std::shared_ptr<Scope>;

class Interpreter {
 public:
  /// `tree` and `context` must outlive it.
  Interpreter(const Tree& tree, FunctionContext& context, std::size_t output_bytes);
  ~Interpreter();
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;

  void define(std::string_view name, Value value);
  /// Renders the template. Fault for mistakes; `position` then gives the place.
  TextBuilder run();
  /// The byte of the source that is being executed.
  std::size_t position() const { return position_; }

 private:
  friend class Macro;
  friend class Loop;
  class Capture;

  enum class Flow { on, break_loop, continue_loop };

  Flow execute(const Block& block, const ScopePointer& scope);
  Flow execute(const Statement& node, const ScopePointer& scope);
  Flow execute_condition(const Statement& node, const ScopePointer& scope);
  Flow execute_loop(const Statement& node, const ScopePointer& scope);
  Flow run_loop(const Statement& node, const Value& iterable, const ScopePointer& scope, std::int64_t depth);
  Flow execute_captured(const Statement& node, const ScopePointer& scope);
  void execute_call_block(const Statement& node, const ScopePointer& scope);
  Value make_macro(const Statement& node, std::string name, const ScopePointer& scope);
  void write(const Value& value);

  Value evaluate(const Expression& node, const ScopePointer& scope);
  Value evaluate_name(const Expression& node, const ScopePointer& scope);
  Value evaluate_compare(const Expression& node, const ScopePointer& scope);
  Value evaluate_subscript(const Expression& node, const ScopePointer& scope);
  Value evaluate_call(const Expression& node, const ScopePointer& scope, const Value* caller);
  Value evaluate_filter(const Expression& node, const ScopePointer& scope, const Value* body);
  Value evaluate_test(const Expression& node, const ScopePointer& scope);
  Arguments evaluate_arguments(const Expression& node, const ScopePointer& scope);

  void assign(const Expression& target, Value value, const ScopePointer& scope);
  void check_namespaces(const Expression& target, const ScopePointer& scope);

  const Tree& tree_;
  FunctionContext& context_;
  std::size_t output_bytes_;
  ScopePointer root_;
  std::vector<ScopePointer> captured_;  // by macros; they are emptied at the end, since macros hold them
  TextBuilder* out_ = nullptr;
  bool at_top_ = true;  // out_ is the template's own
  std::size_t position_ = 0;
  NameId loop_name_ = -1;  // of "loop", if the template uses it
};

}  // namespace weft::jinja
