#include "grammar/json_schema.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "base/quote.hpp"
#include "grammar/formats.hpp"
#include "grammar/json_texts.hpp"
#include "grammar/numbers.hpp"
#include "grammar/pattern.hpp"
#include "grammar/schema_conjunction.hpp"
#include "weft/error.hpp"

namespace weft::grammar {
namespace {

constexpr std::size_t kRulesMax = 20'000;  // of conjunctions, which references multiply
constexpr std::size_t kPatternsMax = 5;    // of the properties of an object: each combination has a rule

class SchemaRules {
 public:
  SchemaRules(NetworkBuilder& network, const Value& schema, bool lenient)
      : network_(network), texts_(network), document_(schema, lenient) {}

  JsonRules make() {
    const RuleId root = rule_of({&document_.root()});
    // Rules are made here, not where they are called: a chain of references may be long.
    while (!open_.empty()) {
      const auto [conjunction, id] = std::move(open_.back());
      open_.pop_back();
      for (const Conjunction& schemas : document_.alternatives(conjunction)) define(id, schemas);
    }
    return {root, has_open_objects_};
  }

 private:
  // The rule for values that fit all of these schemas.
  RuleId rule_of(Conjunction conjunction) {
    document_.sort(conjunction);
    const auto [found, is_new] = rules_.try_emplace(conjunction, 0);
    if (!is_new) return found->second;
    if (rules_.size() > kRulesMax)
      throw UsageError(fmt::format("grammar: the references of the schema multiply to more than {} rules", kRulesMax));
    found->second = network_.add_rule();
    open_.emplace_back(conjunction, found->second);
    return found->second;
  }
  ExpressionPtr call(Conjunction conjunction) {
    return conjunction.empty() ? free_value() : rule(rule_of(std::move(conjunction)));
  }
  ExpressionPtr free_value() {
    has_open_objects_ = true;
    return texts_.any_value(JsonTexts::kFreeDepth);
  }

  // Adds an alternative to a rule for each type that the schemas allow.
  void define(RuleId id, const Conjunction& schemas) {
    unsigned types = kAnyType;
    for (const Value* s : schemas) types &= SchemaDocument::types_of(s);
    if (add_listed_values(id, schemas, types)) return;
    for (const Value& value : {Value(nullptr), Value(true), Value(false)})
      if ((types & type_of(value)) && !is_excluded(schemas, value)) network_.define(id, *texts_.value(value));
    if (types & kFractionType)
      network_.define(id, *numbers(schemas, (types & kIntegerType) == 0 ? NumberKind::fraction : NumberKind::any));
    else if (types & kIntegerType)
      network_.define(id, *numbers(schemas, NumberKind::integer));
    if (types & kStringType) network_.define(id, *string(schemas));
    if (types & (kArrayType | kObjectType))
      each_excluded(schemas, [&](const Value* schema, const Value& value) {
        if ((value.is_array() || value.is_object()) && (types & type_of(value)) && !document_.is_lenient())
          document_.refuse(schema,
                           "uses \"not\" over a list or an object, which a grammar cannot say; leave it out, or "
                           "be lenient");
      });
    if (types & kArrayType) define_array(id, schemas);
    if (types & kObjectType) define_object(id, schemas);
  }

  /// Visits the values that `not` takes out: visit(schema, value).
  template <class Visit>
  static void each_excluded(const Conjunction& schemas, Visit visit) {
    for (const Value* s : schemas) {
      const Value* inner = SchemaDocument::negated_keyword(s);
      if (!inner) continue;
      if (const Value* constant = inner->find("const")) visit(s, *constant);
      if (const Value* list = inner->find("enum"))
        for (const Value& value : list->elements()) visit(s, value);
    }
  }
  static bool is_excluded(const Conjunction& schemas, const Value& value) {
    bool found = false;
    each_excluded(schemas, [&](const Value*, const Value& other) { found = found || other == value; });
    return found;
  }

  // The values of `const` and `enum`, as far as all schemas take them.
  bool add_listed_values(RuleId id, const Conjunction& schemas, unsigned types) {
    const Value* source = nullptr;
    std::vector<const Value*> listed;
    for (const Value* s : schemas) {
      if (const Value* constant = s->find("const")) {
        source = s;
        listed = {constant};
        break;
      }
      const Value* list = s->find("enum");
      if (!list || source) continue;
      source = s;
      for (const Value& each : list->elements()) listed.push_back(&each);
    }
    if (!source) return false;
    for (const Value* value : listed) {
      if ((type_of(*value) & types) == 0) continue;
      const bool fits =
          std::all_of(schemas.begin(), schemas.end(), [&](const Value* s) { return document_.accepts(s, *value); });
      if (fits) network_.define(id, *texts_.value(*value));
    }
    return true;
  }

  enum class NumberKind { any, integer, fraction };  // fraction: those that are not integers

  ExpressionPtr numbers(const Conjunction& schemas, NumberKind kind) {
    const bool is_integer = kind == NumberKind::integer;
    NumberLimits limits{.is_integer = is_integer, .at_least = {}, .at_most = {}, .multiples_of = {}};
    const auto decimal = [](const Value& number) { return Decimal::parse(number.to_json()); };
    for (const Value* s : schemas) {
      if (const Value* v = s->find("minimum")) limits.at_least.push_back({decimal(*v), false});
      if (const Value* v = s->find("exclusiveMinimum")) limits.at_least.push_back({decimal(*v), true});
      if (const Value* v = s->find("maximum")) limits.at_most.push_back({decimal(*v), false});
      if (const Value* v = s->find("exclusiveMaximum")) limits.at_most.push_back({decimal(*v), true});
      if (const Value* v = s->find("multipleOf")) limits.multiples_of.push_back(decimal(*v));
    }
    std::vector<Decimal> excluded;
    each_excluded(schemas, [&](const Value*, const Value& value) {
      if (type_of(value) & (kIntegerType | kFractionType)) excluded.push_back(decimal(value));
    });
    std::sort(excluded.begin(), excluded.end());
    if (kind == NumberKind::fraction) return fractions(limits, excluded);
    if (!is_integer && excluded.empty() && limits.at_least.empty() && limits.at_most.empty() &&
        limits.multiples_of.empty())
      return texts_.any_number();
    // Between one number that is left out and the next.
    std::vector<ExpressionPtr> parts;
    for (std::size_t i = 0; i <= excluded.size(); ++i) {
      NumberLimits part = limits;
      if (i > 0) part.at_least.push_back({excluded[i - 1], true});
      if (i < excluded.size()) part.at_most.push_back({excluded[i], true});
      parts.push_back(rule(network_.add_rule(numbers_within(part), false)));
    }
    return parts.size() == 1 ? parts[0] : choice(std::move(parts));
  }
  /// Numbers that are not integers: digits behind the point, one of which is not 0.
  ExpressionPtr fractions(NumberLimits limits, const std::vector<Decimal>& excluded) {
    const ExpressionPtr digit = characters({{'0', '9'}}), other = characters({{'1', '9'}});
    const ExpressionPtr text = sequence(
        {optional(character('-')), repeat(digit, 1), character('.'), repeat(digit, 0), other, repeat(digit, 0)});
    limits.at_least.push_back({Decimal{true, "1" + std::string(17, '0'), ""}, false});  // bounds leave out exponents
    Regular all = intersect(numbers_within(limits), Regular(*text));
    for (const Decimal& value : excluded) {
      NumberLimits one;
      one.at_least = one.at_most = {{value, false}};
      all = intersect(all, complement(numbers_within(one)));
    }
    return rule(network_.add_rule(all, false));
  }

  static std::size_t count_at(const Value* schema, std::string_view key, std::size_t otherwise) {
    const Value* v = schema->find(key);
    if (!v) return otherwise;
    return v->number() >= 1e15 ? Expression::kUnbounded : static_cast<std::size_t>(v->number());
  }
  struct Counts {
    std::size_t least = 0, most = Expression::kUnbounded;
  };
  static Counts counts(const Conjunction& schemas, std::string_view least, std::string_view most) {
    Counts c;
    for (const Value* s : schemas) {
      c.least = std::max(c.least, count_at(s, least, 0));
      c.most = std::min(c.most, count_at(s, most, Expression::kUnbounded));
    }
    return c;
  }

  /// The texts in which a pattern of a schema is found, or those in which it is not. Null if it cannot be said, where that is not an
  /// error.
  const Regular* automaton_of(const Value* schema, const std::string& pattern, bool is_found = true) {
    auto& automaton = patterns_[{pattern, is_found}];
    if (automaton) return &*automaton;
    try {
      automaton = is_found ? regular_of_pattern(pattern) : complement(regular_of_pattern(pattern));
      return &*automaton;
    } catch (const UsageError& error) {
      if (!document_.is_lenient())
        document_.refuse(schema, fmt::format("has a pattern that a grammar cannot say: {}", error.what()));
      return nullptr;
    }
  }

  ExpressionPtr string(const Conjunction& schemas) {
    const auto [least, most] = counts(schemas, "minLength", "maxLength");
    if (least > most) return choice({});
    std::optional<Regular> contents;
    const auto narrow = [&](const Regular& automaton) {
      contents = contents ? intersect(*contents, automaton) : automaton;
    };
    for (const Value* s : schemas) {
      if (const Value* pattern = s->find("pattern"))
        if (const Regular* automaton = automaton_of(s, pattern->string())) narrow(*automaton);
      const Value* inner = SchemaDocument::negated_keyword(s);
      if (const Value* pattern = inner ? inner->find("pattern") : nullptr)
        if (const Regular* automaton = automaton_of(s, pattern->string(), false)) narrow(*automaton);
      if (const Value* format = s->find("format")) {
        if (const Regular* automaton = find_format_automaton(format->string()))
          narrow(*automaton);
        else if (!document_.is_lenient())
          document_.refuse(s,
                           fmt::format("has the format {}, which a grammar does not know; leave it out, or be lenient",
                                       quote(format->string())));
      }
    }
    std::vector<std::string_view> words;
    each_excluded(schemas, [&](const Value*, const Value& value) {
      if (value.is_string() && std::find(words.begin(), words.end(), value.string()) == words.end())
        words.push_back(value.string());
    });
    if (!words.empty()) narrow(none_of(words));
    if (!contents) return texts_.string(least, most);
    if (least > 0 || most != Expression::kUnbounded)
      narrow(Regular(*repeat(characters(CodePoints::any()), least, most)));
    return texts_.string(*contents);
  }

  void define_array(RuleId id, const Conjunction& schemas) {
    auto [least, most] = counts(schemas, "minItems", "maxItems");
    std::size_t listed = 0;
    for (const Value* s : schemas)
      if (const Value* prefix = s->find("prefixItems")) listed = std::max(listed, prefix->elements().size());
    // The schemas of an element.
    const auto element = [&](std::size_t i) {
      Conjunction all;
      for (const Value* s : schemas) {
        const Value *prefix = s->find("prefixItems"), *items = s->find("items");
        if (prefix && i < prefix->elements().size())
          all.push_back(&(*prefix)[i]);
        else if (items)
          all.push_back(items);
      }
      return all;
    };
    if (least > most) return;
    const ExpressionPtr rest = most > listed ? call(element(listed)) : choice({});
    const StateId open = network_.append(network_.append(network_.start_of(id), *character('[')), *texts_.space());
    const StateId close = network_.add_state(id);
    StateId at = open;
    const std::size_t chain = std::max(listed, most == Expression::kUnbounded ? std::max<std::size_t>(least, 1) : most);
    for (std::size_t i = 0; i <= std::min(chain, most); ++i) {
      if (i >= least) network_.add_skip(at, close);
      if (i == chain || i == most) break;
      if (i > 0) at = network_.append(at, *texts_.comma());
      at = network_.append(at, i < listed ? *call(element(i)) : *rest);
    }
    if (most == Expression::kUnbounded) {
      const StateId next = network_.append(network_.append(at, *texts_.comma()), *rest);
      network_.add_skip(next, at);
    }
    network_.add_skip(network_.append(network_.append(close, *texts_.space()), *character(']')), network_.end_of(id));
  }

  /// Keys that fit these patterns and none of the others. Without patterns the result is empty.
  std::optional<Regular> keys_fitting(const Conjunction& schemas, const std::vector<std::string>& patterns,
                                      const std::set<std::string>& fitting) {
    std::optional<Regular> keys;
    for (const std::string& pattern : patterns) {
      const Regular* part = automaton_of(schemas[0], pattern, fitting.contains(pattern));
      if (part) keys = keys ? intersect(*keys, *part) : *part;
    }
    return keys;
  }

  void define_object(RuleId id, const Conjunction& schemas) {
    const auto [least, most] = counts(schemas, "minProperties", "maxProperties");
    std::vector<std::string_view> names;
    std::set<std::string_view> known, required;
    const auto add_name = [&](std::string_view name) {
      if (known.insert(name).second) names.push_back(name);
    };
    const auto is_false = [](const Value* s) { return s->is_boolean() && !s->boolean(); };
    bool is_listed = false, is_free = true;
    std::vector<std::string> patterns;
    for (const Value* s : schemas) {
      if (const Value* properties = s->find("properties"))
        for (const auto& [name, inner] : properties->members()) {
          is_listed = is_listed || !is_false(&inner);
          add_name(name);
        }
      if (const Value* list = s->find("patternProperties"))
        for (const auto& [pattern, inner] : list->members()) {
          is_listed = true;
          if (automaton_of(s, pattern) && std::find(patterns.begin(), patterns.end(), pattern) == patterns.end())
            patterns.push_back(pattern);
        }
      if (s->find("additionalProperties")) is_free = false;
    }
    if (patterns.size() > kPatternsMax)
      document_.refuse(schemas[0], fmt::format("has {} patterns of properties; at most {} can be told apart",
                                               patterns.size(), kPatternsMax));
    for (const Value* s : schemas)
      if (const Value* list = s->find("required"))
        for (const Value& name : list->elements()) {
          add_name(name.string());
          required.insert(name.string());
        }
    // The schemas of a property that fits some of the patterns; `name` is null for those that no schema names.
    const auto schemas_of = [&](const std::string_view* name, const std::set<std::string>& fitting) {
      Conjunction all;
      for (const Value* s : schemas) {
        const Value *properties = s->find("properties"), *list = s->find("patternProperties"),
                    *other = s->find("additionalProperties");
        const Value* own = name && properties ? properties->find(*name) : nullptr;
        bool is_known = own != nullptr;
        if (own) all.push_back(own);
        if (list)
          for (const auto& [pattern, inner] : list->members())
            if (fitting.contains(pattern)) {
              all.push_back(&inner);
              is_known = true;
            }
        if (!is_known && other) all.push_back(other);
      }
      return all;
    };
    // The properties that no schema names, by the patterns that they fit.
    std::vector<std::pair<ExpressionPtr, Conjunction>> others;
    for (std::size_t mask = 0; mask < (std::size_t{1} << patterns.size()) && most > 0; ++mask) {
      std::set<std::string> fitting;
      for (std::size_t i = 0; i < patterns.size(); ++i)
        if (mask >> i & 1) fitting.insert(patterns[i]);
      Conjunction inner = schemas_of(nullptr, fitting);
      if (std::any_of(inner.begin(), inner.end(), is_false) || (mask == 0 && is_free && is_listed)) continue;
      others.emplace_back(texts_.other_key(names, keys_fitting(schemas, patterns, fitting)), std::move(inner));
    }
    if (least > most) return;

    // A state for each property and number of properties before it; the number is counted only as far as it matters.
    const std::size_t counted = most != Expression::kUnbounded ? most : std::max<std::size_t>(least, 1);
    const std::size_t columns = std::min(counted, names.size() + (others.empty() ? 0 : counted)) + 1;
    const auto after = [&](std::size_t count) {
      return count + 1 < columns ? count + 1 : most == Expression::kUnbounded ? count : columns;
    };
    StateId first = network_.append(network_.append(network_.start_of(id), *character('{')), *texts_.space());
    const StateId close = network_.add_state(id);
    std::vector<StateId> now(columns);
    for (std::size_t c = 0; c < columns; ++c) now[c] = network_.add_state(id);
    network_.add_skip(first, now[0]);
    const RuleId comma = network_.add_rule();
    network_.define(comma, *texts_.comma());
    const auto lead = [&](StateId from, std::size_t count) {
      return count > 0 ? network_.append(from, *rule(comma)) : from;
    };
    for (const std::string_view name : names) {
      const RuleId pair = network_.add_rule();
      std::set<std::string> fitting;
      for (const std::string& pattern : patterns)
        if (patterns_.at({pattern, true})->accepts(name)) fitting.insert(pattern);
      network_.define(pair, *texts_.member(texts_.value(Value(name)), call(schemas_of(&name, fitting))));
      std::vector<StateId> next(columns);
      for (std::size_t c = 0; c < columns; ++c) next[c] = network_.add_state(id);
      for (std::size_t c = 0; c < columns; ++c) {
        if (!required.contains(name)) network_.add_skip(now[c], next[c]);
        if (after(c) < columns) network_.add_skip(network_.append(lead(now[c], c), *rule(pair)), next[after(c)]);
      }
      now = std::move(next);
    }
    for (const auto& [key, inner] : others) {
      has_open_objects_ = true;
      const RuleId pair = network_.add_rule();
      network_.define(pair, *texts_.member(key, call(inner)));
      for (std::size_t c = 0; c < columns; ++c)
        if (after(c) < columns) network_.add_skip(network_.append(lead(now[c], c), *rule(pair)), now[after(c)]);
    }
    for (std::size_t c = 0; c < columns; ++c)
      if (c >= least && c <= most) network_.add_skip(now[c], close);
    network_.add_skip(network_.append(network_.append(close, *texts_.space()), *character('}')), network_.end_of(id));
  }

  NetworkBuilder& network_;
  JsonTexts texts_;
  SchemaDocument document_;
  std::map<Conjunction, RuleId> rules_;
  std::vector<std::pair<Conjunction, RuleId>> open_;                         // rules that have no definition yet
  std::map<std::pair<std::string, bool>, std::optional<Regular>> patterns_;  // and whether they are to be found
  bool has_open_objects_ = false;
};

}  // namespace

JsonRules add_json_schema(NetworkBuilder& network, const Value& schema, bool lenient) {
  return SchemaRules(network, schema, lenient).make();
}

}  // namespace weft::grammar
