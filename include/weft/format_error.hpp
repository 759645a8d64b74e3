// Broken rules of file formats, with codes for programs.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "weft/error.hpp"

namespace weft {

/// A broken rule of a safetensors or metatensor file. docs/metatensor.md lists the codes.
struct FormatViolation {
  std::string_view code;   ///< "OVERLAP"
  std::uint64_t byte = 0;  ///< of the file: where the length, the entry of the header, or the data is
  std::string name;        ///< of the tensor, or the place in the schema; "" for a rule about the whole file
  std::string message;     ///< with the file's path
};

/// The first broken rule of a file. `what()` is its message.
class FormatError : public FileError {
 public:
  explicit FormatError(FormatViolation violation) : FileError(violation.message), violation_(std::move(violation)) {}
  const FormatViolation& violation() const { return violation_; }

 private:
  FormatViolation violation_;
};

}  // namespace weft
