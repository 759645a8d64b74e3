#include "grid/layer_functions.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "weft/nn/clustering.hpp"
#include "weft/ops.hpp"
#include "weft/ops/attention.hpp"
#include "weft/ops/convolution.hpp"
#include "weft/ops/recurrent.hpp"
#include "weft/ops/softmaxes.hpp"
#include "weft/transforms.hpp"

namespace weft::grid {
namespace {

/// x with a last axis of `width`: as it is, or with all axes behind the first one joined, as after convolutions.
Tensor with_width(const Layer& layer, const Tensor& x, Extent width, Where where) {
  if (x.rank() > 0 && x.dim(-1) == width) return x;
  if (x.rank() > 2 && x.numel() == x.dim(0) * width) return flatten(x, 1, -1, where);
  throw ShapeError(
      fmt::format("{}: made for a last axis of {}, given x {}", name_of(layer.type), width, x.shape().to_string()));
}

/// x as [B, S, I]; [B, I] is one step of each sequence.
Tensor as_sequences(const Layer& layer, const Tensor& given, Where where) {
  const Tensor x = with_width(layer, given, layer.inputs, where);
  if (x.rank() < 2 || x.rank() > 3)
    throw ShapeError(
        fmt::format("{}: x {} is not [batch, steps, {}]", name_of(layer.type), x.shape().to_string(), layer.inputs));
  return x.rank() == 2 ? unsqueeze(x, 1, where) : x;
}

/// x as [B, C, L...]; [B, C n] is n places along the first axis of space.
Tensor as_image(const Layer& layer, const Tensor& x, Where where) {
  const int axes = axes_of_space(layer.type);
  if (x.rank() == 2 && x.dim(1) % layer.channels == 0) {
    Shape shape{x.dim(0), layer.channels, x.dim(1) / layer.channels};
    for (int i = 1; i < axes; ++i) shape.push_back(1);
    return reshape(x, shape, where);
  }
  if (x.rank() != axes + 2 || x.dim(1) != layer.channels)
    throw ShapeError(fmt::format("{}: x {} is not [batch, {} channels] and {} ax{} of space", name_of(layer.type),
                                 x.shape().to_string(), layer.channels, axes, axes == 1 ? "is" : "es"));
  return x;
}

}  // namespace

Extent key_width(const Layer& layer) {
  return (layer.key_heads > 0 ? layer.key_heads : layer.heads) * (layer.inputs / std::max<Extent>(layer.heads, 1));
}

int axes_of_space(LayerType type) {
  switch (type) {
    case LayerType::cnn1:
    case LayerType::conv_transposed1: return 1;
    case LayerType::cnn2:
    case LayerType::conv_transposed2: return 2;
    case LayerType::cnn3:
    case LayerType::conv_transposed3: return 3;
    default: return 0;
  }
}

Tensor activate(Activation activation, const Tensor& x, Where where) {
  switch (activation) {
    case Activation::relu: return elementwise("relu", {x}, {}, where);
    case Activation::silu: return elementwise("silu", {x}, {}, where);
    case Activation::gelu: return elementwise("gelu_tanh", {x}, {}, where);
    case Activation::tanh: return elementwise("tanh", {x}, {}, where);
    case Activation::sigmoid: return elementwise("sigmoid", {x}, {}, where);
    case Activation::linear: break;
  }
  return x;
}

Tensor dense(const Layer& layer, Weights w, const Tensor& x, Where where) {
  return linear(with_width(layer, x, layer.inputs, where), w[0], {}, where);
}

Tensor self_attention(const Layer& layer, Weights w, const Tensor& x, Where where) {
  StepState from_zero;
  return self_attention_steps(layer, w, x, from_zero, where);
}

Tensor self_attention_steps(const Layer& layer, Weights w, const Tensor& given, StepState& state, Where where) {
  const Tensor x = as_sequences(layer, given, where);
  const Extent width = layer.inputs / layer.heads;
  // [B, S, heads * width] -> [B, heads, S, width]
  const auto projected = [&](std::size_t i) {
    const Tensor rows = linear(x, w[i], w[i + 4], where);
    return permute(reshape(rows, {x.dim(0), x.dim(1), -1, width}, where), {0, 2, 1, 3}, where);
  };
  Tensor q = projected(0), k = projected(1), v = projected(2);
  if (layer.rope_base > 0) {
    q = rope(q, layer.rope_base, state.position, where);
    k = rope(k, layer.rope_base, state.position, where);
  }
  if (!state.kept.empty()) {
    k = concat({state.kept[0], k}, 2, where);
    v = concat({state.kept[1], v}, 2, where);
  }
  const Tensor mixed = attention(q, k, v, true, 0, layer.window, where);
  state.position += x.dim(1);
  // The next step sees itself and, in a window, one step less than that before it.
  const Extent seen = layer.window > 0 ? std::min(layer.window - 1, k.dim(2)) : k.dim(2);
  state.kept.clear();
  if (seen > 0)
    for (const Tensor& rows : {k, v}) state.kept.push_back(narrow(rows, 2, rows.dim(2) - seen, seen, where));
  const Tensor y = linear(reshape(permute(mixed, {0, 2, 1, 3}, where), x.shape(), where), w[3], w[7], where);
  return given.rank() == 3 && given.dim(-1) == layer.inputs ? y : squeeze(y, 1, where);
}

Tensor gated_unit(const Layer& layer, Weights w, const Tensor& given, Where where) {
  const Tensor x = with_width(layer, given, layer.inputs, where);
  return linear(swiglu(linear(x, w[0], w[3], where), linear(x, w[1], w[4], where), where), w[2], w[5], where);
}

Tensor root_mean_square_norm(const Layer& layer, Weights w, const Tensor& x, Where where) {
  return rms_norm(with_width(layer, x, layer.inputs, where), w[0], layer.epsilon > 0 ? layer.epsilon : 1e-6, where);
}

Tensor mean_variance_norm(const Layer& layer, Weights w, const Tensor& x, Where where) {
  return layer_norm(with_width(layer, x, layer.inputs, where), w[0], w[1], layer.epsilon > 0 ? layer.epsilon : 1e-5,
                    where);
}

Tensor convolution(const Layer& layer, Weights w, const Tensor& given, Where where) {
  const Tensor x = as_image(layer, given, where);
  const ConvolutionOptions options{.stride = layer.stride, .padding = layer.padding};
  const int axes = axes_of_space(layer.type);
  const Tensor y = (axes == 1 ? conv1d : axes == 2 ? conv2d : conv3d)(x, w[0], {}, options, where);
  return given.rank() == 2 ? flatten(y, 1, -1, where) : y;
}

Tensor transposed_convolution(const Layer& layer, Weights w, const Tensor& given, Where where) {
  const Tensor x = as_image(layer, given, where);
  const TransposedConvolutionOptions options{.stride = layer.stride, .padding = layer.padding};
  const int axes = axes_of_space(layer.type);
  // Stored as [F, C, K...], read as [C, F, K...].
  const Tensor y = (axes == 1   ? conv_transpose1d
                    : axes == 2 ? conv_transpose2d
                                : conv_transpose3d)(x, transpose(w[0], 0, 1, where), {}, options, where);
  return given.rank() == 2 ? flatten(y, 1, -1, where) : y;
}

namespace {

/// [B, S, I] through a function of [S, B, I] and `count` first states, which gives the last ones too; one step of each sequence
/// gives one step.
template <class F>
Tensor along_steps(const Layer& layer, const Tensor& given, StepState& state, std::size_t count, Where where, F f) {
  const Tensor x = as_sequences(layer, given, where);
  if (state.kept.empty()) state.kept.assign(count, zeros({x.dim(0), layer.outputs}, x.dtype(), x.device()));
  const RecurrentStates made = f(transpose(x, 0, 1, where), state.kept);
  state.position += x.dim(1);
  state.kept = {made.h};
  if (count > 1) state.kept.push_back(made.c);
  const Tensor y = transpose(made.output, 0, 1, where);
  return given.rank() == 3 && given.dim(-1) == layer.inputs ? y : squeeze(y, 1, where);
}

}  // namespace

Tensor recurrent(const Layer& layer, Weights w, const Tensor& x, Where where) {
  StepState from_zero;
  return recurrent_steps(layer, w, x, from_zero, where);
}

Tensor recurrent_steps(const Layer& layer, Weights w, const Tensor& given, StepState& state, Where where) {
  return along_steps(layer, given, state, 1, where, [&](const Tensor& x, const std::vector<Tensor>& first) {
    return rnn(x, first[0], {w[0], w[1], w[2], zeros_like(w[2])}, false, false, where);
  });
}

Tensor long_short_term_memory(const Layer& layer, Weights w, const Tensor& x, Where where) {
  StepState from_zero;
  return long_short_term_memory_steps(layer, w, x, from_zero, where);
}

Tensor long_short_term_memory_steps(const Layer& layer, Weights w, const Tensor& given, StepState& state, Where where) {
  const auto gates = [&](std::size_t i) { return concat({w[i], w[3 + i], w[6 + i], w[9 + i]}, 0, where); };
  return along_steps(layer, given, state, 2, where, [&](const Tensor& x, const std::vector<Tensor>& first) {
    const Tensor bias = gates(2);
    return lstm(x, first[0], first[1], {gates(0), gates(1), bias, zeros_like(bias)}, false, where);
  });
}

Tensor embedded(const Layer&, Weights w, const Tensor& x, Where where) {
  return embedding(w[0], x.dtype() == DType::i32 ? x : cast(x, DType::i32, where), where);
}

Tensor assignment(const Layer& layer, Weights w, const Tensor& given, Where where) {
  const Tensor x = with_width(layer, given, layer.inputs, where);
  const Tensor y = soft_kmeans(reshape(x, {-1, layer.inputs}, where), w[0], layer.temperature, layer.features, where);
  Shape shape = x.shape();
  shape[shape.rank() - 1] = y.dim(1);
  return reshape(y, shape, where);
}

Tensor entmax(const Tensor& x, double alpha, Where where) {
  const auto forward = [alpha, where](std::span<const Tensor> in) {
    const Tensor z = in[0] * (alpha - 1);
    const double power = 1 / (alpha - 1), n = static_cast<double>(z.dim(-1));
    const auto shares = [&](const Tensor& t) {
      const Tensor above = elementwise("relu", {z - t}, {}, where);
      return elementwise("pow", {above, scalar_like(power, above)}, {}, where);
    };
    // The threshold is between the one that gives the largest element all of the mass and the one that gives equal elements an
    // equal share. Each step halves the interval; 30 leave less than f32 can tell apart.
    const Tensor top = amax(z, {-1}, {.keepdims = true}, where);
    Tensor low = top - 1.0, width = full({}, 1 - std::pow(n, 1 - alpha), z.dtype(), z.device());
    for (int i = 0; i < 30; ++i) {
      width = width * 0.5;
      const Tensor middle = low + width;
      const Tensor mass = sum(shares(middle), {-1}, {.keepdims = true}, where);
      low = elementwise("where", {mass >= 1.0, middle, low}, {}, where);
    }
    const Tensor p = shares(low);
    return std::vector<Tensor>{p / sum(p, {-1}, {.keepdims = true}, where)};
  };
  const auto backward = [alpha](const CustomGradient& g) {
    const Tensor &p = g.results[0], zero = scalar_like(0, p);
    const Tensor s = elementwise("where", {p > 0.0, elementwise("pow", {p, scalar_like(2 - alpha, p)}), zero});
    const Tensor mean = sum(s * g.gradients[0], {-1}, {.keepdims = true}) / sum(s, {-1}, {.keepdims = true});
    return std::vector<Tensor>{s * (g.gradients[0] - mean)};
  };
  const Tensor inputs[] = {x};
  return custom_gradient(forward, backward)(inputs)[0];
}

namespace {

/// softmax(b x) with b a polynomial of the entropy of softmax(x), at least 1; 1 for entropies up to 0.5.
Tensor adaptive_softmax(const Tensor& x, Where where) {
  constexpr double kCoefficients[] = {-0.037, 0.481, -2.3, 4.917, -1.791};
  const Tensor p = softmax(x, -1, where);
  const Tensor entropy = -sum(p * elementwise("log", {p + 1e-9}), {-1}, {.keepdims = true}, where);
  Tensor b = full({}, 0, x.dtype(), x.device());
  for (const double c : kCoefficients) b = b * entropy + c;
  const Tensor one = scalar_like(1, b);
  b = elementwise("where", {entropy > 0.5, elementwise("maximum", {b, one}), one}, {}, where);
  return softmax(x * b, -1, where);
}

}  // namespace

Tensor any_softmax(const Layer& layer, Weights, const Tensor& given, Where where) {
  if (given.rank() == 0) throw ShapeError("softmax: x is a scalar, which has no axis of logits");
  const Tensor x = layer.temperature == 1 ? given : given * (1 / layer.temperature);
  const auto grouped = [&](Extent size) {
    if (x.dim(-1) % size != 0)
      throw ShapeError(
          fmt::format("softmax: groups of {} do not divide the last axis of x {}", size, x.shape().to_string()));
    return grouped_softmax(x, size, where);
  };
  switch (layer.softmax) {
    case SoftmaxKind::grid:
      if (layer.columns > 0 && layer.rows > 0 && x.dim(-1) != layer.rows * layer.columns)
        throw ShapeError(fmt::format("softmax: {} rows of {} columns are not the last axis of x {}", layer.rows,
                                     layer.columns, x.shape().to_string()));
      return layer.columns > 0 ? grouped(layer.columns) : softmax(x, -1, where);
    case SoftmaxKind::hierarchical: return layer.levels.empty() ? softmax(x, -1, where) : grouped(layer.levels.back());
    case SoftmaxKind::gumbel: return nn::gumbel_softmax(x, 1, false, -1, where);
    case SoftmaxKind::masked: {
      if (static_cast<Extent>(layer.mask.size()) != x.dim(-1))
        throw ShapeError(fmt::format("softmax: a mask of {} does not fit the last axis of x {}", layer.mask.size(),
                                     x.shape().to_string()));
      const std::vector<std::uint8_t> seen(layer.mask.begin(), layer.mask.end());
      return masked_softmax(x, tensor_from_bytes(seen.data(), {x.dim(-1)}, DType::boolean, x.device()), -1, where);
    }
    case SoftmaxKind::sparse: return sparsemax(x, -1, where);
    case SoftmaxKind::adaptive: return adaptive_softmax(x, where);
    case SoftmaxKind::mixture: {
      if (layer.rows == 0) return softmax(x, -1, where);
      if (x.dim(-1) != layer.rows * (layer.columns + 1))
        throw ShapeError(fmt::format("softmax: a mixture of {} lines of {} logits needs {} elements, given x {}",
                                     layer.rows, layer.columns, layer.rows * (layer.columns + 1),
                                     x.shape().to_string()));
      Shape lines(std::vector<Extent>(x.shape().begin(), x.shape().end() - 1));
      lines.push_back(layer.rows);
      lines.push_back(layer.columns);
      return mixture_softmax(reshape(narrow(x, -1, 0, layer.rows * layer.columns, where), lines, where),
                             narrow(x, -1, layer.rows * layer.columns, layer.rows, where), where);
    }
    case SoftmaxKind::entmax:
      if (layer.alpha <= 1) return softmax(x, -1, where);
      if (layer.alpha >= 2) return sparsemax(x, -1, where);
      return layer.alpha == 1.5 ? entmax15(x, -1, where) : entmax(x, layer.alpha, where);
    case SoftmaxKind::standard:
    case SoftmaxKind::temperature: break;
  }
  return softmax(x, -1, where);
}

}  // namespace weft::grid
