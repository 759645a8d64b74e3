// Blocks of a flat loop that reads an operand turned against its own order, as a transpose does.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "compile/kernel.hpp"

namespace weft::webgpu {

/// Elements as [.., across, between, along], where an operand has its neighbours across and another one along. A workgroup of
/// 256 threads takes blocks of 32 x 32 elements, so that each line that it reads serves all of the block and not one element.
struct Turned {
  Extent across, between, along;

  /// Whether blocks fill the axes.
  bool whole() const;
  /// Blocks of a loop over `total` elements, and the elements of a block.
  Extent blocks(Extent total) const;
  static constexpr Extent kBlockElements = 1024;
  static constexpr Extent kSide = 32;  // elements of a side of a block

  bool operator==(const Turned&) const = default;
};

/// The axes, if a loaded operand is turned and blocks are mostly full.
std::optional<Turned> turned_axes(const kernel::LoopKernel& kernel, const std::vector<bool>& needed, Extent total);

/// The loads of values of 32 bits that are turned in this way, if there are few. A workgroup that takes elements one by one reads
/// them into workgroup memory, where it turns them: then neighbouring threads both read and write neighbours.
std::vector<int> turned_loads(const kernel::LoopKernel& kernel, const std::vector<bool>& needed, Extent total,
                              const Turned& turned);

/// The first of `width` neighbouring elements (1 or 4) of item `item`. A block is 1024 / width neighbouring items. `inside` is the
/// condition that it exists, or "".
struct PlaceInBlock {
  std::string element, inside;
};
PlaceInBlock place_in_block(const Turned& turned, int width);
/// The element of a block in a row (across) and a column (along).
PlaceInBlock place_in_block(const Turned& turned, const std::string& block, const std::string& row,
                            const std::string& column);

}  // namespace weft::webgpu
