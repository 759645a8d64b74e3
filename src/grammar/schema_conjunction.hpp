// Schemas that hold together for one value: references followed, allOf joined, alternatives listed.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "weft/schema.hpp"
#include "weft/value.hpp"

namespace weft::grammar {

/// Bits of the types of JSON.
enum SchemaType : unsigned {
  kNullType = 1,
  kBooleanType = 2,
  kIntegerType = 4,
  kFractionType = 8,  // numbers that are not integers
  kStringType = 16,
  kArrayType = 32,
  kObjectType = 64,
  kAnyType = 127
};
unsigned type_of(const Value& value);

/// Places in a document. All of them hold for one value.
using Conjunction = std::vector<const Value*>;

/// A schema document, by its places.
class SchemaDocument {
 public:
  static constexpr std::size_t kBytesMax = std::size_t{1} << 20, kAlternativesMax = 2000;
  static constexpr int kDepthMax = 200;
  static constexpr std::size_t kStepsMax = 2'000'000, kStepsOfComparison = 50,
                               kValidatorBytesMax = std::size_t{8} << 20;

  /// Errors: SchemaError; UsageError for a document of more than kBytesMax.
  SchemaDocument(const Value& document, bool lenient);

  const Value& root() const { return root_; }
  bool is_lenient() const { return lenient_; }
  /// "#/properties/a".
  const std::string& place_of(const Value* schema) const { return places_.at(schema).text; }
  /// Schemas in the order of the document, each once.
  void sort(Conjunction& schemas) const;
  /// Throws the UsageError for what a grammar cannot say at a place.
  [[noreturn]] void refuse(const Value* schema, std::string_view fact) const;

  /// The alternatives of a conjunction: of each, the schemas whose own keywords hold. Those that nothing fits are left out. `if`,
  /// `not` and what depends on the presence of a property become alternatives too, in schemas that this document makes.
  /// Errors: UsageError for keywords that a grammar cannot say, unless lenient; for more than kAlternativesMax, and schemas that take
  /// too long to compare.
  std::vector<Conjunction> alternatives(const Conjunction& conjunction);
  /// Whether a value fits the schema at a place, by the validator.
  bool accepts(const Value* schema, const Value& value) const;
  /// The types that a schema's own keyword `type` allows, and `not` leaves; the former alone.
  static unsigned types_of(const Value* schema);
  static unsigned types_of_keyword(const Value* schema);
  /// The schema in `not` if that has one keyword only, of `type`, `const`, `enum` and `pattern`: these are said where values are.
  /// Else null.
  static const Value* negated_keyword(const Value* schema);

 private:
  struct Place {
    std::string text;
    std::size_t index;  // in the order of the document
  };
  void walk(const Value& value, const std::string& place, bool is_schema);
  const Value* target_of(const Value* schema, const std::string& reference) const;
  /// A schema that is to be looked at, and those that led to it.
  struct Open {
    const Value* schema;
    std::shared_ptr<const Open> parent;
    int depth = 0;
  };
  using Opens = std::vector<std::shared_ptr<const Open>>;  // those of `done`
  void expand(std::vector<Open> open, Conjunction done, Opens paths, std::vector<Conjunction>& out, int depth);
  void check_keywords(const Value* schema) const;
  bool are_disjoint(const Value* a, const Value* b, int depth);
  /// Lists of schemas, of which one holds.
  using Choices = std::vector<Conjunction>;
  std::vector<Choices> choices_of(const Value* schema);
  void check_one_of(const Value* schema);
  /// Adds what `unevaluatedProperties` of each schema says about the properties that its parts do not know.
  void add_unevaluated(Conjunction& done, const Opens& paths);
  /// A schema that this document makes for the one at a place; the same one for the same text.
  const Value* made_for(const Value* origin, Value schema);
  const Value* without_property(const Value* origin, std::string_view name);
  const Value* with_properties(const Value* origin, Value names);
  /// The schema of what does not fit; null where no schema says that, unless that is an error.
  const Value* negation_of(const Value* origin, const Value* schema, std::string_view keyword);
  Value negated(const Value* origin, const Value& schema, int depth);

  Value root_;
  bool lenient_;
  std::size_t bytes_;
  std::size_t steps_ = 0;  // schemas looked at
  std::unordered_map<const Value*, Place> places_;
  std::map<std::string, const Value*> by_place_, anchors_;
  mutable std::map<const Value*, std::unique_ptr<schema::Schema>> validators_;
  std::map<std::pair<const Value*, std::string>, std::unique_ptr<const Value>> made_;
  std::set<const Value*> made_places_;  // in `made_`
  std::set<const Value*> checked_;      // whose `oneOf` is known to be disjoint, or is being looked at
};

}  // namespace weft::grammar
