#include "grammar/schema_conjunction.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/quote.hpp"
#include "weft/error.hpp"

namespace weft::grammar {
namespace {

// Keywords that a value may violate although its text fits the grammar.
constexpr std::string_view kUnsaid[] = {"propertyNames", "contains", "unevaluatedItems", "$dynamicRef",
                                        "$recursiveRef"};
// Keywords that no value can violate.
constexpr std::string_view kAnnotations[] = {"title",      "description", "default",    "examples", "$comment",
                                             "deprecated", "readOnly",    "writeOnly",  "$schema",  "$id",
                                             "$anchor",    "$defs",       "definitions"};
bool is_annotation(std::string_view key) {
  return std::find(std::begin(kAnnotations), std::end(kAnnotations), key) != std::end(kAnnotations);
}

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

std::vector<Conjunction> SchemaDocument::alternatives(const Conjunction& conjunction) {
  std::vector<Conjunction> out;
  std::vector<Open> open;
  for (const Value* schema : conjunction) open.push_back({schema, nullptr});
  expand(std::move(open), {}, {}, out, 0);
  return out;
}

void SchemaDocument::check_one_of(const Value* schema) {
  const Value* one = schema->find("oneOf");
  if (!one || !checked_.insert(schema).second || lenient_) return;
  const Value::Array& list = one->elements();
  for (std::size_t i = 0; i < list.size(); ++i)
    for (std::size_t j = 0; j < i; ++j)
      if (!are_disjoint(&list[i], &list[j], 0))
        refuse(schema, fmt::format("uses \"oneOf\", and a value might fit both of its schemas {} and {}; use "
                                   "\"anyOf\", or be lenient",
                                   j, i));
}

std::vector<SchemaDocument::Choices> SchemaDocument::choices_of(const Value* schema) {
  std::vector<Choices> all;
  for (const char* key : {"anyOf", "oneOf"})
    if (const Value* list = schema->find(key)) {
      Choices choices;
      for (const Value& each : list->elements()) choices.push_back({&each});
      all.push_back(std::move(choices));
    }
  const Value *then = schema->find("then"), *otherwise = schema->find("else");
  if (const Value* condition = schema->find("if"); condition && (then || otherwise)) {
    // Where nothing is asked of values that do not fit, the condition may still be too much for a negation.
    if (const Value* negation = negation_of(schema, condition, "if")) {
      Conjunction fits = {condition}, fails = {negation};
      if (then) fits.push_back(then);
      if (otherwise) fails.push_back(otherwise);
      all.push_back({std::move(fits), std::move(fails)});
    }
  }
  const auto add_dependency = [&](std::string_view name, const Value& needed) {
    Conjunction present;
    if (needed.is_array()) {
      Value::Array names = {Value(name)};
      for (const Value& each : needed.elements()) names.push_back(each);
      present = {with_properties(schema, Value(std::move(names)))};
    } else {
      present = {with_properties(schema, Value::array({Value(name)})), &needed};
    }
    all.push_back({{without_property(schema, name)}, std::move(present)});
  };
  for (const char* key : {"dependentRequired", "dependentSchemas", "dependencies"})
    if (const Value* members = schema->find(key))
      for (const auto& [name, needed] : members->members()) add_dependency(name, needed);
  return all;
}

void SchemaDocument::expand(std::vector<Open> open, Conjunction done, Opens paths, std::vector<Conjunction>& out,
                            int depth) {
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
    for (const Open* above = here->parent.get(); above; above = above->parent.get())
      if (above->schema == schema) refuse(schema, "refers to itself, with nothing in between");
    if (std::find(done.begin(), done.end(), schema) != done.end()) continue;
    check_keywords(schema);
    done.push_back(schema);
    paths.push_back(here);
    const auto add = [&](std::vector<Open>& list, const Value* each) { list.push_back({each, here, here->depth + 1}); };
    if (const std::string* reference = text_member(schema, "$ref")) add(open, target_of(schema, *reference));
    if (const Value* all = schema->find("allOf"))
      for (const Value& each : all->elements()) add(open, &each);
    if (const Value* inner = schema->find("not"); inner && !negated_keyword(schema))
      if (const Value* negation = negation_of(schema, inner, "not")) add(open, negation);
    check_one_of(schema);
    const std::vector<Choices> choices = choices_of(schema);
    if (choices.empty()) continue;
    if (depth > kDepthMax) refuse(schema, "has too many alternatives inside each other");
    // One member of each list of alternatives, in all combinations.
    std::vector<std::size_t> chosen(choices.size(), 0);
    for (std::size_t list = 0; list < choices.size();) {
      std::vector<Open> rest = open;
      for (std::size_t i = 0; i < choices.size(); ++i)
        for (const Value* each : choices[i][chosen[i]]) add(rest, each);
      expand(std::move(rest), done, paths, out, depth + 1);
      if (out.size() > kAlternativesMax)
        refuse(schema, fmt::format("has more than {} combinations of alternatives", kAlternativesMax));
      for (list = 0; list < choices.size() && ++chosen[list] == choices[list].size(); ++list) chosen[list] = 0;
    }
    return;
  }
  add_unevaluated(done, paths);
  sort(done);
  out.push_back(std::move(done));
}

void SchemaDocument::add_unevaluated(Conjunction& done, const Opens& paths) {
  const std::size_t count = done.size();
  for (std::size_t i = 0; i < count; ++i) {
    const Value* others = done[i]->find("unevaluatedProperties");
    if (!others) continue;
    // The schemas that were reached from this one, and itself.
    Value::Object names, patterns;
    bool has_all = false;
    for (std::size_t j = 0; j < count; ++j) {
      const Open* above = paths[j].get();
      while (above && above->schema != done[i]) above = above->parent.get();
      if (!above) continue;
      has_all = has_all || done[j]->find("additionalProperties") || (j != i && done[j]->find("unevaluatedProperties"));
      if (const Value* known = done[j]->find("properties"))
        for (const auto& [name, inner] : known->members()) names.set(name, true);
      if (const Value* known = done[j]->find("patternProperties"))
        for (const auto& [pattern, inner] : known->members()) patterns.set(pattern, true);
    }
    if (has_all) continue;
    if (others->is_object() && others->to_json().find("\"$ref\"") != std::string::npos) {
      if (lenient_) continue;
      refuse(done[i],
             "uses \"unevaluatedProperties\" with a reference, which a grammar cannot say; leave it out, or be "
             "lenient");
    }
    done.push_back(made_for(done[i], Value::object({{"properties", std::move(names)},
                                                    {"patternProperties", std::move(patterns)},
                                                    {"additionalProperties", *others}})));
  }
}

const Value* SchemaDocument::made_for(const Value* origin, Value schema) {
  auto& made = made_[{origin, schema.to_json()}];
  if (!made) {
    made = std::make_unique<const Value>(std::move(schema));
    const std::size_t before = places_.size();
    walk(*made, place_of(origin) + " (as read)", true);
    for (const auto& [value, place] : places_)
      if (place.index >= before) made_places_.insert(value);
  }
  return made.get();
}
const Value* SchemaDocument::without_property(const Value* origin, std::string_view name) {
  return made_for(origin, Value::object({{"properties", Value::object({{std::string(name), false}})}}));
}
const Value* SchemaDocument::with_properties(const Value* origin, Value names) {
  return made_for(origin, Value::object({{"required", std::move(names)}}));
}

const Value* SchemaDocument::negated_keyword(const Value* schema) {
  const Value* inner = member(schema, "not");
  if (!inner || !inner->is_object()) return nullptr;
  int said = 0;
  for (const auto& [key, value] : inner->members()) {
    if (is_annotation(key)) continue;
    if (key != "type" && key != "const" && key != "enum" && key != "pattern") return nullptr;
    ++said;
  }
  return said == 1 ? inner : nullptr;
}

const Value* SchemaDocument::negation_of(const Value* origin, const Value* schema, std::string_view keyword) {
  try {
    return made_for(origin, negated(origin, *schema, 0));
  } catch (const UsageError& error) {
    if (lenient_) return nullptr;
    refuse(origin, fmt::format("uses {} over {}", quote(keyword), error.what()));
  }
}

Value SchemaDocument::negated(const Value* origin, const Value& schema, int depth) {
  constexpr int kNegationsMax = 16;
  if (depth > kNegationsMax) throw UsageError("schemas that are too deep for a grammar to say what does not fit");
  if (schema.is_boolean()) return Value(!schema.boolean());
  Value::Array any;
  const auto of_type = [](const char* type, std::string_view key, Value value) {
    return Value::object({{"type", type}, {std::string(key), std::move(value)}});
  };
  const auto add_count = [&](const char* type, std::string_view other, const Value& limit, int step) {
    const double value = limit.number() + step;
    any.push_back(value < 0 ? Value(false) : of_type(type, other, Value(static_cast<std::int64_t>(value))));
  };
  for (const auto& [key, value] : schema.members()) {
    if (is_annotation(key)) continue;
    if (key == "type" || key == "const" || key == "enum" || key == "pattern") {
      any.push_back(Value::object({{"not", Value::object({{key, value}})}}));
    } else if (key == "required") {
      for (const Value& name : value.elements())
        any.push_back(of_type("object", "properties", Value::object({{name.string(), false}})));
    } else if (key == "properties") {
      for (const auto& [name, inner] : value.members())
        any.push_back(Value::object({{"type", "object"},
                                     {"required", Value::array({Value(name)})},
                                     {"properties", Value::object({{name, negated(origin, inner, depth + 1)}})}}));
    } else if (key == "allOf") {
      for (const Value& each : value.elements()) any.push_back(negated(origin, each, depth + 1));
    } else if (key == "anyOf") {
      Value::Array all;
      for (const Value& each : value.elements()) all.push_back(negated(origin, each, depth + 1));
      any.push_back(Value::object({{"allOf", std::move(all)}}));
    } else if (key == "not") {
      if (value.to_json().find("\"$ref\"") != std::string::npos)
        throw UsageError("a reference in \"not\", which a grammar cannot say; leave it out, or be lenient");
      any.push_back(value);
    } else if (key == "$ref") {
      any.push_back(negated(origin, *target_of(origin, value.string()), depth + 1));
    } else if (key == "minimum") {
      any.push_back(of_type("number", "exclusiveMaximum", value));
    } else if (key == "maximum") {
      any.push_back(of_type("number", "exclusiveMinimum", value));
    } else if (key == "exclusiveMinimum") {
      any.push_back(of_type("number", "maximum", value));
    } else if (key == "exclusiveMaximum") {
      any.push_back(of_type("number", "minimum", value));
    } else if (key == "minLength") {
      add_count("string", "maxLength", value, -1);
    } else if (key == "maxLength") {
      add_count("string", "minLength", value, 1);
    } else if (key == "minItems") {
      add_count("array", "maxItems", value, -1);
    } else if (key == "maxItems") {
      add_count("array", "minItems", value, 1);
    } else if (key == "minProperties") {
      add_count("object", "maxProperties", value, -1);
    } else if (key == "maxProperties") {
      add_count("object", "minProperties", value, 1);
    } else {
      throw UsageError(fmt::format("{}, which a grammar cannot say; leave it out, or be lenient", quote(key)));
    }
  }
  if (any.empty()) return Value(false);
  return any.size() == 1 ? any[0] : Value::object({{"anyOf", std::move(any)}});
}

unsigned SchemaDocument::types_of(const Value* schema) {
  if (const Value* inner = negated_keyword(schema); inner && inner->find("type")) {
    // A number that is not an integer has no name of its own.
    const unsigned others = kAnyType & ~types_of(inner);
    return others & types_of_keyword(schema);
  }
  return types_of_keyword(schema);
}

unsigned SchemaDocument::types_of_keyword(const Value* schema) {
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
  if (!validator && made_places_.contains(schema))
    validator = std::make_unique<schema::Schema>(*schema, schema::SchemaOptions{.asserts_formats = true});
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

bool SchemaDocument::are_disjoint(const Value* a, const Value* b, int depth) {
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
      return additional && additional->is_boolean() && !additional->boolean() && !property(s, key) &&
             !s->find("patternProperties");
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
