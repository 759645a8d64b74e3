// Strips of columns of a flat loop that picks along an axis, so that a cache keeps what is picked from.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "backend/webgpu/wgsl/render.hpp"
#include "backend/webgpu/wgsl/turned.hpp"
#include "compile/kernel.hpp"

namespace weft::webgpu {

/// Elements as [outer, taken, inner], where each picks by its own index along an axis of lines that lie side by side. In the
/// order of memory, threads that run at the same time pick from all lines, which are more than a cache holds, so each line of
/// the cache is read anew for every element. So a strip of `width` neighbouring lines comes after another.
struct Strips {
  Extent taken, inner, width;

  /// Elements with those that only fill the last strip.
  Extent padded(Extent total) const { return total / inner * (divide_up(inner, width) * width); }
};

/// A gather step of a flat loop over [outer, taken, inner] that picks from columns side by side, where the index varies.
struct ColumnGather {
  int step = -1;
  Extent taken = 1, inner = 1;
  Extent bytes = 0;  // of a column that it picks from
};
/// Such gathers whose columns are more than a cache holds.
std::vector<ColumnGather> column_gathers(const kernel::LoopKernel& kernel, const std::vector<bool>& needed,
                                         Extent total);

std::optional<Strips> column_strips(const kernel::LoopKernel& kernel, const std::vector<bool>& needed, Extent total);

/// The first of `neighbours` elements (1 or 4) of item `item`.
PlaceInBlock place_in_strips(const Strips& strips, int neighbours);

}  // namespace weft::webgpu
