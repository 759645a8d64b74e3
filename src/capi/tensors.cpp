// Tensors of the C interface: memory in and out, DLPack, Variables.
#include <algorithm>

#include "capi/guard.hpp"
#include "io/dlpack.hpp"
#include "weft/grad.hpp"
#include "weft/ops.hpp"

using namespace weft;
using namespace weft::capi;

namespace {

void check_bytes(std::size_t bytes, const Shape& shape, DType type) {
  std::size_t count = 1;
  for (const Extent extent : shape)
    if (__builtin_mul_overflow(count, extent, &count) || count > std::min<std::uint64_t>(SIZE_MAX / 8, 1ull << 56))
      throw ShapeError(fmt::format("the shape {} has too many elements", shape.to_string()));
  const std::size_t needed = bytes_of(type, count);
  if (bytes != needed)
    throw UsageError(
        fmt::format("{} bytes are given for {} {}, which has {}", bytes, name_of(type), shape.to_string(), needed));
}

}  // namespace

weft_status weft_tensor_share(weft_tensor tensor, weft_tensor* result) {
  return guarded([&] {
    required(result, "result");
    *result = handle_of(tensor_of(tensor));
  });
}

weft_status weft_tensor_from_memory(const void* data, size_t bytes, const int64_t* shape, size_t rank,
                                    const char* dtype, const char* device, weft_tensor* result) {
  return guarded([&] {
    required(result, "result");
    const Shape extents = weft::capi::shape_of(shape, rank);
    const DType type = dtype_named(dtype);
    check_bytes(bytes, extents, type);
    if (bytes > 0) required(data, "data");
    *result = handle_of(tensor_from_bytes(data, extents, type, device_named(device)));
  });
}

weft_status weft_tensor_borrow(const void* data, size_t bytes, const int64_t* shape, size_t rank, const char* dtype,
                               void (*release)(void* context), void* context, weft_tensor* result) {
  return guarded([&] {
    required(result, "result");
    const Shape extents = weft::capi::shape_of(shape, rank);
    const DType type = dtype_named(dtype);
    check_bytes(bytes, extents, type);
    if (bytes > 0) required(data, "data");
    struct Owner {
      void (*release)(void*) = nullptr;
      void* context = nullptr;
      ~Owner() {
        if (release) release(context);
      }
    };
    auto owner = std::make_shared<Owner>();
    *result = handle_of(runtime::borrow_host(owner, data, extents, type));
    owner->release = release;  // from here on; a failure leaves the memory to the caller
    owner->context = context;
  });
}

weft_status weft_tensor_full(double value, const int64_t* shape, size_t rank, const char* dtype, const char* device,
                             weft_tensor* result) {
  return guarded([&] {
    required(result, "result");
    *result = handle_of(full(weft::capi::shape_of(shape, rank), value, dtype_named(dtype), device_named(device)));
  });
}

weft_status weft_tensor_shape(weft_tensor tensor, int64_t* shape, size_t rank_max, size_t* rank) {
  return guarded([&] {
    required(rank, "rank");
    const Shape& extents = tensor_of(tensor).shape();
    const std::span room = list_of(shape, rank_max, "shape");
    for (std::size_t i = 0; i < std::min(room.size(), extents.size()); ++i) room[i] = extents[static_cast<int>(i)];
    *rank = extents.size();
  });
}
weft_status weft_tensor_dtype(weft_tensor tensor, const char** dtype) {
  return guarded([&] { *required(dtype, "dtype") = name_of(tensor_of(tensor).dtype()).data(); });
}
weft_status weft_tensor_device(weft_tensor tensor, const char** device) {
  return guarded([&] { *required(device, "device") = keep_text(tensor_of(tensor).device().to_string()); });
}
weft_status weft_tensor_bytes(weft_tensor tensor, size_t* bytes) {
  return guarded([&] {
    const Tensor t = tensor_of(tensor);
    *required(bytes, "bytes") = bytes_of(t.dtype(), static_cast<std::size_t>(t.numel()));
  });
}
weft_status weft_tensor_to_device(weft_tensor tensor, const char* device, weft_tensor* result) {
  return guarded([&] {
    required(result, "result");
    *result = handle_of(tensor_of(tensor).to(device_named(required(device, "device"))));
  });
}
weft_status weft_tensor_text(weft_tensor tensor, const char** text) {
  return guarded([&] { *required(text, "text") = keep_text(tensor_of(tensor).to_string()); });
}

weft_status weft_evaluate(const weft_tensor* given, size_t count) {
  return guarded([&] {
    std::vector<std::shared_ptr<TensorObject>> held;
    std::vector<const Tensor*> list;
    for (const weft_tensor each : list_of(given, count, "tensors")) {
      held.push_back(object_of(each));
      list.push_back(&held.back()->tensor);
    }
    eval(std::span<const Tensor* const>(list));
  });
}
weft_status weft_tensor_read(weft_tensor tensor, void* data, size_t bytes) {
  return guarded([&] {
    const Tensor t = tensor_of(tensor);
    if (bytes > 0) required(data, "data");
    t.copy_to(data, bytes, Where());
  });
}
weft_status weft_tensor_view(weft_tensor tensor, const void** data) {
  return guarded([&] {
    required(data, "data");
    const auto object = object_of(tensor);
    if (!object->view.owner) object->view = runtime::view_host(object->tensor);
    *data = object->view.data;
  });
}
weft_status weft_tensor_item(weft_tensor tensor, double* value) {
  return guarded([&] {
    required(value, "value");
    const Tensor t = tensor_of(tensor);
    if (t.dtype() == DType::i64)
      *value = static_cast<double>(t.item<std::int64_t>(Where()));
    else if (t.dtype() == DType::u64)
      *value = static_cast<double>(t.item<std::uint64_t>(Where()));
    else
      *value =
          (t.device() == weft::kCpu ? cast(t, DType::f64) : cast(t.to(weft::kCpu), DType::f64)).item<double>(Where());
  });
}

weft_status weft_tensor_from_dlpack(void* managed, bool versioned, weft_tensor* result) {
  return guarded([&] {
    required(result, "result");
    required(managed, "managed");
    *result = handle_of(versioned ? io::from_dlpack(static_cast<io::dlpack::Versioned*>(managed))
                                  : io::from_dlpack(static_cast<io::dlpack::Managed*>(managed)));
  });
}
weft_status weft_tensor_to_dlpack(weft_tensor tensor, bool versioned, void** managed) {
  return guarded([&] {
    required(managed, "managed");
    const Tensor t = tensor_of(tensor);
    *managed = versioned ? static_cast<void*>(io::to_dlpack_versioned(t)) : io::to_dlpack(t);
  });
}

weft_status weft_variable_create(weft_tensor initial, const char* name, bool requires_grad, weft_variable* result) {
  return guarded([&] {
    required(result, "result");
    *result = {variables().add(Variable(tensor_of(initial), name ? name : "", requires_grad))};
  });
}
weft_status weft_variable_value(weft_variable variable, weft_tensor* result) {
  return guarded([&] {
    required(result, "result");  // first: a handle that nobody gets would never be released
    *result = handle_of(variable_of(variable)->value());
  });
}
weft_status weft_variable_assign(weft_variable variable, weft_tensor next) {
  return guarded([&] { variable_of(variable)->assign(tensor_of(next)); });
}
weft_status weft_variable_gradient(weft_variable variable, weft_tensor* result) {
  return guarded([&] {
    required(result, "result");
    const Tensor gradient = variable_of(variable)->grad();
    *result = gradient.defined() ? handle_of(gradient) : weft_tensor{0};
  });
}
weft_status weft_variable_clear_gradient(weft_variable variable) {
  return guarded([&] { variable_of(variable)->clear_grad(); });
}

weft_status weft_gradient(weft_tensor output, const weft_tensor* inputs, size_t count, weft_tensor seed,
                          weft_tensor* results) {
  return guarded([&] {
    std::vector<Tensor> list;
    for (const weft_tensor each : list_of(inputs, count, "inputs")) list.push_back(tensor_of(each));
    std::size_t made = 0;
    write_results(grad(tensor_of(output), list, optional_tensor_of(seed)), results, count, &made);
  });
}
weft_status weft_backward(weft_tensor output, weft_tensor seed) {
  return guarded([&] { backward(tensor_of(output), optional_tensor_of(seed)); });
}
weft_status weft_manual_seed(uint32_t seed) {
  return guarded([&] { manual_seed(seed); });
}
weft_status weft_set_default_device(const char* device) {
  return guarded([&] { set_default_device(parse_device(required(device, "device"))); });
}
