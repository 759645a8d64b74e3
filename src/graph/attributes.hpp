// Attributes of ops: described as data, kept in nodes as whole numbers, read as a struct.
#pragma once

#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include <functional>

#include "weft/dtype.hpp"
#include "weft/shape.hpp"

namespace weft::graph {

/// The type of an attribute's value.
enum class AttributeType : std::uint8_t {
  integer,   // 3
  number,    // 0.5
  boolean,   // true
  integers,  // [0, 2]
  pairs,     // [[1, 1], [0, 2]]
  dtype,     // f32
  choice,    // one of some words
  numbers,   // [0.5, 2]
};
std::string_view name_of(AttributeType type);

/// A value given by name. `monostate` is null: an integer that is not given (the end of a slice).
using Pairs = std::vector<std::pair<Extent, Extent>>;
using Numbers = std::vector<double>;
using AttributeValue =
    std::variant<std::monostate, Extent, double, bool, std::vector<Extent>, Pairs, DType, std::string, Numbers>;
std::string to_string(const AttributeValue& value);

/// Values of a node's attributes, one after another: integers directly, reals as their bits, lists after their length, a choice
/// as the index of its word.
using Words = std::vector<Extent>;

struct AttributeSpec {
  std::string name;
  AttributeType type = AttributeType::number;
  std::optional<AttributeValue> default_value = {};  // none: the attribute is required
  std::string doc = {};
  std::vector<std::string> aliases = {};
  std::vector<std::string> choices = {};
  double least = -std::numeric_limits<double>::infinity(), most = std::numeric_limits<double>::infinity();
  /// For a field of a struct: appends its value to words, and reads it from there (advancing `at`). Empty for attributes that
  /// are not in a struct.
  std::function<void(const void* of, Words& words)> write = {};
  std::function<void(void* to, const Extent*& at)> read = {};
};

/// The words of a value that fits the attribute.
void append_words(const AttributeSpec& spec, const AttributeValue& value, Words& words);
/// The value as the attribute keeps it: 3 as 3.0 for a number, a single integer or number as a list. nullopt if it does not fit the type;
/// the caller checks ranges.
std::optional<AttributeValue> converted(const AttributeSpec& spec, const AttributeValue& value);
/// "an integer", "one of mean, sum, none".
std::string wanted(const AttributeSpec& spec);

// ---- Fields of a struct --------------------------------------------------------------------------------------------------

Extent word_of(double value);
double real_of(Extent word);

template <class T>
constexpr AttributeType attribute_type_of() {
  if constexpr (std::is_same_v<T, bool>)
    return AttributeType::boolean;
  else if constexpr (std::is_same_v<T, DType>)
    return AttributeType::dtype;
  else if constexpr (std::is_enum_v<T>)
    return AttributeType::choice;
  else if constexpr (std::is_integral_v<T>)
    return AttributeType::integer;
  else if constexpr (std::is_floating_point_v<T>)
    return AttributeType::number;
  else if constexpr (std::is_same_v<T, Pairs>)
    return AttributeType::pairs;
  else if constexpr (std::is_same_v<T, Numbers>)
    return AttributeType::numbers;
  else
    return AttributeType::integers;
}

template <class T>
void write_words(const T& value, Words& words) {
  if constexpr (std::is_floating_point_v<T>) {
    words.push_back(word_of(value));
  } else if constexpr (std::is_same_v<T, Pairs>) {
    words.push_back(static_cast<Extent>(value.size()));
    for (const auto& [first, second] : value) words.push_back(first), words.push_back(second);
  } else if constexpr (std::is_same_v<T, Numbers>) {
    words.push_back(static_cast<Extent>(value.size()));
    for (const double element : value) words.push_back(word_of(element));
  } else if constexpr (std::is_integral_v<T> || std::is_enum_v<T>) {
    words.push_back(static_cast<Extent>(value));
  } else {
    words.push_back(static_cast<Extent>(value.size()));
    for (const auto element : value) words.push_back(static_cast<Extent>(element));
  }
}

template <class T>
void read_words(T& value, const Extent*& at) {
  if constexpr (std::is_floating_point_v<T>) {
    value = real_of(*at++);
  } else if constexpr (std::is_same_v<T, Pairs>) {
    value.resize(static_cast<std::size_t>(*at++));
    for (auto& [first, second] : value) first = *at++, second = *at++;
  } else if constexpr (std::is_same_v<T, Numbers>) {
    value.resize(static_cast<std::size_t>(*at++));
    for (double& element : value) element = real_of(*at++);
  } else if constexpr (std::is_integral_v<T> || std::is_enum_v<T>) {
    value = static_cast<T>(*at++);
  } else {
    value.resize(static_cast<std::size_t>(*at++));
    for (auto& element : value) element = static_cast<std::remove_reference_t<decltype(element)>>(*at++);
  }
}

struct FieldOptions {
  bool required = false;
  std::vector<std::string> aliases = {};
  std::vector<std::string> choices = {};  // of an enum, in the order of its enumerators
  double least = -std::numeric_limits<double>::infinity(), most = std::numeric_limits<double>::infinity();
};

template <class T>
AttributeValue value_of_field(const T& value, const FieldOptions& options) {
  if constexpr (std::is_same_v<T, bool> || std::is_same_v<T, DType> || std::is_same_v<T, Pairs> ||
                std::is_same_v<T, Numbers>)
    return value;
  else if constexpr (std::is_enum_v<T>)
    return options.choices.at(static_cast<std::size_t>(value));
  else if constexpr (std::is_floating_point_v<T>)
    return static_cast<double>(value);
  else if constexpr (std::is_integral_v<T>)
    return static_cast<Extent>(value);
  else
    return std::vector<Extent>(value.begin(), value.end());
}

/// Describes `member` of a struct of attributes. Its default is the one in a fresh S, unless it is required.
template <class S, class T>
AttributeSpec field(std::string name, T S::*member, std::string doc, FieldOptions options = {}) {
  AttributeSpec spec{.name = std::move(name), .type = attribute_type_of<T>(), .doc = std::move(doc)};
  if (!options.required) spec.default_value = value_of_field(S{}.*member, options);
  spec.aliases = std::move(options.aliases);
  spec.choices = std::move(options.choices);
  spec.least = options.least;
  spec.most = options.most;
  if constexpr (std::is_same_v<T, int>) {
    spec.least = std::max(spec.least, static_cast<double>(std::numeric_limits<int>::min()));
    spec.most = std::min(spec.most, static_cast<double>(std::numeric_limits<int>::max()));
  }
  spec.write = [member](const void* of, Words& words) { write_words(static_cast<const S*>(of)->*member, words); };
  spec.read = [member](void* to, const Extent*& at) { read_words(static_cast<S*>(to)->*member, at); };
  return spec;
}

template <class S>
Words words_of(const std::vector<AttributeSpec>& specs, const S& values) {
  Words words;
  words.reserve(specs.size() + 1);
  for (const AttributeSpec& spec : specs) spec.write(&values, words);
  return words;
}

template <class S>
S struct_of(const std::vector<AttributeSpec>& specs, const Extent* at) {
  S values;
  for (const AttributeSpec& spec : specs) spec.read(&values, at);
  return values;
}

}  // namespace weft::graph
