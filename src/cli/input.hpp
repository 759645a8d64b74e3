// Texts that commands read.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "weft/value.hpp"

namespace weft::cli {

/// A file's text, or standard input's for "-". FileError as `read_text_file`; UsageError if there is too much of it.
std::string read_text(const std::filesystem::path& path, std::uint64_t max_bytes);

/// Texts that stand on the command line, and those on the lines of a file ("" for none; - for standard input) that are not empty.
/// UsageError, which begins with `command` and names `option`, if there are none, and for a text that is not UTF-8.
std::vector<std::string> texts_and_lines(std::string_view command, std::string_view option,
                                         std::vector<std::string> texts, const std::filesystem::path& lines);

/// JSON that stands on the command line behind `option`, which messages name. UsageError if it is not valid: no file is wrong.
Value parse_argument(const std::string& text, std::string_view option);

}  // namespace weft::cli
