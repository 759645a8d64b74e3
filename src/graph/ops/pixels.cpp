// Channels of images that become pixels, pixels that become channels, and channels in another order.
#include "weft/ops/layout.hpp"

#include <fmt/format.h>

#include "graph/axes.hpp"
#include "graph/describe.hpp"
#include "graph/op.hpp"
#include "graph/op_families.hpp"
#include "graph/ops/layout_attributes.hpp"

namespace weft {

using graph::describe;
using graph::with_value;

namespace {

// [.., c r^2, h, w] and [.., c, h r, w r]: the leading extents, and c, h, w.
struct Pixels {
  std::vector<Extent> lead;
  Extent c = 0, h = 0, w = 0;
  Shape shape(std::initializer_list<Extent> last) const {
    std::vector<Extent> extents = lead;
    extents.insert(extents.end(), last.begin(), last.end());
    return Shape(std::move(extents));
  }
  /// `lead` axes, then these, counted from the first after them.
  Axes order(std::initializer_list<int> last) const {
    Axes axes;
    for (std::size_t i = 0; i < lead.size(); ++i) axes.push_back(static_cast<int>(i));
    for (const int axis : last) axes.push_back(axis + static_cast<int>(lead.size()));
    return axes;
  }
};

Pixels pixels_of(std::string_view op, const Tensor& x, Extent factor, Where where) {
  with_value(op, x);
  if (x.rank() < 3) throw ShapeError(describe(op, "x is not [.., channels, height, width]", {{"x", x}}, where));
  if (factor < 1) throw ShapeError(describe(op, fmt::format("factor {}", factor), {{"x", x}}, where));
  return {{x.shape().begin(), x.shape().end() - 3}, x.dim(-3), x.dim(-2), x.dim(-1)};
}

}  // namespace

Tensor pixel_shuffle(const Tensor& x, Extent factor, Where where) {
  Pixels p = pixels_of("pixel_shuffle", x, factor, where);
  if (p.c % (factor * factor) != 0)
    throw ShapeError(describe("pixel_shuffle", fmt::format("{} channels do not divide by {}", p.c, factor * factor),
                              {{"x", x}}, where));
  p.c /= factor * factor;
  const Tensor parts = reshape(x, p.shape({p.c, factor, factor, p.h, p.w}), where);
  return reshape(permute(parts, p.order({0, 3, 1, 4, 2}), where), p.shape({p.c, p.h * factor, p.w * factor}), where);
}

Tensor pixel_unshuffle(const Tensor& x, Extent factor, Where where) {
  const Pixels p = pixels_of("pixel_unshuffle", x, factor, where);
  if (p.h % factor != 0 || p.w % factor != 0)
    throw ShapeError(
        describe("pixel_unshuffle", fmt::format("height and width do not divide by {}", factor), {{"x", x}}, where));
  const Tensor parts = reshape(x, p.shape({p.c, p.h / factor, factor, p.w / factor, factor}), where);
  return reshape(permute(parts, p.order({0, 2, 4, 1, 3}), where),
                 p.shape({p.c * factor * factor, p.h / factor, p.w / factor}), where);
}

Tensor channel_shuffle(const Tensor& x, Extent groups, Where where) {
  with_value("channel_shuffle", x);
  const auto fail = [&](const std::string& fact) {
    return ShapeError(describe("channel_shuffle", fact, {{"x", x}}, where));
  };
  if (x.rank() < 2) throw fail("x is not [images, channels, ..]");
  if (groups < 1 || x.dim(1) % groups != 0)
    throw fail(fmt::format("{} channels do not divide into {} groups", x.dim(1), groups));
  const Tensor grouped = unflatten(x, 1, {groups, x.dim(1) / groups}, where);
  return reshape(transpose(grouped, 1, 2, where), x.shape(), where);
}

namespace graph {
namespace {

const std::vector<OpRow>& rows_of_pixels() {
  static const std::vector<OpRow> rows = {
      {.name = "pixel_shuffle",
       .aliases = {"depth_to_space"},
       .family = "layout",
       .inputs = {{"x"}},
       .attributes = {whole_attribute("factor", "of height and width", {}, {"upscale_factor", "blocksize"})},
       .doc = "Moves channels into space: [.., c r^2, h, w] becomes [.., c, h r, w r].",
       .torch = "F.pixel_shuffle(x, factor)",
       .cases = {{"by two", {{{2, 12, 3, 5}}}, {{"factor", Extent{2}}}}},
       .errors =
           {{"channels that do not divide", {{{6, 3, 5}}}, {{"factor", Extent{2}}}, "6 channels do not divide by 4"},
            {"two axes", {{{3, 5}}}, {{"factor", Extent{2}}}, "x is not [.., channels, height, width]"}},
       .apply = [](const Arguments& a) { return Tensors{weft::pixel_shuffle(a.input(0), a.integer("factor"))}; }},
      {.name = "pixel_unshuffle",
       .aliases = {"space_to_depth"},
       .family = "layout",
       .inputs = {{"x"}},
       .attributes = {whole_attribute("factor", "of height and width", {}, {"downscale_factor"})},
       .doc = "Moves space into channels: [.., c, h r, w r] becomes [.., c r^2, h, w].",
       .torch = "F.pixel_unshuffle(x, factor)",
       .cases = {{"by two", {{{2, 3, 4, 6}}}, {{"factor", Extent{2}}}}},
       .errors = {{"a height that does not divide", {{{6, 3, 4}}}, {{"factor", Extent{2}}}, "do not divide by 2"}},
       .apply = [](const Arguments& a) { return Tensors{weft::pixel_unshuffle(a.input(0), a.integer("factor"))}; }},
      {.name = "channel_shuffle",
       .family = "layout",
       .inputs = {{"x"}},
       .attributes = {whole_attribute("groups", "groups of channels")},
       .doc = "Channels of several groups in turns: x [N, C, ..] with channel j of group i at place j groups + i.",
       .torch = "x.unflatten(1, (groups, -1)).transpose(1, 2).flatten(1, 2)",
       .cases = {{"an image", {{{2, 6, 3, 2}}}, {{"groups", Extent{3}}}}},
       .errors = {{"a line", {{{3}}}, {{"groups", Extent{3}}}, "x is not [images, channels, ..]"},
                  {"uneven groups", {{{2, 6, 3}}}, {{"groups", Extent{4}}}, "6 channels do not divide into 4 groups"}},
       .apply = [](const Arguments& a) { return Tensors{weft::channel_shuffle(a.input(0), a.integer("groups"))}; }},
  };
  return rows;
}

}  // namespace

OpRows pixel_rows() {
  OpRows list;
  for (const OpRow& row : rows_of_pixels()) list.push_back(&row);
  return list;
}

}  // namespace graph

}  // namespace weft
