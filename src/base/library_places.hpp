// Where the parts of an installation are that are loaded when they are needed.
#pragma once

#include <filesystem>
#include <string_view>
#include <vector>

namespace weft {

/// The files that may be a shared library of this name: beside the program, in ../lib/weft, and the same for the file that holds this
/// code, which is another one when Weft is a Python module.
std::vector<std::filesystem::path> library_places(std::string_view name);

}  // namespace weft
