// Weights of a model on the device, by their names in the model's files, and the layers that most models are made of.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>

#include "io/tensor_source.hpp"
#include "weft/tensor.hpp"

namespace weft::layers {

/// Checks each tensor against the shape that the configuration asks for, before memory is allocated for it.
class ModelWeights {
 public:
  /// `shown` gives the name of a tensor in messages, where the files call it otherwise. With `is_planned` names, shapes and types are
  /// checked and bytes are counted, but no values are read: dense tensors are undefined, and matrices may have no memory.
  ModelWeights(const io::TensorSource& source, Device device,
               std::function<std::string(const std::string& name)> shown = {}, bool is_planned = false)
      : source_(source), device_(device), shown_(std::move(shown)), is_planned_(is_planned) {}

  bool has(std::string_view name) const { return source_.find(name) != nullptr; }
  /// As f32; undefined after a problem, which `require_all` reports.
  Tensor dense(const std::string& name, const Shape& shape);
  /// A matrix [n, k] for `product`, stored as such or with k split into several axes: in the type of the file where the device
  /// multiplies it, else as f32.
  Tensor matrix(const std::string& name, const Shape& shape);
  /// FileError that lists every tensor that is missing, has another shape or a type that cannot be read.
  void require_all() const;
  /// From here on, all tensors are what this function gives for their names and shapes: values that train, in f32.
  void take_from(std::function<Tensor(const std::string& name, const Shape& shape)> values) {
    values_ = std::move(values);
  }
  /// Whether they are: what is made of them then belongs to a function that is compiled.
  bool are_trained() const { return static_cast<bool>(values_); }
  /// From here on, matrices become dense tensors of this type (f16 or bf16), whatever the file has.
  void use_matrices_of(DType type) { matrix_type_ = type; }
  std::uint64_t bytes() const { return bytes_; }
  Device device() const { return device_; }
  const io::TensorSource& source() const { return source_; }

 private:
  const io::SourceTensor* checked(const std::string& name, const Shape& shape);

  const io::TensorSource& source_;
  Device device_;
  std::function<std::string(const std::string&)> shown_;
  std::function<Tensor(const std::string&, const Shape&)> values_;
  bool is_planned_;
  DType matrix_type_ = DType::f32;  // f32: as the file has them
  std::string problems_;
  int problem_count_ = 0;
  std::uint64_t bytes_ = 0;
};

/// W x + b.
struct Linear {
  Tensor weight, bias;
  Tensor operator()(const Tensor& x) const;
};
/// "NAME.weight" [rows, columns] and, unless `bias` is false, "NAME.bias" [rows].
Linear linear_of(ModelWeights& weights, const std::string& name, Extent rows, Extent columns, bool bias = true);

enum class NormKind : std::uint8_t { layer, layer_without_bias, rms };
/// A norm over the last axis.
struct Norm {
  Tensor weight, bias;
  double eps = 1e-5;
  NormKind kind = NormKind::layer;
  Tensor operator()(const Tensor& x) const;
};
/// "NAME.weight" [width] and, of the kind `layer`, "NAME.bias" [width].
Norm norm_of(ModelWeights& weights, const std::string& name, Extent width, double eps, NormKind kind = NormKind::layer);

}  // namespace weft::layers
