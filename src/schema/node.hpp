// Schemas as they are applied: a node for each, with its keywords read and its references followed.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/text_map.hpp"
#include "schema/formats.hpp"
#include "schema/regex.hpp"
#include "weft/schema.hpp"

namespace weft::schema {

struct Node;

struct ValueHash {
  std::size_t operator()(const Value* value) const { return value->hash(); }
};
struct ValueEqual {
  bool operator()(const Value* a, const Value* b) const { return *a == *b; }
};

/// Bits of the types that `type` allows. A number without a fraction is an integer too.
enum TypeBit : std::uint8_t {
  kNull = 1,
  kBoolean = 2,
  kInteger = 4,
  kNumber = 8,
  kString = 16,
  kArray = 32,
  kObject = 64
};

struct NumberRules {
  const Value *multiple_of = nullptr, *minimum = nullptr, *maximum = nullptr, *above = nullptr, *below = nullptr;
};

struct StringRules {
  std::uint64_t min_length = 0, max_length = UINT64_MAX;
  std::optional<Regex> pattern;
  std::string pattern_text;
  std::string format_name;
  FormatTest format = nullptr;  // only where it is asserted
};

struct ArrayRules {
  std::vector<const Node*> prefix_items;
  const Node *items = nullptr, *contains = nullptr;
  std::uint64_t min_contains = 1, max_contains = UINT64_MAX, min_items = 0, max_items = UINT64_MAX;
  bool unique = false;
};

struct ObjectRules {
  struct Pattern {
    Regex regex;
    std::string text;
    const Node* node;
  };
  TextMap<const Node*> properties;
  std::vector<Pattern> patterns;
  const Node *additional = nullptr, *names = nullptr;
  std::vector<std::string> required;
  std::vector<std::pair<std::string, std::vector<std::string>>> dependent_required;
  std::vector<std::pair<std::string, const Node*>> dependent_schemas;
  std::uint64_t min_properties = 0, max_properties = UINT64_MAX;
};

/// Schemas that are applied to the same value.
struct InPlaceRules {
  const Node* ref = nullptr;
  const Node* dynamic_ref = nullptr;  // where it leads if no dynamic scope has its anchor
  std::string dynamic_anchor;         // empty: the reference is not dynamic
  std::vector<const Node*> all_of, any_of, one_of;
  const Node *negated = nullptr, *condition = nullptr, *then_node = nullptr, *else_node = nullptr;
};

struct TensorRule {
  std::vector<DType> dtypes;  // empty: any
};

struct Node {
  std::string location;  // "URI#/pointer"
  int resource = 0;
  std::optional<bool> always;  // a schema that is a boolean
  std::uint8_t types = 0;      // 0: any
  const Value* constant = nullptr;
  const Value* choices = nullptr;
  std::unordered_set<const Value*, ValueHash, ValueEqual> choice_set;
  std::optional<TensorRule> tensor;
  std::unique_ptr<NumberRules> numbers;
  std::unique_ptr<StringRules> strings;
  std::unique_ptr<ArrayRules> arrays;
  std::unique_ptr<ObjectRules> objects;
  std::unique_ptr<InPlaceRules> in_place;
  const Node *unevaluated_items = nullptr, *unevaluated_properties = nullptr;
  const Value* default_value = nullptr;
};

/// A document or a part of it with an `$id` of its own.
struct Resource {
  std::string uri;
  const Value* root = nullptr;
  std::uint32_t vocabularies = 0;
  TextMap<const Value*> anchors, dynamic_anchors;
  TextMap<const Node*> dynamic_nodes;
};

struct Schema::Compiled {
  std::vector<std::unique_ptr<Value>> documents;  // the first is the schema's own
  std::vector<std::unique_ptr<Resource>> resources;
  std::vector<std::unique_ptr<Node>> nodes;
  const Node* root = nullptr;
  SchemaOptions options;
};

/// Reads a schema, and what it refers to. With `checked` each document is checked against its meta-schema.
std::shared_ptr<const Schema::Compiled> compile_schema(Value document, SchemaOptions options, bool checked);
/// A document of the draft by its URI; null for others.
const char* meta_schema_text(std::string_view uri);

/// Applies a schema. Null for `violations`: stops at the first.
bool apply(const Schema::Compiled& schema, const Value& value, std::vector<Violation>* violations);

/// Whether a is an exact multiple of b > 0, as decimal numbers.
bool is_multiple(const Value& a, const Value& b);

}  // namespace weft::schema
