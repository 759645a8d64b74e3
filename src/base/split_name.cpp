#include "base/split_name.hpp"

#include <charconv>

namespace weft {

std::optional<SplitName> split_name(std::string_view name) {
  constexpr std::string_view kMark = "-00001-of-00004";
  const std::size_t dot = name.rfind('.');
  if (dot == std::string_view::npos || dot < kMark.size()) return std::nullopt;
  const std::string_view mark = name.substr(dot - kMark.size(), kMark.size());
  SplitName part;
  const auto number = [&](std::size_t at, int& value) {
    const std::string_view digits = mark.substr(at, 5);
    return digits.find_first_not_of("0123456789") == std::string_view::npos &&
           std::from_chars(digits.data(), digits.data() + 5, value).ec == std::errc();
  };
  if (mark[0] != '-' || mark.substr(6, 4) != "-of-" || !number(1, part.number) || !number(10, part.count))
    return std::nullopt;
  part.before = name.substr(0, dot - kMark.size());
  part.after = name.substr(dot);
  return part;
}

}  // namespace weft
