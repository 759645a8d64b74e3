#include "layers/weights.hpp"

#include <fmt/format.h>

#include "runtime/packed_matrix.hpp"
#include "weft/error.hpp"
#include "weft/inference.hpp"
#include "weft/ops.hpp"

namespace weft::layers {
namespace {

constexpr int kProblemsMax = 40;

Shape matrix_shape(const Shape& shape) { return {shape[0], shape.numel() / shape[0]}; }

}  // namespace

const io::SourceTensor* ModelWeights::checked(const std::string& name, const Shape& shape) {
  const auto problem = [&](const std::string& line) {
    if (++problem_count_ <= kProblemsMax) problems_ += "\n  " + line;
    return nullptr;
  };
  const io::SourceTensor* found = source_.find(name);
  const std::string shown = shown_ ? shown_(name) : name;
  if (!found) return problem(fmt::format("missing: {} {}", shown, shape.to_string()));
  if (found->shape != shape)
    return problem(
        fmt::format("{} is {}, the configuration asks for {}", shown, found->shape.to_string(), shape.to_string()));
  if (!found->type)
    return problem(fmt::format("{} is {}, which Weft does not read; convert the file", shown, found->type_name));
  return found;
}

Tensor ModelWeights::dense(const std::string& name, const Shape& shape) {
  if (values_) return values_(name, shape);
  const io::SourceTensor* found = checked(name, shape);
  if (!found) return {};
  if (is_planned_) {
    bytes_ += static_cast<std::size_t>(shape.numel()) * sizeof(float);
    return {};
  }
  const io::LoadedTensor whole = io::TensorSource::loaded(*found);
  source_.require_finite(whole.tensor);
  std::vector<float> values(static_cast<std::size_t>(shape.numel()));
  source_.read_f32(whole.tensor, values);
  bytes_ += values.size() * sizeof(float);
  return tensor_from_bytes(values.data(), shape, DType::f32, device_).named(name);
}

Tensor ModelWeights::matrix(const std::string& name, const Shape& shape) {
  if (values_) return reshape(values_(name, shape), matrix_shape(shape));
  const io::SourceTensor* found = checked(name, shape);
  if (!found) return {};
  const Shape flat = matrix_shape(shape);
  if (matrix_type_ != DType::f32) {
    const Tensor whole = dense(name, shape);
    const auto count = static_cast<std::size_t>(shape.numel());
    bytes_ -= count * sizeof(float) - bytes_of(matrix_type_, count);
    return whole.defined() ? cast(reshape(whole, flat), matrix_type_).eval() : Tensor();
  }
  if (*found->type == BlockType::f32 || !can_pack(*found->type, device_) || !rows_divide(*found->type, flat[1]))
    return is_planned_ ? dense(name, shape) : reshape(dense(name, shape), flat).eval();
  if (is_planned_) {
    const Tensor packed = matrix_without_values(*found->type, flat, device_);
    bytes_ += packed_size(packed);
    return packed;
  }
  const io::LoadedTensor whole = io::TensorSource::loaded(*found);
  source_.require_finite(whole.tensor);
  const Tensor packed = pack_matrix(*found->type, whole.tensor.data, flat, device_);
  bytes_ += packed_size(packed);
  return packed.named(name);
}

void ModelWeights::require_all() const {
  if (problem_count_ == 0) return;
  throw FileError(
      fmt::format("{}: {} tensor{} not fit {}; is the model whole?{}{}", source_.path().string(), problem_count_,
                  problem_count_ == 1 ? " does" : "s do", shown_ ? "the file's metadata" : "config.json", problems_,
                  problem_count_ > kProblemsMax ? fmt::format("\n  and {} more", problem_count_ - kProblemsMax) : ""));
}

// Activations stay in f32: towers run once for an image, and every later token depends on what they give.
Tensor Linear::operator()(const Tensor& x) const {
  return is_packed_matrix(weight) ? packed_linear(x, weight, bias, true) : linear(x, weight, bias);
}
Linear linear_of(ModelWeights& weights, const std::string& name, Extent rows, Extent columns, bool bias) {
  return {weights.matrix(name + ".weight", {rows, columns}), bias ? weights.dense(name + ".bias", {rows}) : Tensor()};
}

Tensor Norm::operator()(const Tensor& x) const {
  return kind == NormKind::rms ? rms_norm(x, weight, eps) : layer_norm(x, weight, bias, eps);
}
Norm norm_of(ModelWeights& weights, const std::string& name, Extent width, double eps, NormKind kind) {
  return {weights.dense(name + ".weight", {width}),
          kind == NormKind::layer ? weights.dense(name + ".bias", {width}) : Tensor(), eps, kind};
}

}  // namespace weft::layers
