// Values on a wire. A tensor is an object with the one member "$tensor": {"dtype": "f32", "shape": [2, 3], "data": "BASE64"}
// with its elements in row-major order, little-endian, or {"handle": "t-..."} for a tensor that is kept here.
#pragma once

#include <string>
#include <string_view>

#include "weft/catalogue.hpp"
#include "weft/value.hpp"

namespace weft::operations {

std::string encode_base64(std::string_view bytes);

/// The value with tensors in place of their objects. Handles must belong to `owner`. Errors: OperationError VALIDATION_ERROR
/// that names the place of an invalid tensor.
Value from_wire(Value value, Handles& handles, std::string_view owner);

/// The form in which tensors are sent.
enum class WireTensors : std::uint8_t { data, handles };
/// The value with objects in place of its tensors, which are computed. Errors: as `Handles::put`; OperationError
/// EXECUTION_ERROR for tensors that cannot be computed.
Value to_wire(const Value& value, WireTensors form, Handles& handles, std::string_view owner);

/// The schema for readers that do not know `x-tensor`, with the JSON form of tensors instead.
Value schema_for_wire(const Value& schema);
/// The JSON form of tensors as a schema.
Value tensor_wire_schema();

}  // namespace weft::operations
