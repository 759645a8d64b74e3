// Names from files, made safe to print in messages.
#pragma once

#include <string>
#include <string_view>

namespace weft {

/// `text` in double quotes with quotes, control characters and bytes that are not UTF-8 escaped (\n, \x1b), cut after
/// `max_bytes`: a hostile name can neither forge lines of a log nor send terminal codes.
std::string quote(std::string_view text, std::size_t max_bytes = 120);

}  // namespace weft
