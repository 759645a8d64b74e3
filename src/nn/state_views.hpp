// Named arrays of a module's state as tensors of a safetensors file, and back.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "io/safetensors.hpp"
#include "weft/nn/state.hpp"

namespace weft::nn {

/// The array as a tensor of a file, under its name behind `prefix`. The view refers to the bytes of `array`.
inline io::TensorView view_of(const NamedArray& array, std::string_view prefix = {}) {
  return {std::string(prefix) + array.name, std::string(io::safetensors_dtype(array.dtype)), array.shape, array.bytes};
}

/// A copy of a file's tensor; `source` names the file in errors. FileError for an element type that Weft lacks.
inline NamedArray named_array(const io::TensorView& view, std::string_view source) {
  io::Array array = io::to_array(view, source);
  return {view.name, array.dtype, std::move(array.shape), std::move(array.data)};
}

}  // namespace weft::nn
