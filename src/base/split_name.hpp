// The names of files that are parts of one GGUF model.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace weft {

/// A part's name: `before`, "-00002-of-00004", `after`, which is the ending with its dot.
struct SplitName {
  std::string before, after;
  int number = 0, count = 0;
};

/// Nothing if the name is not that of a part.
std::optional<SplitName> split_name(std::string_view name);

}  // namespace weft
