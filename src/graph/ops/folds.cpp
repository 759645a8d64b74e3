#include "weft/ops/fold.hpp"

#include <fmt/format.h>

#include "graph/op.hpp"
#include "graph/op_families.hpp"
#include "graph/windows.hpp"
#include "weft/ops.hpp"

namespace weft {
namespace graph {
namespace {

using Ints = std::vector<Extent>;

struct ColumnAttributes {
  Extents kernel;
  Extents stride{1}, padding{0}, dilation{1};
};
struct FoldAttributes {
  Extents size;
  Extents kernel;
  Extents stride{1}, padding{0}, dilation{1};
};

template <class S>
std::vector<AttributeSpec> column_attributes() {
  return {field("kernel", &S::kernel, "extents of a window", {.required = true, .aliases = {"kernel_size"}}),
          field("stride", &S::stride, "elements from one window to the next"),
          field("padding", &S::padding, "zeros at both ends of each axis"),
          field("dilation", &S::dilation, "distance between the elements of a window")};
}

template <class S>
WindowGrid column_grid(const Call& c, const S& a, int axes) {
  WindowGrid grid{.size = per_axis(c, "kernel", a.kernel, axes, 1, 1),
                  .stride = per_axis(c, "stride", a.stride, axes, 1, 1),
                  .dilation = per_axis(c, "dilation", a.dilation, axes, 1, 1),
                  .before = per_axis(c, "padding", a.padding, axes, 0, 0)};
  grid.after = grid.before;
  return grid;
}

/// Windows along each axis of space. Errors: ShapeError if the kernel is longer than the padded axis.
Extents windows_along(const Call& c, const WindowGrid& grid, const Extents& space) {
  Extents counts;
  for (int i = 0; i < grid.axes(); ++i) {
    const Extent extent = space[at(i)] + 2 * grid.before[at(i)];
    if (space[at(i)] < 0 || grid.span(i) > extent)
      c.shape_error(
          fmt::format("windows of {} elements do not fit into {} with its padding", grid.span(i), space[at(i)]));
    counts.push_back((extent - grid.span(i)) / grid.stride[at(i)] + 1);
  }
  return counts;
}

Extent product_of(const Extents& extents) {
  Extent product = 1;
  for (const Extent e : extents) product *= e;
  return product;
}

const OpRow& im2col_row() {
  static const OpRow row{
      .name = "im2col",
      .family = "window",
      .inputs = {{"x", ops::DTypes::numbers}},
      .attributes = column_attributes<ColumnAttributes>(),
      .doc = "Windows of images [N, C, space...] as columns [N, C kernel elements, windows].",
      .torch = "F.unfold(x, kernel, *[(v * 2)[:2] for v in (dilation, padding, stride)])",
      .infer =
          [](const Call& c) {
            const Tensor& x = c.input(0);
            if (x.rank() < 3 || x.rank() > 5)
              c.shape_error("x is not [images, channels] followed by one to three spatial axes");
            const WindowGrid grid = column_grid(c, c.attributes<ColumnAttributes>(), x.rank() - 2);
            const Extents counts = windows_along(c, grid, Extents(x.shape().begin() + 2, x.shape().end()));
            return std::vector<Result>{{x.dtype(), {x.dim(0), x.dim(1) * product_of(grid.size), product_of(counts)}}};
          },
      .decompose =
          [](const Call& c) {
            const Tensor& x = c.input(0);
            const int axes = x.rank() - 2;
            const WindowGrid grid = column_grid(c, c.attributes<ColumnAttributes>(), axes);
            const Tensor windows = windows_of(x, grid);  // [N, C, windows..., size...]
            Axes order{0, 1};
            Extent count = 1;
            for (int i = 0; i < axes; ++i) order.push_back(2 + axes + i);
            for (int i = 0; i < axes; ++i) order.push_back(2 + i), count *= windows.dim(2 + i);
            return Tensors{
                weft::reshape(weft::permute(windows, order), {x.dim(0), x.dim(1) * product_of(grid.size), count})};
          },
      .cases = {{"images", {{{2, 3, 5, 6}}}, {{"kernel", Ints{3, 2}}}},
                {"strides, padding and dilation",
                 {{{1, 2, 7, 6}}},
                 {{"kernel", Ints{2, 3}}, {"stride", Ints{2, 1}}, {"padding", Ints{1}}, {"dilation", Ints{2, 1}}}}},
      .errors = {{"a large kernel", {{{2, 3, 5, 6}}}, {{"kernel", Ints{6, 2}}}, "windows of 6 elements do not fit"},
                 {"no space", {{{2, 3}}}, {{"kernel", Ints{2}}}, "one to three spatial axes"}}};
  return row;
}

const OpRow& fold_row() {
  static const OpRow row{
      .name = "fold",
      .aliases = {"col2im"},
      .family = "window",
      .inputs = {{"x", ops::DTypes::numbers}},
      .attributes =
          [] {
            std::vector<AttributeSpec> specs = column_attributes<FoldAttributes>();
            specs.insert(specs.begin(), field("size", &FoldAttributes::size, "extents of the image",
                                              {.required = true, .aliases = {"output_size"}}));
            return specs;
          }(),
      .doc = "Columns [N, C kernel elements, windows] added up at their places in images [N, C, size...].",
      .torch = "F.fold(x, size, kernel, *[(v * 2)[:2] for v in (dilation, padding, stride)])",
      .onnx = "Col2Im",
      .infer =
          [](const Call& c) {
            const Tensor& x = c.input(0);
            const auto a = c.attributes<FoldAttributes>();
            const int axes = static_cast<int>(a.size.size());
            if (axes < 1 || axes > 3) c.shape_error("size is not that of one to three spatial axes");
            const WindowGrid grid = column_grid(c, a, axes);
            const Extent windows = product_of(windows_along(c, grid, a.size)), elements = product_of(grid.size);
            if (x.rank() != 3 || x.dim(1) % elements != 0 || x.dim(2) != windows)
              c.shape_error(fmt::format("x is not [images, channels {}, {}]", elements, windows));
            Shape shape{x.dim(0), x.dim(1) / elements};
            for (const Extent e : a.size) shape.push_back(e);
            return std::vector<Result>{{x.dtype(), shape}};
          },
      .decompose =
          [](const Call& c) {
            const Tensor& x = c.input(0);
            const auto a = c.attributes<FoldAttributes>();
            const int axes = static_cast<int>(a.size.size());
            const WindowGrid grid = column_grid(c, a, axes);
            Shape split{x.dim(0), x.dim(1) / product_of(grid.size)};
            for (const Extent e : grid.size) split.push_back(e);
            for (const Extent e : windows_along(c, grid, a.size)) split.push_back(e);
            Axes order{0, 1};
            for (int i = 0; i < axes; ++i) order.push_back(2 + axes + i);
            for (int i = 0; i < axes; ++i) order.push_back(2 + i);
            return Tensors{windows_added(weft::permute(weft::reshape(x, split), order), grid, a.size)};
          },
      .cases = {{"images", {{{2, 18, 15}}}, {{"size", Ints{5, 6}}, {"kernel", Ints{3, 2}}}},
                {"strides, padding and dilation",
                 {{{1, 12, 24}}},
                 {{"size", Ints{7, 6}},
                  {"kernel", Ints{2, 3}},
                  {"stride", Ints{2, 1}},
                  {"padding", Ints{1, 1}},
                  {"dilation", Ints{2, 1}}}}},
      .errors = {{"another number of columns",
                  {{{2, 18, 14}}},
                  {{"size", Ints{5, 6}}, {"kernel", Ints{3, 2}}},
                  "x is not [images, channels 6, 15]"},
                 {"no size", {{{2, 18, 15}}}, {{"kernel", Ints{3, 2}}}, "attribute size is missing"}}};
  return row;
}

}  // namespace

OpRows fold_rows() { return {&im2col_row(), &fold_row()}; }

}  // namespace graph

Tensor im2col(const Tensor& x, const PerAxis& kernel, const FoldOptions& o, Where where) {
  return graph::call(graph::im2col_row(), {x}, graph::ColumnAttributes{kernel, o.stride, o.padding, o.dilation}, where);
}

Tensor fold(const Tensor& x, const PerAxis& size, const PerAxis& kernel, const FoldOptions& o, Where where) {
  return graph::call(graph::fold_row(), {x}, graph::FoldAttributes{size, kernel, o.stride, o.padding, o.dilation},
                     where);
}

}  // namespace weft
