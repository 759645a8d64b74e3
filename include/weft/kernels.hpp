// Kernels as files: the shaders of a computation, and a manifest with which another program can run them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "weft/io.hpp"

namespace weft {

/// What the kernels may use of a device. The defaults are what WebGPU promises of every device.
struct KernelLimits {
  std::uint32_t storage_buffers = 8;         ///< that one kernel binds
  std::uint32_t workgroup_bytes = 16 << 10;  ///< of workgroup memory
  std::uint32_t workgroup_threads = 256;
  std::uint32_t offset_alignment = 256;  ///< bindings begin at multiples of these bytes
  std::uint64_t binding_bytes = 128 << 20, buffer_bytes = 256 << 20;
  std::uint32_t subgroup_size = 0;  ///< threads of a subgroup, a power of two up to 128; 0: no subgroups are used
};

/// A language of shaders. `translate` turns the WGSL of a kernel, whose entry point is `main`, into a file's content.
struct KernelLanguage {
  std::string name = "wgsl", extension = "wgsl", entry_point = "main";
  std::function<std::string(const std::string& wgsl)> translate = {};  ///< empty: WGSL
};

struct ExportedKernels {
  std::size_t kernels = 0, dispatches = 0, buffers = 0;
  std::uint64_t buffer_bytes = 0;
};

/// Writes the kernels that compute the results of `function` for inputs of these types, shapes and values into a new folder:
/// manifest.json (docs/kernels.md describes it), a file for each kernel in kernels/, and data.bin with what the host writes into
/// buffers before and between dispatches. Nothing is computed, and no GPU is needed.
///
/// `function` is called once, in a session of its own, whose default device only records. It gets copies of the inputs there, makes
/// every other tensor, Variable and module itself, and must not read values. Updates of Variables become dispatches; return
/// `variable.value()` to name the buffer of a new value.
///
/// Errors  UsageError: a folder that is not empty; limits out of range; a function that reads a value or returns nothing. FileError:
///         a file cannot be written. DTypeError: f64 and i64, which GPUs lack. Errors of `function` and of `translate`.
ExportedKernels export_kernels(const std::filesystem::path& folder, const NamedTensors& inputs,
                               const std::function<NamedTensors(const NamedTensors&)>& function,
                               const KernelLimits& limits = {}, const KernelLanguage& language = {});

}  // namespace weft
