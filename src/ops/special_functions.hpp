// Functions of the expression language that are approximations: erfc, erfinv, lgamma, i0, ...
#pragma once

#include <vector>

#include "ops/parse.hpp"

namespace weft::scalar {

/// The returned texts are never freed.
std::vector<DerivedFunction> special_functions();

}  // namespace weft::scalar
