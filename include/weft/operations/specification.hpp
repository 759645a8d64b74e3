// The description of an operation as data: its name, input, output, errors, and who may call it.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "weft/value.hpp"

namespace weft::operations {

/// A query changes nothing, a mutation does; both answer once. A subscription answers any number of times.
enum class Kind : std::uint8_t { query, mutation, subscription };
std::string_view name_of(Kind kind);

/// Who sees an operation. An internal one can be called by other operations only; from outside it is not found.
enum class Visibility : std::uint8_t { external, internal };

/// An error code that the operation itself may return.
struct DeclaredError {
  std::string code;  ///< "CONTEXT_FULL"
  std::string description;
  Value schema = true;  ///< of the error's details
  int http_status = 422;
};

/// The rights that a caller needs. If empty, everybody may call.
struct Access {
  std::vector<std::string> scopes;      ///< the caller needs all of these
  std::vector<std::string> any_scopes;  ///< the caller needs at least one of these
  std::string resource_type;            ///< the caller needs a right on a resource of this type, such as "model";
  std::string resource_action;          ///< the right to do this action, such as "run";
  std::string resource_input;           ///< this member of the input is the resource's id
  std::string function;                 ///< a function of the registry that must also agree
  bool is_open() const { return scopes.empty() && any_scopes.empty() && resource_type.empty() && function.empty(); }
};

struct Specification {
  std::string space;  ///< "tensor", the namespace
  std::string name;   ///< "matmul"
  std::string version = "1.0.0";
  Kind kind = Kind::query;
  std::string title, description;
  std::vector<std::string> tags;
  Value input = true;   ///< JSON Schema of the input
  Value output = true;  ///< JSON Schema of the output; for a subscription, of each answer
  std::vector<DeclaredError> errors;
  Access access;
  Visibility visibility = Visibility::external;
  Value metadata = Value::Object();

  std::string id() const { return space + "." + name; }
};

/// The specification as JSON, without the visibility, which only the registry uses.
Value to_value(const Specification& specification);
/// The inverse. Errors: UsageError that names a member which is missing, unknown, or of the wrong kind.
Specification specification_from(const Value& value);

/// A caller: an id, scopes, and the actions allowed on each resource "type:id". "type:*" means every resource of the type, and
/// the action "*" every action.
struct Identity {
  std::string id;
  std::vector<std::string> scopes;
  std::map<std::string, std::vector<std::string>> resources;

  bool has_scope(std::string_view scope) const;
  bool may(std::string_view type, std::string_view resource, std::string_view action) const;
};

}  // namespace weft::operations
