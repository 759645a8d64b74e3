// DLPack: tensors to and from other libraries without copies. The structs are those of the DLPack specification, versions 0 and
// 1; whoever gets one calls its deleter once.
#pragma once

#include <cstdint>

#include "weft/tensor.hpp"

namespace weft::io {

namespace dlpack {

constexpr std::int32_t kCpu = 1, kCudaHost = 3;
constexpr std::uint8_t kInt = 0, kUInt = 1, kFloat = 2, kBFloat = 4, kBool = 6, kFloat8E4M3 = 10, kFloat8E5M2 = 12;
constexpr std::uint64_t kReadOnly = 1, kCopied = 2;

struct Device {
  std::int32_t type, index;
};
struct DataType {
  std::uint8_t code, bits;
  std::uint16_t lanes;
};
struct Array {
  void* data;
  Device device;
  std::int32_t ndim;
  DataType dtype;
  std::int64_t* shape;
  std::int64_t* strides;  // in elements; null: row-major
  std::uint64_t byte_offset;
};
/// DLManagedTensor: version 0.
struct Managed {
  Array array;
  void* context;
  void (*deleter)(Managed*);
};
/// DLManagedTensorVersioned: version 1.
struct Versioned {
  std::uint32_t major, minor;
  void* context;
  void (*deleter)(Versioned*);
  std::uint64_t flags;
  Array array;
};

}  // namespace dlpack

/// The tensor of another library, which must be on the CPU. It shares the memory if that is row-major, and then calls the
/// deleter when the last value in this memory goes, on whichever thread; else it copies the elements and calls the deleter at
/// once. On an error the deleter is not called. `copy` always copies.
/// Errors  DTypeError: a type that Weft lacks (the message names it). DeviceError: another device. UsageError: an array that
///         breaks the rules of the format, a version above 1.
Tensor from_dlpack(dlpack::Managed* managed, bool copy = false);
Tensor from_dlpack(dlpack::Versioned* managed, bool copy = false);

/// Evaluates the tensor and lends its memory, which is only to be read; a tensor on another device is copied to the host.
/// Errors: DTypeError for a type that the format lacks.
dlpack::Managed* to_dlpack(const Tensor& tensor);
dlpack::Versioned* to_dlpack_versioned(const Tensor& tensor);

}  // namespace weft::io
