#include "llm/lower_parts.hpp"

#include <cmath>

#include "weft/ops.hpp"

namespace weft::llm {

Tensor xielu(const Tensor& x, const Tensor& a, const Tensor& b, const Tensor& beta, const Tensor& eps) {
  const auto softplus = [](const Tensor& v) { return elementwise("softplus", {v}); };
  const Tensor negative = elementwise("expm1", {elementwise("minimum", {x, eps})}) - x;
  return where(x > zeros_like(x), softplus(a) * x * x, (beta + softplus(b)) * negative) + beta * x;
}

Tensor growth(const Tensor& positions, Extent each, double offset, double factor) {
  const Tensor at = unsqueeze(cast(positions, DType::f32), 1) + offset;
  const Tensor steps = elementwise("floor", {at / static_cast<double>(each)});
  return elementwise("log1p", {steps}) * factor + 1.0;
}

Tensor unit_norm(const Tensor& x, Extent width, double eps) {
  const Tensor parts = reshape(x, {x.dim(0), x.dim(1) / width, width});
  return reshape(rms_norm(parts, ones({width}, DType::f32, x.device()), eps), x.shape());
}

Tensor heads_with_length(const Tensor& x, Extent groups, double length, Extent again) {
  constexpr double kLeast = 1e-6;  // added to the square of a length
  const Extent keys = x.dim(1) / groups;
  const double root = std::sqrt(static_cast<double>(keys));
  const Tensor all = full({keys}, length / root, DType::f32, x.device());
  const Tensor each = rms_norm(reshape(x, {x.dim(0), groups, keys}), all, kLeast / static_cast<double>(keys));
  if (again == 1) return each;
  return reshape(expand(unsqueeze(each, 1), {x.dim(0), again, groups, keys}), {x.dim(0), again * groups, keys});
}

}  // namespace weft::llm
