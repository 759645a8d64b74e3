// Rows without texts.
#pragma once

#include "weft/tune.hpp"

namespace weft::tune {

/// Rows of padding alone.
Rows no_rows(Extent count, Extent context, bool of_preferences);

}  // namespace weft::tune
