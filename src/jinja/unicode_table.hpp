// The tables of unicode.hpp.
#pragma once

#include <cstdint>
#include <span>

namespace weft::jinja {

/// Properties of the code points from `first` to the next run.
struct PropertyRun {
  std::uint32_t first;
  std::uint16_t flags;  // CharacterFlag
};
/// Code points first, first + step, ..., last are mapped to the code points `delta` after them.
struct CaseStretch {
  std::uint32_t first, last, step;
  std::int32_t delta;
};
/// A code point that becomes up to three; zeros fill up.
struct SpecialCase {
  std::uint32_t code_point;
  std::uint32_t upper0, upper1, upper2, lower0, lower1, lower2, title0, title1, title2;
};

std::span<const PropertyRun> property_runs();
std::span<const CaseStretch> upper_stretches();
std::span<const CaseStretch> lower_stretches();
/// Where the titlecase form is not the uppercase one.
std::span<const CaseStretch> title_stretches();
std::span<const SpecialCase> special_cases();

}  // namespace weft::jinja
