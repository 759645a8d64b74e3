// Views of one space, seen over the same coordinates.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "compile/kernel.hpp"

namespace weft::cpu {

/// The extents of a space of which all views of it are made, outermost first; empty if there are none.
inline std::vector<std::int64_t> common_extents(const std::vector<const kernel::View*>& views, std::int64_t size) {
  std::vector<std::int64_t> ends{1, size};  // products of the last extents
  for (const kernel::View* view : views) {
    std::int64_t product = 1;
    for (std::size_t d = view->extents.size(); d-- > 0;) ends.push_back(product *= view->extents[d]);
  }
  std::sort(ends.begin(), ends.end());
  ends.erase(std::unique(ends.begin(), ends.end()), ends.end());
  std::vector<std::int64_t> extents;
  for (std::size_t i = ends.size() - 1; i-- > 0;) {
    if (ends[i + 1] % ends[i] != 0) return {};
    extents.push_back(ends[i + 1] / ends[i]);
  }
  return extents;
}

/// The stride of a view along the coordinate that changes every `period` elements.
inline std::int64_t stride_at(const kernel::View& view, std::int64_t period) {
  std::int64_t product = 1;
  for (std::size_t d = view.extents.size(); d-- > 0; product *= view.extents[d])
    if (period < product * view.extents[d]) return view.strides[d] * (period / product);
  return 0;
}

}  // namespace weft::cpu
