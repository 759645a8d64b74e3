// State dictionaries: named values on the host, to save to files and to load from them.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weft/dtype.hpp"
#include "weft/shape.hpp"
#include "weft/tensor.hpp"

namespace weft::nn {

/// A named array, row-major, in host form.
struct NamedArray {
  std::string name;
  DType dtype = DType::f32;
  Shape shape;
  std::vector<std::byte> bytes;
  bool operator==(const NamedArray&) const = default;
};

/// In the order of the module tree.
using StateDict = std::vector<NamedArray>;

/// The entry of that name, or nullptr.
const NamedArray* find(const StateDict& state, std::string_view name);

/// A variable with its name in state dictionaries.
struct NamedVariable {
  std::string name;
  Variable variable;
};

/// An expected entry of a state dictionary.
struct NamedShape {
  std::string name;
  DType dtype = DType::f32;
  Shape shape;
};
/// Errors  UsageError that lists everything missing, unknown (both only if `strict`) and of another shape or dtype.
void check_state(std::span<const NamedShape> expected, const StateDict& state, bool strict, std::string_view owner);

/// The arrays of `state` in the expected dtypes. Arrays are cast if that loses nothing (f16, bf16 and small integers to f32),
/// and with `lossy` always, with the rounding of the op `cast`. Other arrays are unchanged.
StateDict cast_state(const StateDict& state, std::span<const NamedShape> expected, bool lossy = false);

/// The current values of the variables. Slices of a shared variable are read together, in one transfer.
StateDict read_state(std::span<const NamedVariable> variables);
/// Assigns values to variables; slices of a shared variable are written together. Errors as `check_state`; on an error nothing
/// is assigned.
void write_state(std::span<const NamedVariable> variables, const StateDict& state, bool strict, std::string_view owner);

/// As safetensors. Errors: FileError.
void save_state(const std::filesystem::path& path, const StateDict& state);
StateDict load_state(const std::filesystem::path& path);

}  // namespace weft::nn
