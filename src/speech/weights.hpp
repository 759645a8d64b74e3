// Weights of a speech model by the names of its files: matrices in the type of the file, everything else as f32.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_set>

#include "base/function_ref.hpp"
#include "io/tensor_source.hpp"
#include "weft/tensor.hpp"

namespace weft::speech {

/// Takes tensors from a source one by one. Their shapes are checked; `finish` refuses tensors that nobody took.
class Weights {
 public:
  using Progress = std::function<void(std::uint64_t done, std::uint64_t total)>;
  Weights(const io::TensorSource& source, Device device, Progress progress);

  /// The names are those of the file behind this prefix. FileError if no tensor begins with one of them.
  void choose_prefix(std::initializer_list<std::string_view> prefixes);
  bool has(const std::string& name) const;
  /// A matrix for `product` and `embedding`: packed in f16, bf16 or blocks where the device has products for that type.
  Tensor matrix(const std::string& name, Extent rows, Extent columns);
  /// f32 of this shape.
  Tensor dense(const std::string& name, const Shape& shape);
  /// The kernel of a convolution, dense, whose file may hold it as directions v and a length g for each index along an axis:
  /// w = g v / |v|.
  Tensor kernel(const std::string& name, const Shape& shape, int length_axis = 0);
  /// FileError that lists tensors that were not taken, but for names that are known to be of no use here.
  void finish(FunctionRef<bool(std::string_view name)> is_known) const;
  std::uint64_t bytes() const { return bytes_; }

 private:
  const io::SourceTensor& take(const std::string& name, const Shape& shape);
  void read(const io::SourceTensor& tensor, std::uint64_t device_bytes);

  const io::TensorSource& source_;
  Device device_;
  Progress progress_;
  std::string prefix_;
  std::unordered_set<const io::SourceTensor*> taken_;
  std::uint64_t bytes_ = 0, done_ = 0, total_ = 0;
};

/// x W^T + b for a matrix of `Weights::matrix`, with x in f32; b may be undefined.
Tensor product(const Tensor& x, const Tensor& matrix, const Tensor& bias = {});

}  // namespace weft::speech
