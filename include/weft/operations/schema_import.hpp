// Operations from JSON Schema: documents that describe inputs and outputs, and leave it to the reader who answers.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "weft/operations/specification.hpp"

namespace weft::operations {

struct SchemaImportOptions {
  std::string space;  ///< namespace of operations that name none; empty: the document's "title", as a name
  std::size_t operations_max = 10'000;
};

/// The specifications that a document gives, in its order. Give them handlers with `Registry::add`. A document is one of these:
///
/// - A list, or {"operations": [...]}, of specifications in the form of `to_value`. Only `name` is needed. `input` or
///   `parameters` may stand for `inputSchema`, and `output` for `outputSchema`. The tools of language models,
///   {"type": "function", "function": {"name", "description", "parameters"}}, are such entries.
/// - A schema with `$defs` (or `definitions`). A definition with `input` or `output` among its properties is an operation of
///   its name: the property `input` is the schema of the input, `output` that of the output. Other definitions are types.
///
/// References lead to definitions of the document (#/$defs/NAME), which schemas take along. A schema with `$defs` of its own is
/// complete. Operations that do not say `type` are mutations.
/// Errors: UsageError that names the place: no operations, or too many; names that are not [A-Za-z_][A-Za-z0-9_-]*, or are given
/// twice; references that lead nowhere, in circles without a schema, or to other documents. SchemaError.
std::vector<Specification> specifications_from_schema(const Value& document, const SchemaImportOptions& options = {});

}  // namespace weft::operations
