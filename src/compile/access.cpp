#include "compile/access.hpp"

#include <algorithm>

namespace weft::compiler {

using graph::Kind;

Extent Frame::outer() const {
  Extent n = 1;
  for (int i = 0; i < outer_rank; ++i) n *= extents[static_cast<std::size_t>(i)];
  return n;
}
Extent Frame::inner() const {
  Extent n = 1;
  for (std::size_t i = static_cast<std::size_t>(outer_rank); i < extents.size(); ++i) n *= extents[i];
  return n;
}

std::vector<Extent> contiguous_strides(const Shape& shape) {
  std::vector<Extent> strides(shape.size(), 1);
  for (int i = shape.rank() - 2; i >= 0; --i)
    strides[static_cast<std::size_t>(i)] = strides[static_cast<std::size_t>(i) + 1] * shape[i + 1];
  return strides;
}

Affine linear_of(const std::vector<Affine>& dims, const std::vector<Extent>& strides, std::size_t frame_rank) {
  Affine sum{0, std::vector<Extent>(frame_rank, 0)};
  for (std::size_t d = 0; d < dims.size(); ++d) {
    sum.base += dims[d].base * strides[d];
    for (std::size_t f = 0; f < frame_rank; ++f) sum.coefficients[f] += dims[d].coefficients[f] * strides[d];
  }
  return sum;
}

Affine frame_linear(const std::vector<Extent>& extents, int first, int last) {
  Affine a{0, std::vector<Extent>(extents.size(), 0)};
  Extent stride = 1;
  for (int f = last - 1; f >= first; --f) {
    a.coefficients[static_cast<std::size_t>(f)] = stride;
    stride *= extents[static_cast<std::size_t>(f)];
  }
  return a;
}

std::vector<Affine> split_linear(const Affine& linear, const Shape& shape, const std::vector<Extent>& extents,
                                 const graph::Node* blame) {
  const std::size_t rank = extents.size();
  std::vector<Affine> dims;
  if (shape.numel() == 0)
    return std::vector<Affine>(shape.size(), Affine{0, std::vector<Extent>(rank, 0)});  // no points
  Affine rest = linear;
  for (std::size_t f = 0; f < rank; ++f) {
    if (extents[f] <= 1) rest.coefficients[f] = 0;
    if (rest.coefficients[f] < 0) throw MustMaterialize{blame};
  }
  if (rest.base < 0) throw MustMaterialize{blame};
  const std::vector<Extent> strides = contiguous_strides(shape);
  for (int d = 0; d < shape.rank(); ++d) {
    const Extent stride = strides[static_cast<std::size_t>(d)];
    Affine here{0, std::vector<Extent>(rank, 0)};
    if (shape[d] == 1) {
      dims.push_back(here);
      continue;
    }
    // Terms that are whole multiples of the stride move this coordinate; the rest must stay below one stride.
    here.base = rest.base / stride;
    rest.base %= stride;
    for (std::size_t f = 0; f < rank; ++f)
      if (rest.coefficients[f] % stride == 0) {
        here.coefficients[f] = rest.coefficients[f] / stride;
        rest.coefficients[f] = 0;
      }
    Extent largest = rest.base;
    for (std::size_t f = 0; f < rank; ++f) largest += rest.coefficients[f] * (extents[f] - 1);
    if (largest >= stride) {
      for (std::size_t f = 0; f < rank; ++f) {
        const Extent c = rest.coefficients[f];
        if (c > 0 && c * (extents[f] - 1) >= stride && stride % c == 0 && extents[f] % (stride / c) == 0 &&
            stride / c > 1)
          throw SplitFrame{static_cast<int>(f), stride / c};
      }
      throw MustMaterialize{blame};
    }
    dims.push_back(std::move(here));
  }
  return dims;
}

Access through_view(const graph::Node& view, const Access& access, const std::vector<Extent>& extents) {
  const graph::Node& x = *view.inputs[0];
  const std::size_t rank = extents.size();
  Access out;
  out.masks = access.masks;
  switch (view.kind) {
    case Kind::detach: return access;
    case Kind::permute:
      out.dims.resize(access.dims.size());
      for (std::size_t i = 0; i < view.ints.size(); ++i)
        out.dims[static_cast<std::size_t>(view.ints[i])] = access.dims[i];
      return out;
    case Kind::expand:
      for (int i = 0; i < x.shape.rank(); ++i)
        out.dims.push_back(x.shape[i] == 1 ? Affine{0, std::vector<Extent>(rank, 0)}
                                           : access.dims[static_cast<std::size_t>(i)]);
      return out;
    case Kind::slice:
      for (std::size_t i = 0; i < access.dims.size(); ++i) {
        Affine a = access.dims[i];
        const Extent start = view.ints[2 * i], step = view.ints[2 * i + 1];
        a.base = start + step * a.base;
        for (Extent& c : a.coefficients) c *= step;
        out.dims.push_back(std::move(a));
      }
      return out;
    case Kind::pad:
      for (std::size_t i = 0; i < access.dims.size(); ++i) {
        Affine a = access.dims[i];
        a.base -= view.ints[2 * i];
        if (view.ints[2 * i] || view.ints[2 * i + 1]) out.masks.push_back({a, 0, x.shape[static_cast<int>(i)]});
        out.dims.push_back(std::move(a));
      }
      return out;
    case Kind::window: {
      out.dims.assign(access.dims.begin(), access.dims.end() - 1);
      Affine& at = out.dims[static_cast<std::size_t>(view.ints[0])];
      const Affine& within = access.dims.back();
      const Extent step = view.ints[1], dilation = view.ints[2];
      at.base = step * at.base + dilation * within.base;
      for (std::size_t f = 0; f < rank; ++f)
        at.coefficients[f] = step * at.coefficients[f] + dilation * within.coefficients[f];
      return out;
    }
    case Kind::reshape: {
      // Groups of axes with equal products are handled separately, so that independent axes do not share a linear index.
      const Shape &from = view.shape, &to = x.shape;
      if (to.numel() == 0) {  // no element is accessed, and products of 0 cannot separate groups
        out.dims.assign(static_cast<std::size_t>(to.rank()), Affine{0, std::vector<Extent>(rank, 0)});
        return out;
      }
      int i = 0, j = 0;
      while (i < from.rank() || j < to.rank()) {
        const int i0 = i, j0 = j;
        Extent p = i < from.rank() ? from[i++] : 1, q = j < to.rank() ? to[j++] : 1;
        while (p != q) {
          if (p < q)
            p *= from[i++];
          else
            q *= to[j++];
        }
        const Shape group_from(std::vector<Extent>(from.begin() + i0, from.begin() + i)),
            group_to(std::vector<Extent>(to.begin() + j0, to.begin() + j));
        if (group_from.rank() == 1 && group_to.rank() == 1) {
          out.dims.push_back(access.dims[static_cast<std::size_t>(i0)]);
          continue;
        }
        const std::vector<Affine> part(access.dims.begin() + i0, access.dims.begin() + i);
        for (Affine& a : split_linear(linear_of(part, contiguous_strides(group_from), rank), group_to, extents, &x))
          out.dims.push_back(std::move(a));
      }
      return out;
    }
    default: throw InternalError("through_view: not a view");
  }
}

std::optional<kernel::View> to_view(const Access& access, const std::vector<Extent>& strides,
                                    const std::vector<Extent>& extents, int rank) {
  const Affine linear = linear_of(access.dims, strides, extents.size());
  kernel::View view;
  view.offset = linear.base;
  view.extents.assign(extents.begin(), extents.begin() + rank);
  view.strides.assign(linear.coefficients.begin(), linear.coefficients.begin() + rank);
  for (const Mask& mask : access.masks) {
    int axis = -1;
    for (std::size_t f = 0; f < extents.size(); ++f)
      if (mask.value.coefficients[f] != 0 && extents[f] > 1) {
        if (axis >= 0) return std::nullopt;
        axis = static_cast<int>(f);
      }
    if (view.bounds.empty())
      for (Extent e : view.extents) view.bounds.push_back({0, e});
    if (axis < 0) {  // a constant: all or nothing
      if (mask.value.base >= mask.lo && mask.value.base < mask.hi) continue;
      if (view.bounds.empty()) return std::nullopt;
      view.bounds[0] = {0, 0};
      continue;
    }
    if (axis >= rank) return std::nullopt;
    const Extent c = mask.value.coefficients[static_cast<std::size_t>(axis)];
    auto& bound = view.bounds[static_cast<std::size_t>(axis)];
    // lo <= base + c * i < hi
    auto floor_div = [](Extent a, Extent b) { return a / b - ((a % b != 0) && ((a < 0) != (b < 0))); };
    Extent first, last;
    if (c > 0) {
      first = -floor_div(-(mask.lo - mask.value.base), c);
      last = floor_div(mask.hi - 1 - mask.value.base, c) + 1;
    } else {
      first = -floor_div(-(mask.hi - 1 - mask.value.base), c);
      last = floor_div(mask.lo - mask.value.base, c) + 1;
    }
    bound.lo = std::max(bound.lo, first);
    bound.hi = std::max(bound.lo, std::min(bound.hi, last));
  }
  return simplified(view);
}

kernel::View simplified(kernel::View view) {
  if (!view.bounds.empty()) {
    bool all = true;
    for (std::size_t i = 0; i < view.extents.size(); ++i)
      all &= view.bounds[i].lo <= 0 && view.bounds[i].hi >= view.extents[i];
    if (all) view.bounds.clear();
  }
  kernel::View out;
  out.offset = view.offset;
  out.extents.reserve(view.extents.size());
  out.strides.reserve(view.extents.size());
  for (std::size_t i = 0; i < view.extents.size(); ++i) {
    const bool bounded = !view.bounds.empty();
    const bool full = !bounded || (view.bounds[i].lo <= 0 && view.bounds[i].hi >= view.extents[i]);
    if (view.extents[i] == 1 && full) continue;
    if (!out.extents.empty()) {
      const bool last_full = !bounded || (out.bounds.back().lo <= 0 && out.bounds.back().hi >= out.extents.back());
      if (full && last_full && out.strides.back() == view.strides[i] * view.extents[i]) {
        out.extents.back() *= view.extents[i];
        out.strides.back() = view.strides[i];
        if (bounded) out.bounds.back() = {0, out.extents.back()};
        continue;
      }
    }
    out.extents.push_back(view.extents[i]);
    out.strides.push_back(view.strides[i]);
    if (bounded) out.bounds.push_back(view.bounds[i]);
  }
  return out;
}

}  // namespace weft::compiler
