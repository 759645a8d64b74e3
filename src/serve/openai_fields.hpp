// Fields of the bodies of requests: members with types and ranges, whose errors name them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "weft/value.hpp"

namespace weft::serve {

/// Throws an OpenAiError with status 400: "FIELD FACT".
[[noreturn]] void refuse_field(std::string_view field, std::string_view fact);

/// A member that is there and not null.
const Value* given(const Value& object, std::string_view key);

// The member, or `otherwise` where it is not given.

double number_in(const Value& body, std::string_view key, double least, double most, double otherwise);
std::int64_t integer_in(const Value& body, std::string_view key, std::int64_t least, std::int64_t most,
                        std::int64_t otherwise);
bool flag(const Value& body, std::string_view key, bool otherwise);

/// `value`, which `field` names in an error.
std::string string_in(const Value& value, std::string_view field);

}  // namespace weft::serve
