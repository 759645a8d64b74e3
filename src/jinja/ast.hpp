// The syntax tree of a template.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "jinja/value.hpp"

namespace weft::jinja {

struct Expression;
struct Statement;
using ExpressionPointer = std::unique_ptr<Expression>;
using Block = std::vector<std::unique_ptr<Statement>>;

/// Index of a name in Tree::names.
using NameId = int;

/// An argument of a call, filter or test.
struct Argument {
  enum class Kind { positional, named, star, double_star };
  Kind kind;
  std::string name;  // of a named one
  ExpressionPointer value;
};

/// The contents of `parts` for each kind; optional parts that are missing are null.
enum class ExpressionKind {
  constant,             // -; `constant`
  name,                 // -; `name`, `id`
  namespace_attribute,  // -; a target ns.attribute: `name`, `id` of ns, `attribute`
  list,                 // the items
  tuple,                // the items
  dict,                 // key, value, key, value, ...
  positive,             // operand
  negative,             // operand
  logical_not,          // operand
  logical_and,          // left, right
  logical_or,           // left, right
  add,                  // left, right
  subtract,             // left, right
  multiply,             // left, right
  divide,               // left, right
  floor_divide,         // left, right
  modulo,               // left, right
  power,                // left, right
  concatenate,          // the operands of ~
  compare,              // a, b, c, ... of a < b == c, with `operators` between them
  conditional,          // value, condition, value if not (may be null)
  attribute,            // object; `name`
  subscript,            // object, index
  slice,                // start, stop, step (each may be null); as index of a subscript
  call,                 // what is called; `arguments`
  filter,               // subject (null: the body of a block); `name`, `arguments`
  test,                 // subject; `name`, `arguments`
};

enum class CompareOperator { eq, ne, lt, le, gt, ge, in, not_in };

struct Expression {
  ExpressionKind kind;
  std::size_t position;  // byte in Tree::source
  std::vector<ExpressionPointer> parts = {};
  std::string name = {};
  NameId id = -1;
  std::string attribute = {};
  Value constant = {};
  std::vector<CompareOperator> operators = {};
  std::vector<Argument> arguments = {};
  int depth = 1;
};

/// A parameter of a macro. Without a default it may also be left out, and is then undefined.
struct Parameter {
  std::string name;
  NameId id;
  ExpressionPointer default_value;  // may be null
};

/// The fields that a statement uses, for each kind.
enum class StatementKind {
  data,           // `data`
  print,          // `expression`
  condition,      // `branches`, `otherwise`
  loop,           // `target`, `expression` (what is walked), `test` (may be null), `body`, `otherwise`
  set,            // `target`, `expression`
  set_block,      // `target`, `body`, `expression` (filters on the body, may be null)
  with,           // `targets`, `values`, `body`
  macro,          // `name`, `id`, `parameters`, `body`
  call_block,     // `expression` (a call), `parameters`, `body`
  filter_block,   // `expression` (filters on the body), `body`
  generation,     // `body`
  break_loop,     //
  continue_loop,  //
};

struct Statement {
  struct Branch {
    ExpressionPointer test;
    Block body;
  };

  StatementKind kind;
  std::size_t position;
  TextPointer data = {};
  ExpressionPointer expression = {}, target = {}, test = {};
  std::vector<ExpressionPointer> targets = {}, values = {};
  std::vector<Branch> branches = {};
  Block body = {}, otherwise = {};
  std::string name = {};
  NameId id = -1;
  std::vector<Parameter> parameters = {};
  bool recursive = false;
  // For macros and call blocks: the special names that the body uses.
  bool uses_caller = false, uses_kwargs = false, uses_varargs = false;
};

struct Tree {
  std::string source;  // newlines as \n
  Block body;
  std::vector<std::string> names;
};

/// The place of a byte of the source, both from 1; columns count characters.
struct Place {
  std::size_t line, column;
};
Place place_of(std::string_view source, std::size_t position);

/// A mistake in the text of a template.
struct SyntaxFault {
  std::size_t position;
  std::string fact;
  std::string cure;
};

struct ParseLimits {
  std::size_t source_bytes;
  int depth;
};
/// Parses a template. SyntaxFault if it is not valid.
Tree parse_template(std::string_view source, const ParseLimits& limits);

/// The checks that need the whole tree: filters and tests that exist, break and continue inside loops, special names in macros.
/// SyntaxFault if a check fails.
void check_tree(Tree& tree);

}  // namespace weft::jinja
