// Files with an example in each line, as JSON.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

#include "base/json.hpp"

namespace weft::tune {

/// Reads a file's lines, and says of errors in which they are.
class JsonLines {
 public:
  explicit JsonLines(const std::filesystem::path& file) : file_(file.string()) {}

  /// Calls `take` with each line that is not empty. FileError for lines that are not JSON, and where none is left.
  void each(std::string_view text, const std::function<void(const Json& line)>& take);
  /// FileError of the line that is being taken.
  [[noreturn]] void refuse(const std::string& fact) const;

 private:
  std::string where() const;

  std::string file_;
  std::int64_t line_ = 0;
};

}  // namespace weft::tune
