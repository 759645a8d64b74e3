#include "io/dlpack.hpp"

#include <fmt/format.h>

#include <cstring>
#include <memory>
#include <optional>
#include <vector>

#include "base/checked.hpp"
#include "runtime/host_memory.hpp"
#include "weft/error.hpp"

namespace weft::io {
namespace dlpack {
namespace {

constexpr int kRankMax = 64;

struct TypeRow {
  DType type;
  std::uint8_t code, bits;
};
constexpr TypeRow kTypes[] = {{DType::f32, kFloat, 32},
                              {DType::f64, kFloat, 64},
                              {DType::f16, kFloat, 16},
                              {DType::bf16, kBFloat, 16},
                              {DType::i8, kInt, 8},
                              {DType::i16, kInt, 16},
                              {DType::i32, kInt, 32},
                              {DType::i64, kInt, 64},
                              {DType::u8, kUInt, 8},
                              {DType::u16, kUInt, 16},
                              {DType::u32, kUInt, 32},
                              {DType::u64, kUInt, 64},
                              {DType::boolean, kBool, 8},
                              {DType::fp8_e4m3, kFloat8E4M3, 8},
                              {DType::fp8_e5m2, kFloat8E5M2, 8}};

DType dtype_from(const DataType& given) {
  for (const TypeRow& row : kTypes)
    if (row.code == given.code && row.bits == given.bits && given.lanes == 1) return row.type;
  const char* names[] = {"int", "uint", "float", "opaque", "bfloat", "complex", "bool"};
  throw DTypeError(fmt::format("dlpack: elements of type {} with {} bits and {} lanes; Weft has {}",
                               given.code < 7 ? names[given.code] : fmt::format("{}", given.code).c_str(), given.bits,
                               given.lanes, dtype_list([](const Element& e) { return e.kind != ElementKind::block; })));
}

Shape shape_of(const Array& array) {
  if (array.device.type != dlpack::kCpu && array.device.type != kCudaHost)
    throw DeviceError(fmt::format("dlpack: an array on device type {}; copy it to the CPU first", array.device.type));
  if (array.ndim < 0 || array.ndim > kRankMax || (array.ndim > 0 && !array.shape))
    throw UsageError(fmt::format("dlpack: an array of rank {} without a valid shape", array.ndim));
  std::vector<Extent> extents(array.shape, array.shape + array.ndim);
  for (const Extent extent : extents)
    if (extent < 0) throw UsageError(fmt::format("dlpack: a negative extent in {}", Shape(extents).to_string()));
  Shape shape(std::move(extents));
  checked_numel<ShapeError>(shape, "dlpack");
  if (!array.data && shape.numel() > 0) throw UsageError("dlpack: an array with elements and no memory");
  return shape;
}

bool is_row_major(const Array& array, const Shape& shape) {
  if (!array.strides) return true;
  Extent stride = 1;
  for (int axis = shape.rank(); axis-- > 0; stride *= shape[axis])
    if (shape[axis] != 1 && array.strides[axis] != stride) return false;
  return true;
}

// Elements in row-major order.
std::vector<std::byte> gathered(const Array& array, const char* data, const Shape& shape, std::size_t size) {
  const auto count = static_cast<std::size_t>(shape.numel());
  std::vector<std::byte> bytes(checked_multiply<ShapeError>(count, size, "dlpack"));
  std::vector<Extent> at(static_cast<std::size_t>(shape.rank()), 0);
  Extent place = 0;
  for (std::size_t i = 0; i < count; ++i) {
    std::memcpy(bytes.data() + i * size, data + place * static_cast<Extent>(size), size);
    for (int axis = shape.rank(); axis-- > 0;) {
      Extent& digit = at[static_cast<std::size_t>(axis)];
      place += array.strides[axis];
      if (++digit < shape[axis]) break;
      place -= digit * array.strides[axis];
      digit = 0;
    }
  }
  return bytes;
}

template <class M>
Tensor import(M* managed, bool copy) {
  const Array& array = managed->array;
  const DType type = dtype_from(array.dtype);
  const Shape shape = shape_of(array);
  const char* data = static_cast<const char*>(array.data) + array.byte_offset;
  const auto free = [](M* m) {
    if (m->deleter) m->deleter(m);
  };
  Tensor result;
  if (shape.numel() == 0) {
    result = tensor_from_bytes(nullptr, shape, type, weft::kCpu);
  } else if (!is_row_major(array, shape)) {
    result = tensor_from_bytes(gathered(array, data, shape, size_bytes(type)).data(), shape, type, weft::kCpu);
  } else if (copy || type == DType::boolean) {
    result = tensor_from_bytes(data, shape, type, weft::kCpu);
  } else {
    // The owner frees the array only once it is armed, so that the caller keeps it on an error.
    struct Owner {
      M* managed = nullptr;
      void (*free)(M*);
      ~Owner() {
        if (managed) free(managed);
      }
    };
    auto owner = std::make_shared<Owner>(Owner{nullptr, free});
    result = runtime::borrow_host(owner, data, shape, type);
    owner->managed = managed;
    return result;
  }
  free(managed);
  return result;
}

template <class M>
struct Lent {
  M managed{};
  runtime::HostView view;
  std::vector<std::int64_t> shape, strides;
};

template <class M>
M* lend(const Tensor& tensor) {
  std::optional<TypeRow> type;
  for (const TypeRow& row : kTypes)
    if (row.type == tensor.dtype()) type = row;
  if (!type)
    throw DTypeError(fmt::format("dlpack: the format has no type {}; cast the tensor", name_of(tensor.dtype())));
  auto lent = std::make_unique<Lent<M>>();
  lent->view = runtime::view_host(tensor);
  lent->shape = tensor.shape().vector();
  lent->strides.resize(lent->shape.size());
  std::int64_t stride = 1;
  for (std::size_t axis = lent->shape.size(); axis-- > 0; stride *= lent->shape[axis]) lent->strides[axis] = stride;
  lent->managed.array = {const_cast<void*>(lent->view.data),
                         {dlpack::kCpu, 0},
                         static_cast<std::int32_t>(lent->shape.size()),
                         {type->code, type->bits, 1},
                         lent->shape.data(),
                         lent->strides.data(),
                         0};
  lent->managed.context = lent.get();
  lent->managed.deleter = [](M* managed) { delete static_cast<Lent<M>*>(managed->context); };
  return &lent.release()->managed;
}

}  // namespace
}  // namespace dlpack

Tensor from_dlpack(dlpack::Managed* managed, bool copy) {
  if (!managed) throw UsageError("dlpack: no array");
  return dlpack::import(managed, copy);
}
Tensor from_dlpack(dlpack::Versioned* managed, bool copy) {
  if (!managed) throw UsageError("dlpack: no array");
  if (managed->major > 1) throw UsageError(fmt::format("dlpack: version {}; Weft reads 0 and 1", managed->major));
  return dlpack::import(managed, copy);
}

dlpack::Managed* to_dlpack(const Tensor& tensor) { return dlpack::lend<dlpack::Managed>(tensor); }
dlpack::Versioned* to_dlpack_versioned(const Tensor& tensor) {
  using namespace dlpack;
  Versioned* made = lend<Versioned>(tensor);
  made->major = 1;
  made->minor = 0;
  made->flags = kReadOnly | (static_cast<Lent<Versioned>*>(made->context)->view.is_shared ? 0 : kCopied);
  return made;
}

}  // namespace weft::io
