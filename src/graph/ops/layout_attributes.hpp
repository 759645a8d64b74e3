// Attributes of the rows that move elements: views, layouts, parts, padding.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "graph/attributes.hpp"

namespace weft::graph {

inline AttributeSpec axis_attribute(std::string doc, std::optional<AttributeValue> fallback = {}) {
  return {.name = "axis",
          .type = AttributeType::integer,
          .default_value = std::move(fallback),
          .doc = std::move(doc),
          .aliases = {"dim"}};
}
inline AttributeSpec whole_attribute(std::string name, std::string doc, std::optional<Extent> fallback = {},
                                     std::vector<std::string> aliases = {}) {
  AttributeSpec spec{
      .name = std::move(name), .type = AttributeType::integer, .doc = std::move(doc), .aliases = std::move(aliases)};
  if (fallback) spec.default_value = *fallback;
  return spec;
}
inline AttributeSpec list_attribute(std::string name, std::string doc, std::optional<std::vector<Extent>> fallback = {},
                                    std::vector<std::string> aliases = {}) {
  AttributeSpec spec{
      .name = std::move(name), .type = AttributeType::integers, .doc = std::move(doc), .aliases = std::move(aliases)};
  if (fallback) spec.default_value = *fallback;
  return spec;
}
inline AttributeSpec shape_attribute(std::string doc) { return list_attribute("shape", std::move(doc), {}, {"size"}); }

}  // namespace weft::graph
