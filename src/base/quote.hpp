// Names from files, made safe to print in messages.
#pragma once

#include <string>
#include <string_view>

namespace weft {

/// `text` in double quotes with quotes, control characters and bytes that are not UTF-8 escaped (\n, \x1b), cut after
/// `max_bytes`: a hostile name can neither forge lines of a log nor send terminal codes.
std::string quote(std::string_view text, std::size_t max_bytes = 120);

/// `text` as a terminal may get it: as it is, but for control characters other than \n and \t, characters that turn the
/// direction of writing, and bytes that are not UTF-8. They are escaped as `quote` does (\x1b), so that no text of a model, a
/// file or a name can move the cursor, write to the clipboard or forge what is on the screen. A \r before \n goes.
std::string for_terminal(std::string_view text);

}  // namespace weft
