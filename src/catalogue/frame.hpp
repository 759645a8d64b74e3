// A value as one piece of bytes, for transports without a form of their own: the JSON of `wire.hpp`, and behind it the elements of
// its tensors as they are in memory.
//
//   offset  bytes
//   0       4      "WEFT"
//   4       4      1, the version of this layout
//   8       8      length n of the JSON
//   16      n      the JSON, UTF-8; a tensor is {"$tensor": {"dtype", "shape", "offset"}}
//   16 + n  ...    zeros to a multiple of 64, then the section of bytes: offset 0 is its first byte
//
// Numbers are little-endian. A message that does not begin with "WEFT" is plain JSON.
#pragma once

#include <string>
#include <string_view>

#include "catalogue/wire.hpp"

namespace weft::operations {

inline constexpr std::string_view kFrameType = "application/vnd.weft.frame";

bool is_frame(std::string_view bytes);

/// A value of a frame, or of JSON. Errors: OperationError VALIDATION_ERROR for bytes that are neither, or invalid tensors.
Value from_frame(std::string_view bytes, Handles& handles, std::string_view owner,
                 std::uint64_t values_max = 1'000'000);

/// A value as a frame that is not written yet.
class Frame {
 public:
  /// Errors: OperationError, as `to_wire`.
  Frame(const Value& value, WireTensors form, Handles& handles, const Holder& holder);
  bool has_tensors() const { return !section_.empty(); }
  /// Only the JSON. Without tensors this is the whole value.
  const std::string& json() const { return json_; }
  std::uint64_t bytes() const;
  /// Computes the tensors and writes `bytes()` bytes. Errors: OperationError EXECUTION_ERROR.
  void write(char* out) const;
  std::string to_string() const;

 private:
  std::uint64_t section_start() const;
  TensorSection section_;  // filled while the JSON is made
  std::string json_;
};

}  // namespace weft::operations
