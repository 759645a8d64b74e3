#include "graph/attributes.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "weft/error.hpp"

namespace weft::graph {

std::string_view name_of(AttributeType type) {
  static constexpr std::string_view kNames[] = {"integer", "number", "boolean", "integers",
                                                "pairs",   "dtype",  "choice",  "numbers"};
  return kNames[static_cast<int>(type)];
}

Extent word_of(double value) { return std::bit_cast<Extent>(value); }
double real_of(Extent word) { return std::bit_cast<double>(word); }

std::string to_string(const AttributeValue& value) {
  struct Visitor {
    std::string operator()(std::monostate) const { return "null"; }
    std::string operator()(Extent v) const { return fmt::to_string(v); }
    std::string operator()(double v) const { return fmt::format("{}", v); }
    std::string operator()(bool v) const { return v ? "true" : "false"; }
    std::string operator()(const std::vector<Extent>& v) const { return fmt::format("[{}]", fmt::join(v, ", ")); }
    std::string operator()(const Pairs& v) const {
      std::vector<std::string> pairs;
      for (const auto& [first, second] : v) pairs.push_back(fmt::format("[{}, {}]", first, second));
      return fmt::format("[{}]", fmt::join(pairs, ", "));
    }
    std::string operator()(DType v) const { return std::string(weft::name_of(v)); }
    std::string operator()(const std::string& v) const { return v; }
    std::string operator()(const Numbers& v) const { return fmt::format("[{}]", fmt::join(v, ", ")); }
  };
  return std::visit(Visitor{}, value);
}

namespace {

// A number, also as an integer or as the word of an infinity or NaN.
std::optional<double> number_of(const AttributeValue& value) {
  if (const auto* number = std::get_if<double>(&value)) return *number;
  if (const auto* integer = std::get_if<Extent>(&value)) return static_cast<double>(*integer);
  if (const auto* word = std::get_if<std::string>(&value)) {
    if (*word == "inf") return std::numeric_limits<double>::infinity();
    if (*word == "-inf") return -std::numeric_limits<double>::infinity();
    if (*word == "nan") return std::numeric_limits<double>::quiet_NaN();
  }
  return std::nullopt;
}

}  // namespace

std::optional<AttributeValue> converted(const AttributeSpec& spec, const AttributeValue& value) {
  if (std::holds_alternative<std::monostate>(value))
    return spec.default_value && std::holds_alternative<std::monostate>(*spec.default_value) ? std::optional(value)
                                                                                             : spec.default_value;
  const auto* integer = std::get_if<Extent>(&value);
  const auto* number = std::get_if<double>(&value);
  const bool is_whole = number && std::trunc(*number) == *number && std::abs(*number) <= 0x1p53;
  switch (spec.type) {
    case AttributeType::integer:
      if (integer) return value;
      if (is_whole) return static_cast<Extent>(*number);
      return std::nullopt;
    case AttributeType::number:
      if (const auto real = number_of(value)) return *real;
      return std::nullopt;
    case AttributeType::numbers:
      if (const auto* list = std::get_if<std::vector<Extent>>(&value)) return Numbers(list->begin(), list->end());
      if (const auto real = number_of(value)) return Numbers{*real};
      return std::holds_alternative<Numbers>(value) ? std::optional(value) : std::nullopt;
    case AttributeType::boolean: return std::holds_alternative<bool>(value) ? std::optional(value) : std::nullopt;
    case AttributeType::integers:
      if (integer) return std::vector<Extent>{*integer};
      if (is_whole) return std::vector<Extent>{static_cast<Extent>(*number)};
      return std::holds_alternative<std::vector<Extent>>(value) ? std::optional(value) : std::nullopt;
    case AttributeType::pairs:
      if (const auto* list = std::get_if<std::vector<Extent>>(&value); list && list->empty()) return Pairs{};
      return std::holds_alternative<Pairs>(value) ? std::optional(value) : std::nullopt;
    case AttributeType::dtype:
      if (std::holds_alternative<DType>(value)) return value;
      if (const auto* name = std::get_if<std::string>(&value))
        if (const auto type = dtype_from_name(*name)) return *type;
      return std::nullopt;
    case AttributeType::choice: {
      const auto* word = std::get_if<std::string>(&value);
      const bool known = word && std::find(spec.choices.begin(), spec.choices.end(), *word) != spec.choices.end();
      return known ? std::optional(value) : std::nullopt;
    }
  }
  return std::nullopt;
}

void append_words(const AttributeSpec& spec, const AttributeValue& value, Words& words) {
  switch (spec.type) {
    case AttributeType::integer: return write_words(std::get<Extent>(value), words);
    case AttributeType::number: return write_words(std::get<double>(value), words);
    case AttributeType::boolean: return write_words(std::get<bool>(value), words);
    case AttributeType::integers: return write_words(std::get<std::vector<Extent>>(value), words);
    case AttributeType::pairs: return write_words(std::get<Pairs>(value), words);
    case AttributeType::numbers: return write_words(std::get<Numbers>(value), words);
    case AttributeType::dtype: return write_words(std::get<DType>(value), words);
    case AttributeType::choice: {
      const auto& word = std::get<std::string>(value);
      words.push_back(std::find(spec.choices.begin(), spec.choices.end(), word) - spec.choices.begin());
      return;
    }
  }
  throw InternalError("attributes: unknown type");
}

std::string wanted(const AttributeSpec& spec) {
  switch (spec.type) {
    case AttributeType::integer: return "an integer";
    case AttributeType::number: return "a number (or \"inf\", \"-inf\", \"nan\")";
    case AttributeType::boolean: return "true or false";
    case AttributeType::integers: return "a list of integers";
    case AttributeType::numbers: return "a list of numbers";
    case AttributeType::pairs: return "a list of pairs [before, after]";
    case AttributeType::dtype: return "the name of a dtype, such as \"f32\"";
    case AttributeType::choice: return fmt::format("one of {}", fmt::join(spec.choices, ", "));
  }
  return "";
}

}  // namespace weft::graph
