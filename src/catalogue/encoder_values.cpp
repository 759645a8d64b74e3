#include "catalogue/encoder_values.hpp"

namespace weft::operations {

Value to_value(const encoder::Label& label) {
  return Value::object({{"index", label.index}, {"name", label.name}, {"probability", label.probability}});
}
Value to_value(const encoder::Ranked& ranked) {
  return Value::object({{"index", ranked.index}, {"score", ranked.score}, {"probability", ranked.probability}});
}
Value to_value(const encoder::TokenLabel& label) {
  return Value::object({{"token", label.token}, {"text", label.text}, {"label", to_value(label.label)}});
}
Value to_value(const encoder::Entity& entity) {
  return Value::object({{"name", entity.name},
                        {"text", entity.text},
                        {"probability", entity.probability},
                        {"first_token", entity.first_token},
                        {"tokens", entity.tokens}});
}
Value to_value(const encoder::Fill& fill) {
  return Value::object({{"token", fill.token}, {"text", fill.text}, {"probability", fill.probability}});
}
Value to_value(const encoder::Answer& answer) {
  return Value::object(
      {{"text", answer.text}, {"begin", answer.begin}, {"end", answer.end}, {"probability", answer.probability}});
}

}  // namespace weft::operations
