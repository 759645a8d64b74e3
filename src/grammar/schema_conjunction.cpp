#include "grammar/schema_conjunction.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/quote.hpp"
#include "weft/error.hpp"

namespace weft::grammar {
namespace {

// Keywords that a value may violate although its text fits the grammar.
constexpr std::string_view kUnsaid[] = {
    "not",           "if",       "dependentSchemas", "dependentRequired",     "dependencies", "patternProperties",
    "propertyNames", "contains", "unevaluatedItems", "unevaluatedProperties", "$dynamicRef",  "$recursiveRef"};

constexpr std::string_view kTypeNames[] = {"null", "boolean", "integer", "number", "string", "array", "object"};
constexpr unsigned kTypeBits[] = {kNullType,   kBooleanType, kIntegerType, kIntegerType | kFractionType,
                                  kStringType, kArrayType,   kObjectType};

std::string escaped(std::string_view key) {
  std::string text;
  for (const char c : key) text += c == '~' ? "~0" : c == '/' ? "~1" : std::string(1, c);
  return text;
}

// A fragment's %XX as characters.
std::string decoded(std::string_view fragment) {
  std::string text;
  for (std::size_t i = 0; i < fragment.size(); ++i) {
    const auto hex = [&](std::size_t at) {
      const char c = at < fragment.size() ? fragment[at] : '\0';
      return c >= '0' && c <= '9'   ? c - '0'
             : c >= 'a' && c <= 'f' ? c - 'a' + 10
             : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                    : -1;
    };
    if (fragment[i] == '%' && hex(i + 1) >= 0 && hex(i + 2) >= 0) {
      text += static_cast<char>(hex(i + 1) * 16 + hex(i + 2));
      i += 2;
    } else {
      text += fragment[i];
    }
  }
  return text;
}

const Value* member(const Value* schema, std::string_view key) {
  return schema->is_object() ? schema->find(key) : nullptr;
}
const std::string* text_member(const Value* schema, std::string_view key) {
  const Value* found = member(schema, key);
  return found && found->is_string() ? &found->string() : nullptr;
}

}  // namespace

unsigned type_of(const Value& value) {
  switch (value.kind()) {
    case Value::Kind::null: return kNullType;
    case Value::Kind::boolean: return kBooleanType;
    case Value::Kind::integer: return kIntegerType;
    case Value::Kind::number: return value.is_integer() ? kIntegerType : kFractionType;
    case Value::Kind::string: return kStringType;
    case Value::Kind::array: return kArrayType;
    default: return kObjectType;
  }
}

SchemaDocument::SchemaDocument(const Value& document, bool lenient) : root_(document), lenient_(lenient) {
  bytes_ = root_.to_json().size();
  if (bytes_ > kBytesMax)
    throw UsageError(fmt::format("grammar: a schema of {} bytes; at most {} are read", bytes_, kBytesMax));
  // Older drafts are read as this one: their other keywords are errors of the meta-schema, or unsaid.
  if (const Value* dialect = member(&root_, "$schema");
      dialect && dialect->is_string() && dialect->string().find("json-schema.org/draft") != std::string::npos)
    root_.members().remove("$schema");
  const schema::Schema checked(root_, {.asserts_formats = true});  // by the meta-schema, with all references
  walk(root_, "#", true);
}

void SchemaDocument::walk(const Value& value, const std::string& place, bool is_schema) {
  places_[&value] = {place, places_.size()};
  by_place_[place] = &value;
  if (value.is_array()) {
    for (std::size_t i = 0; i < value.elements().size(); ++i) walk(value[i], fmt::format("{}/{}", place, i), is_schema);
    return;
  }
  if (!value.is_object()) return;
  if (!is_schema) {  // schemas by names
    for (const auto& [key, inner] : value.members()) walk(inner, place + "/" + escaped(key), true);
    return;
  }
  if (const std::string* anchor = text_member(&value, "$anchor")) anchors_[*anchor] = &value;
  if (place != "#" && text_member(&value, "$id"))
    refuse(&value, "embeds a schema with an $id of its own, which a grammar cannot follow");
  constexpr std::string_view kInstances[] = {"enum", "const", "default", "examples"};
  constexpr std::string_view kNamed[] = {"properties", "$defs", "definitions", "patternProperties", "dependentSchemas"};
  for (const auto& [key, inner] : value.members())
    if (std::find(std::begin(kInstances), std::end(kInstances), key) == std::end(kInstances))
      walk(inner, place + "/" + escaped(key), std::find(std::begin(kNamed), std::end(kNamed), key) == std::end(kNamed));
}

void SchemaDocument::sort(Conjunction& schemas) const {
  std::sort(schemas.begin(), schemas.end(),
            [&](const Value* a, const Value* b) { return places_.at(a).index < places_.at(b).index; });
  schemas.erase(std::unique(schemas.begin(), schemas.end()), schemas.end());
}

void SchemaDocument::refuse(const Value* schema, std::string_view fact) const {
  throw UsageError(fmt::format("grammar: the schema at {} {}", quote(place_of(schema)), fact));
}

const Value* SchemaDocument::target_of(const Value* schema, const std::string& reference) const {
  const std::size_t hash = reference.find('#');
  const std::string_view base = std::string_view(reference).substr(0, hash);
  const std::string* id = text_member(&root_, "$id");
  if (!base.empty() && !(id && *id == base))
    refuse(schema, fmt::format("refers to {}, and only this document is read", quote(reference)));
  const std::string fragment = hash == std::string::npos ? "" : decoded(reference.substr(hash + 1));
  const auto& table = fragment.empty() || fragment[0] == '/' ? by_place_ : anchors_;
  const auto found = table.find(&table == &by_place_ ? "#" + fragment : fragment);
  if (found == table.end()) refuse(schema, fmt::format("refers to {}, which is not a schema here", quote(reference)));
  return found->second;
}

void SchemaDocument::check_keywords(const Value* schema) const {
  if (lenient_) return;
  for (const std::string_view key : kUnsaid) {
    const Value* found = schema->find(key);
    if (!found) continue;
    refuse(schema, fmt::format("uses {}, which a grammar cannot say; leave it out, or be lenient", quote(key)));
  }
  if (const Value* unique = schema->find("uniqueItems"); unique && unique->is_boolean() && unique->boolean())
    refuse(schema, "uses \"uniqueItems\", which a grammar cannot say; leave it out, or be lenient");
}

std::vector<Conjunction> SchemaDocument::alternatives(const Conjunction& conjunction) const {
  std::vector<Conjunction> out;
  std::vector<Open> open;
  for (const Value* schema : conjunction) open.push_back({schema, nullptr});
  expand(std::move(open), {}, out, 0);
  return out;
}

void SchemaDocument::expand(std::vector<Open> open, Conjunction done, std::vector<Conjunction>& out, int depth) const {
  while (!open.empty()) {
    const auto here = std::make_shared<const Open>(std::move(open.back()));
    const Value* schema = here->schema;
    open.pop_back();
    if (++steps_ > kStepsMax) refuse(schema, "has too many alternatives and references to be read");
    if (here->depth > kDepthMax) refuse(schema, fmt::format("is behind more than {} references", kDepthMax));
    if (schema->is_boolean()) {
      if (!schema->boolean()) return;
      continue;
    }
    const Value *any = schema->find("anyOf"), *one = schema->find("oneOf");
    for (const Open* above = here->parent.get(); above; above = above->parent.get())
      if (above->schema == schema) refuse(schema, "refers to itself, with nothing in between");
    if (std::find(done.begin(), done.end(), schema) != done.end()) continue;
    check_keywords(schema);
    done.push_back(schema);
    if (const std::string* reference = text_member(schema, "$ref"))
      open.push_back({target_of(schema, *reference), here, here->depth + 1});
    if (const Value* all = schema->find("allOf"))
      for (const Value& each : all->elements()) open.push_back({&each, here, here->depth + 1});
    if (one && checked_.insert(schema).second) {
      const Value::Array& list = one->elements();
      for (std::size_t i = 0; i < list.size() && !lenient_; ++i)
        for (std::size_t j = 0; j < i; ++j)
          if (!are_disjoint(&list[i], &list[j], 0))
            refuse(schema, fmt::format("uses \"oneOf\", and a value might fit both of its schemas {} and {}; use "
                                       "\"anyOf\", or be lenient",
                                       j, i));
    }
    if (!any && !one) continue;
    if (depth > kDepthMax) refuse(schema, "has too many alternatives inside each other");
    // The first list of alternatives now; a second one is another member of the conjunction.
    std::vector<const Value*> lefts, rights = {nullptr};
    for (const Value& each : (any ? any : one)->elements()) lefts.push_back(&each);
    if (any && one) {
      rights.clear();
      for (const Value& each : one->elements()) rights.push_back(&each);
    }
    for (const Value* left : lefts)
      for (const Value* right : rights) {
        std::vector<Open> rest = open;
        rest.push_back({left, here, here->depth + 1});
        if (right) rest.push_back({right, here, here->depth + 1});
        expand(std::move(rest), done, out, depth + 1);
        if (out.size() > kAlternativesMax)
          refuse(schema, fmt::format("has more than {} combinations of alternatives", kAlternativesMax));
      }
    return;
  }
  sort(done);
  out.push_back(std::move(done));
}

unsigned SchemaDocument::types_of(const Value* schema) {
  const Value* type = member(schema, "type");
  if (!type) return kAnyType;
  unsigned bits = 0;
  const auto add = [&](const Value& name) {
    for (std::size_t i = 0; i < std::size(kTypeNames); ++i)
      if (name.string() == kTypeNames[i]) bits |= kTypeBits[i];
  };
  if (type->is_array())
    for (const Value& each : type->elements()) add(each);
  else
    add(*type);
  return bits;
}

namespace {

// Whether a schema does no more than list values and types, so that it needs no validator.
bool is_plain_list(const Value* schema) {
  constexpr std::string_view kPlain[] = {"type", "enum", "const", "title", "description", "default", "examples"};
  return std::all_of(schema->members().begin(), schema->members().end(), [&](const auto& m) {
    return std::find(std::begin(kPlain), std::end(kPlain), m.key) != std::end(kPlain);
  });
}

bool is_listed(const Value* schema, const Value& value) {
  const Value *constant = schema->find("const"), *list = schema->find("enum");
  return (SchemaDocument::types_of(schema) & type_of(value)) != 0 && (!constant || *constant == value) &&
         (!list || std::find(list->elements().begin(), list->elements().end(), value) != list->elements().end());
}

}  // namespace

bool SchemaDocument::accepts(const Value* schema, const Value& value) const {
  if (schema->is_boolean()) return schema->boolean();
  if (is_plain_list(schema)) return is_listed(schema, value);
  auto& validator = validators_[schema];
  if (!validator) {
    if (validators_.size() * bytes_ > kValidatorBytesMax)
      refuse(schema, "is one of too many whose values must be compared; take a smaller schema");
    // The place as a document that refers into this one, which keeps its own references.
    const std::string* id = text_member(&root_, "$id");
    const std::string name = id ? *id : "urn:weft:document";
    Value inner = root_;
    inner.members().set("$id", Value(name));
    std::string fragment = place_of(schema);
    std::string coded;
    for (const char c : fragment.substr(1))
      coded +=
          (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '/' || c == '~' || c == '_'
              ? std::string(1, c)
              : fmt::format("%{:02X}", static_cast<unsigned>(static_cast<unsigned char>(c)));
    validator =
        std::make_unique<schema::Schema>(Value::object({{"$id", Value("urn:weft:outer")},
                                                        {"$defs", Value::object({{"inner", std::move(inner)}})},
                                                        {"$ref", Value(name.substr(0, name.find('#')) + "#" + coded)}}),
                                         schema::SchemaOptions{.asserts_formats = true});
  }
  return validator->accepts(value);
}

bool SchemaDocument::are_disjoint(const Value* a, const Value* b, int depth) const {
  constexpr int kDisjointDepth = 6;
  if (depth > kDisjointDepth) return false;
  steps_ += kStepsOfComparison;
  const std::vector<Conjunction> lefts = alternatives({a}), rights = alternatives({b});
  const auto types = [](const Conjunction& all) {
    unsigned bits = kAnyType;
    for (const Value* each : all) bits &= types_of(each);
    return bits;
  };
  // Values that one side lists, all of which the other refuses.
  const auto lists_none_of = [&](const Conjunction& all, const Conjunction& others) {
    const auto fits = [&](const Conjunction& schemas, const Value& value) {
      return std::all_of(schemas.begin(), schemas.end(), [&](const Value* s) { return accepts(s, value); });
    };
    for (const Value* each : all) {
      if (const Value* constant = each->find("const")) return !fits(all, *constant) || !fits(others, *constant);
      if (const Value* list = each->find("enum"))
        return std::none_of(list->elements().begin(), list->elements().end(),
                            [&](const Value& v) { return fits(all, v) && fits(others, v); });
    }
    return false;
  };
  const auto requires_key = [](const Conjunction& all, const std::string& key) {
    return std::any_of(all.begin(), all.end(), [&](const Value* s) {
      const Value* list = s->find("required");
      return list && std::any_of(list->elements().begin(), list->elements().end(),
                                 [&](const Value& v) { return v.string() == key; });
    });
  };
  const auto property = [](const Value* s, const std::string& key) {
    const Value* properties = s->find("properties");
    return properties ? properties->find(key) : nullptr;
  };
  const auto is_refused = [&](const Conjunction& all, const std::string& key) {
    return std::any_of(all.begin(), all.end(), [&](const Value* s) {
      const Value* additional = s->find("additionalProperties");
      return additional && additional->is_boolean() && !additional->boolean() && !property(s, key);
    });
  };
  const auto objects_differ = [&](const Conjunction& left, const Conjunction& right) {
    for (const Conjunction* side : {&left, &right}) {
      const Conjunction& other = side == &left ? right : left;
      for (const Value* s : *side) {
        const Value* list = s->find("required");
        if (!list) continue;
        for (const Value& name : list->elements()) {
          const std::string& key = name.string();
          if (is_refused(other, key)) return true;
          if (!requires_key(other, key)) continue;
          for (const Value* x : *side)
            for (const Value* y : other)
              if (property(x, key) && property(y, key) && are_disjoint(property(x, key), property(y, key), depth + 1))
                return true;
        }
      }
    }
    return false;
  };
  for (const Conjunction& left : lefts)
    for (const Conjunction& right : rights) {
      const unsigned common = types(left) & types(right);
      if (common == 0 || lists_none_of(left, right) || lists_none_of(right, left)) continue;
      if (common == kObjectType && objects_differ(left, right)) continue;
      return false;
    }
  return true;
}

}  // namespace weft::grammar
