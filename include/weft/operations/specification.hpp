// What an operation is, as data: its name, what it takes and gives, what may go wrong, who may call it.
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

/// A code that the operation itself may answer with.
struct DeclaredError {
  std::string code;  ///< "CONTEXT_FULL"
  std::string description;
  Value schema = true;  ///< of the error's details
  int http_status = 422;
};

/// What a caller needs. Nothing: everybody may call.
struct Access {
  std::vector<std::string> scopes;      ///< all of these
  std::vector<std::string> any_scopes;  ///< at least one of these
  std::string resource_type;            ///< a resource of this type, as in "model",
  std::string resource_action;          ///< with this action allowed, as in "run";
  std::string resource_input;           ///< its id is this member of the input
  std::string function;                 ///< a function of the registry that also has to agree
  bool is_open() const { return scopes.empty() && any_scopes.empty() && resource_type.empty() && function.empty(); }
};

struct Specification {
  std::string space;  ///< "tensor", the namespace
  std::string name;   ///< "matmul"
  std::string version = "1.0.0";
  Kind kind = Kind::query;
  std::string title, description;
  std::vector<std::string> tags;
  Value input = true;   ///< JSON Schema of what it takes
  Value output = true;  ///< and of what it gives; of a subscription, each time
  std::vector<DeclaredError> errors;
  Access access;
  Visibility visibility = Visibility::external;
  Value metadata = Value::Object();

  std::string id() const { return space + "." + name; }
};

/// The specification as JSON, without what only the registry uses (visibility).
Value to_value(const Specification& specification);
/// And back. Errors: UsageError that names a member which is missing, unknown, or of the wrong kind.
Specification specification_from(const Value& value);

/// Who calls: an id, scopes, and actions allowed on resources by "type:id". "type:*" stands for every resource of the
/// type, the action "*" for every action.
struct Identity {
  std::string id;
  std::vector<std::string> scopes;
  std::map<std::string, std::vector<std::string>> resources;

  bool has_scope(std::string_view scope) const;
  bool may(std::string_view type, std::string_view resource, std::string_view action) const;
};

}  // namespace weft::operations
