// Grammars that the text of a language model must fit: GBNF, and JSON Schema.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace weft {
class Value;
namespace grammar {
struct CompiledGrammar;
}
}  // namespace weft

namespace weft::llm {

struct SchemaGrammarOptions {
  /// Ignores keywords that a grammar cannot express (`uniqueItems`, `contains`, `not` over them, look-around in a `pattern`, ...). The
  /// texts then fit the rest of the schema only. Otherwise such keywords are errors.
  bool lenient = false;
  /// Text around the JSON: `opening` before it; `closing` after it, which may be missing at the end of the whole text. Unless
  /// `again` is empty, more JSON texts may follow, each after `closing`, an optional line break, and `again`.
  std::string opening = {}, closing = {}, again = {};
};

/// The set of texts that a model may write. A generation with a grammar draws only tokens after which the text can still become a
/// text of the grammar, and ends only when the text is complete. A cheap handle, for any number of threads.
class Grammar {
 public:
  /// A grammar in GBNF, the language of llama.cpp:
  ///
  ///     root   ::= answer " because " [^.\n]{1,200} "."
  ///     answer ::= "yes" | "no"
  ///
  /// Errors: UsageError "SOURCE:LINE: fact".
  static Grammar parse(std::string_view gbnf, std::string_view source = "grammar");

  /// JSON texts that a schema (draft 2020-12) accepts. Properties come in the order of the schema. An object that lists
  /// properties has no others, unless `additionalProperties` says so; no key comes twice. Between tokens there may be a space, or a
  /// line break with up to 32 spaces. Strings with a `pattern` or a `format` escape only what must be escaped.
  ///
  /// Keywords: `type`, `enum`, `const`, `properties`, `required`, `additionalProperties`, `minProperties`, `maxProperties`,
  /// `items`, `prefixItems`, `minItems`, `maxItems`, `minLength`, `maxLength`, `pattern`, `format` (date-time, time, date, duration,
  /// email, hostname, ipv4, ipv6, uuid, uri), `minimum`, `maximum`, `exclusiveMinimum`, `exclusiveMaximum`, `multipleOf`, `$ref`
  /// and `$anchor` within the document, `allOf`, `anyOf`, and `oneOf` if no value can fit two of its schemas. Values that are free
  /// nest at most 12 deep.
  ///
  /// Errors: schema::SchemaError for an invalid schema; UsageError that names the place, for what a grammar cannot express, a schema
  /// of more than 1 MB or 64 levels, one that no value fits, and one that needs more than a million states.
  static Grammar json_schema(const Value& schema, const SchemaGrammarOptions& options = {});
  /// From JSON text. Errors: FileError as Value::parse, and as above.
  static Grammar parse_json_schema(std::string_view text, const SchemaGrammarOptions& options = {},
                                   std::string_view source = "the schema");
  /// Any object of JSON.
  static Grammar json_object();

  /// Whether the text fits.
  bool accepts(std::string_view text) const;
  /// Whether some text that begins like this fits.
  bool accepts_beginning(std::string_view text) const;

  /// What the engine reads.
  const std::shared_ptr<const grammar::CompiledGrammar>& shared() const { return compiled_; }

 private:
  explicit Grammar(grammar::CompiledGrammar compiled);
  std::shared_ptr<const grammar::CompiledGrammar> compiled_;
};

}  // namespace weft::llm
