// Which layer of the grid reads which.
#pragma once

#include <cstddef>

#include "weft/grid/description.hpp"

namespace weft::grid {

/// The index of the layer whose output layer `index` reads: that of its link, else the one before; -1 for the input. A disabled
/// layer passes on what the layer before it gave, whatever its link.
inline std::ptrdiff_t source_of(const Description& d, std::size_t index) {
  const Layer& layer = d.layers[index];
  if (layer.link && !layer.disabled) return static_cast<std::ptrdiff_t>(d.index(*layer.link));
  return static_cast<std::ptrdiff_t>(index) - 1;
}

/// The same for a pass. Errors: UsageError for a link to a layer that a pass has not run yet.
std::ptrdiff_t source_in_pass(const Description& d, std::size_t index);

}  // namespace weft::grid
