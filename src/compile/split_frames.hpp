// Following views over a frame, which is split wherever a view needs it.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "compile/access.hpp"

namespace weft::compiler {

/// Splits extents[split.axis] into an outer part and `split.inner` points. False if that changes nothing.
inline bool split_extent(std::vector<Extent>& extents, const SplitFrame& split) {
  const auto axis = static_cast<std::size_t>(split.axis);
  if (axis >= extents.size() || extents[axis] % split.inner != 0 || extents[axis] == split.inner) return false;
  extents[axis] /= split.inner;
  extents.insert(extents.begin() + split.axis + 1, split.inner);
  return true;
}

/// Calls `attempt`, which follows views over a frame of these extents, and returns its optional result. If it throws
/// SplitFrame, the frame is split, `on_split` splits data that belongs to the frame, and `attempt` runs again. nullopt if it
/// throws MustMaterialize or no split helps.
template <class Attempt, class OnSplit>
auto with_split_frames(std::vector<Extent>& extents, Attempt attempt, OnSplit on_split) -> decltype(attempt()) {
  constexpr int kSplitsMax = 64;
  for (int splits = 0; splits < kSplitsMax; ++splits) {
    try {
      return attempt();
    } catch (const SplitFrame& split) {
      if (!split_extent(extents, split)) return std::nullopt;
      on_split(split);
    } catch (const MustMaterialize&) {
      return std::nullopt;
    }
  }
  return std::nullopt;
}

/// For parallel vectors: the entry of a split axis is duplicated for both parts.
template <class T>
void repeat_entry(std::vector<T>& entries, const SplitFrame& split) {
  const T entry = entries[static_cast<std::size_t>(split.axis)];
  entries.insert(entries.begin() + split.axis, entry);
}

}  // namespace weft::compiler
