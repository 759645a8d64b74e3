#include "speech/weights.hpp"

#include <fmt/format.h>

#include <utility>
#include <vector>

#include "base/file.hpp"
#include "base/quote.hpp"
#include "runtime/packed_matrix.hpp"
#include "weft/error.hpp"
#include "weft/inference.hpp"
#include "weft/ops.hpp"

namespace weft::speech {

Weights::Weights(const io::TensorSource& source, Device device, Progress progress)
    : source_(source), device_(device), progress_(std::move(progress)) {
  for (const io::SourceTensor& tensor : source.tensors()) total_ += tensor.data.size();
}

void Weights::choose_prefix(std::initializer_list<std::string_view> prefixes) {
  for (const std::string_view prefix : prefixes)
    for (const io::SourceTensor& tensor : source_.tensors())
      if (tensor.name.starts_with(prefix)) {
        prefix_ = prefix;
        return;
      }
}

bool Weights::has(const std::string& name) const { return source_.find(prefix_ + name) != nullptr; }

const io::SourceTensor& Weights::take(const std::string& name, const Shape& shape) {
  const io::SourceTensor& tensor = source_.at(prefix_ + name);
  if (tensor.shape != shape)
    throw FileError(fmt::format("{}: {} is {}, the configuration asks for {}; is the file whole, and of this model?",
                                source_.path().string(), quote(tensor.name), tensor.shape.to_string(),
                                shape.to_string()));
  if (!tensor.type)
    throw FileError(fmt::format("{}: {} is {}, which Weft does not read; convert the file", source_.path().string(),
                                quote(tensor.name), tensor.type_name));
  source_.require_finite(tensor);
  taken_.insert(&tensor);
  return tensor;
}

void Weights::read(const io::SourceTensor& tensor, std::uint64_t device_bytes) {
  bytes_ += device_bytes;
  done_ += tensor.data.size();
  release_pages(tensor.data);
  if (progress_) progress_(done_, total_);
}

Tensor Weights::matrix(const std::string& name, Extent rows, Extent columns) {
  const Shape shape{rows, columns};
  const io::SourceTensor& tensor = take(name, shape);
  // Dense products have kernels of their own for f32.
  if (*tensor.type == BlockType::f32 || !can_pack(*tensor.type, device_) || !rows_divide(*tensor.type, columns))
    return dense(name, shape);
  const Tensor packed = pack_matrix(*tensor.type, tensor.data, shape, device_).named(name);
  read(tensor, packed_size(packed));
  return packed;
}

Tensor Weights::dense(const std::string& name, const Shape& shape) {
  const io::SourceTensor& tensor = take(name, shape);
  std::vector<float> values(static_cast<std::size_t>(shape.numel()));
  source_.read_f32(tensor, values);
  read(tensor, values.size() * sizeof(float));
  return tensor_from_bytes(values.data(), shape, DType::f32, device_).named(name);
}

Tensor Weights::kernel(const std::string& name, const Shape& shape, int length_axis) {
  std::vector<Extent> extents(3, 1);
  extents[static_cast<std::size_t>(length_axis)] = shape[length_axis];
  const Shape lengths(extents);
  Axes others;
  for (int axis = 0; axis < 3; ++axis)
    if (axis != length_axis) others.push_back(axis);
  // Two names of the same, of older and newer versions of PyTorch.
  for (const auto& [length, direction] :
       {std::pair(".weight_g", ".weight_v"),
        std::pair(".parametrizations.weight.original0", ".parametrizations.weight.original1")})
    if (has(name + length)) {
      const Tensor v = dense(name + direction, shape);
      return (v * (dense(name + length, lengths) / norm(v, others, {.keepdims = true}))).eval();
    }
  return dense(name + ".weight", shape);
}

void Weights::finish(FunctionRef<bool(std::string_view name)> is_known) const {
  std::string surplus;
  int count = 0;
  for (const io::SourceTensor& tensor : source_.tensors()) {
    if (taken_.contains(&tensor) || is_known(tensor.name)) continue;
    if (++count <= 20) surplus += fmt::format("\n  {} {}", quote(tensor.name), tensor.shape.to_string());
  }
  if (count > 0)
    throw FileError(fmt::format("{}: {} tensor{} of another model; is config.json that of these weights?{}{}",
                                source_.path().string(), count, count == 1 ? " is" : "s are", surplus,
                                count > 20 ? "\n  and more" : ""));
}

Tensor product(const Tensor& x, const Tensor& matrix, const Tensor& bias) {
  return is_packed_matrix(matrix) ? packed_linear(x, matrix, bias, /*exact=*/true) : linear(x, matrix, bias);
}

}  // namespace weft::speech
