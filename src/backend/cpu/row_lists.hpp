// For each row of a result, the updates that it gets.
#pragma once

#include <cstdint>
#include <vector>

#include "weft/shape.hpp"

namespace weft::cpu {

/// The updates of each row: those at places [starts[r], starts[r + 1]) of `order` belong to row r, in order. The object is reused, so
/// that its memory is.
struct RowLists {
  std::vector<std::uint32_t> starts, order;
  std::uint32_t longest = 0;  // list

  /// Update i is one of row indices[i], or of none if that is not below `rows`. Runs on all threads; the lists do not depend on them.
  void fill(const std::uint32_t* indices, Extent count, Extent rows);

 private:
  std::vector<std::uint32_t> places_;  // of each part of the updates: how many a row has, then where its next one goes
};

}  // namespace weft::cpu
