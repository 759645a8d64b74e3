// JSON as Python writes it.
#pragma once

#include "base/json.hpp"

namespace weft {

/// As `read_json_file`, for files that may hold NaN, Infinity and -Infinity, words that Python writes and JSON lacks: they become
/// null.
Json read_python_json_file(const std::filesystem::path& path, const JsonLimits& limits = {});

}  // namespace weft
