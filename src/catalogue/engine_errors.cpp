#include "catalogue/engine_errors.hpp"

#include <fmt/format.h>

namespace weft::operations {

const std::vector<DeclaredError>& engine_errors() {
  static const std::vector<DeclaredError> errors = {
      {"SHAPE_ERROR", "shapes that do not fit the op"},
      {"DTYPE_ERROR", "a dtype that the op or the device does not take"},
      {"USAGE_ERROR", "an attribute or operand that the op does not take"},
      {"DEVICE_ERROR", "no memory, or a lost device", true, 503},
      {"TENSOR_TOO_LARGE", "a result with more bytes than one may have", true, 413},
  };
  return errors;
}

void check_size(const Tensor& tensor, std::uint64_t bytes_max) {
  const std::uint64_t bytes = bytes_of(tensor.dtype(), static_cast<std::size_t>(tensor.numel()));
  if (bytes > bytes_max)
    throw OperationError("TENSOR_TOO_LARGE",
                         fmt::format("a result {} {} has {} bytes; at most {} are allowed", name_of(tensor.dtype()),
                                     tensor.shape().to_string(), bytes, bytes_max));
}

}  // namespace weft::operations
