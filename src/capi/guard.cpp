#include "capi/guard.hpp"

#include <new>

#include "base/quote.hpp"

namespace weft::capi {
namespace {

thread_local std::string error_message, kept_text;

std::uint64_t checked(std::uint64_t id, const char* kind) {
  if (id == 0) throw BadHandle(fmt::format("a handle of zero where a {} is expected", kind));
  return id;
}

template <class T>
std::shared_ptr<T> found(std::shared_ptr<T> object, const char* kind) {
  if (!object) throw BadHandle(fmt::format("a handle that is not that of a living {}: was it released?", kind));
  return object;
}

}  // namespace

// Never destroyed: other threads and static objects of the caller may still hold handles when the program ends.
Handles<TensorObject, HandleKind::tensor>& tensors() {
  static auto& table = *new Handles<TensorObject, HandleKind::tensor>;
  return table;
}
Handles<Variable, HandleKind::variable>& variables() {
  static auto& table = *new Handles<Variable, HandleKind::variable>;
  return table;
}
Handles<Compiled, HandleKind::function>& functions() {
  static auto& table = *new Handles<Compiled, HandleKind::function>;
  return table;
}
Handles<ArchiveObject, HandleKind::archive>& archives() {
  static auto& table = *new Handles<ArchiveObject, HandleKind::archive>;
  return table;
}

weft_status keep_error() noexcept {
  weft_status status = WEFT_INTERNAL_ERROR;
  try {
    const auto keep = [&](weft_status code, const char* message) {
      status = code;
      error_message = message;
    };
    try {
      throw;
    } catch (const BadHandle& e) {
      keep(WEFT_BAD_HANDLE, e.what());
    } catch (const CallbackError& e) {
      keep(WEFT_CALLBACK_ERROR, e.what());
    } catch (const ShapeError& e) {
      keep(WEFT_SHAPE_ERROR, e.what());
    } catch (const DTypeError& e) {
      keep(WEFT_DTYPE_ERROR, e.what());
    } catch (const DeviceError& e) {
      keep(WEFT_DEVICE_ERROR, e.what());
    } catch (const FileError& e) {
      keep(WEFT_FILE_ERROR, e.what());
    } catch (const UsageError& e) {
      keep(WEFT_USAGE_ERROR, e.what());
    } catch (const std::bad_alloc&) {
      keep(WEFT_OUT_OF_MEMORY, "out of memory");
    } catch (const std::length_error&) {
      keep(WEFT_OUT_OF_MEMORY, "out of memory: a size beyond what memory can hold");
    } catch (const std::exception& e) {
      keep(WEFT_INTERNAL_ERROR, e.what());
    } catch (...) {
      keep(WEFT_INTERNAL_ERROR, "an exception of an unknown type");
    }
  } catch (...) {  // no memory for the message
  }
  return status;
}

std::shared_ptr<TensorObject> object_of(weft_tensor tensor) {
  return found(tensors().find(checked(tensor.id, "tensor")), "tensor");
}
std::shared_ptr<Variable> variable_of(weft_variable variable) {
  return found(variables().find(checked(variable.id, "variable")), "variable");
}
std::shared_ptr<Compiled> function_of(weft_function function) {
  return found(functions().find(checked(function.id, "function")), "function");
}
std::shared_ptr<ArchiveObject> archive_of(weft_archive archive) {
  return found(archives().find(checked(archive.id, "archive")), "archive");
}

void write_results(std::vector<Tensor> given, weft_tensor* results, std::size_t results_max, std::size_t* count) {
  required(count, "results_count");
  list_of(results, results_max, "results");
  if (given.size() > results_max)
    throw UsageError(fmt::format("there are {} results, and room for {}", given.size(), results_max));
  for (std::size_t i = 0; i < given.size(); ++i) results[i] = handle_of(std::move(given[i]));
  *count = given.size();
}

Shape shape_of(const std::int64_t* shape, std::size_t rank) {
  if (rank > 64) throw ShapeError(fmt::format("a shape of rank {}; at most 64", rank));
  const std::span extents = list_of(shape, rank, "shape");
  for (const std::int64_t extent : extents)
    if (extent < 0) throw ShapeError(fmt::format("a shape with the negative extent {}", extent));
  return Shape(std::vector<Extent>(extents.begin(), extents.end()));
}

DType dtype_named(const char* name) {
  const auto type = dtype_from_name(required(name, "dtype"));
  if (!type) throw DTypeError(fmt::format("there is no dtype {}", quote(name)));
  return *type;
}

Device device_named(const char* name) { return name ? parse_device(name) : default_device(); }

const char* keep_text(std::string text) {
  kept_text = std::move(text);
  return kept_text.c_str();
}

}  // namespace weft::capi

using namespace weft::capi;

const char* weft_error_message(void) { return error_message.c_str(); }
void weft_set_error_message(const char* message) {
  guarded([&] { error_message = message ? message : ""; });
}
const char* weft_status_name(weft_status status) {
  switch (status) {
    case WEFT_OK: return "WEFT_OK";
    case WEFT_SHAPE_ERROR: return "WEFT_SHAPE_ERROR";
    case WEFT_DTYPE_ERROR: return "WEFT_DTYPE_ERROR";
    case WEFT_DEVICE_ERROR: return "WEFT_DEVICE_ERROR";
    case WEFT_FILE_ERROR: return "WEFT_FILE_ERROR";
    case WEFT_USAGE_ERROR: return "WEFT_USAGE_ERROR";
    case WEFT_INTERNAL_ERROR: return "WEFT_INTERNAL_ERROR";
    case WEFT_OUT_OF_MEMORY: return "WEFT_OUT_OF_MEMORY";
    case WEFT_BAD_HANDLE: return "WEFT_BAD_HANDLE";
    case WEFT_CALLBACK_ERROR: return "WEFT_CALLBACK_ERROR";
  }
  return "unknown";
}

weft_status weft_tensor_release(weft_tensor tensor) {
  return guarded([&] {
    object_of(tensor);
    tensors().remove(tensor.id);
  });
}
weft_status weft_variable_release(weft_variable variable) {
  return guarded([&] {
    variable_of(variable);
    variables().remove(variable.id);
  });
}
weft_status weft_function_release(weft_function function) {
  return guarded([&] {
    function_of(function);
    functions().remove(function.id);
  });
}
weft_status weft_archive_release(weft_archive archive) {
  return guarded([&] {
    archive_of(archive);
    archives().remove(archive.id);
  });
}
size_t weft_live_handles(void) {
  return tensors().size() + variables().size() + functions().size() + archives().size();
}
