// Applies schemas to values.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>

#include "base/quote.hpp"
#include "schema/node.hpp"
#include "weft/dtype.hpp"

namespace weft::schema {
namespace {

// The way from the whole value to a part of it.
struct Path {
  const Path* before = nullptr;
  const std::string* key = nullptr;  // of an object
  std::size_t index = 0;             // of an array

  std::string to_string() const {
    if (!before) return "";
    std::string text = before->to_string() + "/";
    if (!key) return text + std::to_string(index);
    for (const char c : *key) text += c == '~' ? std::string("~0") : c == '/' ? std::string("~1") : std::string(1, c);
    return text;
  }
  int depth() const {
    int count = 0;
    for (const Path* at = before; at; at = at->before) ++count;
    return count;
  }
};

// Resources that were entered on the way to a schema, the latest first.
struct DynamicScope {
  int resource;
  const DynamicScope* before;
};

// Parts of a value that other keywords than `unevaluated...` have evaluated.
struct Evaluated {
  std::vector<bool> parts;  // members or elements, by their place; empty: none
  bool all = false;

  void add(std::size_t i, std::size_t count) {
    if (parts.empty()) parts.resize(count);
    parts[i] = true;
  }
  bool has(std::size_t i) const { return all || (!parts.empty() && parts[i]); }
  void merge(const Evaluated& other) {
    all |= other.all;
    if (parts.empty()) {
      parts = other.parts;
    } else if (!other.parts.empty()) {
      for (std::size_t i = 0; i < parts.size(); ++i) parts[i] = parts[i] || other.parts[i];
    }
  }
};

std::uint8_t type_bit(const Value& value) {
  switch (value.kind()) {
    case Value::Kind::null: return kNull;
    case Value::Kind::boolean: return kBoolean;
    case Value::Kind::integer: return kInteger;
    case Value::Kind::number: return value.is_integer() ? kInteger | kNumber : kNumber;
    case Value::Kind::string: return kString;
    case Value::Kind::array: return kArray;
    case Value::Kind::object: return kObject;
    case Value::Kind::tensor: return 0;
  }
  return 0;
}

std::string types_text(std::uint8_t types) {
  std::vector<std::string_view> names;
  if (types & kNumber) types &= static_cast<std::uint8_t>(~kInteger);
  constexpr std::string_view kTexts[] = {"null",     "a boolean", "an integer", "a number",
                                         "a string", "an array",  "an object"};
  for (std::size_t i = 0; i < std::size(kTexts); ++i)
    if (types & (1u << i)) names.push_back(kTexts[i]);
  return fmt::format("{}", fmt::join(names, " or "));
}

std::string with_article(Value::Kind kind) {
  const std::string_view name = name_of(kind);
  if (kind == Value::Kind::null) return "null";
  return fmt::format("{} {}", std::string_view("aio").find(name[0]) != std::string_view::npos ? "an" : "a", name);
}

// A value in a message, cut where it is long.
std::string shown(const Value& value) {
  switch (value.kind()) {
    case Value::Kind::string: return quote(value.string(), 60);
    case Value::Kind::array: return fmt::format("an array of {}", value.elements().size());
    case Value::Kind::object: return fmt::format("an object of {} members", value.members().size());
    case Value::Kind::tensor: return "a tensor";
    default: return value.to_json();
  }
}

std::uint64_t length_of(std::string_view text) {
  return static_cast<std::uint64_t>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

// Thrown when a check exceeds its limits.
struct Stopped {
  std::string fact;
};

class Application {
 public:
  Application(const Schema::Compiled& schema, std::vector<Violation>* violations)
      : schema_(schema), violations_(violations) {}

  bool run(const Node& node, const Value& value, const Path& path, const DynamicScope* scope, Evaluated* outer) {
    take_steps(1);
    if (depth_ >= schema_.options.depth_max)
      throw Stopped{fmt::format("nests, or refers to itself, deeper than {} schemas", schema_.options.depth_max)};
    if (node.always) return *node.always || fail(node, "", path, "is not allowed here");
    ++depth_;
    const DynamicScope own{node.resource, scope};
    const DynamicScope* here = scope && scope->resource == node.resource ? scope : &own;
    Evaluated local;
    const bool tracks = node.unevaluated_items || node.unevaluated_properties;
    Evaluated* seen = tracks ? &local : outer;
    bool ok = assertions(node, value, path);
    if (ok || lists_all()) ok &= parts(node, value, path, here, seen);
    if (node.in_place && (ok || lists_all())) ok &= in_place(node, *node.in_place, value, path, here, seen);
    if (tracks && (ok || lists_all())) {
      ok &= unevaluated(node, value, path, here, local);
      if (outer) outer->merge(local);
    }
    --depth_;
    return ok;
  }

 private:
  // Counts work. Errors: Stopped at the limit.
  void take_steps(std::uint64_t count) {
    steps_ += count;
    if (steps_ > schema_.options.steps_max)
      throw Stopped{fmt::format("takes more than {} steps to check", schema_.options.steps_max)};
    if (steps_ >= next_look_) {
      next_look_ = steps_ + kStepsBetweenLooks;
      look_at_time();
    }
  }
  void look_at_time() const {
    if (std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count() > schema_.options.seconds_max)
      throw Stopped{fmt::format("takes longer than {} s to check", schema_.options.seconds_max)};
  }
  // The cost of comparing a value.
  static std::uint64_t size_of(const Value& value) {
    std::uint64_t size = 1;
    if (value.is_array())
      for (const Value& each : value.elements()) size += size_of(each);
    else if (value.is_object())
      for (const auto& [key, each] : value.members()) size += size_of(each);
    return size;
  }
  bool search(const Regex& regex, std::string_view text) {
    take_steps(1);
    const bool found = regex.is_found_in(text);
    if (text.size() > kLongText) look_at_time();  // one search may take a tenth of a second
    return found;
  }

  // Whether checks continue after a violation.
  bool lists_all() const { return violations_ && violations_->size() < schema_.options.violations_max; }

  bool fail(const Node& node, std::string_view keyword, const Path& path, std::string message) {
    if (lists_all())
      violations_->push_back({path.to_string(),
                              keyword.empty() ? node.location : fmt::format("{}/{}", node.location, keyword),
                              std::move(message)});
    return false;
  }
  // The same with a message that is made only where it is kept.
  template <class Message>
  bool check(bool holds, const Node& node, std::string_view keyword, const Path& path, const Message& message) {
    if (holds) return true;
    return lists_all() ? fail(node, keyword, path, message()) : false;
  }

  // ---- What the value itself must be --------------------------------------------------------------------------------------

  bool assertions(const Node& node, const Value& value, const Path& path) {
    if (node.tensor) return tensor(node, *node.tensor, value, path);
    bool ok = true;
    const std::uint8_t type = type_bit(value);
    if (node.types)
      ok &= check(node.types & type, node, "type", path,
                  [&] { return fmt::format("is {}, and not {}", with_article(value.kind()), types_text(node.types)); });
    if (!ok) return false;  // later messages would repeat it
    if ((node.constant || node.choices) && (type & (kArray | kObject))) take_steps(size_of(value));
    if (node.constant)
      ok &= check(value == *node.constant, node, "const", path,
                  [&] { return fmt::format("is {}, and not {}", shown(value), shown(*node.constant)); });
    if (node.choices)
      ok &= check(node.choice_set.contains(&value), node, "enum", path,
                  [&] { return fmt::format("is {}, and not one of {}", shown(value), listed(*node.choices)); });
    if (node.numbers && (type & (kInteger | kNumber))) ok &= number(node, *node.numbers, value, path);
    if (node.strings && type == kString) ok &= string(node, *node.strings, value.string(), path);
    return ok;
  }

  static std::string listed(const Value& choices) {
    constexpr std::size_t kShown = 20;
    std::vector<std::string> texts;
    for (const Value& choice : choices.elements()) {
      if (texts.size() == kShown) {
        texts.push_back(fmt::format("{} more", choices.elements().size() - kShown));
        break;
      }
      texts.push_back(shown(choice));
    }
    return fmt::format("{}", fmt::join(texts, ", "));
  }

  bool tensor(const Node& node, const TensorRule& rule, const Value& value, const Path& path) {
    if (!value.is_tensor())
      return check(false, node, "x-tensor", path,
                   [&] { return fmt::format("is {}, and not a tensor", with_article(value.kind())); });
    const DType type = value.tensor().dtype();
    return check(rule.dtypes.empty() || std::find(rule.dtypes.begin(), rule.dtypes.end(), type) != rule.dtypes.end(),
                 node, "x-tensor", path, [&] {
                   std::vector<std::string_view> names;
                   for (const DType each : rule.dtypes) names.push_back(name_of(each));
                   return fmt::format("is a tensor of {}, and not of {}", name_of(type), fmt::join(names, ", "));
                 });
  }

  bool number(const Node& node, const NumberRules& rules, const Value& value, const Path& path) {
    bool ok = true;
    const auto compared = [&](const Value* limit, std::string_view keyword, auto holds, std::string_view fact) {
      if (limit)
        ok &= check(holds(compare_numbers(value, *limit)), node, keyword, path,
                    [&] { return fmt::format("is {}, {} {}", value.to_json(), fact, limit->to_json()); });
    };
    compared(
        rules.minimum, "minimum", [](int c) { return c >= 0; }, "which is below the minimum of");
    compared(
        rules.maximum, "maximum", [](int c) { return c <= 0; }, "which is above the maximum of");
    compared(
        rules.above, "exclusiveMinimum", [](int c) { return c > 0; }, "which is not above");
    compared(
        rules.below, "exclusiveMaximum", [](int c) { return c < 0; }, "which is not below");
    if (rules.multiple_of)
      ok &= check(is_multiple(value, *rules.multiple_of), node, "multipleOf", path, [&] {
        return fmt::format("is {}, which is not a multiple of {}", value.to_json(), rules.multiple_of->to_json());
      });
    return ok;
  }

  bool string(const Node& node, const StringRules& rules, const std::string& text, const Path& path) {
    bool ok = true;
    if (rules.min_length > 0 || rules.max_length != UINT64_MAX) {
      const std::uint64_t length = length_of(text);
      ok &= check(length >= rules.min_length, node, "minLength", path,
                  [&] { return fmt::format("has {} characters, and needs at least {}", length, rules.min_length); });
      ok &= check(length <= rules.max_length, node, "maxLength", path,
                  [&] { return fmt::format("has {} characters, and may have at most {}", length, rules.max_length); });
    }
    if (rules.pattern)
      ok &= check(search(*rules.pattern, text), node, "pattern", path, [&] {
        return fmt::format("is {}, which does not match {}", quote(text, 60), quote(rules.pattern_text));
      });
    if (rules.format)
      ok &= check(rules.format(text), node, "format", path, [&] {
        return fmt::format("is {}, which is not of the format {}", quote(text, 60), rules.format_name);
      });
    return ok;
  }

  // ---- What its parts must be ---------------------------------------------------------------------------------------------

  bool parts(const Node& node, const Value& value, const Path& path, const DynamicScope* scope, Evaluated* seen) {
    if (node.arrays && value.is_array()) return array(node, *node.arrays, value.elements(), path, scope, seen);
    if (node.objects && value.is_object()) return object(node, *node.objects, value.members(), path, scope, seen);
    return true;
  }

  bool array(const Node& node, const ArrayRules& rules, const Value::Array& elements, const Path& path,
             const DynamicScope* scope, Evaluated* seen) {
    bool ok = true;
    const std::size_t count = elements.size();
    ok &= check(count >= rules.min_items, node, "minItems", path,
                [&] { return fmt::format("has {} elements, and needs at least {}", count, rules.min_items); });
    ok &= check(count <= rules.max_items, node, "maxItems", path,
                [&] { return fmt::format("has {} elements, and may have at most {}", count, rules.max_items); });
    if (!ok && !lists_all()) return false;
    if (rules.unique) ok &= unique(node, elements, path);
    for (std::size_t i = 0; i < count && (ok || lists_all()); ++i) {
      const Node* inner = i < rules.prefix_items.size() ? rules.prefix_items[i] : rules.items;
      if (!inner) break;
      if (seen) seen->add(i, count);
      ok &= run(*inner, elements[i], Path{&path, nullptr, i}, scope, nullptr);
    }
    if (rules.contains && (ok || lists_all())) {
      std::uint64_t found = 0;
      for (std::size_t i = 0; i < count; ++i) {
        if (!seen && found >= rules.min_contains && rules.max_contains == UINT64_MAX) break;
        if (!quietly(*rules.contains, elements[i], Path{&path, nullptr, i}, scope, nullptr)) continue;
        ++found;
        if (seen) seen->add(i, count);
      }
      ok &= check(found >= rules.min_contains, node, "contains", path, [&] {
        return fmt::format("has {} elements of the kind that is wanted, and needs at least {}", found,
                           rules.min_contains);
      });
      ok &= check(found <= rules.max_contains, node, "maxContains", path, [&] {
        return fmt::format("has {} elements of the kind that is counted, and may have at most {}", found,
                           rules.max_contains);
      });
    }
    return ok;
  }

  bool unique(const Node& node, const Value::Array& elements, const Path& path) {
    for (const Value& element : elements) take_steps(size_of(element));
    std::unordered_set<const Value*, ValueHash, ValueEqual> seen;
    for (std::size_t i = 0; i < elements.size(); ++i)
      if (!seen.insert(&elements[i]).second)
        return check(false, node, "uniqueItems", path,
                     [&] { return fmt::format("has the element {} ({}) twice", i, shown(elements[i])); });
    return true;
  }

  bool object(const Node& node, const ObjectRules& rules, const Value::Object& members, const Path& path,
              const DynamicScope* scope, Evaluated* seen) {
    bool ok = true;
    const std::size_t count = members.size();
    ok &= check(count >= rules.min_properties, node, "minProperties", path,
                [&] { return fmt::format("has {} properties, and needs at least {}", count, rules.min_properties); });
    ok &= check(count <= rules.max_properties, node, "maxProperties", path,
                [&] { return fmt::format("has {} properties, and may have at most {}", count, rules.max_properties); });
    for (const std::string& name : rules.required) {
      if (!ok && !lists_all()) return false;
      ok &= check(members.contains(name), node, "required", path,
                  [&] { return fmt::format("has no property {}, which is required", quote(name)); });
    }
    for (const auto& [name, needed] : rules.dependent_required)
      if (members.contains(name))
        for (const std::string& other : needed)
          ok &= check(members.contains(other), node, "dependentRequired", path, [&] {
            return fmt::format("has the property {}, and then needs {} too", quote(name), quote(other));
          });
    if (!ok && !lists_all()) return false;
    if (rules.names || rules.additional || !rules.properties.empty() || !rules.patterns.empty()) {
      for (std::size_t i = 0; i < count && (ok || lists_all()); ++i)
        ok &= member(node, rules, members, i, path, scope, seen);
    }
    return ok;
  }

  bool member(const Node& node, const ObjectRules& rules, const Value::Object& members, std::size_t i, const Path& path,
              const DynamicScope* scope, Evaluated* seen) {
    const auto& [key, value] = members[i];
    const Path here{&path, &key, 0};
    bool ok = true, known = false;
    if (rules.names) {
      const Value name(key);
      ok &= check(quietly(*rules.names, name, here, scope, nullptr), node, "propertyNames", path,
                  [&] { return fmt::format("has a property with the name {}, which is not allowed", quote(key)); });
    }
    if (const auto found = rules.properties.find(std::string_view(key)); found != rules.properties.end()) {
      known = true;
      ok &= run(*found->second, value, here, scope, nullptr);
    }
    for (const ObjectRules::Pattern& pattern : rules.patterns) {
      if (!search(pattern.regex, key)) continue;
      known = true;
      ok &= run(*pattern.node, value, here, scope, nullptr);
    }
    if (!known && rules.additional) {
      known = true;
      if (rules.additional->always == false)
        ok &= check(false, node, "additionalProperties", path, [&] { return unknown_property(rules, key); });
      else
        ok &= run(*rules.additional, value, here, scope, nullptr);
    }
    if (known && seen) seen->add(i, members.size());
    return ok;
  }

  static std::string unknown_property(const ObjectRules& rules, const std::string& key) {
    std::vector<std::string> names;
    for (const auto& [name, inner] : rules.properties) names.push_back(name);
    std::sort(names.begin(), names.end());
    if (names.size() > 20) names.resize(20);
    return names.empty()
               ? fmt::format("has a property {}, and may have none of that name", quote(key))
               : fmt::format("has a property {}, which is not known; known are {}", quote(key), fmt::join(names, ", "));
  }

  // ---- Schemas of the same value ------------------------------------------------------------------------------------------

  // Whether a schema accepts a value, without collecting messages.
  bool quietly(const Node& node, const Value& value, const Path& path, const DynamicScope* scope, Evaluated* seen) {
    std::vector<Violation>* const before = std::exchange(violations_, nullptr);
    const bool ok = run(node, value, path, scope, seen);
    violations_ = before;
    return ok;
  }

  bool in_place(const Node& node, const InPlaceRules& rules, const Value& value, const Path& path,
                const DynamicScope* scope, Evaluated* seen) {
    bool ok = true;
    const auto same = [&](const Node& inner) {
      if (ok || lists_all()) ok &= run(inner, value, path, scope, seen);
    };
    if (rules.ref) same(*rules.ref);
    if (rules.dynamic_ref) same(dynamic_target(rules, scope));
    for (const Node* inner : rules.all_of) same(*inner);
    if (!rules.any_of.empty() && (ok || lists_all())) ok &= any_of(node, rules.any_of, value, path, scope, seen);
    if (!rules.one_of.empty() && (ok || lists_all())) ok &= one_of(node, rules.one_of, value, path, scope, seen);
    if (rules.negated && (ok || lists_all()))
      ok &= check(!quietly(*rules.negated, value, path, scope, nullptr), node, "not", path,
                  [&] { return fmt::format("is {}, which is excluded", shown(value)); });
    if (rules.condition && (ok || lists_all())) {
      Evaluated found;
      const bool holds = quietly(*rules.condition, value, path, scope, seen ? &found : nullptr);
      if (holds && seen) seen->merge(found);
      if (const Node* then = holds ? rules.then_node : rules.else_node) same(*then);
    }
    if (node.objects && value.is_object())
      for (const auto& [name, inner] : node.objects->dependent_schemas)
        if (value.members().contains(name)) same(*inner);
    return ok;
  }

  const Node& dynamic_target(const InPlaceRules& rules, const DynamicScope* scope) const {
    const Node* target = rules.dynamic_ref;
    if (rules.dynamic_anchor.empty()) return *target;
    for (const DynamicScope* at = scope; at; at = at->before) {  // the outermost wins
      const auto& anchors = schema_.resources[static_cast<std::size_t>(at->resource)]->dynamic_nodes;
      if (const auto found = anchors.find(rules.dynamic_anchor); found != anchors.end()) target = found->second;
    }
    return *target;
  }

  bool any_of(const Node& node, const std::vector<const Node*>& alternatives, const Value& value, const Path& path,
              const DynamicScope* scope, Evaluated* seen) {
    bool ok = false;
    for (const Node* inner : alternatives) {
      Evaluated found;
      if (!quietly(*inner, value, path, scope, seen ? &found : nullptr)) continue;
      ok = true;
      if (!seen) break;
      seen->merge(found);
    }
    if (!ok && lists_all()) explain(node, "anyOf", alternatives, value, path, scope);
    return ok;
  }

  bool one_of(const Node& node, const std::vector<const Node*>& alternatives, const Value& value, const Path& path,
              const DynamicScope* scope, Evaluated* seen) {
    std::size_t first = alternatives.size();
    Evaluated kept;
    for (std::size_t i = 0; i < alternatives.size(); ++i) {
      Evaluated found;
      if (!quietly(*alternatives[i], value, path, scope, seen ? &found : nullptr)) continue;
      if (first < alternatives.size())
        return check(false, node, "oneOf", path, [&] {
          return fmt::format("fits alternative {} and {}, and must fit one only", first + 1, i + 1);
        });
      first = i;
      kept = std::move(found);
    }
    if (first < alternatives.size()) {
      if (seen) seen->merge(kept);
      return true;
    }
    if (lists_all()) explain(node, "oneOf", alternatives, value, path, scope);
    return false;
  }

  // Why no alternative fits: in full for the one that fits best, which is where the value is wrong farthest inside.
  void explain(const Node& node, std::string_view keyword, const std::vector<const Node*>& alternatives,
               const Value& value, const Path& path, const DynamicScope* scope) {
    std::vector<Violation> best;
    std::size_t best_depth = 0;
    constexpr int kExplained = 3;  // explanations inside explanations
    if (explaining_ < kExplained && alternatives.size() <= 16) {
      ++explaining_;
      for (const Node* inner : alternatives) {
        std::vector<Violation> why;
        std::vector<Violation>* const before = std::exchange(violations_, &why);
        run(*inner, value, path, scope, nullptr);
        violations_ = before;
        std::size_t depth = 0;
        for (const Violation& each : why)
          depth = std::max(
              depth, static_cast<std::size_t>(std::count(each.instance_path.begin(), each.instance_path.end(), '/')));
        if (best.empty() || depth > best_depth || (depth == best_depth && why.size() < best.size())) {
          best = std::move(why);
          best_depth = depth;
        }
      }
      --explaining_;
    }
    const bool inside = best_depth > static_cast<std::size_t>(path.depth());
    std::string message = fmt::format("is {}, and fits none of {} alternatives", shown(value), alternatives.size());
    if (!inside && best.size() == 1) message += fmt::format("; the nearest refuses it because it {}", best[0].message);
    fail(node, keyword, path, std::move(message));
    if (inside)
      for (Violation& each : best)
        if (lists_all()) violations_->push_back(std::move(each));
  }

  // ---- What is left -----------------------------------------------------------------------------------------------------------

  bool unevaluated(const Node& node, const Value& value, const Path& path, const DynamicScope* scope, Evaluated& seen) {
    bool ok = true;
    if (node.unevaluated_items && value.is_array()) {
      const Value::Array& elements = value.elements();
      for (std::size_t i = 0; i < elements.size() && (ok || lists_all()); ++i) {
        if (seen.has(i)) continue;
        if (node.unevaluated_items->always == false)
          ok &= check(false, node, "unevaluatedItems", path,
                      [&] { return fmt::format("has an element {}, which no schema describes", i); });
        else
          ok &= run(*node.unevaluated_items, elements[i], Path{&path, nullptr, i}, scope, nullptr);
      }
      seen.all = true;
    }
    if (node.unevaluated_properties && value.is_object()) {
      const Value::Object& members = value.members();
      for (std::size_t i = 0; i < members.size() && (ok || lists_all()); ++i) {
        if (seen.has(i)) continue;
        const auto& [key, inner] = members[i];
        if (node.unevaluated_properties->always == false)
          ok &= check(false, node, "unevaluatedProperties", path,
                      [&] { return fmt::format("has a property {}, which no schema describes", quote(key)); });
        else
          ok &= run(*node.unevaluated_properties, inner, Path{&path, &key, 0}, scope, nullptr);
      }
      seen.all = true;
    }
    return ok;
  }

  static constexpr std::uint64_t kStepsBetweenLooks = 4096;  // at the clock
  static constexpr std::size_t kLongText = 16;

  const Schema::Compiled& schema_;
  std::vector<Violation>* violations_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::uint64_t steps_ = 0, next_look_ = kStepsBetweenLooks;
  int depth_ = 0, explaining_ = 0;
};

}  // namespace

bool apply(const Schema::Compiled& schema, const Value& value, std::vector<Violation>* violations) {
  const auto refuse = [&](std::string fact) {
    if (violations) violations->push_back({"", schema.root->location, std::move(fact)});
    return false;
  };
  try {
    return Application(schema, violations).run(*schema.root, value, Path{}, nullptr, nullptr);
  } catch (const Stopped& stopped) {
    return refuse(stopped.fact);
  } catch (const RegexLimitError& error) {
    return refuse(error.what());
  }
}

}  // namespace weft::schema
