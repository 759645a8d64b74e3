// What functions of the C interface share: exceptions become codes, handles and pointers are checked.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "capi/handles.hpp"
#include "runtime/host_memory.hpp"
#include "weft/c.h"
#include "weft/compile.hpp"
#include "weft/error.hpp"
#include "weft/io.hpp"
#include "weft/tensor.hpp"

namespace weft::capi {

struct TensorObject {
  Tensor tensor;
  runtime::HostView view = {};  // of weft_tensor_view
};
/// The tensors of a file; they keep their names and their order.
struct ArchiveObject {
  NamedTensors tensors;
};

Handles<TensorObject, HandleKind::tensor>& tensors();
Handles<Variable, HandleKind::variable>& variables();
Handles<Compiled, HandleKind::function>& functions();
Handles<ArchiveObject, HandleKind::archive>& archives();

class BadHandle : public Error {
  using Error::Error;
};
class CallbackError : public Error {
  using Error::Error;
};

/// Keeps the message of the exception that is being handled, and gives its code.
weft_status keep_error() noexcept;
template <class F>
weft_status guarded(const F& function) noexcept {
  try {
    function();
    return WEFT_OK;
  } catch (...) {
    return keep_error();
  }
}

std::shared_ptr<TensorObject> object_of(weft_tensor tensor);
inline Tensor tensor_of(weft_tensor tensor) { return object_of(tensor)->tensor; }
/// Undefined for zero.
inline Tensor optional_tensor_of(weft_tensor tensor) { return tensor.id == 0 ? Tensor() : tensor_of(tensor); }
std::shared_ptr<Variable> variable_of(weft_variable variable);
std::shared_ptr<Compiled> function_of(weft_function function);
std::shared_ptr<ArchiveObject> archive_of(weft_archive archive);
inline weft_tensor handle_of(Tensor tensor) { return {tensors().add({std::move(tensor)})}; }
/// Writes results and their number. Errors: UsageError if there are more than `results_max`; none is written then.
void write_results(std::vector<Tensor> given, weft_tensor* results, std::size_t results_max, std::size_t* count);

template <class T>
T* required(T* pointer, const char* what) {
  if (!pointer) throw UsageError(fmt::format("{} is null", what));
  return pointer;
}
/// A list that a caller passes as a pointer and a count; with a count of 0 the pointer may be null.
template <class T>
std::span<T> list_of(T* elements, std::size_t count, const char* what) {
  if (count > 0) required(elements, what);
  if (count > std::size_t{PTRDIFF_MAX} / sizeof(T)) throw UsageError(fmt::format("{}: a list of {}", what, count));
  return {elements, count};
}
Shape shape_of(const std::int64_t* shape, std::size_t rank);
DType dtype_named(const char* name);
Device device_named(const char* name);
/// Keeps a text for the caller.
const char* keep_text(std::string text);

}  // namespace weft::capi
