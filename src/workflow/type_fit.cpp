// Whether data of one JSON Schema is good for another, as far as the schemas tell.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>

#include "base/quote.hpp"
#include "weft/error.hpp"
#include "weft/schema.hpp"
#include "weft/workflow/check.hpp"
#include "workflow/reference.hpp"

namespace weft::workflow {
namespace {

using K = Fit::Kind;

constexpr int kSchemasDeep = 32;
constexpr int kStepsMax = 20'000;

// Keywords that describe, and those that `Comparison` looks at. Others restrict the input in ways that are not compared.
constexpr std::string_view kKnown[] = {
    "title",    "description", "default",    "examples",   "$schema",  "$id",
    "$comment", "deprecated",  "type",       "properties", "required", "additionalProperties",
    "items",    "x-tensor",    "anyOf",      "oneOf",      "const",    "enum",
    "$defs",    "$ref",        "prefixItems"};

/// Types of JSON that a schema allows; nothing if it does not say. A tensor counts as a type.
std::optional<std::set<std::string>> types_of(const Value& schema) {
  if (schema.find("x-tensor")) return std::set<std::string>{"tensor"};
  const Value* type = schema.find("type");
  if (!type) return std::nullopt;
  std::set<std::string> types;
  if (type->is_string()) types.insert(type->string());
  if (type->is_array())
    for (const Value& each : type->elements())
      if (each.is_string()) types.insert(each.string());
  return types;
}

/// The dtypes that a tensor may have; nothing if any.
std::optional<std::set<std::string>> dtypes_of(const Value& rule) {
  const Value* dtypes = rule.is_object() ? rule.find("dtypes") : nullptr;
  if (!dtypes || !dtypes->is_array()) return std::nullopt;
  std::set<std::string> names;
  for (const Value& each : dtypes->elements())
    if (each.is_string()) names.insert(each.string());
  return names;
}

std::string article(const std::string& type) {
  return type == "null" ? type : (type == "array" || type == "object" || type == "integer" ? "an " : "a ") + type;
}

std::string list_of(const std::set<std::string>& types) {
  std::string text;
  for (const std::string& each : types) text += (text.empty() ? "" : " or ") + article(each);
  return text;
}

/// Compares two schemas, part by part.
class Comparison {
 public:
  Comparison(const Value& output_root, const Value& input_root) : roots_{&output_root, &input_root} {}

  Fit compare(const Value& output_given, const Value& input_given, const std::string& path, int depth) {
    if (depth > kSchemasDeep || ++steps_ > kStepsMax) return {};
    const Value* output = followed(output_given, 0);
    const Value* input = followed(input_given, 1);
    if (!output || !input || says_nothing(*output) || says_nothing(*input)) return {};
    if (*input == Value(false)) return no(path, "nothing is allowed here");
    if (*output == *input) return {K::fits, ""};
    if (!output->is_object() || !input->is_object()) return {};
    if (const Value* constant = output->find("const")) return fixed(*constant, *input, path);
    if (const Value* choices = output->find("enum"); choices && choices->is_array())
      return all_of(choices->elements(), [&](const Value& each) { return fixed(each, *input, path); });
    for (const char* key : {"anyOf", "oneOf"})
      if (const Value* forms = output->find(key); forms && forms->is_array())
        return all_of(forms->elements(), [&](const Value& each) { return compare(each, *input, path, depth + 1); });
    Fit result{K::fits, ""};
    for (const char* key : {"anyOf", "oneOf"})
      if (const Value* forms = input->find(key); forms && forms->is_array())
        merge(result,
              any_of(forms->elements(), [&](const Value& each) { return compare(*output, each, path, depth + 1); }));
    merge(result, compare_types(*output, *input, path));
    if (result.kind != K::incompatible) merge(result, compare_objects(*output, *input, path, depth));
    if (result.kind != K::incompatible) merge(result, compare_arrays(*output, *input, path, depth));
    for (const auto& [key, value] : input->members())
      if (std::find(std::begin(kKnown), std::end(kKnown), key) == std::end(kKnown) &&
          (!output->find(key) || *output->find(key) != value))
        merge(result, {});
    if (input->find("const") || input->find("enum")) merge(result, {});  // the output says less
    return result;
  }

 private:
  static Fit no(const std::string& path, std::string_view fact) {
    return {K::incompatible, fmt::format("{}: {}", path.empty() ? "the data" : path, fact)};
  }
  static bool says_nothing(const Value& schema) {
    return schema == Value(true) || (schema.is_object() && schema.members().empty());
  }
  static void merge(Fit& into, const Fit& other) {
    if (into.kind == K::incompatible || other.kind == K::fits) return;
    into = other.kind == K::incompatible ? other : Fit{};
  }
  template <class Compare>
  static Fit all_of(const Value::Array& forms, const Compare& compare_one) {
    bool any_fits = false, all_fit = true;
    Fit last{K::fits, ""};
    for (const Value& each : forms) {
      const Fit one = compare_one(each);
      any_fits |= one.kind != K::incompatible;
      all_fit &= one.kind == K::fits;
      if (one.kind == K::incompatible) last = one;
    }
    if (all_fit) return {K::fits, ""};
    return any_fits ? Fit{} : last;
  }
  template <class Compare>
  static Fit any_of(const Value::Array& forms, const Compare& compare_one) {
    Fit best{K::incompatible, "the data: nothing is allowed here"};
    bool first = true;
    for (const Value& each : forms) {
      const Fit one = compare_one(each);
      if (one.kind == K::fits) return one;
      if (one.kind == K::unknown) best = one;
      if (first && one.kind == K::incompatible) best = one;
      first = false;
    }
    return best;
  }

  // The schema that a reference names; null if it cannot be told.
  const Value* followed(const Value& schema, std::size_t side) const {
    const Value* at = &schema;
    for (int i = 0; i < kSchemasDeep; ++i) {
      const Value* reference = at->is_object() ? at->find("$ref") : nullptr;
      if (!reference) return at;
      constexpr std::string_view kPrefix = "#/$defs/";
      const Value* definitions = roots_[side]->is_object() ? roots_[side]->find("$defs") : nullptr;
      if (!reference->is_string() || !reference->string().starts_with(kPrefix) || !definitions ||
          !definitions->is_object())
        return nullptr;
      at = definitions->find(std::string_view(reference->string()).substr(kPrefix.size()));
      if (!at) return nullptr;
    }
    return nullptr;
  }

  // Data that is known already is checked as data.
  Fit fixed(const Value& data, const Value& input, const std::string& path) const {
    Value schema = input;
    if (const Value* definitions = roots_[1]->is_object() ? roots_[1]->find("$defs") : nullptr)
      schema.members().set("$defs", *definitions);
    try {
      const auto violations = schema::Schema(std::move(schema)).check(data);
      if (violations.empty()) return {K::fits, ""};
      return no(path + violations[0].instance_path, violations[0].message);
    } catch (const Error&) {
      return {};  // it refers to what is not here
    }
  }

  Fit compare_types(const Value& output, const Value& input, const std::string& path) const {
    const auto given = types_of(output), wanted = types_of(input);
    if (!wanted) return {K::fits, ""};
    if (!given) return {};
    bool all = true, any = false;
    for (const std::string& each : *given) {
      const bool fits = wanted->contains(each) || (each == "integer" && wanted->contains("number"));
      const bool may = fits || (each == "number" && wanted->contains("integer"));
      all &= fits;
      any |= may;
    }
    if (!any) return no(path, fmt::format("is {}, and not {}", list_of(*given), list_of(*wanted)));
    if (!all) return {};
    if (!given->contains("tensor")) return {K::fits, ""};
    const auto has = dtypes_of(output["x-tensor"]), takes = dtypes_of(input["x-tensor"]);
    if (!takes) return {K::fits, ""};
    if (!has) return {};
    std::set<std::string> common;
    std::set_intersection(has->begin(), has->end(), takes->begin(), takes->end(), std::inserter(common, common.end()));
    if (common.empty()) return no(path, fmt::format("is a tensor of {}, which is not taken", *has->begin()));
    return {common.size() == has->size() ? K::fits : K::unknown, ""};
  }

  Fit compare_objects(const Value& output, const Value& input, const std::string& path, int depth) {
    static const Value kNone = Value::Object();
    const auto fields_of = [](const Value& schema) -> const Value& {
      const Value* found = schema.find("properties");
      return found && found->is_object() ? *found : kNone;
    };
    const Value &has = fields_of(output), &takes = fields_of(input);
    Fit result{K::fits, ""};
    const auto types = types_of(output);
    if (types && !types->contains("object")) return result;
    if (const Value* required = input.find("required"); required && required->is_array())
      for (const Value& name : required->elements())
        if (name.is_string() && !has.find(name.string())) {
          if (types) return no(path, fmt::format("has no field {}", quote(name.string())));
          merge(result, {});
        }
    for (const auto& [name, schema] : has.members()) {
      const std::string place = fmt::format("{}/{}", path, pointer_part(name));
      if (const Value* wanted = takes.find(name)) {
        merge(result, compare(schema, *wanted, place, depth + 1));
      } else if (const Value* others = input.find("additionalProperties"); others && *others == Value(false)) {
        // Written out in a template it is a mistake; in data from elsewhere it is more than is needed.
        if (output.find("x-written")) return no(place, "the input has no such field");
      }
    }
    return result;
  }

  Fit compare_arrays(const Value& output, const Value& input, const std::string& path, int depth) {
    Fit result{K::fits, ""};
    const Value* wanted = input.find("items");
    if (!wanted) return result;
    const auto types = types_of(output);
    if (types && !types->contains("array")) return result;
    if (const Value* items = output.find("items"))
      merge(result, compare(*items, *wanted, path + "/0", depth + 1));
    else if (!output.find("prefixItems"))
      merge(result, {});
    if (const Value* items = output.find("prefixItems"); items && items->is_array())
      for (std::size_t i = 0; i < items->elements().size(); ++i)
        merge(result, compare(items->elements()[i], *wanted, fmt::format("{}/{}", path, i), depth + 1));
    return result;
  }

  std::array<const Value*, 2> roots_;
  int steps_ = 0;
};

}  // namespace

Fit fit(const Value& output, const Value& input) { return Comparison(output, input).compare(output, input, "", 0); }

}  // namespace weft::workflow
