// Functions of the expression language that are approximations: erfc, erfinv, lgamma, i0, ...
#pragma once

#include <vector>

#include "ops/parse.hpp"

namespace weft::scalar {

/// Their texts live as long as the program.
std::vector<DerivedFunction> special_functions();

}  // namespace weft::scalar
