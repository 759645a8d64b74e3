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

Tensor cut_below(const Tensor& x, double deviations) {
  const Tensor centred = x - mean(x, {1}, {.keepdims = true});
  const Tensor spread = sqrt(mean(centred * centred, {1}, {.keepdims = true}));
  return elementwise("relu", {centred - spread * deviations});
}

Tensor mix_streams(const Tensor& x, const Tensor& numbers, Extent streams, double offset) {
  const Extent tokens = x.dim(0), made = numbers.dim(1) / streams, width = x.dim(1) / streams;
  const Tensor each = reshape(x, {tokens, 1, streams, width}),
               times = reshape(offset == 0 ? numbers : numbers + offset, {tokens, made, streams, 1});
  // Some sums of few parts: one kernel makes all, without a product in memory.
  Tensor sum;
  for (Extent a = 0; a < streams; ++a) {
    const Tensor part = narrow(each, 2, a, 1) * narrow(times, 2, a, 1);
    sum = sum.defined() ? sum + part : part;
  }
  return reshape(sum, {tokens, made * width});
}

Tensor add_to_streams(const Tensor& x, const Tensor& y, Extent first) {
  const Extent tokens = x.dim(0), width = y.dim(1), streams = x.dim(1) / width;
  const Tensor all = reshape(x, {tokens, streams, width}), one = unsqueeze(y, 1);
  if (first == 0) return reshape(all + one, x.shape());
  const Tensor parts[] = {narrow(all, 1, 0, first), narrow(all, 1, first, streams - first) + one};
  return reshape(concat(parts, 1), x.shape());
}

Tensor match_magnitude(const Tensor& x, const Tensor& y) {
  constexpr double kLeast = 1e-5;  // of a mean square, as the models were trained
  const Extent tokens = x.dim(0), width = y.dim(1);
  const Tensor each = reshape(x, {tokens, x.dim(1) / width, width});
  const Tensor square = mean(each * each, {2}, {.keepdims = true}),
               wanted = reshape(mean(y * y, {1}, {.keepdims = true}), {tokens, 1, 1});
  return reshape(each * sqrt(wanted) / sqrt(elementwise("maximum", {square, scalar_like(kLeast, square)})), x.shape());
}

}  // namespace weft::llm
