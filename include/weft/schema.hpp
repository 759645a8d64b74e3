// JSON Schema, draft 2020-12: descriptions of valid values.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weft/error.hpp"
#include "weft/value.hpp"

namespace weft::schema {

/// An invalid schema: its meta-schema refuses it, a reference has no target, a required vocabulary is unknown, or a regular
/// expression is not valid in ECMA-262.
class SchemaError : public UsageError {
  using UsageError::UsageError;
};

/// What is wrong with a value, and at which place. Paths are JSON pointers; `instance_path` is "" for the whole value.
struct Violation {
  std::string instance_path;
  std::string
      schema_path;      ///< of the keyword that refuses it: "#/properties/axis/minimum", after the URI of its resource
  std::string message;  ///< "is 3, which is above the maximum of 2"
};
/// "/axis: is 3, which is above the maximum of 2", a line for each violation.
std::string to_string(std::span<const Violation> violations);

struct SchemaOptions {
  /// Check formats. If false, formats are only annotations. Unknown formats are never checked.
  bool asserts_formats = false;
  /// Returns a document by its URI (without a fragment), for references to other documents. Unset: references reach only this
  /// document and the meta-schemas. Nothing is ever fetched from a network.
  std::function<std::optional<Value>(const std::string& uri)> fetch = {};
  std::size_t violations_max = 10;      ///< violations that a check lists
  int depth_max = 200;                  ///< depth of nested schemas while they are applied
  std::uint64_t steps_max = 2'000'000;  ///< schemas applied to values, and values compared, in one check
  double seconds_max = 10;              ///< seconds that one check may take
  std::size_t schemas_max = 100'000;    ///< subschemas, with those of other documents
};

/// A schema that is ready to check values.
///
/// All of draft 2020-12: every applicator, `unevaluatedItems` and `unevaluatedProperties`, references (`$ref`, `$dynamicRef`,
/// `$anchor`, `$id` with embedded resources), `$vocabulary`. A value or schema that exceeds the limits is refused with a
/// violation that says so.
///
/// Tensors: the keyword `x-tensor` ({"dtypes": ["f32"]} or true) takes tensors, of these dtypes, and nothing else. The other
/// keywords beside it describe the JSON form for readers, and are not applied. Elsewhere a tensor has none of the types.
///
/// Thread safety: any number of threads may use one.
class Schema {
 public:
  /// Errors: SchemaError that names the place in the schema.
  explicit Schema(Value document, SchemaOptions options = {});
  /// From JSON text. Errors: FileError as Value::parse; SchemaError.
  static Schema parse(std::string_view text, SchemaOptions options = {});

  const Value& document() const;

  bool accepts(const Value& value) const;
  /// What is wrong with a value, at most `violations_max` entries; nothing if it is valid.
  std::vector<Violation> check(const Value& value) const;

  /// The value with defaults where properties with a `default` are missing.
  Value with_defaults(Value value) const;
  /// The value in the schema's form: with defaults, with 3.0 as 3 where the schema says "integer", and without unknown
  /// properties where `additionalProperties` is false.
  Value normalised(Value value) const;

  struct Compiled;

 private:
  std::shared_ptr<const Compiled> compiled_;
};

}  // namespace weft::schema
