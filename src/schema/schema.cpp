#include "weft/schema.hpp"

#include <fmt/format.h>

#include "schema/node.hpp"

namespace weft::schema {
namespace {

// Brings a value into the form that a schema has in mind.
class Normalisation {
 public:
  explicit Normalisation(bool casts) : casts_(casts) {}

  void run(const Node& node, Value& value, int depth) {
    if (depth > kDepthMax || node.tensor) return;
    if (casts_ && value.kind() == Value::Kind::number && (node.types & kInteger) && !(node.types & kNumber) &&
        value.is_integer() && value.number() >= -0x1p63 && value.number() < 0x1p63)
      value = Value(value.integer());
    if (const InPlaceRules* rules = node.in_place.get()) {
      if (rules->ref) run(*rules->ref, value, depth + 1);
      for (const Node* inner : rules->all_of) run(*inner, value, depth + 1);
    }
    if (node.objects && value.is_object()) object(node, *node.objects, value.members(), depth);
    if (node.arrays && value.is_array() && (node.arrays->items || !node.arrays->prefix_items.empty())) {
      Value::Array& elements = value.elements();
      const auto& prefix = node.arrays->prefix_items;
      for (std::size_t i = 0; i < elements.size(); ++i)
        if (const Node* inner = i < prefix.size() ? prefix[i] : node.arrays->items) run(*inner, elements[i], depth + 1);
    }
  }

 private:
  static constexpr int kDepthMax = 100;

  static const Value* default_of(const Node& node, int depth = 0) {
    if (node.default_value || depth > kDepthMax) return node.default_value;
    return node.in_place && node.in_place->ref ? default_of(*node.in_place->ref, depth + 1) : nullptr;
  }

  void object(const Node&, const ObjectRules& rules, Value::Object& members, int depth) {
    if (casts_ && rules.additional && rules.additional->always == false && rules.patterns.empty())
      for (std::size_t i = members.size(); i-- > 0;)
        if (!rules.properties.contains(std::string_view(members[i].key))) members.remove(std::string(members[i].key));
    for (const auto& [name, inner] : rules.properties) {
      if (Value* member = members.find(name))
        run(*inner, *member, depth + 1);
      else if (const Value* value = default_of(*inner))
        members.set(name, *value);
    }
    if (rules.additional && !rules.additional->always)
      for (std::size_t i = 0; i < members.size(); ++i)
        if (!rules.properties.contains(std::string_view(members[i].key)))
          run(*rules.additional, members.value(i), depth + 1);
  }

  bool casts_;
};

}  // namespace

std::string to_string(std::span<const Violation> violations) {
  std::string text;
  for (const Violation& each : violations) {
    if (!text.empty()) text += '\n';
    text += fmt::format("{}: {}", each.instance_path.empty() ? "the value" : each.instance_path, each.message);
  }
  return text;
}

Schema::Schema(Value document, SchemaOptions options)
    : compiled_(compile_schema(std::move(document), std::move(options), true)) {}

Schema Schema::parse(std::string_view text, SchemaOptions options) {
  return Schema(Value::parse(text, "schema"), std::move(options));
}

const Value& Schema::document() const { return *compiled_->documents.front(); }

bool Schema::accepts(const Value& value) const { return apply(*compiled_, value, nullptr); }

std::vector<Violation> Schema::check(const Value& value) const {
  if (accepts(value)) return {};
  std::vector<Violation> violations;
  apply(*compiled_, value, &violations);
  return violations;
}

Value Schema::with_defaults(Value value) const {
  Normalisation(false).run(*compiled_->root, value, 0);
  return value;
}

Value Schema::normalised(Value value) const {
  Normalisation(true).run(*compiled_->root, value, 0);
  return value;
}

}  // namespace weft::schema
