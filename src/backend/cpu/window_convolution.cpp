#include "backend/cpu/window_product.hpp"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "backend/cpu/window_parts.hpp"
#include "backend/cpu/window_weights.hpp"
#include "base/threads.hpp"

namespace weft::cpu {
namespace {

using std::int32_t;
using std::int64_t;

constexpr int64_t kStripBytes = 192 * 1024;        // of A that all tiles of a task use before the next
constexpr int64_t kDepthOfTask = 256;              // of A that a task packs
constexpr int64_t kImagesBytes = 4 * 1024 * 1024;  // that all tasks read from a shared cache
constexpr int32_t kRunOfChannels = 256;            // at most, so that a strip can be cut between runs

}  // namespace

/// A in strips, each in the order of its runs.
void WindowProduct::pack_weights(float* to) const {
  const int64_t first = elements_[0].extent, chunk = channels_of_chunk(), chunks = ceil_divide(first, chunk);
  const WindowWeights weights(args_, kernels_, args_.k / first);
  parallel_for(strips() * chunks, [&](int64_t task) {
    const int64_t strip = task / chunks, begin = task % chunks * chunk;
    pack_chunk(weights, strip, {begin, std::min(first, begin + chunk)}, to + strip * args_.k * width());
  });
}

/// As many as a task packs.
int64_t WindowProduct::channels_of_chunk() const { return ceil_divide(kDepthOfTask, args_.k / elements_[0].extent); }

/// Some channels of a strip, which begins at `to`.
void WindowProduct::pack_chunk(const WindowWeights& weights, int64_t strip, Range channels, float* to) const {
  int64_t after = 1;
  for (std::size_t d = inner_ + 1; d < elements_.size(); ++d) after *= elements_[d].extent;
  const int64_t inner = elements_[inner_].extent, each = args_.k / elements_[0].extent;
  const int64_t begin = channels.begin * each, count = channels.end - channels.begin;
  if (after == 1) return weights.pack(strip, channels.begin, count, to + begin * width());
  float* const taps = window_scratch.taps.as<float>(count * each * width());
  weights.pack(strip, channels.begin, count, taps);
  for (int64_t i = 0; i < count * each; ++i) {
    const int64_t k = begin + i, outer = k / (after * inner);
    const int64_t place = (outer * after + k % after) * inner + k / after % inner;
    std::memcpy(to + place * width(), taps + i * width(), static_cast<std::size_t>(width()) * sizeof(float));
  }
}

/// The runs over the elements of a window whose coordinate along y is in `part`.
std::vector<GemmRun> WindowProduct::runs_within(Range part) const {
  std::vector<Dim> outer = elements_;
  outer.erase(outer.begin() + static_cast<std::ptrdiff_t>(inner_));
  int64_t count = 1;
  for (const Dim& dim : outer) count *= dim.extent;
  const Dim& inner = elements_[inner_];
  std::vector<GemmRun> runs;
  for (int64_t i = 0; i < count; ++i) {
    const std::vector<int64_t> at = coordinates(outer, i);
    int64_t begin = 0, end = inner.extent, place = 0;
    for (std::size_t d = 0; d < outer.size(); ++d) place += at[d] * outer[d].staged;
    if (row_part_ >= 0) {
      const auto row = static_cast<std::size_t>(row_part_);
      if (row == inner_) {
        begin = part.begin, end = part.end;
      } else {
        const int64_t y = at[row - (row > inner_ ? 1 : 0)];
        if (y < part.begin || y >= part.end) continue;
      }
    }
    for (; begin < end; begin += kRunOfChannels)
      runs.push_back({static_cast<int32_t>(place + begin * inner.staged),
                      static_cast<int32_t>((i * inner.extent + begin) * width()),
                      static_cast<int32_t>(std::min<int64_t>(kRunOfChannels, end - begin))});
  }
  return runs;
}

WindowProduct::Convolution WindowProduct::plan() const {
  Convolution all;
  const int64_t columns = x().extent;
  for (int64_t p = 0; p < band_rows_ * columns; ++p)
    all.places.push_back(static_cast<int32_t>(p / columns * y().staged + p % columns * x().staged));
  for (int64_t band = 0; band < bands_; ++band) {
    const Block of_band = block(band);
    std::vector<Panel> panels;
    // Places of a few rows are free, so that panels go on in the next row of the image.
    const bool joined = kernels_.rows <= kGemmFreeRows;
    const int64_t lines = joined ? 1 : of_band.rows, line = joined ? of_band.rows * columns : columns;
    const int64_t count = ceil_divide(line, kernels_.rows);
    for (int64_t i = 0; i < lines * count; ++i) {
      const int64_t from = i / count * line;
      Panel panel{from + line * (i % count) / count, from + line * (i % count + 1) / count, 0};
      Range part{std::numeric_limits<int64_t>::max(), 0};
      for (int64_t row = panel.begin / columns; row <= (panel.end - 1) / columns; ++row) {
        const Range inside = elements_inside(of_band.y + row);
        if (inside.begin >= inside.end) continue;
        part = {std::min(part.begin, inside.begin), std::max(part.end, inside.end)};
      }
      if (part.begin >= part.end) part = {0, 0};
      const auto found = std::find(all.parts.begin(), all.parts.end(), part);
      panel.runs = static_cast<std::size_t>(found - all.parts.begin());
      if (found == all.parts.end()) {
        all.parts.push_back(part);
        all.runs.push_back(runs_within(part));
      }
      panels.push_back(panel);
    }
    all.panels.push_back(std::move(panels));
  }
  return all;
}

void WindowProduct::run_convolution() const {
  Convolution shared = plan();
  const int64_t blocks = args_.batch * outer_ * bands_;
  const int64_t bytes = copy_size_ * static_cast<int64_t>(sizeof(float));
  const int64_t each = std::clamp<int64_t>(
      std::min(kWindowPositions / (band_rows_ * x().extent), 2 * kWindowCopyBytes / std::max<int64_t>(bytes, 1)), 1,
      blocks);
  int64_t groups = ceil_divide(blocks, each);
  if (groups > 1 && groups % 2 != 0) groups = std::min(groups + 1, blocks);  // for a common number of cores
  // Many weights for small images: a task has all blocks, and packs its own strips, which then stay in its cache.
  const int64_t packed_bytes = strips() * args_.k * width() * static_cast<int64_t>(sizeof(float));
  const bool packs_alone =
      strips() >= kWindowTasks && copy_size_ > 0 && blocks * bytes <= std::min(packed_bytes, kImagesBytes);
  if (packs_alone) {
    groups = 1;
  } else {
    float* const packed = window_scratch.a.as<float>(strips() * args_.k * width());
    pack_weights(packed);
    shared.packed = packed;
  }
  const int64_t strip_groups = std::clamp<int64_t>(ceil_divide(kWindowTasks, groups), 1, strips());
  if (strip_groups > 1 && copy_size_ > 0) {
    float* const copies = window_scratch.copies.as<float>(blocks * copy_size_);
    parallel_for(blocks, [&](int64_t i) { copy_block(block(i), copies + i * copy_size_); });
    shared.copies = copies;
  }
  parallel_for(groups * strip_groups, [&](int64_t task) {
    const int64_t group = task % groups, strip_group = task / groups;
    convolve({blocks * group / groups, blocks * (group + 1) / groups},
             {strips() * strip_group / strip_groups, strips() * (strip_group + 1) / strip_groups}, shared);
  });
}

/// A strip of A: of those that all tasks share, or packed for this task.
const float* WindowProduct::packed_strip(int64_t strip, const Convolution& shared) const {
  if (shared.packed != nullptr) return shared.packed + strip * args_.k * width();
  float* const own = window_scratch.a.as<float>(args_.k * width());
  const int64_t first = elements_[0].extent, chunk = channels_of_chunk();
  const WindowWeights weights(args_, kernels_, args_.k / first);
  for (int64_t begin = 0; begin < first; begin += chunk)
    pack_chunk(weights, strip, {begin, std::min(first, begin + chunk)}, own);
  return own;
}

void WindowProduct::convolve(Range blocks, Range strips, const Convolution& shared) const {
  const float* copies = shared.copies + blocks.begin * copy_size_;
  if (shared.copies == nullptr && copy_size_ > 0) {
    float* const own = window_scratch.copies.as<float>((blocks.end - blocks.begin) * copy_size_);
    for (int64_t i = blocks.begin; i < blocks.end; ++i) copy_block(block(i), own + (i - blocks.begin) * copy_size_);
    copies = own;
  }
  // A strip that is too long for the cache is used in parts, each for all tiles of C, which wait with their sums.
  const int64_t tile_size = kernels_.rows * width();
  const int64_t strip_bytes = args_.k * width() * static_cast<int64_t>(sizeof(float));
  const int64_t parts_of_strip = ceil_divide(strip_bytes, kStripBytes);
  std::size_t panels = 0;  // of a block
  for (const std::vector<Panel>& of_band : shared.panels) panels = std::max(panels, of_band.size());
  const int64_t tiles = parts_of_strip > 1 ? (blocks.end - blocks.begin) * static_cast<int64_t>(panels) : 1;
  // A vector's lanes of rows are read when a tile is transposed.
  float* const sums = window_scratch.sums.as<float>(tiles * tile_size + kGemmRowsMax * width());
  for (int64_t strip = strips.begin; strip < strips.end; ++strip) {
    const int64_t out = strip * width(), outs = std::min(width(), args_.m - out);
    const float* const b = packed_strip(strip, shared);
    for (int64_t part = 0; part < parts_of_strip; ++part) {
      const bool is_last = part + 1 == parts_of_strip;
      float* tile = sums;
      for (int64_t i = blocks.begin; i < blocks.end; ++i) {
        const Block at = block(i);
        const float* const start = start_of(at, copies + (i - blocks.begin) * copy_size_);
        const int64_t first = (at.outer * y().extent + at.y) * x().extent;
        float* const c = args_.c.data + args_.c.batch[at.batch] + out * args_.c.row + first;
        for (const Panel& panel : shared.panels[static_cast<std::size_t>(i % bands_)]) {
          const std::vector<GemmRun>& runs = shared.runs[panel.runs];
          const auto count = static_cast<int64_t>(runs.size()), rows = panel.end - panel.begin;
          const int64_t begin = count * part / parts_of_strip, end = count * (part + 1) / parts_of_strip;
          kernels_.by_runs[rows - 1](end - begin, runs.data() + begin, start, shared.places.data() + panel.begin,
                                     elements_[inner_].staged, b, tile, width(), part > 0);
          if (is_last)
            kernels_.store_transposed(static_cast<int>(rows), static_cast<int>(outs), tile, width(), c + panel.begin,
                                      args_.c.row);
          if (parts_of_strip > 1) tile += tile_size;
        }
        if (is_last && args_.after_block)
          args_.after_block(at.batch, out, out + outs, first, first + at.rows * x().extent);
      }
    }
  }
}

}  // namespace weft::cpu
