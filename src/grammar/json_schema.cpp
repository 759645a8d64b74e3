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
    if (types & kNullType) network_.define(id, *literal("null"));
    if (types & kBooleanType) network_.define(id, *choice({literal("true"), literal("false")}));
    if (types & kFractionType)
      network_.define(id, *numbers(schemas, false));
    else if (types & kIntegerType)
      network_.define(id, *numbers(schemas, true));
    if (types & kStringType) network_.define(id, *string(schemas));
    if (types & kArrayType) define_array(id, schemas);
    if (types & kObjectType) define_object(id, schemas);
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

  ExpressionPtr numbers(const Conjunction& schemas, bool is_integer) {
    NumberLimits limits{.is_integer = is_integer, .at_least = {}, .at_most = {}, .multiples_of = {}};
    for (const Value* s : schemas) {
      const auto decimal = [](const Value& number) { return Decimal::parse(number.to_json()); };
      if (const Value* v = s->find("minimum")) limits.at_least.push_back({decimal(*v), false});
      if (const Value* v = s->find("exclusiveMinimum")) limits.at_least.push_back({decimal(*v), true});
      if (const Value* v = s->find("maximum")) limits.at_most.push_back({decimal(*v), false});
      if (const Value* v = s->find("exclusiveMaximum")) limits.at_most.push_back({decimal(*v), true});
      if (const Value* v = s->find("multipleOf")) limits.multiples_of.push_back(decimal(*v));
    }
    if (!is_integer && limits.at_least.empty() && limits.at_most.empty() && limits.multiples_of.empty())
      return texts_.any_number();
    return rule(network_.add_rule(numbers_within(limits), false));
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

  ExpressionPtr string(const Conjunction& schemas) {
    const auto [least, most] = counts(schemas, "minLength", "maxLength");
    if (least > most) return choice({});
    std::optional<Regular> contents;
    const auto narrow = [&](const Regular& automaton) {
      contents = contents ? intersect(*contents, automaton) : automaton;
    };
    for (const Value* s : schemas) {
      if (const Value* pattern = s->find("pattern")) {
        try {
          narrow(regular_of_pattern(pattern->string()));
        } catch (const UsageError& error) {
          if (!document_.is_lenient())
            document_.refuse(s, fmt::format("has a pattern that a grammar cannot say: {}", error.what()));
        }
      }
      if (const Value* format = s->find("format")) {
        if (const Regular* automaton = find_format_automaton(format->string()))
          narrow(*automaton);
        else if (!document_.is_lenient())
          document_.refuse(s,
                           fmt::format("has the format {}, which a grammar does not know; leave it out, or be lenient",
                                       quote(format->string())));
      }
    }
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

  void define_object(RuleId id, const Conjunction& schemas) {
    const auto [least, most] = counts(schemas, "minProperties", "maxProperties");
    std::vector<std::string_view> names;
    std::set<std::string_view> known, required;
    const auto add_name = [&](std::string_view name) {
      if (known.insert(name).second) names.push_back(name);
    };
    bool is_listed = false, is_free = true;
    Conjunction additional;
    for (const Value* s : schemas) {
      if (const Value* properties = s->find("properties")) {
        is_listed = is_listed || !properties->members().empty();
        for (const auto& [name, inner] : properties->members()) add_name(name);
      }
      if (const Value* other = s->find("additionalProperties")) {
        additional.push_back(other);
        is_free = false;
      }
    }
    for (const Value* s : schemas)
      if (const Value* list = s->find("required"))
        for (const Value& name : list->elements()) {
          add_name(name.string());
          required.insert(name.string());
        }
    const auto schemas_of = [&](std::string_view name) {
      Conjunction all;
      for (const Value* s : schemas) {
        const Value *properties = s->find("properties"), *other = s->find("additionalProperties");
        const Value* own = properties ? properties->find(name) : nullptr;
        if (own)
          all.push_back(own);
        else if (other)
          all.push_back(other);
      }
      return all;
    };
    const auto is_false = [](const Value* s) { return s->is_boolean() && !s->boolean(); };
    const bool has_others =
        !(is_free && is_listed) && std::none_of(additional.begin(), additional.end(), is_false) && most > 0;
    if (least > most) return;

    // A state for each property and number of properties before it; the number is counted only as far as it matters.
    const std::size_t counted = most != Expression::kUnbounded ? most : std::max<std::size_t>(least, 1);
    const std::size_t columns = std::min(counted, names.size() + (has_others ? counted : 0)) + 1;
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
      network_.define(pair, *texts_.member(texts_.value(Value(name)), call(schemas_of(name))));
      std::vector<StateId> next(columns);
      for (std::size_t c = 0; c < columns; ++c) next[c] = network_.add_state(id);
      for (std::size_t c = 0; c < columns; ++c) {
        if (!required.contains(name)) network_.add_skip(now[c], next[c]);
        if (after(c) < columns) network_.add_skip(network_.append(lead(now[c], c), *rule(pair)), next[after(c)]);
      }
      now = std::move(next);
    }
    if (has_others) {
      has_open_objects_ = true;
      const RuleId pair = network_.add_rule();
      network_.define(pair, *texts_.member(texts_.other_key(names), call(additional)));
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
  std::vector<std::pair<Conjunction, RuleId>> open_;  // rules that have no definition yet
  bool has_open_objects_ = false;
};

}  // namespace

JsonRules add_json_schema(NetworkBuilder& network, const Value& schema, bool lenient) {
  return SchemaRules(network, schema, lenient).make();
}

}  // namespace weft::grammar
