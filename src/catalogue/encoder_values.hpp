// What text encoders find, as values of operations and scripts.
#pragma once

#include "weft/encoder.hpp"
#include "weft/value.hpp"

namespace weft::operations {

/// {"index", "name", "probability"}.
Value to_value(const encoder::Label& label);
/// {"index", "score", "probability"}.
Value to_value(const encoder::Ranked& ranked);
/// {"token", "text", "label"}.
Value to_value(const encoder::TokenLabel& label);
/// {"name", "text", "probability", "first_token", "tokens"}.
Value to_value(const encoder::Entity& entity);
/// {"token", "text", "probability"}.
Value to_value(const encoder::Fill& fill);

/// {"text", "begin", "end", "probability"}.
Value to_value(const encoder::Answer& answer);

/// A list of the values of each.
template <class T>
Value to_value(const std::vector<T>& all) {
  Value::Array values;
  for (const T& each : all) values.push_back(to_value(each));
  return values;
}

}  // namespace weft::operations
