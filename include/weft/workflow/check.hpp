// What can be said of a workflow before anything runs.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "weft/operations/registry.hpp"
#include "weft/workflow/template.hpp"

namespace weft::workflow {

/// A mistake in a template.
///
/// | code | |
/// |---|---|
/// | INVALID_ELEMENT | an element without what its type needs, or with what it does not take |
/// | DUPLICATE_ID | an id that is taken, or a name with a meaning: input, previous, before, index |
/// | UNKNOWN_OPERATION | no such operation, or a subscription |
/// | INVALID_REFERENCE | a text that begins with "$." and is not a path |
/// | MISSING_RESULT | a reference to an id, or a member, that does not exist, or cannot be seen from there |
/// | LATER_RESULT | a reference to something that comes later, or to the element's own parent |
/// | CYCLE | elements of a parallel that wait for each other |
/// | TYPE_MISMATCH | data that the operation's schema refuses |
struct Problem {
  std::string code;
  std::string path;  ///< "/tree/children/1/props/input/x"
  std::string message;
};
/// "PATH: message (CODE)", a line for each.
std::string to_string(const std::vector<Problem>& problems);

/// All mistakes, at most 100. `internal`: internal operations count too, as for a workflow that is an operation itself.
std::vector<Problem> check(const Template& workflow, const operations::Registry& registry, bool internal = false);

/// Whether data of one JSON Schema can be the input of another. unknown: the schemas do not say enough, and the input is checked
/// when it is there.
struct Fit {
  enum class Kind : std::uint8_t { fits, unknown, incompatible };
  Kind kind = Kind::unknown;
  std::string detail;  ///< why data do not fit: "/x: is a string, and not a tensor"
};
/// Equal schemas fit; so does an output with more fields than the input needs. `true` and {} are unknown.
Fit fit(const Value& output, const Value& input);

/// The operations of a template as a directed graph without cycles.
struct OperationGraph {
  struct Node {
    std::string path, operation, id;
  };
  struct Edge {
    std::size_t from = 0, to = 0;
    bool is_data = false;  ///< data goes along it; otherwise only order
    Fit fit;               ///< of all data that the operation at its end takes
  };
  std::vector<Node> nodes;  ///< in a topological order
  std::vector<Edge> edges;  ///< at most one from a node to another, and none to itself
};
/// Errors: UsageError with all problems if there are any.
OperationGraph operation_graph(const Template& workflow, const operations::Registry& registry, bool internal = false);
/// {"nodes": [...], "edges": [{"from", "to", "kind": "data" or "order", "fit", "detail"}]}, with paths as the ends of edges.
Value to_value(const OperationGraph& graph);

}  // namespace weft::workflow
