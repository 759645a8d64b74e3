#include "serve/openai_fields.hpp"

#include <fmt/format.h>

#include "serve/openai.hpp"

namespace weft::serve {

void refuse_field(std::string_view field, std::string_view fact) {
  throw OpenAiError(400, fmt::format("{} {}", field, fact), std::string(field));
}

const Value* given(const Value& object, std::string_view key) {
  const Value* found = object.find(key);
  return found && !found->is_null() ? found : nullptr;
}

double number_in(const Value& body, std::string_view key, double least, double most, double otherwise) {
  const Value* v = given(body, key);
  if (!v) return otherwise;
  if (!v->is_number()) refuse_field(key, "is not a number");
  const double number = v->number();
  if (!(number >= least && number <= most))
    refuse_field(key, fmt::format("is {}, not between {} and {}", number, least, most));
  return number;
}

std::int64_t integer_in(const Value& body, std::string_view key, std::int64_t least, std::int64_t most,
                        std::int64_t otherwise) {
  const Value* v = given(body, key);
  if (!v) return otherwise;
  if (!v->is_integer()) refuse_field(key, "is not an integer");
  const double number = v->number();
  if (number < static_cast<double>(least) || number > static_cast<double>(most))
    refuse_field(key, fmt::format("is {}, not between {} and {}", v->to_json(), least, most));
  return v->integer();
}

bool flag(const Value& body, std::string_view key, bool otherwise) {
  const Value* v = given(body, key);
  if (!v) return otherwise;
  if (!v->is_boolean()) refuse_field(key, "is neither true nor false");
  return v->boolean();
}

std::string string_in(const Value& value, std::string_view field) {
  if (!value.is_string()) refuse_field(field, "is not a string");
  return value.string();
}

}  // namespace weft::serve
