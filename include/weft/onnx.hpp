// ONNX models: read, run, differentiate, write.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "weft/io.hpp"
#include "weft/nn/module.hpp"
#include "weft/tensor.hpp"

namespace weft::onnx {

/// An input or output of a model, as the file declares it.
struct Port {
  struct Extent {
    std::optional<weft::Extent> value;  ///< none: any
    std::string name;  ///< the file's name for an extent that is not fixed; equal names have equal extents
  };
  std::string name;
  std::optional<DType> type;  ///< none for values that are not tensors, and for types that Weft lacks
  bool has_shape = false;
  std::vector<Extent> shape;
  /// "f32 [batch, 3, 224, 224]".
  std::string to_string() const;
};

/// A model of ONNX's opsets 1 to 28 on a device. A run applies the model's nodes as Weft's ops, so a model may be part of a
/// compiled function and of other graphs, and gradients flow through it. Values that depend on constants alone, such as shapes,
/// are computed on the CPU while the graph is built. `If` and `Loop` are followed where their conditions are known. Copies
/// share the parameters.
///
/// On devices without i64 and f64, indices are i32: an i64 input may be given as i32, and an i64 output is i32.
class Model {
 public:
  /// Reads the file, and files beside it that it names for its elements.
  /// Errors  FileError: a file that is not a model, or breaks a rule of the format: the message names the part. UsageError: an
  ///         opset that is not supported; ops that Weft lacks, all of them listed with their number of uses.
  static Model load(const std::filesystem::path& path, Device device = default_device());

  const std::vector<Port>& inputs() const;
  const std::vector<Port>& outputs() const;
  Device device() const;
  /// The initialisers of float types, named as in the file. An optimiser can train them.
  std::vector<Variable> parameters() const;
  std::vector<nn::NamedParameter> named_parameters() const;

  /// The outputs for these inputs, in the model's order.
  /// Errors  UsageError: another number of inputs; inside a compiled function, a shape or condition that depends on elements of
  ///         an input. ShapeError, DTypeError: an input that differs from its declaration. Otherwise as the ops; the message
  ///         names the node.
  std::vector<Tensor> operator()(std::span<const Tensor> inputs) const;
  std::vector<Tensor> operator()(std::initializer_list<Tensor> inputs) const {
    return (*this)(std::span<const Tensor>(inputs.begin(), inputs.size()));
  }
  /// The same by name. Inputs on another device are moved. Errors: also UsageError for a missing or an unknown name.
  NamedTensors run(const NamedTensors& inputs) const;

  /// Head, inputs, outputs, operators with their number of uses, and initialisers, as text.
  std::string describe() const;

  struct Impl;

 private:
  explicit Model(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}
  std::shared_ptr<const Impl> impl_;
};

/// Model::load.
inline Model load(const std::filesystem::path& path, Device device = default_device()) {
  return Model::load(path, device);
}

struct SaveOptions {
  std::vector<std::string> inputs, outputs;  ///< names; none: x0, x1, ... and y0, y1, ...
  /// Names for Variables that the function reads: those of the module's parameters. Others get the Variable's name.
  const nn::Module* module = nullptr;
  /// Axes of inputs whose extents may change in the model, with names for these extents: {{"tokens", {{0, "batch"}, {1,
  /// "length"}}}}. Equal names are equal extents. An axis may count from the end.
  std::map<std::string, std::map<int, std::string>> dynamic_axes = {};
};

/// Traces `function` on examples and writes what it computes as a model of opset 18. Shapes are those of the examples, but for
/// `dynamic_axes`. Values that the function reads, such as parameters, are stored with the model; assignments to Variables are
/// left out.
///
/// With dynamic axes the function is traced at several extents near those of the examples and one that is far from them. What
/// differs between the traces are sizes and numbers; the model computes them from the shapes of its inputs. They may be sums of
/// products of two extents at most, such as 2 * length + 1, and 1 by such a number. A choice that the function makes by an
/// extent stays as it is at these extents.
/// Errors  UsageError: an op that ONNX cannot express, such as random draws or cache updates; names that do not fit; with
///         dynamic axes, an unknown input or axis, and an op that cannot follow: the message names the op and your line.
///         DTypeError: a type that ONNX lacks. FileError: the file cannot be written, or would exceed 2 GB.
using Function = std::function<std::vector<Tensor>(std::span<const Tensor>)>;
void save(const std::filesystem::path& path, const Function& function, std::span<const Tensor> examples,
          const SaveOptions& options = {});
inline void save(const std::filesystem::path& path, const Function& function, std::initializer_list<Tensor> examples,
                 const SaveOptions& options = {}) {
  save(path, function, std::span<const Tensor>(examples.begin(), examples.size()), options);
}

}  // namespace weft::onnx
