// How long each token sounds: drawn by a flow from noise, or predicted.
#include <cmath>

#include "speech/vits.hpp"
#include "weft/ops.hpp"
#include "weft/ops/convolution.hpp"

namespace weft::speech::detail {
namespace {

constexpr double kLeast = 1e-3;  // least width and height of a bin (of all of them 1), and least slope
constexpr double kNormEps = 1e-5;

/// Ends of bins from shares of them: [S, bins] -> [S, bins + 1], from -tail to tail.
Tensor knots_of(const Tensor& scores, double tail) {
  const auto bins = static_cast<double>(scores.dim(1));
  const Tensor shares = softmax(scores) * (1 - kLeast * bins) + kLeast;
  const Tensor inner = narrow(cumsum(shares, 1), 1, 0, scores.dim(1) - 1) * (2 * tail) - tail;
  const Tensor edge = zeros({scores.dim(0), 1}, DType::f32, scores.device());
  return concat({edge - tail, inner, edge + tail}, 1);
}

/// The inverse of a monotonic spline of rational quadratic pieces (Durkan et al. 2019, arXiv:1906.04032) for y [S]; outside of [-tail,
/// tail] it is y. In a bin with ends x_0, x_1 and y_0, y_1, slopes d_0, d_1 at its ends, and s = (y_1 - y_0) / (x_1 - x_0), the place
/// t = (x - x_0) / (x_1 - x_0) solves a t^2 + b t + c = 0 with
///
///   a = (y_1 - y_0)(s - d_0) + e,  b = (y_1 - y_0) d_0 - e,  c = -s (y - y_0),  e = (y - y_0)(d_0 + d_1 - 2 s)
///
/// Shapes    y [S], widths and heights [S, bins] (scores of shares), slopes [S, bins - 1] (before softplus) -> [S]
Tensor invert_spline(const Tensor& y, const Tensor& widths, const Tensor& heights, const Tensor& slopes, double tail) {
  const Extent tokens = y.dim(0), bins = widths.dim(1);
  const Tensor xs = knots_of(widths, tail), ys = knots_of(heights, tail);
  const Tensor one = ones({tokens, 1}, DType::f32, y.device());  // slope at both ends, as outside
  const Tensor ds = concat({one, elementwise("softplus", {slopes}, {1.0, 20.0}) + kLeast, one}, 1);
  const Tensor inside =
      elementwise("minimum", {elementwise("maximum", {y, scalar_like(-tail, y)}), scalar_like(tail, y)});
  const Tensor begun = cast(unsqueeze(inside, 1) >= narrow(ys, 1, 0, bins), DType::f32);  // bins at or below y
  const Tensor bin = one_hot(cast(sum(begun, 1), DType::i32) - 1.0, bins);
  const auto of_bin = [&](const Tensor& ends, Extent side) { return sum(narrow(ends, 1, side, bins) * bin, 1); };
  const Tensor x0 = of_bin(xs, 0), width = of_bin(xs, 1) - x0, y0 = of_bin(ys, 0), height = of_bin(ys, 1) - y0;
  const Tensor d0 = of_bin(ds, 0), d1 = of_bin(ds, 1), s = height / width;
  const Tensor e = (inside - y0) * (d0 + d1 - s * 2.0);
  const Tensor a = height * (s - d0) + e, b = height * d0 - e, c = -(s * (inside - y0));
  // Rounding may leave a discriminant just below 0.
  const Tensor discriminant = elementwise("maximum", {b * b - a * c * 4.0, scalar_like(0, b)});
  const Tensor t = c * 2.0 / (-b - elementwise("sqrt", {discriminant}));
  const Tensor is_inside = (y >= scalar_like(-tail, y)) & (y <= scalar_like(tail, y));
  return elementwise("where", {is_inside, t * width + x0, y});
}

Tensor convolve(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  return conv1d(x, weight, bias, {.padding = (weight.dim(2) - 1) / 2});
}

}  // namespace

Tensor norm_channels(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps) {
  return transpose(layer_norm(transpose(x), weight, bias, eps));
}

Tensor VitsEngine::separate(const Separable& layers, Tensor x) const {
  Extent dilation = 1;
  for (const SeparableLayer& layer : layers) {
    Tensor h = conv1d(
        x, layer.wide.weight, layer.wide.bias,
        {.padding = dilation * (config_.duration_kernel - 1) / 2, .dilation = dilation, .groups = config_.width});
    h = elementwise("gelu", {norm_channels(h, layer.first.weight, layer.first.bias, kNormEps)});
    h = conv1d(h, layer.point.weight, layer.point.bias);
    x = x + elementwise("gelu", {norm_channels(h, layer.second.weight, layer.second.bias, kNormEps)});
    dilation *= config_.duration_kernel;
  }
  return x;
}

// z [2, S]: the first row stays, and says how the second one is bent back.
Tensor VitsEngine::invert(const SplineFlow& flow, const Tensor& z, const Tensor& text) const {
  const Tensor first = narrow(z, 0, 0, 1);
  Tensor h = conv1d(unsqueeze(first, 0), flow.pre.weight, flow.pre.bias);
  h = separate(flow.body, h + text);
  const Tensor p = transpose(squeeze(conv1d(h, flow.project.weight, flow.project.bias), 0));  // [S, 3 bins - 1]
  const double scale = 1 / std::sqrt(static_cast<double>(config_.width));
  const Extent bins = config_.bins;
  const Tensor second = invert_spline(select(z, 0, 1), narrow(p, 1, 0, bins) * scale, narrow(p, 1, bins, bins) * scale,
                                      narrow(p, 1, 2 * bins, bins - 1), config_.tail);
  return concat({first, unsqueeze(second, 0)}, 0);
}

Tensor VitsEngine::drawn_durations(const Tensor& states, Extent speaker, const Tensor& noise) const {
  const DrawnDurations& d = *drawn_;
  Tensor text = conv1d(states, d.pre.weight, d.pre.bias);
  if (speakers_.defined()) text = text + of_speaker(duration_speaker_, speaker);
  text = conv1d(separate(d.body, text), d.project.weight, d.project.bias);
  Tensor z = noise;
  for (const SplineFlow& flow : d.flows) z = invert(flow, flip(z, {0}), text);
  z = (flip(z, {0}) - d.shift) * elementwise("exp", {-d.log_scale});
  return select(z, 0, 0);
}

Tensor VitsEngine::plain_durations(const Tensor& states, Extent speaker) const {
  const PlainDurations& p = *plain_;
  Tensor x = states;
  if (speakers_.defined()) x = x + of_speaker(duration_speaker_, speaker);
  x = elementwise("relu", {convolve(x, p.first.weight, p.first.bias)});
  x = norm_channels(x, p.first_norm.weight, p.first_norm.bias, config_.eps);
  x = elementwise("relu", {convolve(x, p.second.weight, p.second.bias)});
  x = norm_channels(x, p.second_norm.weight, p.second_norm.bias, config_.eps);
  return reshape(convolve(x, p.project.weight, p.project.bias), {states.dim(2)});
}

Tensor VitsEngine::log_durations(const Tensor& states, Extent speaker, const Tensor& noise) const {
  const Tensor x = unsqueeze(transpose(states), 0);
  return drawn_ ? drawn_durations(x, speaker, noise) : plain_durations(x, speaker);
}

}  // namespace weft::speech::detail
