// Arrays that are read from files or written to them.
#pragma once

#include <cstddef>
#include <cstring>
#include <span>
#include <vector>

#include "weft/dtype.hpp"
#include "weft/error.hpp"
#include "weft/shape.hpp"

namespace weft::io {

/// The highest rank of arrays in files, as in NumPy: a hostile shape must fill neither memory nor a message.
inline constexpr int kMaxRank = 64;

/// An array in row-major order and the byte order of this machine (little-endian); a bool is a byte of 0 or 1.
struct Array {
  DType dtype = DType::f32;
  Shape shape;
  std::vector<std::byte> data;

  /// Copies `values` in. ShapeError unless there is one for each element of `shape`.
  template <class T>
  static Array of(Shape shape, const std::vector<T>& values) {
    if (static_cast<std::size_t>(shape.numel()) != values.size())
      throw ShapeError("array of " + std::to_string(values.size()) + " values: the shape holds " +
                       std::to_string(shape.numel()) + "; give one value for each element");
    Array array{dtype_of<T>, std::move(shape), std::vector<std::byte>(values.size() * sizeof(T))};
    for (std::size_t i = 0; i < values.size(); ++i) {
      const T value = values[i];
      std::memcpy(array.data.data() + i * sizeof(T), &value, sizeof(T));
    }
    return array;
  }
  /// The values. DTypeError if the array holds another type.
  template <class T>
  std::vector<T> values() const {
    if (dtype != dtype_of<T>)
      throw DTypeError("array of " + std::string(name_of(dtype)) + " is read as " + std::string(name_of(dtype_of<T>)) +
                       "; ask for the type it holds");
    std::vector<T> result(data.size() / sizeof(T));
    for (std::size_t i = 0; i < result.size(); ++i) {
      T value;
      std::memcpy(&value, data.data() + i * sizeof(T), sizeof(T));
      result[i] = value;
    }
    return result;
  }
  bool operator==(const Array&) const = default;
};

}  // namespace weft::io
