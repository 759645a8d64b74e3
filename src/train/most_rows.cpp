#include "train/most_rows.hpp"

#include <algorithm>

namespace weft::train {
namespace {
constexpr Extent kRowsMax = 1 << 16;
}  // namespace

// Plans grow almost evenly with the rows; the guess is then planned.
Extent most_rows(const std::function<std::uint64_t(Extent)>& bytes, Extent rows, std::uint64_t of_rows,
                 std::uint64_t room) {
  const Extent other = rows > 1 ? rows / 2 : 2;
  const auto at_rows = static_cast<double>(of_rows), at_other = static_cast<double>(bytes(other));
  const double each = std::max((at_rows - at_other) / static_cast<double>(rows - other), 1.0);
  const double guess = static_cast<double>(rows) + (static_cast<double>(room) - at_rows) / each;
  Extent low = of_rows <= room ? rows : 0;  // known to fit
  Extent next = static_cast<Extent>(std::clamp(guess, 0.0, static_cast<double>(kRowsMax)));
  for (int tries = 0; tries < 4 && next > low; ++tries) {
    if (bytes(next) <= room) return next;
    next = std::min(next - 1, next * 9 / 10);
  }
  if (low == 0 && rows > 1 && at_other <= static_cast<double>(room)) low = other;
  return low;
}

}  // namespace weft::train
