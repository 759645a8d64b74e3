// A small program of ops written as JSON; docs/eval.md describes the format.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "base/json.hpp"
#include "graph/op.hpp"
#include "io/npz.hpp"
#include "weft/device.hpp"
#include "weft/io.hpp"

namespace weft::cli {

struct EvalProgram {
  struct Step {
    const graph::OpRow* op = nullptr;
    std::vector<Json> inputs;  // a name, a number, or null for an optional input left out
    Json attributes = Json::object();
    std::vector<std::string> outputs;
  };
  struct Gradient {
    std::string of, weight;  // weight: "" for ones
    std::vector<std::string> with_respect_to, outputs;
  };
  std::vector<Step> steps;
  std::vector<Gradient> gradients;
  std::vector<std::string> results;  // names to write

  /// FileError and UsageError with the path and the entry.
  static EvalProgram read(const std::filesystem::path& path);

  /// The arrays that the program names, as tensors on `device` of types that `computed_on` has.
  NamedTensors inputs_from(const io::Arrays& arrays, Device device, Device::Kind computed_on) const;
  /// The results, which are not computed yet. The inputs are on `device`; `unused` names further arrays, for error messages.
  NamedTensors apply(const NamedTensors& inputs, std::span<const std::string> unused, Device device) const;
};

/// The array as a tensor on `device`, of a type that `computed_on` has: GPUs get i32 for i64. DTypeError if that loses values.
Tensor input_tensor(const std::string& name, const io::Array& array, Device device, Device::Kind computed_on);
/// The arrays of a .npz or .safetensors file; none of an empty path.
io::Arrays read_arrays(const std::filesystem::path& path);

}  // namespace weft::cli
