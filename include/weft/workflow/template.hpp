// Templates: trees of elements, in C++ and as JSON.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "weft/value.hpp"

namespace weft::workflow {

/// operation: one call. sequential: its children in order. parallel: its children at once. conditional: the first child if the
/// test holds, else the second one, if there is one. map: its child once for each element of a list.
enum class Type : std::uint8_t { operation, sequential, parallel, conditional, map };
/// "Operation", "Sequential", ...
std::string_view name_of(Type type);

/// Decides over the results that a conditional can see: {"input": ..., "previous": ..., ID: ...}.
using Test = std::function<bool(const Value& results)>;

inline constexpr int kRetriesMax = 100;  ///< of an operation

/// An element of a template.
///
/// Texts "$.NAME..." in `input`, `output`, `over`, `initial` and `test` are references to results:
///   $.input     the input of the workflow
///   $.previous  the result before this element: of the child before it in a sequential, of the item before it in a map, otherwise
///               what is before its parent; the workflow's input at the beginning
///   $.ID        the result of the element with this id, which must be before this one; in a parallel it may be any sibling
///   $.AS        the item of a map, by its name; $.index is its index, and $.before the result of the item before it, or `initial`
/// Members and elements follow: "$.step.losses[0]", "$.step.losses.0", "$.step[\"a.b\"]". "$$.x" is the text "$.x".
///
/// Results: of an operation its data; of a sequential that of the last child; of a parallel and of a map a list; of a conditional that
/// of the chosen child, or null. `output` replaces it; there "$.previous" is what it replaces, and ids inside of the element can
/// be seen.
struct Element {
  Type type = Type::sequential;
  std::string id;
  std::string operation;          ///< operation: "tensor.add"
  std::optional<Value> input;     ///< operation; unset: the previous result, without fields that its schema excludes
  std::optional<double> timeout;  ///< operation: seconds, of each attempt
  int retries = 0;                ///< operation: further attempts after failures that another attempt may mend
  double retry_delay =
      0.1;  ///< operation: seconds before the first of them; each further wait is twice as long, at most 30
  std::optional<Value> output;      ///< of the others
  std::size_t max_concurrency = 0;  ///< parallel: 0 is no limit; map: 0 is 1, and items are in order
  std::optional<Value> test;     ///< conditional: a reference to a boolean, or {"value": ..., "matches": JSON Schema}
  Test test_function;            ///< conditional, in place of `test`; cannot be written as JSON
  Value over;                    ///< map: a list, or a reference to one
  std::string as = "item";       ///< map
  std::optional<Value> initial;  ///< map: "$.before" of the first item
  std::vector<Element> children;
};

// Builders. They read as the tree that they make; `named` gives an element its id.

Element operation(std::string_view operation, std::optional<Value> input = std::nullopt);
Element sequential(std::vector<Element> children);
Element parallel(std::vector<Element> children, std::size_t max_concurrency = 0);
Element conditional(Value test, Element then);
Element conditional(Value test, Element then, Element otherwise);
Element conditional(Test test, Element then);
Element conditional(Test test, Element then, Element otherwise);
Element map(Value over, std::string_view as, Element body);
Element named(std::string_view id, Element element);
Element with_output(Element element, Value output);

/// abort_dependents: what depends on a failed element is aborted; the rest runs to its end. continue_running: elements that run
/// may end, and nothing new is started. The same holds for the calls under way if the workflow itself is aborted: they are
/// aborted, or they end.
enum class OnFailure : std::uint8_t { abort_dependents, continue_running };

/// A workflow: a tree with what it takes and gives.
struct Template {
  std::string name, description;
  Value input_schema = true, output_schema = true;
  OnFailure on_failure = OnFailure::abort_dependents;
  Element tree;
};

/// {"type": "Operation", "props": {"name": ..., "input": ...}, "children": [...]}. Errors: UsageError for a test that is a
/// function.
Value to_value(const Element& element);
/// {"name", "description", "inputSchema", "outputSchema", "onFailure", "tree"}; members with their defaults are left out.
Value to_value(const Template& workflow);
/// Elements and templates from JSON; the JSON of one element is a template too. Errors: UsageError with the path of each member that
/// is missing, unknown or has the wrong type. Elements nest at most 60 deep.
Element element_from(const Value& value);
Template template_from(const Value& value);

}  // namespace weft::workflow
