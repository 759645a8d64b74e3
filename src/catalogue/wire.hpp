// Values on a wire. A tensor is an object with the one member "$tensor": {"dtype": "f32", "shape": [2, 3], "data": "BASE64"}
// with its elements in row-major order, little-endian, or {"handle": "t-..."} for a tensor that is kept here. A message with a
// section of bytes has {"dtype", "shape", "offset"} instead of base64: where in the section the elements begin.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "weft/catalogue.hpp"
#include "weft/value.hpp"

namespace weft::operations {

std::string encode_base64(std::string_view bytes);

/// The value with tensors in place of their objects. Handles must belong to `owner`. Errors: OperationError VALIDATION_ERROR
/// that names the place of an invalid tensor.
Value from_wire(Value value, Handles& handles, std::string_view owner);

/// The same, for a value with a section of bytes, which tensors name by offsets. With the `memory` of the section, tensors on the CPU
/// that fill half of it use it instead of a copy.
Value from_wire(Value value, std::string_view section, Handles& handles, std::string_view owner,
                const std::shared_ptr<const void>& memory = {});

/// The elements of tensors one after another, each at a multiple of 64 bytes.
class TensorSection {
 public:
  static constexpr std::uint64_t kAlignment = 64;
  /// Adds a tensor and returns its offset.
  std::uint64_t add(const Tensor& tensor);
  std::uint64_t bytes() const { return bytes_; }
  bool empty() const { return parts_.empty(); }
  /// Computes the tensors and writes `bytes()` bytes. Errors: OperationError EXECUTION_ERROR.
  void write(char* out) const;
  struct Piece {
    std::shared_ptr<const void> memory;  ///< keeps the bytes
    std::string_view bytes;
  };
  /// The same bytes as `write` gives, from the memory of the tensors where that can be shared. Errors: as `write`.
  std::vector<Piece> pieces() const;

 private:
  struct Part {
    Tensor tensor;
    std::uint64_t offset;
  };
  std::vector<Part> parts_;
  std::uint64_t bytes_ = 0;
};

/// Whose handles a value makes: an identity's, and perhaps of one session only.
struct Holder {
  std::string_view owner, session = {};
  Holder(std::string_view owner_, std::string_view session_ = {}) : owner(owner_), session(session_) {}
  Holder(const std::string& owner_) : owner(owner_) {}
  Holder(const char* owner_) : owner(owner_) {}
};

/// The form in which tensors are sent.
enum class WireTensors : std::uint8_t { data, handles };
/// The value with objects in place of its tensors, which are computed. Errors: as `Handles::put`; OperationError
/// EXECUTION_ERROR for tensors that cannot be computed.
Value to_wire(const Value& value, WireTensors form, Handles& handles, const Holder& holder);

/// The same, with the elements of tensors in a section instead of base64.
Value to_wire(const Value& value, WireTensors form, TensorSection& section, Handles& handles, const Holder& holder);

/// The schema for readers that do not know `x-tensor`, with the JSON form of tensors instead.
Value schema_for_wire(const Value& schema);
/// The JSON form of tensors as a schema.
Value tensor_wire_schema();

}  // namespace weft::operations
