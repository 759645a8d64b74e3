#include "compile/memory.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "weft/error.hpp"

namespace weft::compiler {

MemoryPlan plan_memory(const MemoryRequest& request) {
  const std::size_t count = request.values.size();
  MemoryPlan plan;
  plan.slots.resize(count);
  std::vector<std::vector<int>> apart(count);
  for (auto [a, b] : request.apart) {
    apart[static_cast<std::size_t>(a)].push_back(b);
    apart[static_cast<std::size_t>(b)].push_back(a);
  }
  std::vector<std::vector<int>> placed;  // values in each buffer
  std::vector<int> order(count);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    return request.values[static_cast<std::size_t>(a)].bytes > request.values[static_cast<std::size_t>(b)].bytes;
  });
  for (int v : order) {
    const MemoryValue& value = request.values[static_cast<std::size_t>(v)];
    if (request.binding_bytes_max && value.bytes > request.binding_bytes_max)
      throw DeviceError(
          fmt::format("{} needs {} bytes, over the device's limit of {} for one tensor; make it smaller (a smaller "
                      "batch), or use the CPU",
                      value.title, value.bytes, request.binding_bytes_max));
    // The first offset in a buffer that does not overlap a value alive at the same time.
    auto offset_in = [&](std::size_t buffer) {
      std::vector<std::pair<std::size_t, std::size_t>> busy;
      for (int other : placed[buffer]) {
        const MemoryValue& o = request.values[static_cast<std::size_t>(other)];
        if (o.first <= value.last && value.first <= o.last)
          busy.emplace_back(plan.slots[static_cast<std::size_t>(other)].offset,
                            plan.slots[static_cast<std::size_t>(other)].offset + o.bytes);
      }
      std::sort(busy.begin(), busy.end());
      std::size_t offset = 0;
      for (auto [begin, end] : busy) {
        if (offset + value.bytes <= begin) break;
        offset = std::max(offset, (end + request.alignment - 1) / request.alignment * request.alignment);
      }
      return offset;
    };
    int best = -1;
    std::size_t best_offset = 0, best_growth = 0;
    for (std::size_t b = 0; b < placed.size(); ++b) {
      bool allowed = true;
      for (int other : apart[static_cast<std::size_t>(v)])
        allowed &= plan.slots[static_cast<std::size_t>(other)].buffer != static_cast<int>(b);
      if (!allowed) continue;
      const std::size_t offset = offset_in(b), end = offset + value.bytes;
      if (request.buffer_bytes_max && end > request.buffer_bytes_max) continue;
      const std::size_t growth = end > plan.buffers[b] ? end - plan.buffers[b] : 0;
      if (best < 0 || growth < best_growth) {
        best = static_cast<int>(b);
        best_offset = offset;
        best_growth = growth;
      }
    }
    if (best < 0) {
      best = static_cast<int>(placed.size());
      placed.emplace_back();
      plan.buffers.push_back(0);
    }
    plan.slots[static_cast<std::size_t>(v)] = {best, best_offset};
    placed[static_cast<std::size_t>(best)].push_back(v);
    plan.buffers[static_cast<std::size_t>(best)] =
        std::max(plan.buffers[static_cast<std::size_t>(best)], best_offset + value.bytes);
  }
  return plan;
}

}  // namespace weft::compiler
