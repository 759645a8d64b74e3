// Names of enumerations in descriptions, in the order of their values.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <span>
#include <string>
#include <string_view>

#include "base/quote.hpp"
#include "weft/error.hpp"

namespace weft::grid {

/// The position of a name; UsageError that lists all, if there is none of this name.
inline std::size_t position_of(std::string_view what, std::string_view name, std::span<const std::string_view> names) {
  for (std::size_t i = 0; i < names.size(); ++i)
    if (names[i] == name) return i;
  throw UsageError(fmt::format("{} {} is unknown; choose one of {}", what, quote(name), fmt::join(names, ", ")));
}

}  // namespace weft::grid
