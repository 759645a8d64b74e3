#include "grammar/json_texts.hpp"

#include <fmt/format.h>

#include "grammar/numbers.hpp"

namespace weft::grammar {

ExpressionPtr JsonTexts::kept(const std::string& name, const ExpressionPtr& expression) {
  const RuleId id = network_.add_rule();
  network_.define(id, *expression);
  return kept_[name] = rule(id);
}

ExpressionPtr JsonTexts::space() {
  if (const auto found = kept_.find("space"); found != kept_.end()) return found->second;
  return kept("space", choice({sequence({}), character(' '),
                               sequence({character('\n'), repeat(characters({{' ', ' '}, {'\t', '\t'}}), 0, 32)})}));
}

namespace {

// A character of a string with any escape. Surrogates come in pairs.
ExpressionPtr string_character() {
  const auto hex = [](char32_t first, char32_t last) {  // of upper-case letters or digits
    return first >= 'A' ? characters({{first, last}, {first + 32, last + 32}}) : characters({{first, last}});
  };
  const ExpressionPtr any = characters({{'0', '9'}, {'A', 'F'}, {'a', 'f'}}), two = repeat(any, 2, 2);
  const ExpressionPtr d = hex('D', 'D'), low = characters({{'0', '7'}}), high = hex('A', 'B'),
                      up_to_b = characters({{'8', '9'}, {'A', 'B'}, {'a', 'b'}}), above = hex('C', 'F');
  const ExpressionPtr unit =
      choice({sequence({characters({{'0', '9'}, {'A', 'C'}, {'E', 'F'}, {'a', 'c'}, {'e', 'f'}}), any, two}),
              sequence({d, low, two})});
  const ExpressionPtr pair = sequence({d, up_to_b, two, literal("\\u"), d, above, two});
  const ExpressionPtr escape = sequence(
      {character('\\'),
       choice({characters(
                   {{'"', '"'}, {'/', '/'}, {'\\', '\\'}, {'b', 'b'}, {'f', 'f'}, {'n', 'n'}, {'r', 'r'}, {'t', 't'}}),
               sequence({character('u'), choice({unit, pair})})})});
  return choice({characters(subtract(CodePoints::any(), CodePoints{{0, 0x1F}, {'"', '"'}, {'\\', '\\'}})), escape});
}

ExpressionPtr quoted(ExpressionPtr contents) { return sequence({character('"'), std::move(contents), character('"')}); }

}  // namespace

ExpressionPtr JsonTexts::string() {
  if (const auto found = kept_.find("string"); found != kept_.end()) return found->second;
  return kept("string", quoted(repeat(string_character(), 0)));
}

ExpressionPtr JsonTexts::string(std::size_t least, std::size_t most) {
  if (least == 0 && most == Expression::kUnbounded) return string();
  if (!kept_.contains("character")) kept("character", string_character());
  return quoted(repeat(kept_["character"], least, most));
}

ExpressionPtr JsonTexts::string(const Regular& contents) { return quoted(rule(network_.add_rule(contents, true))); }

ExpressionPtr JsonTexts::value(const Value& value) {
  switch (value.kind()) {
    case Value::Kind::string: return string(Regular(*literal(value.string())));
    case Value::Kind::array: {
      std::vector<ExpressionPtr> parts;
      for (const Value& element : value.elements()) {
        if (!parts.empty()) parts.push_back(comma());
        parts.push_back(this->value(element));
      }
      return between('[', sequence(std::move(parts)), ']');
    }
    case Value::Kind::object: {
      std::vector<ExpressionPtr> parts;
      for (const auto& [key, element] : value.members()) {
        if (!parts.empty()) parts.push_back(comma());
        parts.push_back(member(this->value(Value(key)), this->value(element)));
      }
      return between('{', sequence(std::move(parts)), '}');
    }
    default: return literal(value.to_json());
  }
}

ExpressionPtr JsonTexts::other_key(const std::vector<std::string_view>& names, const std::optional<Regular>& fits) {
  // Without control characters there is one way to write a key, so that keys can be compared by their bytes.
  const ExpressionPtr plain = characters(subtract(CodePoints::any(), CodePoints{{0, 0x1F}, {0x7F, 0x7F}}));
  const Regular keys = intersect(none_of(names), Regular(*repeat(plain, 0)));
  return string(fits ? intersect(keys, *fits) : keys);
}

ExpressionPtr JsonTexts::any_number() {
  if (const auto found = kept_.find("number"); found != kept_.end()) return found->second;
  return kept_["number"] = rule(network_.add_rule(numbers_within({}), false));
}

ExpressionPtr JsonTexts::any_value(int depth) {
  const std::string name = fmt::format("value {}", depth);
  if (const auto found = kept_.find(name); found != kept_.end()) return found->second;
  std::vector<ExpressionPtr> list = {string(), any_number(), literal("true"), literal("false"), literal("null")};
  if (depth > 0) {
    list.push_back(any_array(depth));
    list.push_back(any_object(depth));
  }
  return kept(name, choice(std::move(list)));
}

ExpressionPtr JsonTexts::any_array(int depth) {
  const std::string name = fmt::format("array {}", depth);
  if (const auto found = kept_.find(name); found != kept_.end()) return found->second;
  const ExpressionPtr element = any_value(depth - 1);
  return kept(name, between('[', optional(sequence({element, repeat(sequence({comma(), element}), 0)})), ']'));
}

ExpressionPtr JsonTexts::any_object(int depth) {
  const std::string name = fmt::format("object {}", depth);
  if (const auto found = kept_.find(name); found != kept_.end()) return found->second;
  if (!kept_.contains("key")) {
    const ExpressionPtr any_key = other_key({});
    kept("key", any_key);
  }
  const ExpressionPtr each = member(kept_["key"], any_value(depth - 1));
  return kept(name, between('{', optional(sequence({each, repeat(sequence({comma(), each}), 0)})), '}'));
}

ExpressionPtr JsonTexts::comma() { return sequence({space(), character(','), space()}); }
ExpressionPtr JsonTexts::between(char open, ExpressionPtr inside, char close) {
  return sequence({character(static_cast<char32_t>(open)), space(), std::move(inside), space(),
                   character(static_cast<char32_t>(close))});
}
ExpressionPtr JsonTexts::member(ExpressionPtr key, ExpressionPtr value) {
  return sequence({std::move(key), space(), character(':'), space(), std::move(value)});
}

}  // namespace weft::grammar
