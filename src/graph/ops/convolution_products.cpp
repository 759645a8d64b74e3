#include "graph/ops/convolution_products.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

#include "graph/convolution.hpp"
#include "graph/op_families.hpp"
#include "weft/ops.hpp"

namespace weft::graph {
namespace {

Extent product_of(const Shape& shape, int first, int last) {
  Extent product = 1;
  for (int i = first; i < last; ++i) product *= shape[i];
  return product;
}

Shape with_space(Extent n, Extent channels, const Shape& space, int first) {
  Shape shape{n, channels};
  for (int i = first; i < space.rank(); ++i) shape.push_back(space[i]);
  return shape;
}

// Whether each channel is convolved separately: a product of so few numbers is computed as a sum.
bool is_depthwise(const Tensor& kernel, const ConvolutionGeometry& geometry) {
  return geometry.groups > 1 && kernel.dim(1) == 1;
}

// [N, C, windows..., size...] with the sizes in front of the windows.
Tensor sizes_first(const Tensor& windows, int axes) {
  Axes order{0, 1};
  for (int i = 0; i < axes; ++i) order.push_back(2 + axes + i);
  for (int i = 0; i < axes; ++i) order.push_back(2 + i);
  return weft::permute(windows, order);
}

}  // namespace

Tensor convolve(const Tensor& image, const Tensor& kernel, const ConvolutionGeometry& geometry, Where where) {
  const int axes = geometry.grid.axes();
  const Tensor windows = windows_of(image, geometry.grid);
  const Extent n = image.dim(0), out = kernel.dim(0), g = geometry.groups;
  const Extent positions = product_of(windows.shape(), 2, 2 + axes);
  Shape result{n, out};
  for (int i = 0; i < axes; ++i) result.push_back(windows.shape()[2 + i]);
  if (is_depthwise(kernel, geometry)) {
    const Extent size = product_of(kernel.shape(), 2, kernel.rank()), multiple = out / g;
    const Tensor each = weft::reshape(windows, {n, g, 1, positions, size});
    const Tensor factors = weft::reshape(kernel, {1, g, multiple, 1, size});
    return weft::reshape(weft::sum(each * factors, {-1}, {}, where), result);
  }
  const Extent terms = product_of(kernel.shape(), 1, kernel.rank());
  const Tensor columns = sizes_first(windows, axes);
  if (g == 1)
    return weft::reshape(
        weft::matmul(weft::reshape(kernel, {1, out, terms}), weft::reshape(columns, {n, terms, positions}), where),
        result);
  return weft::reshape(weft::matmul(weft::reshape(kernel, {1, g, out / g, terms}),
                                    weft::reshape(columns, {n, g, terms, positions}), where),
                       result);
}

namespace {

// The kernel of the transposed product: [C, O / groups, size...], reversed.
Tensor turned(const Tensor& kernel, const ConvolutionGeometry& geometry) {
  const Extent g = geometry.groups, out = kernel.dim(0) / g, channels = kernel.dim(1);
  Shape split{g, out, channels};
  Axes order{0, 2, 1}, space;
  for (int i = 2; i < kernel.rank(); ++i) {
    split.push_back(kernel.shape()[i]);
    order.push_back(i + 1);
    space.push_back(i);
  }
  const Tensor swapped = weft::permute(weft::reshape(kernel, split), order);
  return weft::flip(weft::reshape(swapped, with_space(g * channels, out, kernel.shape(), 2)), space);
}

// The adjoint of `convolve` with steps. Coordinates of the image that differ by multiples of the stride are a phase: they meet
// the same elements of the kernel, and are a convolution of the result with those.
Tensor convolve_back_by_phases(const Tensor& result, const Tensor& kernel, const ConvolutionGeometry& geometry,
                               const Extents& extents, Where where) {
  const WindowGrid& grid = geometry.grid;
  const int axes = grid.axes();
  Extent phases = 1;
  Shape shape{result.dim(0), geometry.groups * kernel.dim(1)};
  for (int i = 0; i < axes; ++i) {
    const auto k = static_cast<std::size_t>(i);
    phases *= grid.stride[k];
    shape.push_back((extents[k] + grid.stride[k] - 1) / grid.stride[k]);
  }
  std::vector<Tensor> parts;
  for (Extent phase = 0; phase < phases; ++phase) {
    Tensor chosen = kernel;
    ConvolutionGeometry back = geometry;
    bool is_empty = false;
    for (Extent i = axes, rest = phase; i-- > 0;) {
      const auto k = static_cast<std::size_t>(i);
      const int axis = 2 + static_cast<int>(i);
      const Extent first = rest % grid.stride[k] + grid.before[k], skip = first / grid.stride[k];
      rest /= grid.stride[k];
      is_empty = is_empty || first % grid.stride[k] >= grid.size[k];
      if (is_empty) continue;
      chosen = weft::slice(chosen, axis, first % grid.stride[k], kEnd, grid.stride[k]);
      back.grid.size[k] = chosen.dim(axis);
      back.grid.stride[k] = 1;
      back.grid.before[k] = chosen.dim(axis) - 1 - skip;
      back.grid.after[k] = skip + shape[axis] - result.dim(axis);
      is_empty =
          result.dim(axis) + std::min<Extent>(back.grid.before[k], 0) + std::min<Extent>(back.grid.after[k], 0) < 1;
    }
    parts.push_back(is_empty ? weft::full(shape, 0.0, result.dtype(), result.device())
                             : convolve(result, turned(chosen, back), back, where));
  }
  Shape split{shape[0], shape[1]}, merged = split;
  Axes order{0, 1};
  for (Extent stride : grid.stride) split.push_back(stride);
  for (int i = 0; i < axes; ++i) {
    const auto k = static_cast<std::size_t>(i);
    split.push_back(shape[2 + i]);
    merged.push_back(shape[2 + i] * grid.stride[k]);
    order.push_back(2 + axes + i);
    order.push_back(2 + i);
  }
  Tensor image = weft::reshape(weft::permute(weft::reshape(weft::stack(parts, 2), split), order), merged);
  for (int i = 0; i < axes; ++i) image = weft::narrow(image, 2 + i, 0, extents[static_cast<std::size_t>(i)]);
  return image;
}

// The same as one product, whose result holds the summands of each element: columns as many as windows.
Tensor convolve_back_by_columns(const Tensor& result, const Tensor& kernel, const ConvolutionGeometry& geometry,
                                const Extents& extents, Where where) {
  const WindowGrid& grid = geometry.grid;
  const int axes = grid.axes();
  const Extent n = result.dim(0), g = geometry.groups, out = kernel.dim(0) / g, channels = kernel.dim(1);
  const Extent positions = product_of(result.shape(), 2, result.rank()),
               size = product_of(kernel.shape(), 2, kernel.rank());
  Tensor columns;  // [N, groups, C / groups * size, windows]
  if (is_depthwise(kernel, geometry))
    columns = weft::sum(weft::reshape(result, {n, g, out, 1, positions}) * weft::reshape(kernel, {1, g, out, size, 1}),
                        {2}, {}, where);
  else
    columns = weft::matmul(weft::transpose(weft::reshape(kernel, {1, g, out, channels * size})),
                           weft::reshape(result, {n, g, out, positions}), where);
  Shape shape{n, g * channels};
  Axes windows_first{0, 1};
  for (int i = 2; i < kernel.rank(); ++i) shape.push_back(kernel.shape()[i]);
  for (int i = 2; i < result.rank(); ++i) shape.push_back(result.shape()[i]);
  for (int i = 0; i < axes; ++i) windows_first.push_back(2 + axes + i);
  for (int i = 0; i < axes; ++i) windows_first.push_back(2 + i);
  return windows_added(weft::permute(weft::reshape(columns, shape), windows_first), grid, extents);
}

double work_of(const Tensor& result, const Tensor& kernel) {
  return static_cast<double>(result.numel()) * terms_of(kernel);  // multiply-adds
}

}  // namespace

Tensor convolve_back(const Tensor& result, const Tensor& kernel, const ConvolutionGeometry& geometry,
                     const Extents& extents, Where where) {
  const WindowGrid& grid = geometry.grid;
  const int axes = grid.axes();
  bool has_steps = false;
  for (Extent stride : grid.stride) has_steps = has_steps || stride > 1;
  if (!has_steps) {
    // With a stride of 1 it is a convolution of the result with the reversed kernel.
    ConvolutionGeometry back = geometry;
    for (int i = 0; i < axes; ++i) {
      const auto k = static_cast<std::size_t>(i);
      back.grid.before[k] = grid.span(i) - 1 - grid.before[k];
      back.grid.after[k] = extents[k] + grid.before[k] - result.shape()[2 + i];
    }
    return convolve(result, turned(kernel, geometry), back, where);
  }
  constexpr Extent kChannelsMin = 16;  // a product of few rows gains nothing
  constexpr double kWorkMin = 1 << 20;
  const bool has_gaps = std::any_of(grid.dilation.begin(), grid.dilation.end(), [](Extent d) { return d > 1; });
  if (has_gaps || kernel.dim(1) < kChannelsMin || work_of(result, kernel) < kWorkMin)
    return convolve_back_by_columns(result, kernel, geometry, extents, where);
  return call(conv_adjoint_row(), {result, kernel},
              ConvAdjointAttributes{grid.stride, grid.before, extents, geometry.groups}, where);
}

Tensor kernel_gradient(const Tensor& image, const Tensor& result, const Shape& kernel,
                       const ConvolutionGeometry& geometry, Where where) {
  const int axes = geometry.grid.axes();
  const Extent n = image.dim(0), g = geometry.groups, out = kernel[0] / g, terms = product_of(kernel, 1, kernel.rank());
  const Tensor windows = windows_of(image, geometry.grid);
  const Extent positions = product_of(windows.shape(), 2, 2 + axes);
  if (g > 1 && kernel[1] == 1) {
    const Tensor each = weft::reshape(windows, {n, g, 1, positions, terms});
    const Tensor factors = weft::reshape(result, {n, g, out, positions, 1});
    return weft::reshape(weft::sum(each * factors, {0, 3}, {}, where), kernel);
  }
  // [groups, O / groups, N * windows] by [groups, N * windows, C / groups * size]
  const Tensor left = weft::permute(weft::reshape(result, {n, g, out, positions}), {1, 2, 0, 3});
  Shape split{n, g, image.dim(1) / g};
  Axes order{1, 0};
  for (int i = 2; i < windows.rank(); ++i) split.push_back(windows.shape()[i]);
  for (int i = 0; i < axes; ++i) order.push_back(3 + i);
  order.push_back(2);
  for (int i = 0; i < axes; ++i) order.push_back(3 + axes + i);
  const Tensor right = weft::permute(weft::reshape(windows, split), order);
  return weft::reshape(weft::matmul(weft::reshape(left, {g, out, n * positions}),
                                    weft::reshape(right, {g, n * positions, terms}), where),
                       kernel);
}

double terms_of(const Tensor& kernel) { return static_cast<double>(product_of(kernel.shape(), 1, kernel.rank())); }

Tensors gradients_of_back(const Tensor& result, const Tensor& kernel, ConvolutionGeometry geometry, const Tensor& image,
                          Where where) {
  // Drops windows of the image beyond those of the result.
  WindowGrid& grid = geometry.grid;
  for (int i = 0; i < grid.axes(); ++i) {
    const auto k = static_cast<std::size_t>(i);
    const Extent used = grid.stride[k] * (result.shape()[2 + i] - 1) + grid.span(i) - grid.before[k];
    grid.after[k] = used - image.shape()[2 + i];
  }
  return {convolve(image, kernel, geometry, where), kernel_gradient(image, result, kernel.shape(), geometry, where)};
}

// ---- The call -----------------------------------------------------------------------------------------------------------

namespace {

ConvolutionGeometry geometry_of(const Call& c) {
  const auto a = c.attributes<ConvAdjointAttributes>();
  const Shape& kernel = c.input(1).shape();
  const Extents size(kernel.begin() + 2, kernel.end());
  ConvolutionGeometry geometry{{.size = size,
                                .stride = a.stride,
                                .dilation = Extents(size.size(), 1),
                                .before = a.before,
                                .after = Extents(size.size(), 0)},
                               a.groups};
  for (std::size_t i = 0; i < size.size(); ++i) {  // what reaches beyond the end is cut off
    const Extent last = a.stride[i] * (c.input(0).shape()[2 + static_cast<int>(i)] - 1);
    geometry.grid.after[i] = std::max<Extent>(0, last + size[i] - a.before[i] - a.extents[i]);
  }
  return geometry;
}

}  // namespace

const OpRow& conv_adjoint_row() {
  const auto list = [](std::initializer_list<Extent> values) { return std::vector<Extent>(values); };
  static const OpRow row{
      .name = "conv_adjoint",
      .family = "convolution",
      .inputs = {{"x", ops::DTypes::floats}, {"weight", ops::DTypes::floats}},
      .attributes = {field("stride", &ConvAdjointAttributes::stride,
                           "distance of neighbours of x in the result, by axis"),
                     field("before", &ConvAdjointAttributes::before, "elements in front of the result, by axis"),
                     field("extents", &ConvAdjointAttributes::extents, "extents of space of the result"),
                     field("groups", &ConvAdjointAttributes::groups, "number of groups of channels")},
      .result = "that of x",
      .doc =
          "The adjoint of a convolution with steps: x [N, I, windows...], weight [I, O / groups, size...] -> "
          "[N, O, extents...].",
      .formula = "y[n, o, stride p + k - before] += weight[i, o, k] x[n, i, p]",
      .infer =
          [](const Call& c) {
            const auto a = c.attributes<ConvAdjointAttributes>();
            const Tensor &x = c.input(0), &weight = c.input(1);
            const auto axes = static_cast<std::size_t>(std::max(0, x.rank() - 2));
            if (x.dtype() != weight.dtype()) c.dtype_error("the dtypes of x and weight differ; cast one");
            if (axes < 1 || axes > 3 || weight.rank() != x.rank())
              c.shape_error("x and weight do not have one to three axes of space");
            if (a.stride.size() != axes || a.before.size() != axes || a.extents.size() != axes)
              c.shape_error(fmt::format("stride, before and extents need {} numbers each", axes));
            if (a.groups < 1 || weight.dim(0) != x.dim(1) || x.dim(1) % a.groups != 0)
              c.shape_error(fmt::format("weight is not [{}, ...], in {} groups", x.dim(1), a.groups));
            for (std::size_t i = 0; i < axes; ++i)
              if (a.stride[i] < 1 || a.before[i] < 0 || a.extents[i] < 1 || weight.shape()[2 + static_cast<int>(i)] < 1)
                c.shape_error("strides and extents must be at least 1, and before at least 0");
            Shape shape{x.dim(0), weight.dim(1) * a.groups};
            for (const Extent extent : a.extents) shape.push_back(extent);
            return std::vector<Result>{{x.dtype(), shape}};
          },
      .decompose =
          [](const Call& c) {
            // Many columns would not stay in a cache. Few are quicker at once than phase by phase.
            constexpr double kMany = 1 << 24;
            constexpr Extent kPhasesMax = 8;  // each is a product of its own
            const auto a = c.attributes<ConvAdjointAttributes>();
            const Extent phases = std::accumulate(a.stride.begin(), a.stride.end(), Extent{1}, std::multiplies<>());
            const bool by_phases = phases <= kPhasesMax && work_of(c.input(0), c.input(1)) >= kMany;
            return Tensors{(by_phases ? convolve_back_by_phases : convolve_back_by_columns)(
                c.input(0), c.input(1), geometry_of(c), a.extents, c.where())};
          },
      .gradient =
          [](const GradientCall& g) {
            return gradients_of_back(g.call.input(0), g.call.input(1), geometry_of(g.call), g.gradients[0],
                                     g.call.where());
          },
      .form = KernelForm::routine,
      .flops = [](const Call& c) { return 2 * static_cast<double>(c.input(0).numel()) * terms_of(c.input(1)); },
      .cases =
          {{"windows of 3 x 3",
            {{{2, 5, 4, 7}}, {{5, 40, 3, 3}}},
            {{"stride", list({2, 2})}, {"before", list({1, 1})}, {"extents", list({8, 13})}}},
           {"windows of one element, in groups",
            {{{2, 6, 4, 3}}, {{6, 3, 1, 1}}},
            {{"stride", list({3, 2})}, {"before", list({0, 0})}, {"extents", list({11, 6})}, {"groups", Extent{2}}}},
           {"one axis",
            {{{3, 4, 19}}, {{4, 3, 5}}},
            {{"stride", list({2})}, {"before", list({2})}, {"extents", list({40})}}},
           {"three axes",
            {{{1, 2, 3, 2, 3}}, {{2, 3, 2, 3, 2}}},
            {{"stride", list({2, 1, 2})}, {"before", list({0, 1, 1})}, {"extents", list({6, 3, 5})}}}},
      .errors = {{"numbers missing",
                  {{{2, 5, 4, 7}}, {{5, 4, 3, 3}}},
                  {{"stride", list({2})}, {"before", list({1, 1})}, {"extents", list({8, 13})}},
                  "need 2 numbers each"},
                 {"channels that differ",
                  {{{2, 5, 4, 7}}, {{4, 4, 3, 3}}},
                  {{"stride", list({2, 2})}, {"before", list({1, 1})}, {"extents", list({8, 13})}},
                  "weight is not [5, ...]"},
                 {"no step",
                  {{{2, 5, 4, 7}}, {{5, 4, 3, 3}}},
                  {{"stride", list({2, 0})}, {"before", list({1, 1})}, {"extents", list({8, 13})}},
                  "must be at least 1"}}};
  return row;
}

}  // namespace weft::graph
