// Views divided between the axes of a loop.
#include "backend/cpu/access.hpp"

namespace weft::cpu {
namespace {

/// Drops dimensions with no effect on the offset, and joins neighbours that make one stride.
std::vector<Access::Dim> simplify(const std::vector<Access::Dim>& dims) {
  std::vector<Access::Dim> out;
  for (const Access::Dim& dim : dims) {
    if (dim.extent == 1 && !dim.bounded()) continue;
    if (!out.empty() && !out.back().bounded() && !dim.bounded() && out.back().stride == dim.stride * dim.extent) {
      const Extent extent = out.back().extent * dim.extent;
      out.back() = {extent, dim.stride, 0, extent};
    } else {
      out.push_back(dim);
    }
  }
  bool moves = false;
  for (const Access::Dim& dim : out) moves = moves || dim.stride != 0 || dim.bounded();
  if (!moves) out.clear();
  return out;
}

}  // namespace

Access make_access(const kernel::View& view, Extent outer, Extent inner, bool columns) {
  Access access;
  access.offset = view.offset;
  if (outer == 0 || inner == 0) return access;  // never read

  std::vector<Access::Dim> outers, inners, all;
  Extent remaining = inner;
  for (std::size_t d = view.extents.size(); d-- > 0;) {
    const Extent extent = view.extents[d], stride = view.strides[d];
    Access::Dim dim{extent, stride, 0, extent};
    if (!view.bounds.empty())
      dim.lo = std::max<Extent>(view.bounds[d].lo, 0), dim.hi = std::min(view.bounds[d].hi, extent);
    all.insert(all.begin(), dim);
    if (remaining == 1) {
      outers.insert(outers.begin(), dim);
    } else if (remaining % extent == 0) {
      inners.insert(inners.begin(), dim);
      remaining /= extent;
    } else if (extent % remaining == 0 && !dim.bounded()) {
      inners.insert(inners.begin(), {remaining, stride, 0, remaining});
      outers.insert(outers.begin(), {extent / remaining, stride * remaining, 0, extent / remaining});
      remaining = 1;
    } else {
      access.separable = false;
    }
  }
  if (!access.separable) {
    access.slow = all;
    access.linear_slow = columns ? 1 : inner;
    access.linear_fast = columns ? inner : 1;
    return access;
  }
  access.slow = simplify(columns ? inners : outers);
  access.fast = simplify(columns ? outers : inners);
  return access;
}

}  // namespace weft::cpu
