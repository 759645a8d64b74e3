#include "base/python_json.hpp"

#include <algorithm>
#include <string>
#include <string_view>

#include "base/file.hpp"

namespace weft {
namespace {

/// `text` with "null" in place of words for numbers that are not finite, outside of strings.
std::string without_infinities(std::string_view text) {
  std::string kept;
  kept.reserve(text.size());
  bool in_string = false;
  for (std::size_t i = 0; i < text.size();) {
    const char c = text[i];
    if (in_string && c == '\\' && i + 1 < text.size()) {
      kept += text.substr(i, 2);
      i += 2;
      continue;
    }
    if (c == '"') in_string = !in_string;
    std::size_t word = 0;
    for (const std::string_view each : {"-Infinity", "Infinity", "NaN"})
      if (!in_string && word == 0 && text.substr(i).starts_with(each)) word = each.size();
    if (word > 0)
      kept += "null";
    else
      kept += c;
    i += std::max<std::size_t>(word, 1);
  }
  return kept;
}

}  // namespace

Json read_python_json_file(const std::filesystem::path& path, const JsonLimits& limits) {
  return parse_json(without_infinities(read_text_file(path, limits.max_bytes)), path.string(), limits);
}

}  // namespace weft
