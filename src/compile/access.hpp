// Index algebra: the places where a kernel's iteration space reads a value, followed through views.
#pragma once

#include <optional>
#include <vector>

#include "compile/kernel.hpp"
#include "graph/node.hpp"

namespace weft::compiler {

/// base + sum coefficients[f] * coordinate f of the frame.
struct Affine {
  Extent base = 0;
  std::vector<Extent> coefficients;
  bool operator==(const Affine&) const = default;
};

/// The value is read only where lo <= value < hi; elsewhere it is 0.
struct Mask {
  Affine value;
  Extent lo, hi;
  bool operator==(const Mask&) const = default;
};

/// Coordinates of a value for each point of a frame.
struct Access {
  std::vector<Affine> dims;
  std::vector<Mask> masks;
  bool operator==(const Access&) const = default;
};

/// The iteration space of a kernel: outer extents, then inner ones. Splitting an extent does not change the row-major order of
/// points, so extents are split wherever a view needs it.
struct Frame {
  std::vector<Extent> extents;
  int outer_rank = 0;
  Extent outer() const;
  Extent inner() const;
};

/// Thrown while following views: this value must be in memory before the view can be read.
struct MustMaterialize {
  const graph::Node* node;
};
/// Thrown while following views: frame extent `axis` must be split so that its inner part has `inner` points.
struct SplitFrame {
  int axis;
  Extent inner;
};

/// Coordinates of row-major `shape` at linear index `linear` (its points have affine form over `extents`). Throws
/// SplitFrame, or MustMaterialize{blame}.
std::vector<Affine> split_linear(const Affine& linear, const Shape& shape, const std::vector<Extent>& extents,
                                 const graph::Node* blame);
/// sum dims[d] * strides[d].
Affine linear_of(const std::vector<Affine>& dims, const std::vector<Extent>& strides, std::size_t frame_rank);
/// Row-major strides.
std::vector<Extent> contiguous_strides(const Shape& shape);
/// Follows one view node: the access of its input that reads what `access` reads of the view.
Access through_view(const graph::Node& view, const Access& access, const std::vector<Extent>& extents);
/// The linear index over frame axes [first, last).
Affine frame_linear(const std::vector<Extent>& extents, int first, int last);

/// The access as a kernel view over frame axes [0, rank), given the element strides of the value's dims. nullopt if a mask
/// cannot be expressed as a bound.
std::optional<kernel::View> to_view(const Access& access, const std::vector<Extent>& strides,
                                    const std::vector<Extent>& extents, int rank);
/// Joins axes that are contiguous and drops axes of extent 1.
kernel::View simplified(kernel::View view);

}  // namespace weft::compiler
