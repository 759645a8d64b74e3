// Tensors in files: NumPy's .npy and .npz, safetensors, and GGUF.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "weft/device.hpp"
#include "weft/tensor.hpp"

namespace weft {

/// Tensors by name.
using NamedTensors = std::map<std::string, Tensor>;

/// The array of a .npy file (f16, f32, f64, integers of 8 to 64 bits, bool; either byte order and either order of axes).
/// Errors  FileError: a file that cannot be read or breaks a rule of the format, detected before memory of the size that it
///         claims is allocated; a type that Weft lacks (the message lists its types). DTypeError: the device lacks the type.
Tensor load_npy(const std::filesystem::path& path, Device device = default_device());
/// Writes the values atomically: afterwards the file is complete or unchanged. Evaluates the tensor.
/// Errors  UsageError: a type that the format lacks (bf16). FileError: the file cannot be written.
void save_npy(const std::filesystem::path& path, const Tensor& tensor);

/// All arrays of a .npz file, stored or deflated. Errors as `load_npy`.
NamedTensors load_npz(const std::filesystem::path& path, Device device = default_device());
/// Errors as `save_npy`; UsageError for an empty name, or one that is not UTF-8.
void save_npz(const std::filesystem::path& path, const NamedTensors& tensors);

struct Safetensors {
  NamedTensors tensors;
  std::map<std::string, std::string> metadata;
};
/// All tensors of a safetensors file. Errors as `load_npy`.
Safetensors load_safetensors(const std::filesystem::path& path, Device device = default_device());
/// Errors as `save_npy`, for types without a name in the format.
void save_safetensors(const std::filesystem::path& path, const NamedTensors& tensors,
                      const std::map<std::string, std::string>& metadata = {});

struct Gguf {
  NamedTensors tensors;
  std::map<std::string, std::string> metadata;  ///< those values of the file that are text
};
/// All tensors of a GGUF file in their own types: blocks stay blocks, and `cast` gives their values. Errors as `load_npy`.
Gguf load_gguf(const std::filesystem::path& path, Device device = default_device());
/// Blocks are written as they were loaded, bit for bit (except that on GPUs a -0 of MXFP4 becomes 0). Rank is at most 4. Errors
/// as `save_npy`, for types that the format lacks.
void save_gguf(const std::filesystem::path& path, const NamedTensors& tensors,
               const std::map<std::string, std::string>& metadata = {});

}  // namespace weft
