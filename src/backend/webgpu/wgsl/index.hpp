// Views as index arithmetic in WGSL: dimensions are merged and split so that each axis of a kernel's iteration space is
// divided as little as possible, with all extents and strides baked in.
#pragma once

#include <string>
#include <vector>

#include "compile/kernel.hpp"

namespace weft::webgpu {

/// An axis of the iteration space of a shader: u32 text of its variable, and its extent.
struct Axis {
  std::string variable;
  Extent extent = 1;
};

/// Axes in row-major order; their product is the size of the views' index space. Four neighbours along `vector_axis`
/// (-1: none) may be handled together; its variable is then a multiple of 4.
struct Space {
  std::vector<Axis> axes;
  int vector_axis = -1;
};

/// A view over a space.
class Index {
 public:
  Index(const kernel::View& view, const Space& space);

  /// Whether four neighbours along the vector axis are `lane_stride` apart, and all inside or all outside.
  bool lanes_are_regular() const { return regular_; }
  Extent lane_stride() const { return lane_stride_; }
  /// Whether four neighbours are one aligned group of four elements, if the operand starts at element `base` of its binding.
  bool is_vector(Extent base) const;

  /// u32 text of `base` + the element offset for lane 0, or for lane `lane` of an irregular view.
  std::string offset(Extent base, int lane = 0) const;
  /// Text of a condition that is true inside the bounds; empty if everything is inside, "false" if nothing is.
  std::string guard(int lane = 0) const;

 private:
  struct Dim {
    Extent extent = 1, stride = 0;
    bool bounded = false;
    Extent low = 0, high = 0;
  };
  bool assign(std::vector<Dim> dims, const std::vector<Axis>& axes);
  std::string coordinate(std::size_t axis, std::size_t dim, int lane) const;

  std::vector<Axis> axes_;
  int vector_axis_ = -1;
  std::vector<std::vector<Dim>> dims_;  // of each axis, outermost first
  Extent offset_ = 0;
  bool nothing_inside_ = false;
  bool regular_ = true;
  Extent lane_stride_ = 0;
};

}  // namespace weft::webgpu
