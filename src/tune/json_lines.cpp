#include "tune/json_lines.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "weft/error.hpp"

namespace weft::tune {

std::string JsonLines::where() const { return fmt::format("{}: line {}", file_, line_); }

void JsonLines::refuse(const std::string& fact) const { throw FileError(fmt::format("{}: {}", where(), fact)); }

void JsonLines::each(std::string_view text, const std::function<void(const Json& line)>& take) {
  constexpr std::uint64_t kLineBytesMax = std::uint64_t{64} << 20;
  bool is_empty = true;
  for (std::size_t begin = 0; begin < text.size();) {
    ++line_;
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = text.substr(begin, end - begin);
    begin = end + 1;
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    is_empty = false;
    take(parse_json(line, where(), {.max_bytes = kLineBytesMax}));
  }
  if (is_empty) throw FileError(fmt::format("{}: there is no example in it", file_));
}

}  // namespace weft::tune
