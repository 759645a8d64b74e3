// What kind of model a folder holds.
#pragma once

#include <filesystem>
#include <string>

namespace weft::io {

/// The model_type of the folder's config.json; "" if there is no such file or key. FileError if the file is not JSON.
std::string model_type_of(const std::filesystem::path& folder);

}  // namespace weft::io
