// The order of the format's dtypes, shared by its reader and writer.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace weft::io {

/// Index of a dtype in the format's list, narrowest alignment first, if there is one with this name.
std::optional<int> safetensors_dtype_rank(std::string_view dtype);
/// All names, separated by commas, for messages.
std::string safetensors_dtype_list();

}  // namespace weft::io
