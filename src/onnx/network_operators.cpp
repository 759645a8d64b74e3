// Convolutions, pools, norms and softmaxes.
#include "onnx/spatial.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "onnx/apply.hpp"
#include "weft/ops/convolution.hpp"
#include "weft/ops/indexing.hpp"
#include "weft/ops/layout.hpp"
#include "weft/ops/normalization.hpp"

namespace weft::onnx {

using A = Application;

Spatial spatial_of(const A& a, const Shape& x, std::vector<Extent> kernel, bool transposed) {
  Spatial s;
  s.axes = x.rank() - 2;
  if (s.axes < 1) a.shape_error("there is no axis of space");
  const auto size = static_cast<std::size_t>(s.axes);
  const auto list = [&](std::string_view name, std::size_t wanted, Extent fallback) {
    std::vector<Extent> values = a.integers(name, std::vector<Extent>(wanted, fallback));
    if (values.size() != wanted)
      a.usage_error(fmt::format("{} has {} numbers; {} are needed", name, values.size(), wanted));
    for (const Extent v : values)
      if (std::abs(v) > (Extent{1} << 31)) a.usage_error(fmt::format("{} {} is out of range", name, v));
    return values;
  };
  s.kernel = kernel.empty() ? list("kernel_shape", size, 0) : std::move(kernel);
  s.stride = list("strides", size, 1);
  s.dilation = list("dilations", size, 1);
  const std::vector<Extent> pads = list("pads", 2 * size, 0);
  const std::string_view automatic = a.word("auto_pad", "NOTSET");
  const bool upper = automatic == "SAME_UPPER", lower = automatic == "SAME_LOWER";
  if (!upper && !lower && automatic != "NOTSET" && automatic != "VALID" && automatic != "")
    a.usage_error(fmt::format("unknown auto_pad {}", automatic));
  for (std::size_t i = 0; i < size; ++i) {
    if (s.kernel[i] < 1 || s.stride[i] < 1 || s.dilation[i] < 1)
      a.usage_error("kernel, strides and dilations must be at least 1");
    s.span.push_back(s.dilation[i] * (s.kernel[i] - 1) + 1);
    s.before.push_back(automatic == "VALID" ? 0 : pads[i]);
    s.after.push_back(automatic == "VALID" ? 0 : pads[size + i]);
    if (transposed || !(upper || lower)) continue;
    const Extent n = x[static_cast<int>(i) + 2], windows = (n + s.stride[i] - 1) / s.stride[i];
    const Extent total = std::max<Extent>((windows - 1) * s.stride[i] + s.span[i] - n, 0);
    s.before[i] = upper ? total / 2 : total - total / 2;
    s.after[i] = total - s.before[i];
  }
  return s;
}

Tensor padded_space(const Tensor& x, const std::vector<Extent>& before, const std::vector<Extent>& after,
                    double value) {
  std::vector<std::pair<Extent, Extent>> around{{0, 0}, {0, 0}};
  bool any = false;
  for (std::size_t i = 0; i < before.size(); ++i) {
    around.emplace_back(before[i], after[i]);
    any = any || before[i] || after[i];
  }
  return any ? pad(x, around, PadMode::constant, value) : x;
}

Tensor channels_first(const Tensor& x) {
  Axes order{0, x.rank() - 1};
  for (int i = 1; i + 1 < x.rank(); ++i) order.push_back(i);
  return permute(x, order);
}
Tensor channels_last(const Tensor& x) {
  Axes order{0};
  for (int i = 2; i < x.rank(); ++i) order.push_back(i);
  order.push_back(1);
  return permute(x, order);
}

// The extents of the windows that a weight is multiplied with.
std::vector<Extent> window_of(const A& a, const Tensor& x, const Tensor& w) {
  if (w.rank() != x.rank() || w.rank() < 3) a.shape_error("the axes of x and of the weight differ");
  return {w.shape().begin() + 2, w.shape().end()};
}

Tensor convolved(const A& a, const Tensor& x, const Tensor& w, const Tensor& bias) {
  const Spatial s = spatial_of(a, x.shape(), window_of(a, x, w), false);
  ConvolutionOptions options{.stride = s.stride, .dilation = s.dilation, .groups = a.integer("group", 1)};
  Tensor in = x;
  if (s.before == s.after)
    options.padding = s.before;
  else
    in = padded_space(x, s.before, s.after, 0);
  switch (s.axes) {
    case 1: return conv1d(in, w, bias, options);
    case 2: return conv2d(in, w, bias, options);
    case 3: return conv3d(in, w, bias, options);
    default: a.shape_error(fmt::format("{} axes of space; Weft convolves one to three", s.axes));
  }
}

Tensor windows_of(const Tensor& x, const Spatial& s) {
  Tensor y = x;
  for (int i = 0; i < s.axes; ++i) {
    const auto k = static_cast<std::size_t>(i);
    y = unfold(y, 2 + i, s.kernel[k], s.stride[k], s.dilation[k]);
  }
  return y;
}

namespace {

void convolution(A& a) { a.give(convolved(a, a[0], a[1], a.optional(2))); }

void transposed_convolution(A& a) {
  const Tensor &x = a[0], &w = a[1];
  const Spatial s = spatial_of(a, x.shape(), window_of(a, x, w), true);
  const Extent groups = a.integer("group", 1);
  const TransposedConvolutionOptions options{.stride = s.stride, .dilation = s.dilation, .groups = groups};
  Tensor y;
  switch (s.axes) {
    case 1: y = conv_transpose1d(x, w, {}, options); break;
    case 2: y = conv_transpose2d(x, w, {}, options); break;
    case 3: y = conv_transpose3d(x, w, {}, options); break;
    default: a.shape_error(fmt::format("{} axes of space; Weft convolves one to three", s.axes));
  }
  const auto size = static_cast<std::size_t>(s.axes);
  const std::vector<Extent> wanted = a.integers("output_shape"),
                            extra = a.integers("output_padding", std::vector<Extent>(size, 0));
  const std::string_view automatic = a.word("auto_pad", "NOTSET");
  const bool same = automatic == "SAME_UPPER" || automatic == "SAME_LOWER";
  if (extra.size() != size || (!wanted.empty() && wanted.size() < size))
    a.usage_error("output sizes do not fit the axes");
  for (std::size_t i = 0; i < size; ++i) {
    const int axis = static_cast<int>(i) + 2;
    if (extra[i] < 0 || extra[i] > kMaxMadeElements) a.usage_error("output_padding is out of range");
    const Extent full = y.dim(axis) + extra[i];
    Extent before = s.before[i], target = full - s.before[i] - s.after[i];
    if (!wanted.empty() || same) {
      target = wanted.empty() ? x.dim(axis) * s.stride[i] : wanted[wanted.size() - size + i];
      const Extent total = full - target;
      before = automatic == "SAME_UPPER" ? total / 2 : total - total / 2;
      if (automatic == "NOTSET") before = total / 2;
    }
    if (target < 0 || target > kMaxMadeElements) a.shape_error(fmt::format("the result would have extent {}", target));
    // Cuts at the start, then cuts or adds zeros at the end.
    std::vector<std::pair<Extent, Extent>> around(static_cast<std::size_t>(y.rank()), {0, 0});
    around[static_cast<std::size_t>(axis)] = {std::max<Extent>(-before, 0),
                                              std::max<Extent>(target + before - y.dim(axis), 0)};
    y = narrow(pad(y, around), axis, std::max<Extent>(before, 0), target);
  }
  if (a.has(2)) {
    Shape shape(std::vector<Extent>(static_cast<std::size_t>(y.rank()), 1));
    shape[1] = a[2].numel();
    y = y + reshape(a[2], shape);
  }
  a.give(y);
}

// Adds to `after` what a last window needs that reaches beyond the end. A window must begin inside.
std::vector<Extent> ceiling(const A& a, const Spatial& s, const Shape& x) {
  std::vector<Extent> after = s.after;
  if (!a.flag("ceil_mode", false)) return after;
  for (std::size_t i = 0; i < after.size(); ++i) {
    const Extent n = x[static_cast<int>(i) + 2] + s.before[i] + s.after[i], rest = n - s.span[i];
    if (rest < 0) continue;
    Extent windows = (rest + s.stride[i] - 1) / s.stride[i] + 1;
    if ((windows - 1) * s.stride[i] >= x[static_cast<int>(i) + 2] + s.before[i]) --windows;
    after[i] += std::max<Extent>((windows - 1) * s.stride[i] + s.span[i] - n, 0);
  }
  return after;
}

Axes last_axes(const Tensor& x, int count) {
  Axes axes;
  for (int i = x.rank() - count; i < x.rank(); ++i) axes.push_back(i);
  return axes;
}

void max_pool(A& a) {
  const Tensor& x = a[0];
  const Spatial s = spatial_of(a, x.shape(), {}, false);
  const std::vector<Extent> after = ceiling(a, s, x.shape());
  const double lowest = is_float(x.dtype()) ? -kInfinity : element(x.dtype()).lowest;
  const Tensor windows = windows_of(padded_space(x, s.before, after, lowest), s);
  a.give(0, amax(windows, last_axes(windows, s.axes)));
  if (!a.wants(1)) return;
  // Positions of all elements of x, in the same windows; that of the greatest is chosen.
  Shape space = x.shape();
  space[0] = space[1] = 1;
  const Extent count = space.numel(), images = x.dim(0) * x.dim(1);
  Tensor places = reshape(arange(count, a.type_here(DType::i64), a.device()), space);
  if (a.flag("storage_order", false)) {  // column-major
    Shape turned{1, 1};
    Axes order{0, 1};
    for (int i = s.axes; i-- > 0;) turned.push_back(x.dim(2 + i)), order.push_back(2 + i);
    places = permute(reshape(places, turned), order);
  }
  places = windows_of(padded_space(places, s.before, after, -1), s);
  const int flat_from = 2 + s.axes;
  const Tensor lines = flatten(windows, flat_from, -1);
  const Tensor best = argmax(lines, -1, {.keepdims = true});
  places = expand(flatten(places, flat_from, -1), lines.shape());
  const Tensor found = select(take_along_axis(places, best, -1), -1, 0);
  Shape image(std::vector<Extent>(static_cast<std::size_t>(found.rank()), 1));
  image[0] = x.dim(0), image[1] = x.dim(1);
  a.give_positions(1, found + reshape(arange(images, found.dtype(), a.device()), image) * count);
}

}  // namespace

Tensor averaged(const A& a, const Tensor& x) {
  const Spatial s = spatial_of(a, x.shape(), {}, false);
  const std::vector<Extent> after = ceiling(a, s, x.shape());
  const bool all = a.flag("count_include_pad", false);
  const Tensor windows = windows_of(padded_space(x, s.before, after, 0), s);
  Tensor y = sum(windows, last_axes(windows, s.axes));
  // How many elements of each window count: a product over the axes.
  for (int i = 0; i < s.axes; ++i) {
    const auto k = static_cast<std::size_t>(i);
    const Extent first = all ? 0 : s.before[k], n = x.dim(2 + i);
    const Extent last = all ? s.before[k] + n + s.after[k] : s.before[k] + n;
    std::vector<double> counts;
    for (Extent w = 0; w < y.dim(2 + i); ++w) {
      Extent count = 0;
      for (Extent j = 0; j < s.kernel[k]; ++j) {
        const Extent at = w * s.stride[k] + j * s.dilation[k];
        count += at >= first && at < last;
      }
      counts.push_back(static_cast<double>(std::max<Extent>(count, 1)));
    }
    Shape shape(std::vector<Extent>(static_cast<std::size_t>(y.rank()), 1));
    shape[2 + i] = y.dim(2 + i);
    y = y / a.make(counts, shape, x.dtype());
  }
  return y;
}

namespace {

void average_pool(A& a) { a.give(averaged(a, a[0])); }

void lp_pool(A& a) {
  const Tensor& x = a[0];
  const Spatial s = spatial_of(a, x.shape(), {}, false);
  const double p = static_cast<double>(a.integer("p", 2));
  const Tensor windows = windows_of(padded_space(x, s.before, ceiling(a, s, x.shape()), 0), s);
  a.give(pow(sum(pow(abs(windows), p), last_axes(windows, s.axes)), 1 / p));
}

Axes space_axes(const A& a, const Tensor& x) {
  if (x.rank() < 3) a.shape_error("there is no axis of space");
  return last_axes(x, x.rank() - 2);
}
void global_average(A& a) { a.give(mean(a[0], space_axes(a, a[0]), {.keepdims = true})); }
void global_max(A& a) { a.give(amax(a[0], space_axes(a, a[0]), {.keepdims = true})); }
void global_lp(A& a) {
  const double p = static_cast<double>(a.integer("p", 2));
  a.give(pow(sum(pow(abs(a[0]), p), space_axes(a, a[0]), {.keepdims = true}), 1 / p));
}

void max_unpool(A& a) {
  const Tensor& x = a[0];
  const Spatial s = spatial_of(a, x.shape(), {}, false);
  Shape shape = x.shape();
  for (int i = 0; i < s.axes; ++i) {
    const auto k = static_cast<std::size_t>(i);
    shape[2 + i] = (x.dim(2 + i) - 1) * s.stride[k] - s.before[k] - s.after[k] + s.kernel[k];
  }
  // Positions are those in an image of this size, also where a larger one is asked for, as in the standard's own test. ONNX
  // Runtime takes them in the larger one.
  if (shape.numel() < 0 || shape.numel() > kMaxMadeElements) a.shape_error("the size of the result does not fit");
  const Tensor flat = zeros({shape.numel()}, x.dtype(), a.device());
  Tensor y = reshape(scatter(flat, 0, reshape(a[1], {x.numel()}), reshape(x, {x.numel()})), shape);
  if (a.has(2)) {
    const std::vector<Extent> wanted = a.integers_of(2);
    std::vector<std::pair<Extent, Extent>> around;
    for (int i = 0; i < shape.rank(); ++i) {
      const Extent more =
          static_cast<int>(wanted.size()) == shape.rank() ? wanted[static_cast<std::size_t>(i)] - shape[i] : -1;
      if (more < 0 || more > kMaxSteps) a.shape_error("the size of the result does not fit");
      around.emplace_back(0, more);
    }
    y = pad(y, around);
  }
  a.give(y);
}

// ---- Norms --------------------------------------------------------------------------------------------------------------

void batch_normal(A& a) {
  const Tensor& x = a[0];
  const double epsilon = a.number("epsilon", 1e-5f);
  if (!a.flag("training_mode", false)) return a.give(batch_norm(x, a[1], a[2], a[3], a[4], epsilon));
  a.give(0, batch_norm(x, a[1], a[2], {}, {}, epsilon));
  const double momentum = a.number("momentum", 0.9f);
  Axes axes{0};
  for (int i = 2; i < x.rank(); ++i) axes.push_back(i);
  a.give(1, a[3] * momentum + mean(x, axes) * (1 - momentum));
  a.give(2, a[4] * momentum + var(x, axes, {}, 0) * (1 - momentum));
}
void instance_normal(A& a) { a.give(instance_norm(a[0], a[1], a[2], a.number("epsilon", 1e-5f))); }
void group_normal(A& a) {
  const Tensor& x = a[0];
  const Extent groups = a.integer("num_groups");
  const bool by_group = a[1].numel() != x.dim(1);  // opset 18; from 21 on scales are by channel
  if (!by_group) return a.give(group_norm(x, groups, a[1], a[2], a.number("epsilon", 1e-5f)));
  if (groups < 1 || a[1].numel() != groups || x.dim(1) % groups) a.shape_error("scales do not fit the groups");
  const auto each = [&](const Tensor& v) {
    return reshape(expand(reshape(v, {groups, 1}), {groups, x.dim(1) / groups}), {x.dim(1)});
  };
  a.give(group_norm(x, groups, each(a[1]), each(a[2]), a.number("epsilon", 1e-5f)));
}
void layer_normal(A& a) {
  const int rank = a[0].rank(), axis = a.axis(a.integer("axis", -1), rank);
  Axes axes;
  for (int i = axis; i < rank; ++i) axes.push_back(i);
  const double epsilon = a.number("epsilon", 1e-5f);
  const bool last = axis == rank - 1 && a[1].rank() == 1 && (!a.has(2) || a[2].rank() == 1);
  const Tensor centre = mean(a[0], axes, {.keepdims = true});
  const Tensor inverse = rsqrt(var(a[0], axes, {.keepdims = true}, 0) + epsilon);
  if (last) {
    a.give(0, layer_norm(a[0], a[1], a.optional(2), epsilon));
  } else {
    Tensor y = (a[0] - centre) * inverse * a[1];
    a.give(0, a.has(2) ? y + a[2] : y);
  }
  a.give(1, centre);
  a.give(2, inverse);
}
void local_response(A& a) {
  const Extent size = a.integer("size");
  const Tensor& x = a[0];
  if (size < 1 || x.rank() < 2 || size > (Extent{1} << 31)) a.shape_error("the size is out of range");
  const double alpha = a.number("alpha", 1e-4f), beta = a.number("beta", 0.75), bias = a.number("bias", 1);
  // The window of even sizes reaches further up.
  std::vector<std::pair<Extent, Extent>> around(static_cast<std::size_t>(x.rank()), {0, 0});
  around[1] = {(size - 1) / 2, size / 2};
  const Tensor squares = sum(unfold(pad(square(x), around), 1, size), -1);
  a.give(x / pow(squares * (alpha / static_cast<double>(size)) + bias, beta));
}
void mean_variance(A& a) {
  const std::vector<int> axes = a.axes(a.integers("axes", {0, 2, 3}), a[0].rank());
  const Tensor centred = a[0] - mean(a[0], Axes(axes), {.keepdims = true});
  a.give(centred / (sqrt(mean(square(centred), Axes(axes), {.keepdims = true})) + 1e-9));
}
void lp_normal(A& a) {
  const int axis = a.axis(a.integer("axis", -1), a[0].rank());
  const bool one = a.integer("p", 2) == 1;
  const Tensor length = one ? sum(abs(a[0]), axis, {.keepdims = true}) : norm(a[0], axis, {.keepdims = true});
  a.give(where(eq(length, 0.0), zeros_like(a[0]), a[0] / length));
}

// ---- Softmaxes ----------------------------------------------------------------------------------------------------------

// Before opset 13 they are over all axes from `axis` on.
template <class F>
void along(A& a, F f) {
  const bool flat = a.opset() < 13;
  const int axis = a.axis(a.integer("axis", flat ? 1 : -1), a[0].rank());
  if (!flat || axis == a[0].rank() - 1) return a.give(f(a[0], axis));
  a.give(reshape(f(flatten(a[0], axis, -1), axis), a[0].shape()));
}
void soft(A& a) {
  along(a, [](const Tensor& x, int axis) { return softmax(x, axis); });
}
void log_soft(A& a) {
  along(a, [](const Tensor& x, int axis) { return log_softmax(x, axis); });
}
void hard(A& a) {
  along(a, [&](const Tensor& x, int axis) {
    const Tensor best = argmax(x, axis, {.keepdims = true});
    Shape shape(std::vector<Extent>(static_cast<std::size_t>(x.rank()), 1));
    shape[axis] = x.dim(axis);
    return cast(eq(reshape(arange(x.dim(axis), best.dtype(), a.device()), shape), best), x.dtype());
  });
}

constexpr Operator kNetworkOperators[] = {
    {"Conv", convolution},
    {"ConvTranspose", transposed_convolution},
    {"MaxPool", max_pool},
    {"AveragePool", average_pool},
    {"LpPool", lp_pool},
    {"GlobalAveragePool", global_average},
    {"GlobalMaxPool", global_max},
    {"GlobalLpPool", global_lp},
    {"MaxUnpool", max_unpool},
    {"BatchNormalization", batch_normal},
    {"InstanceNormalization", instance_normal},
    {"GroupNormalization", group_normal},
    {"LayerNormalization", layer_normal},
    {"LRN", local_response},
    {"MeanVarianceNormalization", mean_variance},
    {"LpNormalization", lp_normal},
    {"Softmax", soft},
    {"LogSoftmax", log_soft},
    {"Hardmax", hard},
};

}  // namespace

std::span<const Operator> network_operators() { return kNetworkOperators; }

}  // namespace weft::onnx
