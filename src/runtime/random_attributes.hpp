// Attributes that ops of random numbers share.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "graph/op.hpp"
#include "weft/ops.hpp"

namespace weft::runtime {

inline graph::AttributeSpec random_number(std::string name, std::optional<double> fallback, std::string doc,
                                          std::vector<std::string> aliases = {}) {
  graph::AttributeSpec spec{.name = std::move(name), .doc = std::move(doc), .aliases = std::move(aliases)};
  if (fallback) spec.default_value = *fallback;
  return spec;
}
inline graph::AttributeSpec random_whole(std::string name, std::string doc) {
  return {.name = std::move(name), .type = graph::AttributeType::integer, .doc = std::move(doc)};
}
inline graph::AttributeSpec random_shape() {
  return {.name = "shape", .type = graph::AttributeType::integers, .doc = "extents", .aliases = {"size"}};
}
inline graph::AttributeSpec random_dtype() {
  return {
      .name = "dtype", .type = graph::AttributeType::dtype, .default_value = DType::f32, .doc = "dtype of the result"};
}
inline graph::AttributeSpec random_seed() {
  return {.name = "seed",
          .type = graph::AttributeType::integer,
          .default_value = std::monostate{},
          .doc = "seeds the generator before this draw; null: it goes on"};
}

/// Seeds the generator if the attribute says so. Errors: UsageError for a seed outside of [0, 2^32).
inline void take_seed(const graph::Arguments& a) {
  const Extent value = a.integer_or("seed", -1);
  if (value == -1) return;
  if (value < 0 || value > UINT32_MAX) throw UsageError(a.row().name + ": attribute seed is outside of [0, 2^32)");
  manual_seed(static_cast<std::uint32_t>(value));
}

}  // namespace weft::runtime
