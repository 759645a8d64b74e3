// Inputs, attributes and cases of the rows of ops on elements by index.
#pragma once

#include "graph/op.hpp"

namespace weft::graph {

inline AttributeSpec index_axis() {
  return {.name = "axis",
          .type = AttributeType::integer,
          .default_value = Extent{0},
          .doc = "axis that the indices count",
          .aliases = {"dim"}};
}
inline AttributeSpec index_flag(std::string name, bool fallback, std::string doc) {
  return {.name = std::move(name), .type = AttributeType::boolean, .default_value = fallback, .doc = std::move(doc)};
}
inline AttributeSpec index_reduction() {
  return {.name = "reduction",
          .type = AttributeType::choice,
          .default_value = std::string("sum"),
          .doc = "how the updates of a place are combined",
          .aliases = {"reduce"},
          .choices = {"sum", "prod", "mean", "amax", "amin"}};
}
inline InputSpec integers_input() { return {"indices", ops::DTypes::integers}; }
inline CaseInput some_indices(Shape shape, std::vector<double> values) {
  return {.shape = std::move(shape), .type = DType::i32, .values = std::move(values)};
}
inline CaseInput index_noise(Shape shape, double most) { return {std::move(shape), 0, most, DType::i32}; }

}  // namespace weft::graph
