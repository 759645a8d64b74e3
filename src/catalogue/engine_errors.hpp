// Errors of the engine as declared codes of operations.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "weft/error.hpp"
#include "weft/operations.hpp"

namespace weft::operations {

/// The codes that `with_codes` throws, for specifications.
const std::vector<DeclaredError>& engine_errors();

/// Calls the function; errors of the engine become SHAPE_ERROR, DTYPE_ERROR, USAGE_ERROR, DEVICE_ERROR and FILE_ERROR.
template <class Function>
auto with_codes(const Function& function) {
  try {
    return function();
  } catch (const OperationError&) {
    throw;
  } catch (const ShapeError& error) {
    throw OperationError("SHAPE_ERROR", error.what());
  } catch (const DTypeError& error) {
    throw OperationError("DTYPE_ERROR", error.what());
  } catch (const UsageError& error) {
    throw OperationError("USAGE_ERROR", error.what());
  } catch (const DeviceError& error) {
    throw OperationError("DEVICE_ERROR", error.what());
  } catch (const FileError& error) {
    throw OperationError("FILE_ERROR", error.what());
  }
}

/// Errors: OperationError TENSOR_TOO_LARGE.
void check_size(const Tensor& tensor, std::uint64_t bytes_max);

}  // namespace weft::operations
