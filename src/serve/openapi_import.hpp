// Operations of HTTP services, from an OpenAPI 3.1 description or from a JSON Schema document and a URL.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "weft/operations/specification.hpp"

namespace weft::serve {

struct OpenApiOptions {
  std::string base;  ///< URL of the description, which relative servers refer to; may be empty
  std::size_t operations_max = 10'000;
  std::size_t definitions_max = 2'000;  ///< schemas that one operation may refer to
};

/// An operation, and the request that it stands for.
struct HttpOperation {
  struct Parameter {
    std::string name, in;  ///< in: path, query or header
  };
  operations::Specification specification;
  std::string method;  ///< "GET"
  std::string server;  ///< URL without a / at its end
  std::string path;    ///< "/users/{id}"
  std::vector<Parameter> parameters;
  bool has_body = false;  ///< the member "body" of the input
  bool input_is_body = false;

  /// The URL for an input, with its parameters in path and query. Errors: OperationError VALIDATION_ERROR.
  std::string url(const Value& input) const;
  /// What is sent as JSON; null: nothing.
  const Value* body(const Value& input) const {
    return input_is_body ? &input : has_body ? input.find("body") : nullptr;
  }
};

/// The operations of a description. An input has a member for each parameter, and "body" for a body of JSON. Operations whose bodies are
/// not JSON, or with parameters in cookies, are left out. An operation has the name NAME if its operationId is an id, as in
/// "tensor.add", and otherwise TITLE.NAME. Callers from outside need the scope "http:call".
/// Errors: UsageError that names the place, for what is not a description of 3.1, references that lead nowhere, in circles or to other
/// documents, and too many operations.
std::vector<HttpOperation> read_openapi(const Value& description, const OpenApiOptions& options = {});

/// The operations of a JSON Schema document (weft/operations/schema_import.hpp) at a URL: each is POST BASE/NAME, whose body is the
/// input, and whose answer is the output. Callers from outside need the scope "http:call", if an operation asks for none.
std::vector<HttpOperation> read_schema_operations(const Value& document, std::string base, const std::string& space);

}  // namespace weft::serve
