// A counting sort, whose parts count and place their own updates.
#include "backend/cpu/row_lists.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "base/threads.hpp"

namespace weft::cpu {
namespace {

constexpr Extent kPartsMax = 8;
constexpr Extent kUpdatesOfPart = 1 << 13;  // at least
constexpr Extent kRanges = 16;              // of rows

}  // namespace

void RowLists::fill(const std::uint32_t* indices, Extent count, Extent rows) {
  // Each part has a counter for every row, so there must be more updates than counters.
  const Extent most = std::min({kPartsMax, static_cast<Extent>(thread_count()), count / kUpdatesOfPart,
                                count / std::max<Extent>(rows, 1) * 2 + 1});
  const Extent parts = std::max<Extent>(most, 1);
  starts.resize(static_cast<std::size_t>(rows) + 1);
  places_.resize(static_cast<std::size_t>(parts * rows));
  const auto each_update = [&](Extent part, auto visit) {
    std::uint32_t* const places = places_.data() + part * rows;
    for (Extent i = count * part / parts; i < count * (part + 1) / parts; ++i)
      if (indices[i] < rows)
        visit(places[indices[i]], static_cast<std::uint32_t>(i));  // a negative index is beyond all rows
  };
  const auto in_parts = [&](Extent tasks, auto work) { tasks == 1 ? work(Extent{0}) : parallel_for(tasks, work); };
  in_parts(parts, [&](Extent part) {
    std::fill_n(places_.data() + part * rows, rows, 0u);
    each_update(part, [](std::uint32_t& place, std::uint32_t) { ++place; });
  });
  // Where the lists of a range of rows begin, and then where each part of each list does.
  const Extent ranges = parts == 1 ? 1 : kRanges;
  std::array<std::uint32_t, kRanges> totals{}, longest_of{};
  const auto each_row = [&](Extent range, auto visit) {
    for (Extent r = rows * range / ranges; r < rows * (range + 1) / ranges; ++r) visit(r);
  };
  in_parts(ranges, [&](Extent range) {
    std::uint32_t total = 0, longest_here = 0;
    each_row(range, [&](Extent r) {
      std::uint32_t here = 0;
      for (Extent part = 0; part < parts; ++part) here += places_[static_cast<std::size_t>(part * rows + r)];
      longest_here = std::max(longest_here, here);
      total += here;
    });
    totals[static_cast<std::size_t>(range)] = total;
    longest_of[static_cast<std::size_t>(range)] = longest_here;
  });
  longest = *std::max_element(longest_of.begin(), longest_of.end());
  std::uint32_t total = 0;
  for (std::uint32_t& each : totals) total += std::exchange(each, total);
  order.resize(total);
  in_parts(ranges, [&](Extent range) {
    std::uint32_t next = totals[static_cast<std::size_t>(range)];
    each_row(range, [&](Extent r) {
      starts[static_cast<std::size_t>(r)] = next;
      for (Extent part = 0; part < parts; ++part)
        next += std::exchange(places_[static_cast<std::size_t>(part * rows + r)], next);
    });
  });
  starts[static_cast<std::size_t>(rows)] = total;
  in_parts(parts,
           [&](Extent part) { each_update(part, [&](std::uint32_t& place, std::uint32_t i) { order[place++] = i; }); });
}

}  // namespace weft::cpu
