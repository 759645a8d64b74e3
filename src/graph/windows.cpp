#include "graph/windows.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "weft/ops.hpp"

namespace weft::graph {

Extents per_axis(const Call& call, std::string_view name, const Extents& given, int axes, Extent fallback,
                 Extent least) {
  const auto count = static_cast<std::size_t>(axes);
  if (given.size() > 1 && given.size() != count)
    call.shape_error(fmt::format("{} has {} numbers for {} spatial axes; give one number, or one for each axis", name,
                                 given.size(), axes));
  Extents each(count, given.empty() ? fallback : given[0]);
  if (given.size() > 1) each = given;
  for (Extent value : each)
    if (value < least) call.shape_error(fmt::format("{} is {}; it must be at least {}", name, value, least));
  return each;
}

Extent WindowGrid::span(int axis) const { return (size[at(axis)] - 1) * dilation[at(axis)] + 1; }

Extent WindowGrid::count(int axis, Extent extent) const {
  const Extent rest = extent + before[at(axis)] + after[at(axis)] - span(axis);
  return rest < 0 ? 0 : rest / stride[at(axis)] + 1;
}

Tensor padded(const Tensor& x, const Extents& before, const Extents& after) {
  Tensor y = x;
  Pairs padding(static_cast<std::size_t>(x.rank()), {0, 0});
  bool any = false;
  for (std::size_t i = 0; i < before.size(); ++i) {
    const int axis = x.rank() - static_cast<int>(before.size()) + static_cast<int>(i);
    const Extent first = std::max<Extent>(-before[i], 0), last = std::max<Extent>(-after[i], 0);
    if (first > 0 || last > 0) y = weft::narrow(y, axis, first, y.dim(axis) - first - last);
    padding[static_cast<std::size_t>(axis)] = {std::max<Extent>(before[i], 0), std::max<Extent>(after[i], 0)};
    any = any || before[i] > 0 || after[i] > 0;
  }
  return any ? weft::pad(y, padding) : y;
}

Tensor windows_of(const Tensor& x, const WindowGrid& grid) {
  Tensor y = padded(x, grid.before, grid.after);
  for (int i = 0; i < grid.axes(); ++i)
    y = weft::unfold(y, 2 + i, grid.size[at(i)], grid.stride[at(i)], grid.dilation[at(i)]);
  return y;
}

Tensor windows_added(const Tensor& windows, const WindowGrid& grid, const Extents& extents) {
  Tensor y = windows;
  Extents behind(extents.size(), 0);
  for (int i = grid.axes(); i-- > 0;) {
    const Extent full = extents[at(i)] + grid.before[at(i)] + grid.after[at(i)];
    y = weft::overlap_add(y, 2 + i, full, grid.stride[at(i)], grid.dilation[at(i)]);
  }
  for (int i = 0; i < grid.axes(); ++i) y = weft::narrow(y, 2 + i, grid.before[at(i)], extents[at(i)]);
  return y;
}

}  // namespace weft::graph
