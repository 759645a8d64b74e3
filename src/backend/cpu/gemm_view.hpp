// Packing of operands that a general view describes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "backend/cpu/gemm_kernels.hpp"
#include "compile/kernel.hpp"

namespace weft::cpu {

/// The axis of a matrix whose neighbours are adjacent in a packed operand; the other is k.
enum class MatrixAxis : std::uint8_t { rows, columns };

struct MatrixRange {
  std::int64_t begin, count;
};

/// Elements [begin, begin + count) of a view without bounds.
inline void offsets_of(const kernel::View& view, MatrixRange range, std::int64_t* to) {
  if (view.extents.empty()) return void(std::fill_n(to, range.count, view.offset));
  const std::size_t last = view.extents.size() - 1;
  const std::int64_t run = view.extents[last], stride = view.strides[last];
  for (std::int64_t at = range.begin, end = at + range.count; at < end;) {
    std::int64_t rest = at / run, offset = view.offset;
    for (std::size_t d = last; d-- > 0; rest /= view.extents[d]) offset += rest % view.extents[d] * view.strides[d];
    std::int64_t within = at % run;
    const std::int64_t count = std::min(run - within, end - at);
    offset += within * stride;
    for (std::int64_t i = 0; i < count; ++i, offset += stride) *to++ = offset;
    at += count;
  }
}

/// Copies a run, usually of a few vectors: the last vector may overlap the one before it.
template <class T>
void copy_run(const T* from, T* to, std::int64_t count) {
  constexpr std::int64_t kMany = 8, kFew = 4;
  const auto copy_by = [&]<std::int64_t kEach>(std::integral_constant<std::int64_t, kEach>) {
    for (std::int64_t i = 0; i + kEach < count; i += kEach) std::memcpy(to + i, from + i, kEach * sizeof(T));
    std::memcpy(to + count - kEach, from + count - kEach, kEach * sizeof(T));
  };
  if (count >= kMany) return copy_by(std::integral_constant<std::int64_t, kMany>());
  if (count >= kFew) return copy_by(std::integral_constant<std::int64_t, kFew>());
  for (std::int64_t i = 0; i < count; ++i) to[i] = from[i];
}

inline std::int64_t offset_at(const kernel::View& view, std::int64_t at) {
  std::int64_t offset = 0;
  offsets_of(view, {at, 1}, &offset);
  return offset;
}

template <class T>
struct PlainElements {
  const T* data;
  void copy(std::int64_t at, T* to, std::int64_t count) const { copy_run(data + at, to, count); }
};

inline constexpr std::int64_t kViewDepth = 64;  // of k at a time, so that tables and staged elements stay in L1
inline constexpr std::int64_t kViewLanes = kGemmVectors * 16;

/// A packed operand: to[k * width + i] is element i of k.
template <class T>
struct PackedElements {
  using Element = T;
  const GemmKernels<T>& kernels;
  T* to;
  std::int64_t width;
  /// The place for rows of k, from k on.
  T* rows(std::int64_t k) { return to + k * width; }
  /// Called when `count` rows are there.
  void finish_rows(std::int64_t /*k*/, std::int64_t /*count*/) {}
  /// Takes `count` elements of k of each lane; those of a lane are neighbours.
  void take_turned(std::int64_t k, std::int64_t count, std::int64_t lanes, T* stage, std::int64_t pitch) {
    kernels.pack_transposed(count, static_cast<int>(lanes), stage, pitch, to + k * width, static_cast<int>(width));
  }
};

/// The same for pairs of bf16: to[k / 2 * width + i] has elements k and k + 1 of lane i. A missing last one is zero.
struct PackedPairs {
  using Element = std::uint16_t;
  const GemmKernels<float>& kernels;
  float* to;
  std::int64_t width;
  alignas(64) std::uint16_t staged[kViewDepth * kViewLanes];

  std::uint16_t* rows(std::int64_t /*k*/) { return staged; }
  void finish_rows(std::int64_t k, std::int64_t count) {
    kernels.interleave((count + 1) / 2, count, static_cast<int>(width), staged, width, to + k / 2 * width, width);
  }
  void take_turned(std::int64_t k, std::int64_t count, std::int64_t lanes, std::uint16_t* stage, std::int64_t pitch) {
    if (count % 2 != 0)
      for (std::int64_t i = 0; i < lanes; ++i) stage[i * pitch + count] = 0;
    kernels.pack_transposed((count + 1) / 2, static_cast<int>(lanes), reinterpret_cast<const float*>(stage), pitch / 2,
                            to + k / 2 * width, static_cast<int>(width));
  }
};

/// Element i of k of `target` becomes element `lanes.begin + i` of the axis and `depth.begin + k` of k, for matrix `batch`.
/// Elements from lanes.count to the target's width are finite unless the operand's memory is not, and are never used.
template <MatrixAxis kAxis, class Target, class Elements>
void pack_view(Target& target, const Elements& elements, const kernel::MatrixView& view, std::int64_t batch,
               MatrixRange lanes, MatrixRange depth) {
  using T = typename Target::Element;
  constexpr std::int64_t kDepth = kViewDepth, kLanes = kViewLanes;
  const std::int64_t width = target.width;
  constexpr std::size_t kEdges = kernel::MatrixView::kEdgesMax;
  constexpr std::int64_t kStagePitch = kDepth + 16;  // rows of the stage fall on different sets of the cache
  const auto lane_view = [](const kernel::MatrixView::Sum& sum) -> const kernel::View& {
    return kAxis == MatrixAxis::rows ? sum.rows : sum.columns;
  };
  const auto depth_view = [](const kernel::MatrixView::Sum& sum) -> const kernel::View& {
    return kAxis == MatrixAxis::rows ? sum.columns : sum.rows;
  };
  const std::size_t edges = view.edges.size();
  std::int64_t lane_at[kLanes], lane_edge[kEdges][kLanes], depth_at[kDepth], depth_edge[kEdges][kDepth];
  offsets_of(lane_view(view.at), lanes, lane_at);
  const std::int64_t base = offset_at(view.at.batch, batch);
  for (std::size_t e = 0; e < edges; ++e) {
    offsets_of(lane_view(view.edges[e].value), lanes, lane_edge[e]);
    const std::int64_t shift = offset_at(view.edges[e].value.batch, batch);
    for (std::int64_t i = 0; i < lanes.count; ++i) lane_edge[e][i] += shift;
  }

  // Runs of neighbours along which the values of edges do not decrease.
  struct Run {
    std::int64_t begin, end;
  };
  const auto runs_of = [edges](const std::int64_t* at, const auto& edge, std::int64_t count, Run* runs) {
    const auto follows = [&](std::int64_t i) {
      bool neighbour = at[i] == at[i - 1] + 1;
      for (std::size_t e = 0; e < edges; ++e) neighbour = neighbour && edge[e][i] >= edge[e][i - 1];
      return neighbour;
    };
    std::int64_t n = 0;
    for (std::int64_t i = 0; i < count; ++n) {
      const std::int64_t begin = i++;
      while (i < count && follows(i)) ++i;
      runs[n] = {begin, i};
    }
    return n;
  };
  // The part of a run that no edge cuts off.
  const auto inside = [&](Run run, const auto& value_of) {
    for (std::size_t e = 0; e < edges; ++e) {
      while (run.begin < run.end && value_of(e, run.begin) < view.edges[e].lo) ++run.begin;
      while (run.begin < run.end && value_of(e, run.end - 1) >= view.edges[e].hi) --run.end;
    }
    return run;
  };
  // Puts the elements of run `all`, starting at element `at`, that are inside the edges. With edges, `row` is zero before.
  const auto put = [&](T* row, Run all, std::int64_t at, const auto& value_of) {
    const Run run = inside(all, value_of);
    elements.copy(at + run.begin - all.begin, row + run.begin, run.end - run.begin);
  };
  const auto clear = [&](T* row, std::int64_t count) {
    if (edges > 0) std::memset(row, 0, static_cast<std::size_t>(count) * sizeof(T));
  };

  Run lane_runs[kLanes], depth_runs[kDepth];
  const std::int64_t lane_count = runs_of(lane_at, lane_edge, lanes.count, lane_runs);
  for (std::int64_t k = 0; k < depth.count; k += kDepth) {
    const MatrixRange part{depth.begin + k, std::min(kDepth, depth.count - k)};
    offsets_of(depth_view(view.at), part, depth_at);
    for (std::size_t e = 0; e < edges; ++e) offsets_of(depth_view(view.edges[e].value), part, depth_edge[e]);
    const std::int64_t depth_count = runs_of(depth_at, depth_edge, part.count, depth_runs);
    if (lane_count * part.count <= depth_count * lanes.count) {
      // Neighbours side by side: each run of each k is copied.
      T* const block = target.rows(k);
      for (std::int64_t d = 0; d < part.count; ++d) {
        T* const row = block + d * width;
        clear(row, lanes.count);
        for (std::int64_t r = 0; r < lane_count; ++r)
          put(row, lane_runs[r], base + depth_at[d] + lane_at[lane_runs[r].begin],
              [&](std::size_t e, std::int64_t i) { return lane_edge[e][i] + depth_edge[e][d]; });
        if constexpr (kAxis == MatrixAxis::columns)  // loaded with the others of a vector
          for (std::int64_t i = lanes.count; i < width; ++i) row[i] = T{0};
      }
      target.finish_rows(k, part.count);
      continue;
    }
    // Neighbours along k: runs are staged, and then transposed.
    alignas(64) T stage[kLanes * kStagePitch];
    for (std::int64_t i = 0; i < lanes.count; ++i) {
      T* const row = stage + i * kStagePitch;
      clear(row, part.count);
      for (std::int64_t r = 0; r < depth_count; ++r)
        put(row, depth_runs[r], base + lane_at[i] + depth_at[depth_runs[r].begin],
            [&](std::size_t e, std::int64_t d) { return lane_edge[e][i] + depth_edge[e][d]; });
    }
    target.take_turned(k, part.count, lanes.count, stage, kStagePitch);
  }
}

}  // namespace weft::cpu
