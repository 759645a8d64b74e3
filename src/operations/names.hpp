// Names of operations that come from other systems.
#pragma once

#include <string>
#include <string_view>
#include <utility>

namespace weft::operations {

/// The nearest name that a namespace or an operation may have, with _ for what it cannot have.
std::string name_from(std::string_view text);
/// Namespace and name: those of a text that is an id, as "tensor.add"; otherwise `space`, and the name from the text.
std::pair<std::string, std::string> id_from(std::string_view text, std::string_view space);

}  // namespace weft::operations
