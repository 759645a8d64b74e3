// Regular expressions of JSON Schema as automata.
#pragma once

#include <string_view>

#include "grammar/regular.hpp"

namespace weft::grammar {

/// The texts in which an expression of ECMA-262 (with the flag u) is found. Groups, alternatives, classes, repetitions, the
/// escapes \d \w \s, \p{...} of general categories, and the anchors ^ and $. Errors: UsageError that tells what is wrong or not
/// regular: look-around, back references, \b; and for expressions of more than 10,000 bytes.
Regular regular_of_pattern(std::string_view pattern);

/// The expression itself, which has no anchors. Errors as above.
ExpressionPtr parse_pattern(std::string_view pattern);

}  // namespace weft::grammar
