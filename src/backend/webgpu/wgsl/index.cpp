#include "backend/webgpu/wgsl/index.hpp"

#include <fmt/format.h>

#include "backend/webgpu/wgsl/render.hpp"

namespace weft::webgpu {
namespace {

std::string word(Extent value) { return fmt::format("{}u", static_cast<std::uint32_t>(value)); }

}  // namespace

Index::Index(const kernel::View& view, const Space& space) : vector_axis_(space.vector_axis), offset_(view.offset) {
  std::vector<Dim> dims;
  for (std::size_t d = 0; d < view.extents.size(); ++d) {
    Dim dim{view.extents[d], view.strides[d]};
    if (!view.bounds.empty()) {
      dim.low = view.bounds[d].lo;
      dim.high = view.bounds[d].hi;
      dim.bounded = dim.low > 0 || dim.high < dim.extent;
      if (dim.high <= 0 || dim.low >= dim.extent || dim.low >= dim.high) nothing_inside_ = true;
    }
    if (dim.extent != 1) dims.push_back(dim);
  }
  if (!assign(dims, space.axes)) {
    // A dimension spans two axes: divide the linear index instead.
    Axis linear{"", 1};
    for (const Axis& axis : space.axes) {
      if (axis.extent != 1 || space.axes.size() == 1)
        linear.variable = linear.variable.empty()
                              ? axis.variable
                              : fmt::format("({} * {} + {})", linear.variable, word(axis.extent), axis.variable);
      linear.extent *= axis.extent;
    }
    const bool last = vector_axis_ == static_cast<int>(space.axes.size()) - 1;
    if (vector_axis_ >= 0) {
      // Lanes along another axis are not neighbours in the linear index, so each is located separately.
      regular_ = last;
      if (!last) {
        std::vector<Axis> lanes = space.axes;
        linear.variable.clear();
        for (std::size_t a = 0; a < lanes.size(); ++a) {
          const std::string variable =
              static_cast<int>(a) == vector_axis_ ? "(" + lanes[a].variable + " + LANE)" : lanes[a].variable;
          linear.variable = linear.variable.empty()
                                ? variable
                                : fmt::format("({} * {} + {})", linear.variable, word(lanes[a].extent), variable);
        }
      }
      vector_axis_ = 0;
    }
    assign(dims, {linear});
  }
  if (vector_axis_ < 0) return;
  const std::vector<Dim>& along = dims_[static_cast<std::size_t>(vector_axis_)];
  if (along.empty()) return;  // one element along the axis, or no effect on the offset
  const Dim& inner = along.back();
  if (!regular_ || inner.extent % 4 != 0 || (inner.bounded && (inner.low % 4 != 0 || inner.high % 4 != 0)))
    regular_ = false;
  lane_stride_ = inner.stride;
}

bool Index::assign(std::vector<Dim> dims, const std::vector<Axis>& axes) {
  axes_ = axes;
  dims_.assign(axes.size(), {});
  for (std::size_t a = axes.size(); a-- > 0;) {
    Extent missing = axes[a].extent;
    std::vector<Dim>& own = dims_[a];
    while (missing > 1) {
      if (dims.empty()) return false;
      Dim& dim = dims.back();
      if (missing % dim.extent == 0) {
        own.insert(own.begin(), dim);
        missing /= dim.extent;
        dims.pop_back();
      } else if (dim.extent % missing == 0 && !dim.bounded) {
        own.insert(own.begin(), Dim{missing, dim.stride});
        dim.stride *= missing;
        dim.extent /= missing;
        missing = 1;
      } else {
        return false;
      }
    }
    for (std::size_t d = own.size(); d-- > 1;) {
      Dim &outer = own[d - 1], &inner = own[d];
      if (outer.bounded || inner.bounded || outer.stride != inner.stride * inner.extent) continue;
      inner.extent *= outer.extent;
      own.erase(own.begin() + static_cast<std::ptrdiff_t>(d) - 1);
    }
  }
  return dims.empty();
}

bool Index::is_vector(Extent base) const {
  if (vector_axis_ < 0 || !regular_ || lane_stride_ != 1 || nothing_inside_ || (offset_ + base) % 4 != 0) return false;
  for (std::size_t a = 0; a < dims_.size(); ++a)
    for (std::size_t d = 0; d < dims_[a].size(); ++d) {
      const bool inner = static_cast<int>(a) == vector_axis_ && d + 1 == dims_[a].size();
      if (!inner && dims_[a][d].stride % 4 != 0) return false;
    }
  return true;
}

std::string Index::coordinate(std::size_t axis, std::size_t dim, int lane) const {
  const std::vector<Dim>& dims = dims_[axis];
  std::string variable = axes_[axis].variable;
  if (const std::size_t at = variable.find("LANE"); at != std::string::npos)
    variable.replace(at, 4, fmt::format("{}u", lane));
  else if (lane != 0 && static_cast<int>(axis) == vector_axis_)
    variable = fmt::format("({} + {}u)", variable, lane);
  Extent below = 1;
  for (std::size_t d = dim + 1; d < dims.size(); ++d) below *= dims[d].extent;
  const std::string quotient = divided(variable, below);
  return dim == 0 ? quotient : modulo(quotient, dims[dim].extent);
}

std::string Index::offset(Extent base, int lane) const {
  std::string text;
  for (std::size_t a = 0; a < dims_.size(); ++a)
    for (std::size_t d = 0; d < dims_[a].size(); ++d) {
      const Extent stride = dims_[a][d].stride;
      if (stride == 0) continue;
      const std::string c = coordinate(a, d, lane);
      text += (text.empty() ? "" : " + ") + (stride == 1 ? c : fmt::format("{} * {}", c, word(stride)));
    }
  const Extent constant = base + offset_;
  if (text.empty()) return word(constant);
  return constant == 0 ? text : fmt::format("{} + {}", text, word(constant));
}

std::string Index::guard(int lane) const {
  if (nothing_inside_) return "false";
  std::string text;
  for (std::size_t a = 0; a < dims_.size(); ++a)
    for (std::size_t d = 0; d < dims_[a].size(); ++d) {
      const Dim& dim = dims_[a][d];
      if (!dim.bounded) continue;
      const std::string c = coordinate(a, d, lane);
      if (dim.low > 0) text += fmt::format("{}{} >= {}", text.empty() ? "" : " && ", c, word(dim.low));
      if (dim.high < dim.extent) text += fmt::format("{}{} < {}", text.empty() ? "" : " && ", c, word(dim.high));
    }
  return text;
}

}  // namespace weft::webgpu
