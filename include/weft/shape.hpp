// Extents of a tensor and row-major arithmetic on them.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <source_location>
#include <string>
#include <vector>

namespace weft {

using Extent = std::int64_t;

/// Extents, outermost first. Rank 0 is a scalar with one element; an extent may be 0.
class Shape {
 public:
  Shape() = default;
  Shape(std::initializer_list<Extent> extents) : extents_(extents) {}
  explicit Shape(std::vector<Extent> extents) : extents_(std::move(extents)) {}

  int rank() const { return static_cast<int>(extents_.size()); }
  bool empty() const { return extents_.empty(); }
  std::size_t size() const { return extents_.size(); }
  /// Extent of an axis from 0 to rank - 1, which is not checked, as for a vector.
  Extent operator[](int axis) const { return extents_[static_cast<std::size_t>(axis)]; }
  Extent& operator[](int axis) { return extents_[static_cast<std::size_t>(axis)]; }
  /// Extent of an axis that may count from the end (-1 is the last). Errors: ShapeError if there is no such axis.
  Extent dim(int axis, std::source_location where = std::source_location::current()) const {
    if (axis < -rank() || axis >= rank()) refuse_axis(axis, where);
    return extents_[static_cast<std::size_t>(axis < 0 ? axis + rank() : axis)];
  }
  auto begin() const { return extents_.begin(); }
  auto end() const { return extents_.end(); }
  Extent back() const { return extents_.back(); }
  void push_back(Extent extent) { extents_.push_back(extent); }
  const std::vector<Extent>& vector() const { return extents_; }
  bool operator==(const Shape&) const = default;

  /// Number of elements: the product of the extents (1 for rank 0).
  Extent numel() const {
    Extent n = 1;
    for (Extent e : extents_) n *= e;
    return n;
  }
  /// "[2, 3]".
  std::string to_string() const;

 private:
  [[noreturn]] void refuse_axis(int axis, std::source_location where) const;

  std::vector<Extent> extents_;
};

}  // namespace weft
