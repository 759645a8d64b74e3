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

  /// The alternatives of a conjunction: of each, the schemas whose own keywords hold. Those that nothing fits are left out.
  /// Errors: UsageError for keywords that a grammar cannot say, unless lenient; for more than kAlternativesMax, and schemas that take
  /// too long to compare.
  std::vector<Conjunction> alternatives(const Conjunction& conjunction) const;
  /// Whether a value fits the schema at a place, by the validator.
  bool accepts(const Value* schema, const Value& value) const;
  /// The types that a schema's own keyword `type` allows.
  static unsigned types_of(const Value* schema);

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
  void expand(std::vector<Open> open, Conjunction done, std::vector<Conjunction>& out, int depth) const;
  void check_keywords(const Value* schema) const;
  bool are_disjoint(const Value* a, const Value* b, int depth) const;

  Value root_;
  bool lenient_;
  std::size_t bytes_;
  mutable std::size_t steps_ = 0;  // schemas looked at
  std::unordered_map<const Value*, Place> places_;
  std::map<std::string, const Value*> by_place_, anchors_;
  mutable std::map<const Value*, std::unique_ptr<schema::Schema>> validators_;
  mutable std::set<const Value*> checked_;  // whose `oneOf` is known to be disjoint, or is being looked at
};

}  // namespace weft::grammar
