// Texts that commands read.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace weft::cli {

/// A file's text, or standard input's for "-". FileError as `read_text_file`; UsageError if there is too much of it.
std::string read_text(const std::filesystem::path& path, std::uint64_t max_bytes);

}  // namespace weft::cli
