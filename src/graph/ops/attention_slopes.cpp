#include "graph/ops/attention_slopes.hpp"

#include "graph/op.hpp"
#include "weft/ops.hpp"

namespace weft::graph {
namespace {

Tensor by_head(const Tensor& x) { return weft::reshape(x, {1, x.dim(0), 1, 1}); }

}  // namespace

DType exact_type(const Tensor& q) { return q.dtype() == DType::f64 ? DType::f64 : DType::f32; }

Tensor slope_bias(const Tensor& slopes, Extent queries, Extent keys) {
  const Shape grid{1, 1, queries, keys};
  const Tensor query(iota(grid, 2, DType::i32, slopes.device())), key(iota(grid, 3, DType::i32, slopes.device()));
  const Tensor apart =
      elementwise("abs", {weft::cast(query - key + static_cast<double>(keys - queries), slopes.dtype())});
  return by_head(slopes) * apart * -1.0;
}

SlopeChannels slope_channels(const Tensor& q, const Tensor& k, const Tensor& slopes, double scale) {
  constexpr Extent kPart = 256, kChannels = 4;  // kernels read channels by four
  const Extent keys = k.dim(2);
  const Tensor behind = Tensor(iota({keys}, 0, DType::i32, q.device())) * -1.0 + static_cast<double>(keys - 1);
  const Tensor factor = slopes * (-1 / scale);
  Tensors of_q, of_k;
  if (q.dtype() == factor.dtype()) {
    const Tensor no_slope = zeros(factor.shape(), q.dtype(), q.device()),
                 nowhere = zeros({keys}, q.dtype(), q.device());
    of_q = {factor, no_slope, no_slope, no_slope};
    of_k = {weft::cast(behind, q.dtype()), nowhere, nowhere, nowhere};
  } else {
    const auto part = [&](double of) { return scalar_like(of, behind); };
    const Tensor high = weft::cast(elementwise("floor_divide", {behind, part(kPart)}), q.dtype()),
                 low = weft::cast(elementwise("remainder", {behind, part(kPart)}), q.dtype());
    const Tensor coarse = weft::cast(factor, q.dtype()), wide = factor * static_cast<double>(kPart);
    const Tensor rest = weft::cast(factor - weft::cast(coarse, factor.dtype()), q.dtype());
    const Tensor wide_coarse = weft::cast(wide, q.dtype());
    const Tensor wide_rest = weft::cast(wide - weft::cast(wide_coarse, factor.dtype()), q.dtype());
    of_q = {wide_coarse, wide_rest, coarse, rest};
    of_k = {high, high, low, low};
  }
  const Tensor more_q = weft::expand(weft::reshape(weft::stack(of_q, 1), {1, q.dim(1), 1, kChannels}),
                                     {q.dim(0), q.dim(1), q.dim(2), kChannels});
  const Tensor more_k =
      weft::expand(weft::reshape(weft::stack(of_k, 1), {1, 1, keys, kChannels}), {k.dim(0), k.dim(1), keys, kChannels});
  return {weft::concat({q, more_q}, 3), weft::concat({k, more_k}, 3)};
}

Tensor sinks_of(const Tensor& q, const Tensor& sinks, const Tensor& slopes, const Tensor& key_spans, Extent keys) {
  const Extent batch = q.dim(0), heads = q.dim(1), queries = q.dim(2);
  const DType type = exact_type(q);
  Tensor x = weft::expand(weft::reshape(weft::cast(sinks, type), {1, heads, 1}), {batch, heads, 1});
  if (slopes.defined()) {
    // A causal query sees keys up to its own position.
    const Tensor position =
        key_spans.defined()
            ? weft::reshape(weft::slice(key_spans, 2, 1, 2), {batch, 1, queries}) - 1.0
            : Tensor(iota({batch, 1, queries}, 2, DType::i32, q.device())) + static_cast<double>(keys - queries);
    x = x + weft::reshape(slopes, {1, heads, 1}) * weft::cast(position - static_cast<double>(keys - 1), type);
  }
  return weft::cast(x, q.dtype());
}

}  // namespace weft::graph
