// Images in other sizes and places: Resize, GridSample, RoiAlign, AffineGrid, Col2Im.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "onnx/apply.hpp"
#include "weft/ops/fold.hpp"
#include "weft/ops/indexing.hpp"
#include "weft/ops/interpolation.hpp"

namespace weft::onnx {
namespace {

using A = Application;

// How an axis is resampled: result i is the sum over k of weights[k][i] x[places[k][i]].
struct Taps {
  std::vector<std::vector<Extent>> places;
  std::vector<std::vector<double>> weights;  // empty: one tap of weight 1
  std::vector<double> inside;                // 0 where the result is the extrapolation value; empty: nowhere
};

struct Resampling {
  std::string_view mode, coordinates, rounding;
  double cubic = -0.75;
  bool exclude_outside = false, antialias = false;
};

double coordinate(const A& a, const Resampling& r, Extent i, Extent from, Extent to, double scale, double start,
                  double end) {
  const double x = static_cast<double>(i), in = static_cast<double>(from), out = static_cast<double>(to);
  if (r.coordinates == "half_pixel") return (x + 0.5) / scale - 0.5;
  if (r.coordinates == "half_pixel_symmetric") {
    const double adjustment = out / (scale * in);
    return in / 2 * (1 - adjustment) + (x + 0.5) / scale - 0.5;
  }
  if (r.coordinates == "pytorch_half_pixel") return to > 1 ? (x + 0.5) / scale - 0.5 : 0;
  if (r.coordinates == "align_corners") return to > 1 ? x * (in - 1) / (out - 1) : 0;
  if (r.coordinates == "asymmetric") return x / scale;
  if (r.coordinates == "tf_half_pixel_for_nn") return (x + 0.5) / scale;
  if (r.coordinates == "tf_crop_and_resize")
    return to > 1 ? start * (in - 1) + x * (end - start) * (in - 1) / (out - 1) : 0.5 * (start + end) * (in - 1);
  a.usage_error(fmt::format("unknown coordinate_transformation_mode {}", r.coordinates));
}

double weight_at(const Resampling& r, double distance) {
  const double d = std::abs(distance);
  if (r.mode == "linear") return std::max(1 - d, 0.0);
  const double c = r.cubic;
  if (d <= 1) return ((c + 2) * d - (c + 3)) * d * d + 1;
  if (d < 2) return ((c * d - 5 * c) * d + 8 * c) * d - 4 * c;
  return 0;
}

Taps taps_of(const A& a, const Resampling& r, Extent from, Extent to, double scale, double start, double end) {
  Taps taps;
  const auto n = static_cast<std::size_t>(to);
  const auto clamped = [&](double at) {
    return static_cast<Extent>(std::clamp(at, 0.0, static_cast<double>(from - 1)));
  };
  const bool crops = r.coordinates == "tf_crop_and_resize";
  if (crops) taps.inside.resize(n);
  if (r.mode == "nearest") taps.places.assign(1, std::vector<Extent>(n));
  const double stretch = r.antialias && scale < 1 ? 1 / scale : 1;
  const double reach = (r.mode == "linear" ? 1 : 2) * stretch;
  const auto count = static_cast<std::size_t>(std::ceil(2 * reach));
  if (r.mode != "nearest") {
    taps.places.assign(count, std::vector<Extent>(n));
    taps.weights.assign(count, std::vector<double>(n));
  }
  for (std::size_t i = 0; i < n; ++i) {
    const double x = coordinate(a, r, static_cast<Extent>(i), from, to, scale, start, end);
    if (crops) taps.inside[i] = x >= 0 && x <= static_cast<double>(from - 1);
    if (r.mode == "nearest") {
      double at = 0;
      if (r.rounding == "round_prefer_floor")
        at = std::ceil(x - 0.5);
      else if (r.rounding == "round_prefer_ceil")
        at = std::floor(x + 0.5);
      else if (r.rounding == "floor")
        at = std::floor(x);
      else if (r.rounding == "ceil")
        at = std::ceil(x);
      else
        a.usage_error(fmt::format("unknown nearest_mode {}", r.rounding));
      taps.places[0][i] = clamped(at);
      continue;
    }
    const double first = std::floor(x - reach) + 1;
    double total = 0;
    for (std::size_t k = 0; k < count; ++k) {
      const double at = first + static_cast<double>(k);
      const bool outside = at < 0 || at > static_cast<double>(from - 1);
      const double w = outside && r.exclude_outside ? 0 : weight_at(r, (at - x) / stretch);
      taps.places[k][i] = clamped(at);
      taps.weights[k][i] = w;
      total += w;
    }
    if ((r.exclude_outside || r.antialias) && total != 0)
      for (auto& w : taps.weights) w[i] /= total;
  }
  return taps;
}

Tensor resampled(const A& a, const Tensor& x, int axis, const Taps& taps, double extrapolation) {
  const auto to = static_cast<Extent>(taps.places[0].size());
  Shape line(std::vector<Extent>(static_cast<std::size_t>(x.rank()), 1));
  line[axis] = to;
  Tensor y;
  for (std::size_t k = 0; k < taps.places.size(); ++k) {
    Tensor read = index_select(x, axis, a.make(taps.places[k], {to}));
    if (!taps.weights.empty()) read = read * a.make(taps.weights[k], line, x.dtype());
    y = y.defined() ? y + read : read;
  }
  if (!taps.inside.empty() && std::find(taps.inside.begin(), taps.inside.end(), 0.0) != taps.inside.end())
    y = where(gt(a.make(taps.inside, line, DType::f32), 0.5), y, extrapolation);
  return y;
}

void resize(A& a) {
  Tensor x = a[0];
  const int rank = x.rank();
  const bool upsample = a.node().type == "Upsample", old = upsample || a.opset() < 11;
  Resampling r{.mode = a.word("mode", "nearest"),
               .coordinates = old ? "asymmetric" : a.word("coordinate_transformation_mode", "half_pixel"),
               .rounding = old ? "floor" : a.word("nearest_mode", "round_prefer_floor"),
               .cubic = a.number("cubic_coeff_a", -0.75),
               .exclude_outside = a.flag("exclude_outside", false),
               .antialias = a.flag("antialias", false)};
  if (r.mode == "bilinear" || r.mode == "trilinear") r.mode = "linear";
  if (r.mode != "nearest" && r.mode != "linear" && r.mode != "cubic")
    a.usage_error(fmt::format("unknown mode {}", r.mode));
  const std::size_t scales_at = old ? 1 : 2;
  std::vector<double> scales = a.has(scales_at) ? a.numbers_of(scales_at) : a.numbers("scales");
  std::vector<Extent> sizes = !old && a.has(3) ? a.integers_of(3) : std::vector<Extent>{};
  const std::vector<double> region = !old && a.has(1) ? a.numbers_of(1) : std::vector<double>{};
  std::vector<int> axes = a.axes(a.integers("axes"), rank);
  if (axes.empty())
    for (int i = 0; i < rank; ++i) axes.push_back(i);
  const std::size_t n = axes.size();
  if (scales.empty() == sizes.empty()) a.usage_error("give either scales or sizes");
  if ((!scales.empty() && scales.size() != n) || (!sizes.empty() && sizes.size() != n))
    a.usage_error("there is not a scale or size for each axis");
  const bool crops = r.coordinates == "tf_crop_and_resize";
  if (crops && region.size() != 2 * n) a.usage_error("the region does not fit the axes");

  const std::string_view policy = a.word("keep_aspect_ratio_policy", "stretch");
  if (!sizes.empty() && policy != "stretch") {
    double common = 0;
    for (std::size_t i = 0; i < n; ++i) {
      const double s = static_cast<double>(sizes[i]) / static_cast<double>(x.dim(axes[i]));
      common = i == 0 ? s : policy == "not_larger" ? std::min(common, s) : std::max(common, s);
    }
    scales.assign(n, common);
    for (std::size_t i = 0; i < n; ++i) sizes[i] = std::llround(common * static_cast<double>(x.dim(axes[i])));
  }
  const DType type = x.dtype();
  if (r.mode != "nearest" && !is_float(type)) x = cast(x, DType::f32);
  for (std::size_t i = 0; i < n; ++i) {
    const Extent from = x.dim(axes[i]);
    const double ratio = scales.empty() ? static_cast<double>(sizes[i]) / static_cast<double>(from) : scales[i];
    if (!(ratio >= 0) || !(ratio * static_cast<double>(from) < 1e8))
      a.shape_error(fmt::format("a scale of {} is out of range", ratio));
    const double start = crops ? region[i] : 0, end = crops ? region[n + i] : 1;
    const double extent = static_cast<double>(from) * (scales.empty() ? ratio : ratio * (crops ? end - start : 1));
    const Extent to = sizes.empty() ? static_cast<Extent>(std::floor(extent)) : sizes[i];
    if (to < 0) a.shape_error("a size is negative");
    if (to == from && ratio == 1 && !crops) continue;
    if (from < 1 || to < 1) a.shape_error("an axis without elements");
    if (r.antialias && ratio * kMaxSteps < 1) a.shape_error(fmt::format("a scale of {} is too small", ratio));
    x = resampled(a, x, axes[i], taps_of(a, r, from, to, ratio, start, end), a.number("extrapolation_value", 0));
  }
  a.give(x.dtype() == type ? x : cast(round(x), type));
}

void sample_grid(A& a) {
  const std::string_view mode = a.word("mode", "linear"), padding = a.word("padding_mode", "zeros");
  const bool cubic = mode == "cubic" || mode == "bicubic";
  if (mode != "linear" && mode != "bilinear" && mode != "nearest" && !cubic)
    a.usage_error(fmt::format("unknown mode {}", mode));
  if (padding != "zeros" && padding != "border" && padding != "reflection")
    a.usage_error(fmt::format("unknown padding_mode {}", padding));
  a.give(grid_sample(a[0], a[1],
                     mode == "nearest" ? Interpolation::nearest
                     : cubic           ? Interpolation::cubic
                                       : Interpolation::linear,
                     padding == "zeros"    ? GridPadding::zeros
                     : padding == "border" ? GridPadding::border
                                           : GridPadding::reflection,
                     a.flag("align_corners", false)));
}

// Regions [R, 4] (x1, y1, x2, y2) of images [N, C, H, W], each as height x width cells of samples between the elements.
void region_align(A& a) {
  const Tensor& x = a[0];
  const Extent height = a.integer("output_height", 1), width = a.integer("output_width", 1),
               samples = a.integer("sampling_ratio", 0);
  const double scale = a.number("spatial_scale", 1);
  if (x.rank() != 4 || a[1].rank() != 2 || a[1].dim(1) != 4)
    a.shape_error("it takes images [N, C, H, W] and regions [R, 4]");
  if (samples < 1) a.usage_error("sampling_ratio 0 depends on the regions; export it with a fixed ratio");
  if (height < 1 || width < 1 || height * samples > kMaxSteps || width * samples > kMaxSteps)
    a.usage_error("the size of the cells is out of range");
  const bool half =
      a.word("coordinate_transformation_mode", a.opset() < 16 ? "output_half_pixel" : "half_pixel") == "half_pixel";
  const Extent n = x.dim(0), c = x.dim(1), h = x.dim(2), w = x.dim(3), regions = a[1].dim(0);
  const Tensor box = a[1] * scale - (half ? 0.5 : 0.0);
  const auto edge = [&](Extent i) { return reshape(select(box, 1, i), {regions, 1}); };
  // Positions of all samples along an axis [R, cells samples].
  const auto positions = [&](const Tensor& first, const Tensor& last, Extent cells) {
    const Tensor length = half ? last - first : maximum(last - first, 1.0);
    const Tensor step = length / static_cast<double>(cells * samples);
    return first + (reshape(arange(cells * samples, x.dtype(), a.device()), {1, cells * samples}) + 0.5) * step;
  };
  const Tensor ys = positions(edge(1), edge(3), height), xs = positions(edge(0), edge(2), width);
  struct Axis {
    Tensor low, high, part, inside;
  };
  const auto split_at = [&](const Tensor& at, Extent extent) {
    const double last = static_cast<double>(extent - 1);
    const Tensor clamped = clamp(at, 0, last), low = floor(clamped);
    return Axis{cast(low, DType::i32), cast(minimum(low + 1.0, last), DType::i32), clamped - low,
                ge(at, -1.0) & le(at, static_cast<double>(extent))};
  };
  const Axis down = split_at(ys, h), across = split_at(xs, w);
  const Tensor rows = reshape(permute(x, {0, 2, 3, 1}), {n * h * w, c});
  const Tensor image = reshape(cast(a[2], DType::i32), {regions, 1, 1});
  const auto read = [&](const Tensor& i, const Tensor& j, const Tensor& wi, const Tensor& wj) {
    const Tensor at = (image * h + unsqueeze(i, 2)) * w + unsqueeze(j, 1);
    return embedding(rows, at) * unsqueeze(unsqueeze(wi, 2) * unsqueeze(wj, 1), 3);  // [R, P, Q, C]
  };
  const bool greatest = a.word("mode", "avg") == "max";
  std::vector<Tensor> corners;
  for (const bool lower : {false, true})
    for (const bool right : {false, true})
      corners.push_back(read(lower ? down.high : down.low, right ? across.high : across.low,
                             lower ? down.part : 1.0 - down.part, right ? across.part : 1.0 - across.part));
  // The maximum is that of the weighted corners, as ONNX defines it.
  Tensor value = corners[0];
  for (std::size_t i = 1; i < 4; ++i) value = greatest ? maximum(value, corners[i]) : value + corners[i];
  const Tensor inside = unsqueeze(unsqueeze(down.inside, 2) & unsqueeze(across.inside, 1), 3);
  value = where(inside, value, zeros_like(value));
  value = reshape(value, {regions, height, samples, width, samples, c});
  const Axes cells{2, 4};
  a.give(permute(greatest ? amax(value, cells) : mean(value, cells), {0, 3, 1, 2}));
}

// The places of a grid that a matrix theta [N, space, space + 1] moves: grid [N, space..., axes of space].
void affine_grid(A& a) {
  const Tensor& theta = a[0];
  const std::vector<Extent> size = a.integers_of(1);
  const int axes = static_cast<int>(size.size()) - 2;
  if (axes < 2 || axes > 3 || theta.rank() != 3 || theta.dim(0) != size[0] || theta.dim(1) != axes ||
      theta.dim(2) != axes + 1)
    a.shape_error("it takes theta [N, 2, 3] with a size [N, C, H, W], or [N, 3, 4] with [N, C, D, H, W]");
  const bool corners = a.flag("align_corners", false);
  Shape space;
  Extent places = 1;
  for (int i = 0; i < axes; ++i) {
    const Extent extent = size[static_cast<std::size_t>(i) + 2];
    if (extent < 1 || extent > kMaxMadeElements / places) a.shape_error("a size is out of range");
    places *= extent;
    space.push_back(extent);
  }
  if (size[0] < 0 || size[0] * axes > kMaxMadeElements / places) a.shape_error("a size is out of range");
  std::vector<Tensor> coordinates;  // x, y (, z), 1: the last axis of space first
  for (int i = axes; i-- > 0;) {
    const auto extent = static_cast<double>(space[i]);
    const Tensor at = cast(arange(space[i], DType::i32, a.device()), theta.dtype());
    const Tensor line = corners ? at * (extent > 1 ? 2 / (extent - 1) : 0.0) - (extent > 1 ? 1.0 : 0.0)
                                : (at * 2.0 + 1.0) * (1 / extent) - 1.0;
    Shape shape(std::vector<Extent>(static_cast<std::size_t>(axes), 1));
    shape[i] = space[i];
    coordinates.push_back(reshape(expand(reshape(line, shape), space), {places}));
  }
  coordinates.push_back(full({places}, 1, theta.dtype(), a.device()));
  const Tensor moved = matmul(unsqueeze(transpose(stack(coordinates, 0)), 0), transpose(theta));  // [N, places, axes]
  Shape shape{size[0]};
  for (const Extent extent : space) shape.push_back(extent);
  shape.push_back(axes);
  a.give(reshape(moved, shape));
}

// Columns [N, C block elements, windows] added up at their places in images.
void columns_to_image(A& a) {
  const std::vector<Extent> image = a.integers_of(1), block = a.integers_of(2);
  const std::size_t axes = image.size();
  const std::vector<Extent> pads = a.integers("pads", std::vector<Extent>(2 * axes, 0)),
                            strides = a.integers("strides", std::vector<Extent>(axes, 1)),
                            dilations = a.integers("dilations", std::vector<Extent>(axes, 1));
  if (axes < 1 || axes > 3 || block.size() != axes || pads.size() != 2 * axes || strides.size() != axes ||
      dilations.size() != axes)
    a.usage_error("block, pads, strides and dilations do not fit the axes of the image");
  PerAxis padded;  // the image with its pads, which are then cut off
  for (std::size_t i = 0; i < axes; ++i) {
    if (image[i] < 1 || image[i] > kMaxMadeElements || pads[i] < 0 || pads[axes + i] < 0 ||
        std::max(pads[i], pads[axes + i]) > kMaxMadeElements)
      a.shape_error("a size is out of range");
    padded.push_back(image[i] + pads[i] + pads[axes + i]);
  }
  Tensor y = fold(a[0], padded, PerAxis(block), {.stride = PerAxis(strides), .dilation = PerAxis(dilations)});
  for (std::size_t i = 0; i < axes; ++i) y = narrow(y, static_cast<int>(i) + 2, pads[i], image[i]);
  a.give(y);
}

constexpr Operator kResamplingOperators[] = {{"Resize", resize},          {"Upsample", resize},
                                             {"GridSample", sample_grid}, {"RoiAlign", region_align},
                                             {"AffineGrid", affine_grid}, {"Col2Im", columns_to_image}};

}  // namespace

std::span<const Operator> resampling_operators() { return kResamplingOperators; }

}  // namespace weft::onnx
