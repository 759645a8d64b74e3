// Texts that commands read.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "weft/value.hpp"

namespace weft::cli {

/// A file's text, or standard input's for "-". FileError as `read_text_file`; UsageError if there is too much of it.
std::string read_text(const std::filesystem::path& path, std::uint64_t max_bytes);

/// JSON that stands on the command line behind `option`, which messages name. UsageError if it is not valid: no file is wrong.
Value parse_argument(const std::string& text, std::string_view option);

}  // namespace weft::cli
