#include "cli/input.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "base/file.hpp"
#include "cli/language_model.hpp"
#include "weft/error.hpp"

namespace weft::cli {
namespace {

constexpr std::uint64_t kLinesBytesMax = std::uint64_t{64} << 20;

}  // namespace

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

std::vector<std::string> texts_and_lines(std::string_view command, std::string_view option,
                                         std::vector<std::string> texts, const std::filesystem::path& lines) {
  if (!lines.empty()) {
    const std::string all = read_text(lines, kLinesBytesMax);
    for (std::size_t begin = 0; begin < all.size();) {
      const std::size_t end = std::min(all.find('\n', begin), all.size());
      if (end > begin) texts.push_back(all.substr(begin, end - begin));
      begin = end + 1;
    }
  }
  if (texts.empty())
    throw UsageError(fmt::format("{}: there are no texts; give {}, or --lines with a file of texts", command, option));
  for (const std::string& text : texts) require_utf8_text(text, "a text");
  return texts;
}

Value parse_argument(const std::string& text, std::string_view option) try {
  return Value::parse(text, option);
} catch (const FileError& error) {
  throw UsageError(error.what());
}

}  // namespace weft::cli
