#include "backend/cpu/window_product.hpp"

#include <algorithm>

#include "backend/cpu/gemm_view.hpp"
#include "backend/cpu/window_parts.hpp"
#include "base/threads.hpp"

namespace weft::cpu {
namespace {

using std::int32_t;
using std::int64_t;

constexpr int64_t kNearPositions = 256;           // that a gradient goes through for all taps before the next
constexpr int64_t kRoundBytes = 4 * 1024 * 1024;  // of all copies and strips of one round of a gradient

}  // namespace

/// Elements along k of a strip of A, which is the gradient of the results.
void WindowProduct::pack_a(int64_t strip, Range depth, float* to) const {
  const GemmSource<float>& a = args_.a;
  const int64_t first = strip * width(), count = std::min(width(), args_.m - first), size = depth.end - depth.begin;
  if (a.view != nullptr) {
    const kernel::MatrixView::Sum& at = a.view->at;
    const int64_t run = at.columns.strides.back() == 1 ? at.columns.extents.back() : 1;
    if (a.view->edges.empty() && at.rows.extents.size() == 1 && depth.begin % run + size <= run) {
      const int64_t start = offset_at(at.batch, 0) + at.rows.offset + first * at.rows.strides[0];
      return kernels_.pack_transposed(size, static_cast<int>(count),
                                      a.data + start + offset_at(at.columns, depth.begin), at.rows.strides[0], to,
                                      static_cast<int>(width()));
    }
    PackedElements<float> target{kernels_, to, width()};
    return pack_view<MatrixAxis::rows>(target, PlainElements<float>{a.data}, *a.view, 0, {first, count},
                                       {depth.begin, size});
  }
  const float* from = a.data + a.batch[0] + first * a.row + depth.begin * a.column;
  if (a.column == 1)
    kernels_.pack_transposed(size, static_cast<int>(count), from, a.row, to, static_cast<int>(width()));
  else
    kernels_.pack(size, static_cast<int>(count), from, a.column, to, static_cast<int>(width()));
}

void WindowProduct::run_gradient() const {
  // The kernel's rows go along one coordinate of the elements; the others are its taps.
  std::size_t chosen = 0;
  const auto rows_along = [&](std::size_t d) {
    return static_cast<double>(elements_[d].extent) /
           static_cast<double>(ceil_divide(elements_[d].extent, kernels_.rows));
  };
  for (std::size_t d = 1; d < elements_.size(); ++d)
    if (rows_along(d) > rows_along(chosen)) chosen = d;
  const Dim along = elements_[chosen];
  const int64_t panels = ceil_divide(along.extent, kernels_.rows);
  int64_t along_stride = 1;  // in n
  for (std::size_t d = chosen + 1; d < elements_.size(); ++d) along_stride *= elements_[d].extent;
  struct Tap {
    int64_t staged, n;
    Range rows;  // of positions whose element lies inside
  };
  std::vector<Tap> taps;
  for (int64_t n = 0; n < args_.n; ++n) {
    const std::vector<int64_t> at = coordinates(elements_, n);
    if (at[chosen] != 0) continue;
    Tap tap{0, n, {0, y().extent}};
    for (std::size_t d = 0; d < elements_.size(); ++d) tap.staged += at[d] * elements_[d].staged;
    if (row_part_ >= 0 && static_cast<std::size_t>(row_part_) != chosen) {
      const int64_t part = at[static_cast<std::size_t>(row_part_)];
      const auto outside = [&](int64_t row) {
        const Range inside = elements_inside(row);
        return part < inside.begin || part >= inside.end;
      };
      while (tap.rows.begin < tap.rows.end && outside(tap.rows.begin)) ++tap.rows.begin;
      while (tap.rows.begin < tap.rows.end && outside(tap.rows.end - 1)) --tap.rows.end;
    }
    taps.push_back(tap);
  }
  const auto tap_count = static_cast<int64_t>(taps.size());

  const int64_t blocks = outer_ * bands_, depth = band_rows_ * x().extent;
  const int64_t copy_size = copy_size_, strip_size = depth * width();
  const int64_t bytes = (copy_size + strips() * strip_size) * static_cast<int64_t>(sizeof(float));
  const int64_t together = std::clamp<int64_t>(kRoundBytes / bytes, 1, blocks);
  // Sums of a panel are [row, tap, result]. If taps are neighbours in n, so are the rows of this matrix.
  const int64_t tile_stride = tap_count * width(), panel_size = kernels_.rows * tile_stride;
  float* const packed = window_scratch.a.as<float>(together * strips() * strip_size);
  float* const copies = window_scratch.copies.as<float>(together * copy_size);
  // A vector's lanes of rows are read when sums are transposed.
  float* const sums = window_scratch.sums.as<float>(strips() * panels * panel_size + kernels_.lanes * width());
  std::vector<GemmRun> runs;  // a row of positions each
  for (int64_t row = 0; row < band_rows_; ++row)
    runs.push_back({static_cast<int32_t>(row * y().staged), static_cast<int32_t>(row * x().extent * width()),
                    static_cast<int32_t>(x().extent)});
  std::vector<int32_t> places;  // of a panel's elements
  for (int64_t i = 0; i < kernels_.rows; ++i) places.push_back(static_cast<int32_t>(i * along.staged));
  const auto panel_of = [&](int64_t panel) {
    return Range{along.extent * panel / panels, along.extent * (panel + 1) / panels};
  };
  const auto sums_of = [&](int64_t strip, int64_t panel, int64_t tap) {
    return sums + (strip * panels + panel) * panel_size + tap * width();
  };

  const int64_t near_rows = std::max<int64_t>(1, kNearPositions / x().extent);
  constexpr int64_t kChannels = 16;  // that a task copies
  const int64_t copy_tasks = axes_.empty() ? 0 : ceil_divide(channels_, kChannels);
  const int64_t tap_groups = std::clamp<int64_t>(ceil_divide(kWindowTasks, strips() * panels), 1, tap_count);
  for (int64_t first = 0; first < blocks; first += together) {
    const int64_t count = std::min(together, blocks - first);
    parallel_for(count * (copy_tasks + strips()), [&](int64_t task) {
      const int64_t i = task % count, part = task / count;
      const Block at = block(first + i);
      if (part < copy_tasks)
        return stage(at, {part * kChannels, std::min(channels_, (part + 1) * kChannels)}, copies + i * copy_size);
      const int64_t strip = part - copy_tasks, begin = (at.outer * y().extent + at.y) * x().extent;
      pack_a(strip, {begin, begin + at.rows * x().extent}, packed + (i * strips() + strip) * strip_size);
    });
    parallel_for(strips() * panels * tap_groups, [&](int64_t task) {
      const int64_t group = task % tap_groups, panel = task / tap_groups % panels, strip = task / tap_groups / panels;
      const Range part = panel_of(panel);
      for (int64_t i = 0; i < count; ++i) {
        const Block at = block(first + i);
        const float* const start = start_of(at, copies + i * copy_size) + part.begin * along.staged;
        const float* const b = packed + (i * strips() + strip) * strip_size;
        // All taps read the same few rows, which stay in the L1 cache.
        for (int64_t row = 0; row < at.rows; row += near_rows) {
          const int64_t row_end = std::min(at.rows, row + near_rows);
          for (int64_t t = tap_count * group / tap_groups; t < tap_count * (group + 1) / tap_groups; ++t) {
            const Tap& tap = taps[static_cast<std::size_t>(t)];
            const int64_t begin = std::clamp<int64_t>(tap.rows.begin - at.y, row, row_end);
            const int64_t end = std::clamp<int64_t>(tap.rows.end - at.y, begin, row_end);
            kernels_.by_runs[part.end - part.begin - 1](end - begin, runs.data() + begin, start + tap.staged,
                                                        places.data(), x().staged, b, sums_of(strip, panel, t),
                                                        tile_stride, first + i + row > 0);
          }
        }
      }
    });
  }

  parallel_for(strips() * panels, [&](int64_t task) {
    const int64_t strip = task / panels, panel = task % panels, lanes = kernels_.lanes;
    const Range part = panel_of(panel);
    const int64_t out = strip * width(), outs = std::min(width(), args_.m - out), turned_size = width() * lanes;
    float* const c = args_.c.data + args_.c.batch[0] + out * args_.c.row + part.begin * along_stride;
    if (along_stride == tap_count) {
      const int64_t rows = (part.end - part.begin) * tap_count;
      for (int64_t row = 0; row < rows; row += lanes)
        kernels_.store_transposed(static_cast<int>(std::min(lanes, rows - row)), static_cast<int>(outs),
                                  sums_of(strip, panel, 0) + row * width(), width(), c + row, args_.c.row);
      return;
    }
    float* const turned = window_scratch.copies.as<float>(tap_count * turned_size);
    for (int64_t t = 0; t < tap_count; ++t)
      kernels_.pack_transposed(outs, static_cast<int>(part.end - part.begin), sums_of(strip, panel, t), tile_stride,
                               turned + t * turned_size, static_cast<int>(lanes));
    for (int64_t j = 0; j < outs; ++j)
      for (int64_t t = 0; t < tap_count; ++t) {
        const float* from = turned + t * turned_size + j * lanes;
        float* to = c + j * args_.c.row + taps[static_cast<std::size_t>(t)].n;
        for (int64_t r = 0; r < part.end - part.begin; ++r) to[r * along_stride] = from[r];
      }
  });
}

}  // namespace weft::cpu
