// From a schema's document to nodes: finds resources and anchors, follows references, reads keywords.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "base/quote.hpp"
#include "schema/node.hpp"
#include "schema/uri.hpp"
#include "weft/dtype.hpp"

namespace weft::schema {
namespace {

constexpr std::string_view kDraft = "https://json-schema.org/draft/2020-12/schema";
constexpr std::string_view kVocabulary = "https://json-schema.org/draft/2020-12/vocab/";
// The URI of a document without an `$id`.
constexpr std::string_view kUnnamed = "weft:schema";

enum Vocabulary : std::uint32_t {
  kApplicator = 1,
  kUnevaluated = 2,
  kValidation = 4,
  kFormatAssertion = 8,
  kFormatAnnotation = 16,
  kOthers = 32,  // core, meta-data and content have nothing to switch off here
};
struct VocabularyRow {
  std::string_view name;
  std::uint32_t bit;
};
constexpr VocabularyRow kVocabularies[] = {
    {"core", kOthers},
    {"applicator", kApplicator},
    {"unevaluated", kUnevaluated},
    {"validation", kValidation},
    {"format-assertion", kFormatAssertion},
    {"format-annotation", kFormatAnnotation},
    {"meta-data", kOthers},
    {"content", kOthers},
};
constexpr std::uint32_t kStandard = kApplicator | kUnevaluated | kValidation | kFormatAnnotation | kOthers;

// Keywords whose values are schemas: one, a list, or an object of them.
constexpr std::string_view kSchemaKeywords[] = {
    "additionalProperties", "propertyNames",         "items",        "contains", "not", "if", "then", "else",
    "unevaluatedItems",     "unevaluatedProperties", "contentSchema"};
constexpr std::string_view kListKeywords[] = {"allOf", "anyOf", "oneOf", "prefixItems"};
constexpr std::string_view kMapKeywords[] = {"properties", "patternProperties", "dependentSchemas", "$defs",
                                             "definitions"};

std::string pointer_token(std::string_view key) {
  std::string token;
  for (const char c : key) token += c == '~' ? std::string("~0") : c == '/' ? std::string("~1") : std::string(1, c);
  return token;
}

class Compiler {
 public:
  Compiler(std::shared_ptr<Schema::Compiled> out, bool checked) : out_(*out), checked_(checked) {}

  void run(Value document) {
    Resource& root = add_document(std::move(document), std::string(kUnnamed));
    out_.root = node_of(*root.root, {&root, ""});
    // Wherever a dynamic reference may lead. Compiling may add resources.
    for (std::size_t i = 0; i < out_.resources.size(); ++i) {
      Resource& resource = *out_.resources[i];
      for (const auto& [name, schema] : resource.dynamic_anchors)
        resource.dynamic_nodes.emplace(name, node_of(*schema, place_of(*schema)));
    }
  }

 private:
  // Where a schema is: its resource, and the pointer from the resource's root.
  struct Place {
    Resource* resource;
    std::string pointer;
    Place at(std::string_view key) const { return {resource, pointer + "/" + pointer_token(key)}; }
    std::string text() const { return (resource->uri == kUnnamed ? "" : resource->uri) + "#" + pointer; }
  };

  [[noreturn]] static void refuse(const Place& place, std::string_view fact) {
    throw SchemaError(fmt::format("schema {}: {}", place.text(), fact));
  }

  // ---- Documents and resources ------------------------------------------------------------------------------------------

  Resource& add_document(Value document, const std::string& uri) {
    out_.documents.push_back(std::make_unique<Value>(std::move(document)));
    const Value& root = *out_.documents.back();
    Resource& resource = add_resource(root, Uri::parse(uri), nullptr);
    if (const std::string own = resource.uri; own != uri) by_uri_.emplace(uri, &resource);
    scan(root, {&resource, ""}, 0);
    if (checked_) check_document(root, resource);
    return resource;
  }

  Resource& add_resource(const Value& root, const Uri& base, const Resource* parent) {
    auto resource = std::make_unique<Resource>();
    resource->root = &root;
    Uri uri = base;
    if (root.is_object())
      if (const Value* id = root.find("$id"); id && id->is_string()) uri = resolve(base, Uri::parse(id->string()));
    if (uri.fragment && !uri.fragment->empty())
      throw SchemaError(fmt::format("schema {}: \"$id\" has a fragment; use \"$anchor\"", quote(uri.to_string())));
    uri.fragment.reset();
    resource->uri = uri.to_string();
    index_.emplace(resource.get(), static_cast<int>(out_.resources.size()));
    resource_of_.emplace(&root, resource.get());
    if (!by_uri_.emplace(resource->uri, resource.get()).second && resource->uri != kUnnamed)
      throw SchemaError(fmt::format("schema: two resources have the URI {}", quote(resource->uri)));
    out_.resources.push_back(std::move(resource));
    Resource& added = *out_.resources.back();
    added.vocabularies = vocabularies_of(root, parent, {&added, ""});
    return added;
  }

  std::uint32_t vocabularies_of(const Value& root, const Resource* parent, const Place& place) {
    const Value* named = root.is_object() ? root.find("$schema") : nullptr;
    if (!named) return parent ? parent->vocabularies : kStandard;
    if (!named->is_string()) refuse(place, "\"$schema\" is not a string");
    Uri uri = Uri::parse(named->string());
    if (uri.fragment && uri.fragment->empty()) uri.fragment.reset();
    const std::string name = uri.to_string();
    if (name == kDraft) return kStandard;
    if (name.starts_with("http://json-schema.org/draft-") || name.starts_with("https://json-schema.org/draft/2019"))
      refuse(place, fmt::format("\"$schema\" is {}; only draft 2020-12 is supported", quote(name)));
    if (place.resource->uri == name) return kStandard;  // a meta-schema of its own
    const Resource& meta = resource_at(name, place, "$schema");
    const Value* vocabulary = meta.root->is_object() ? meta.root->find("$vocabulary") : nullptr;
    if (!vocabulary || !vocabulary->is_object()) return kStandard;
    std::uint32_t bits = 0;
    for (const auto& [key, needed] : vocabulary->members()) {
      const VocabularyRow* row = nullptr;
      if (key.starts_with(kVocabulary))
        for (const VocabularyRow& each : kVocabularies)
          if (key.substr(kVocabulary.size()) == each.name) row = &each;
      if (row)
        bits |= row->bit;
      else if (needed == Value(true))
        refuse(place, fmt::format("its meta-schema {} requires the vocabulary {}, which is not known", quote(name),
                                  quote(key)));
    }
    return bits;
  }

  // Finds resources and anchors in all places where a schema may be.
  void scan(const Value& schema, const Place& place, int depth) {
    if (!schema.is_object()) return;
    if (depth > out_.options.depth_max) refuse(place, "schemas are nested too deep");
    Place here = place;
    if (const Value* id = schema.find("$id"); id && id->is_string() && place.resource->root != &schema)
      here = {&add_resource(schema, Uri::parse(place.resource->uri), place.resource), ""};
    place_of_.emplace(&schema, here);
    for (const bool dynamic : {false, true})
      if (const Value* anchor = schema.find(dynamic ? "$dynamicAnchor" : "$anchor"); anchor && anchor->is_string()) {
        if (!here.resource->anchors.emplace(anchor->string(), &schema).second &&
            here.resource->anchors.find(anchor->string())->second != &schema)
          refuse(here, fmt::format("the anchor {} is given twice", quote(anchor->string())));
        if (dynamic) here.resource->dynamic_anchors.emplace(anchor->string(), &schema);
      }
    for (const std::string_view keyword : kSchemaKeywords)
      if (const Value* inner = schema.find(keyword)) scan(*inner, here.at(keyword), depth + 1);
    for (const std::string_view keyword : kListKeywords)
      if (const Value* list = schema.find(keyword); list && list->is_array())
        for (std::size_t i = 0; i < list->elements().size(); ++i)
          scan((*list)[i], here.at(keyword).at(std::to_string(i)), depth + 1);
    for (const std::string_view keyword : kMapKeywords)
      if (const Value* map = schema.find(keyword); map && map->is_object())
        for (const auto& [key, inner] : map->members()) scan(inner, here.at(keyword).at(key), depth + 1);
  }

  const Place& place_of(const Value& schema) const { return place_of_.at(&schema); }

  // The resource of a URI without a fragment, from outside where it is not here.
  Resource& resource_at(const std::string& uri, const Place& place, std::string_view keyword) {
    if (const auto found = by_uri_.find(uri); found != by_uri_.end()) return *found->second;
    if (const char* text = meta_schema_text(uri)) {
      const bool before = std::exchange(checked_, false);
      Resource& resource = add_document(Value::parse(text, uri), uri);
      checked_ = before;
      return resource;
    }
    std::optional<Value> fetched = out_.options.fetch ? out_.options.fetch(uri) : std::nullopt;
    if (!fetched) refuse(place, fmt::format("{} leads to {}, which is not known here", quote(keyword), quote(uri)));
    if (out_.documents.size() > 1000) refuse(place, "too many documents refer to each other");
    return add_document(std::move(*fetched), uri);
  }

  // A document must be what its meta-schema takes.
  void check_document(const Value& root, const Resource& resource) {
    static const std::shared_ptr<const Schema::Compiled> standard =
        compile_schema(Value::parse(meta_schema_text(kDraft), kDraft), {}, false);
    std::shared_ptr<const Schema::Compiled> meta = standard;
    if (const Value* named = root.is_object() ? root.find("$schema") : nullptr) {
      Uri uri = Uri::parse(named->string());
      if (uri.fragment && uri.fragment->empty()) uri.fragment.reset();
      const std::string name = uri.to_string();
      if (name != kDraft && name != resource.uri)
        meta = compile_schema(*resource_at(name, {by_uri_.at(resource.uri), ""}, "$schema").root, out_.options, false);
    }
    std::vector<Violation> violations;
    if (!apply(*meta, root, &violations)) {
      const Violation& first = violations.front();
      throw SchemaError(fmt::format("schema {}#{}: {}", resource.uri == kUnnamed ? "" : resource.uri,
                                    first.instance_path, first.message));
    }
  }

  // ---- References ---------------------------------------------------------------------------------------------------------

  struct Target {
    const Value* schema;
    Place place;
    std::string anchor;  // the dynamic anchor that the reference names, if it does
  };

  Target target_of(const std::string& reference, const Place& place, std::string_view keyword) {
    Uri uri = resolve(Uri::parse(place.resource->uri), Uri::parse(reference));
    const std::string fragment = percent_decoded(uri.fragment.value_or(""));
    uri.fragment.reset();
    Resource& resource = resource_at(uri.to_string(), place, keyword);
    if (fragment.empty()) return {resource.root, {&resource, ""}, ""};
    if (fragment[0] != '/') {
      const auto found = resource.anchors.find(fragment);
      if (found == resource.anchors.end())
        refuse(place, fmt::format("{} leads to {}, and there is no such anchor", quote(keyword), quote(reference)));
      return {found->second, place_of(*found->second), resource.dynamic_anchors.contains(fragment) ? fragment : ""};
    }
    return {follow(fragment, resource, place, keyword, reference)};
  }

  Target follow(std::string_view pointer, Resource& resource, const Place& place, std::string_view keyword,
                std::string_view reference) {
    const Value* at = resource.root;
    Place here{&resource, ""};
    while (!pointer.empty()) {
      pointer.remove_prefix(1);
      const auto end = pointer.find('/');
      std::string key;
      const std::string_view token = pointer.substr(0, end);
      for (std::size_t i = 0; i < token.size(); ++i) {
        const bool escaped = token[i] == '~' && i + 1 < token.size() && (token[i + 1] == '0' || token[i + 1] == '1');
        key += escaped ? (token[++i] == '0' ? '~' : '/') : token[i];
      }
      pointer = end == std::string_view::npos ? std::string_view{} : pointer.substr(end);
      const Value* next = nullptr;
      if (at->is_object()) {
        next = at->find(key);
      } else if (at->is_array() && !key.empty() && key.size() < 10 &&
                 std::all_of(key.begin(), key.end(), [](char c) { return c >= '0' && c <= '9'; })) {
        const auto index = static_cast<std::size_t>(std::stoul(key));
        if (index < at->elements().size()) next = &at->elements()[index];
      }
      if (!next) refuse(place, fmt::format("{} leads to {}, and there is nothing", quote(keyword), quote(reference)));
      at = next;
      const auto known = place_of_.find(at);
      here = known != place_of_.end() ? known->second : here.at(key);
    }
    if (!at->is_object() && !at->is_boolean())
      refuse(place, fmt::format("{} leads to {}, which is not a schema", quote(keyword), quote(reference)));
    if (!place_of_.contains(at)) scan(*at, here, 0);  // in a place where schemas are not looked for
    if (const auto known = place_of_.find(at); known != place_of_.end()) here = known->second;
    return {at, here, ""};
  }

  // ---- Keywords -------------------------------------------------------------------------------------------------------------

  const Node* node_of(const Value& schema, const Place& place) {
    if (const auto found = node_of_.find(&schema); found != node_of_.end()) return found->second;
    if (out_.nodes.size() >= out_.options.schemas_max) refuse(place, "too many subschemas");
    if (++depth_ > 4 * out_.options.depth_max) refuse(place, "schemas refer to each other too deep");
    out_.nodes.push_back(std::make_unique<Node>());
    Node& node = *out_.nodes.back();
    node_of_.emplace(&schema, &node);
    node.location = place.text();
    node.resource = index_.at(place.resource);
    if (schema.is_boolean()) {
      node.always = schema.boolean();
    } else if (schema.is_object()) {
      read(node, schema, place);
    } else {
      refuse(place, fmt::format("is {}, and not a schema (an object or a boolean)", name_of(schema.kind())));
    }
    --depth_;
    return &node;
  }

  const Node* inner(const Value& schema, const Place& place) {
    const auto known = place_of_.find(&schema);
    return node_of(schema, known != place_of_.end() ? known->second : place);
  }

  template <class T>
  static T& rules(std::unique_ptr<T>& pointer) {
    if (!pointer) pointer = std::make_unique<T>();
    return *pointer;
  }

  void read(Node& node, const Value& schema, const Place& place) {
    const std::uint32_t vocabularies = place.resource->vocabularies;
    const auto one = [&](std::string_view key) -> const Node* {
      const Value* found = schema.find(key);
      return found ? inner(*found, place.at(key)) : nullptr;
    };
    const auto list = [&](std::string_view key) {
      std::vector<const Node*> nodes;
      if (const Value* found = schema.find(key)) {
        if (!found->is_array()) refuse(place.at(key), "is not an array");
        for (std::size_t i = 0; i < found->elements().size(); ++i)
          nodes.push_back(inner((*found)[i], place.at(key).at(std::to_string(i))));
      }
      return nodes;
    };

    if (const Value* ref = schema.find("$ref"); ref && ref->is_string()) {
      const Target target = target_of(ref->string(), place, "$ref");
      rules(node.in_place).ref = node_of(*target.schema, target.place);
    }
    if (const Value* ref = schema.find("$dynamicRef"); ref && ref->is_string()) {
      const Target target = target_of(ref->string(), place, "$dynamicRef");
      rules(node.in_place).dynamic_ref = node_of(*target.schema, target.place);
      node.in_place->dynamic_anchor = target.anchor;
    }
    if (vocabularies & kApplicator) read_applicators(node, schema, place, one, list);
    if (vocabularies & kUnevaluated) {
      node.unevaluated_items = one("unevaluatedItems");
      node.unevaluated_properties = one("unevaluatedProperties");
    }
    if (vocabularies & kValidation) read_assertions(node, schema, place);
    if (const Value* format = schema.find("format"); format && format->is_string())
      if (out_.options.asserts_formats || (vocabularies & kFormatAssertion))
        if (const FormatTest test = find_format(format->string())) {
          rules(node.strings).format = test;
          node.strings->format_name = format->string();
        }
    if (const Value* tensor = schema.find("x-tensor")) read_tensor(node, *tensor, place.at("x-tensor"));
    node.default_value = schema.find("default");
  }

  void read_applicators(Node& node, const Value& schema, const Place& place, const auto& one, const auto& list) {
    if (auto nodes = list("allOf"); !nodes.empty()) rules(node.in_place).all_of = std::move(nodes);
    if (auto nodes = list("anyOf"); !nodes.empty()) rules(node.in_place).any_of = std::move(nodes);
    if (auto nodes = list("oneOf"); !nodes.empty()) rules(node.in_place).one_of = std::move(nodes);
    if (const Node* inner_node = one("not")) rules(node.in_place).negated = inner_node;
    if (const Node* inner_node = one("if")) {
      rules(node.in_place).condition = inner_node;
      node.in_place->then_node = one("then");
      node.in_place->else_node = one("else");
    }
    if (auto nodes = list("prefixItems"); !nodes.empty()) rules(node.arrays).prefix_items = std::move(nodes);
    if (const Node* inner_node = one("items")) rules(node.arrays).items = inner_node;
    if (const Node* inner_node = one("contains")) rules(node.arrays).contains = inner_node;
    if (const Value* map = schema.find("properties"))
      for (const auto& [key, value] : map->members())
        rules(node.objects).properties.emplace(key, inner(value, place.at("properties").at(key)));
    if (const Value* map = schema.find("patternProperties"))
      for (const auto& [key, value] : map->members())
        rules(node.objects)
            .patterns.push_back(
                {regex(key, place.at("patternProperties")), key, inner(value, place.at("patternProperties").at(key))});
    if (const Value* map = schema.find("dependentSchemas")) {
      rules(node.in_place);
      for (const auto& [key, value] : map->members())
        rules(node.objects).dependent_schemas.emplace_back(key, inner(value, place.at("dependentSchemas").at(key)));
    }
    if (const Node* inner_node = one("additionalProperties")) rules(node.objects).additional = inner_node;
    if (const Node* inner_node = one("propertyNames")) rules(node.objects).names = inner_node;
  }

  static Regex regex(const std::string& text, const Place& place) {
    try {
      return Regex(text);
    } catch (const UsageError& error) {
      refuse(place, error.what());
    }
  }

  static std::uint64_t count(const Value& value, const Place& place) {
    if (!value.is_integer() || compare_numbers(value, 0) < 0) refuse(place, "is not a count");
    return value.number() >= 0x1p63 ? UINT64_MAX : value.unsigned_integer();
  }

  static std::vector<std::string> texts(const Value& value, const Place& place) {
    std::vector<std::string> all;
    if (!value.is_array()) refuse(place, "is not an array of strings");
    for (const Value& each : value.elements()) {
      if (!each.is_string()) refuse(place, "is not an array of strings");
      all.push_back(each.string());
    }
    return all;
  }

  void read_assertions(Node& node, const Value& schema, const Place& place) {
    for (const auto& [key, value] : schema.members()) {
      const auto here = [&, &key = key] { return place.at(key); };
      const auto number = [&, &value = value]() -> const Value* {
        if (!value.is_number() || std::isnan(value.number())) refuse(here(), "is not a number");
        return &value;
      };
      if (key == "type") {
        node.types = type_bits(value, here());
      } else if (key == "const") {
        node.constant = &value;
      } else if (key == "enum") {
        if (!value.is_array()) refuse(here(), "is not an array");
        node.choices = &value;
        for (const Value& choice : value.elements()) node.choice_set.insert(&choice);
      } else if (key == "multipleOf") {
        rules(node.numbers).multiple_of = number();
        if (compare_numbers(value, 0) <= 0) refuse(here(), "is not above 0");
      } else if (key == "minimum") {
        rules(node.numbers).minimum = number();
      } else if (key == "maximum") {
        rules(node.numbers).maximum = number();
      } else if (key == "exclusiveMinimum") {
        rules(node.numbers).above = number();
      } else if (key == "exclusiveMaximum") {
        rules(node.numbers).below = number();
      } else if (key == "minLength") {
        rules(node.strings).min_length = count(value, here());
      } else if (key == "maxLength") {
        rules(node.strings).max_length = count(value, here());
      } else if (key == "pattern") {
        if (!value.is_string()) refuse(here(), "is not a string");
        rules(node.strings).pattern.emplace(regex(value.string(), here()));
        node.strings->pattern_text = value.string();
      } else if (key == "minItems") {
        rules(node.arrays).min_items = count(value, here());
      } else if (key == "maxItems") {
        rules(node.arrays).max_items = count(value, here());
      } else if (key == "uniqueItems") {
        rules(node.arrays).unique = value == Value(true);
      } else if (key == "minContains") {
        rules(node.arrays).min_contains = count(value, here());
      } else if (key == "maxContains") {
        rules(node.arrays).max_contains = count(value, here());
      } else if (key == "minProperties") {
        rules(node.objects).min_properties = count(value, here());
      } else if (key == "maxProperties") {
        rules(node.objects).max_properties = count(value, here());
      } else if (key == "required") {
        rules(node.objects).required = texts(value, here());
      } else if (key == "dependentRequired") {
        if (!value.is_object()) refuse(here(), "is not an object");
        for (const auto& [name, needed] : value.members())
          rules(node.objects).dependent_required.emplace_back(name, texts(needed, here().at(name)));
      }
    }
  }

  static std::uint8_t type_bits(const Value& value, const Place& place) {
    struct Row {
      std::string_view name;
      std::uint8_t bit;
    };
    static constexpr Row kTypes[] = {
        {"null", kNull},     {"boolean", kBoolean}, {"integer", kInteger}, {"number", kNumber | kInteger},
        {"string", kString}, {"array", kArray},     {"object", kObject}};
    std::uint8_t bits = 0;
    const auto add = [&](const Value& name) {
      for (const Row& row : kTypes)
        if (name.is_string() && name.string() == row.name) {
          bits |= row.bit;
          return;
        }
      refuse(place, fmt::format("{} is not a type", name.to_json()));
    };
    if (value.is_array())
      for (const Value& name : value.elements()) add(name);
    else
      add(value);
    return bits;
  }

  static void read_tensor(Node& node, const Value& value, const Place& place) {
    if (value == Value(false)) return;
    node.tensor.emplace();
    if (value == Value(true)) return;
    if (!value.is_object()) refuse(place, "is neither true nor an object");
    if (const Value* dtypes = value.find("dtypes"))
      for (const std::string& name : texts(*dtypes, place.at("dtypes"))) {
        const auto type = dtype_from_name(name);
        if (!type) refuse(place.at("dtypes"), fmt::format("{} is not a dtype", quote(name)));
        node.tensor->dtypes.push_back(*type);
      }
  }

  Schema::Compiled& out_;
  bool checked_;
  int depth_ = 0;
  std::unordered_map<std::string, Resource*> by_uri_;
  std::unordered_map<const Value*, Resource*> resource_of_;
  std::unordered_map<const Resource*, int> index_;
  std::unordered_map<const Value*, Place> place_of_;
  std::unordered_map<const Value*, Node*> node_of_;
};

}  // namespace

std::shared_ptr<const Schema::Compiled> compile_schema(Value document, SchemaOptions options, bool checked) {
  auto compiled = std::make_shared<Schema::Compiled>();
  compiled->options = std::move(options);
  Compiler(compiled, checked).run(std::move(document));
  return compiled;
}

}  // namespace weft::schema
