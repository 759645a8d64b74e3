#include "cli/input.hpp"

#include <fmt/format.h>

#include <cstdio>

#include "base/file.hpp"
#include "weft/error.hpp"

namespace weft::cli {

std::string read_text(const std::filesystem::path& path, std::uint64_t max_bytes) {
  if (path != "-") return read_text_file(path, max_bytes);
  std::string text;
  char buffer[1 << 16];
  for (std::size_t got; (got = std::fread(buffer, 1, sizeof buffer, stdin)) > 0;) {
    text.append(buffer, got);
    if (text.size() > max_bytes) throw UsageError(fmt::format("the text exceeds {} bytes; split it", max_bytes));
    if (std::feof(stdin)) break;  // a terminal would ask for a second end
  }
  return text;
}

Value parse_argument(const std::string& text, std::string_view option) try {
  return Value::parse(text, option);
} catch (const FileError& error) {
  throw UsageError(error.what());
}

}  // namespace weft::cli
