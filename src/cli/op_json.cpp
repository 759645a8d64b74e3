#include "cli/op_json.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/quote.hpp"

namespace weft::cli {
namespace {

using graph::AttributeValue;

// An integer of 64 bits, also written as 3.0.
std::optional<Extent> whole(const Json& value) {
  if (value.is_number_unsigned()) {
    const auto number = value.get<std::uint64_t>();
    return number <= INT64_MAX ? std::optional(static_cast<Extent>(number)) : std::nullopt;
  }
  if (value.is_number_integer()) return value.get<Extent>();
  if (!value.is_number_float()) return std::nullopt;
  const double number = value.get<double>();
  const bool is_whole = std::trunc(number) == number && std::abs(number) <= 0x1p53;
  return is_whole ? std::optional(static_cast<Extent>(number)) : std::nullopt;
}

// nullopt for what no attribute is.
std::optional<AttributeValue> value_of(const Json& json) {
  if (json.is_null()) return std::monostate{};
  if (json.is_boolean()) return json.get<bool>();
  if (json.is_string()) return json.get<std::string>();
  if (json.is_number_float()) return json.get<double>();
  if (const auto number = whole(json)) return *number;
  if (!json.is_array()) return std::nullopt;
  std::vector<Extent> list;
  graph::Pairs pairs;
  for (const Json& element : json) {
    if (const auto number = whole(element)) {
      list.push_back(*number);
    } else if (element.is_array() && element.size() == 2 && whole(element[0]) && whole(element[1])) {
      pairs.emplace_back(*whole(element[0]), *whole(element[1]));
    } else {
      return std::nullopt;
    }
  }
  if (!list.empty() && !pairs.empty()) return std::nullopt;
  if (!pairs.empty()) return pairs;
  return list;
}

}  // namespace

graph::CaseAttributes attributes_from(const graph::OpRow& row, const Json& object) {
  if (!object.is_object()) throw UsageError(fmt::format("{}: attributes are not an object {{name: value}}", row.name));
  graph::CaseAttributes values;
  for (const auto& [name, json] : object.items()) {
    const graph::AttributeSpec& spec = graph::attribute_of(row, name);
    const auto value = value_of(json);
    if (!value || !graph::converted(spec, *value))
      throw UsageError(fmt::format("{}: attribute {} is {}, not {}", row.name, name,
                                   quote(json.dump(-1, ' ', false, Json::error_handler_t::replace)), wanted(spec)));
    values.emplace_back(name, *value);
  }
  return values;
}

nlohmann::ordered_json to_json(const AttributeValue& value) {
  struct Visitor {
    nlohmann::ordered_json operator()(std::monostate) const { return nullptr; }
    nlohmann::ordered_json operator()(double v) const {
      if (std::isfinite(v)) return v;
      return std::isnan(v) ? "nan" : v > 0 ? "inf" : "-inf";
    }
    nlohmann::ordered_json operator()(const graph::Pairs& pairs) const {
      auto list = nlohmann::ordered_json::array();
      for (const auto& [first, second] : pairs) list.push_back({first, second});
      return list;
    }
    nlohmann::ordered_json operator()(DType v) const { return std::string(name_of(v)); }
    nlohmann::ordered_json operator()(Extent v) const { return v; }
    nlohmann::ordered_json operator()(bool v) const { return v; }
    nlohmann::ordered_json operator()(const std::vector<Extent>& v) const { return v; }
    nlohmann::ordered_json operator()(const std::string& v) const { return v; }
  };
  return std::visit(Visitor{}, value);
}

}  // namespace weft::cli
