#include "backend/cpu/winograd.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "backend/cpu/gemm_view.hpp"
#include "backend/cpu/scratch_block.hpp"
#include "base/threads.hpp"

namespace weft::cpu {
namespace {

using std::int64_t;

constexpr int64_t kTilesMin = 24, kTilesMax = 64;     // of a block of a convolution
constexpr int64_t kImageBytes = 256 * 1024;           // of its transformed tiles, which stay in an L2 cache
constexpr int64_t kWeightChannels = 32;               // whose weights a task transforms
constexpr int64_t kRoundTilesMin = 128;               // of a round of a gradient
constexpr int64_t kRoundTileBytes = 4 * 1024 * 1024;  // of both operands' transformed tiles
constexpr int64_t kStripsTogether = 4;                // of the image in a task of a gradient
constexpr int64_t kWinogradTasks = 16;

constexpr int64_t quotient_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

struct WinogradScratch {
  ScratchBlock shared, weights, gradients, all_sums;  // of the calling thread, for all
  ScratchBlock images, sums, rows, taps;              // of each thread
};
thread_local WinogradScratch winograd_scratch;

}  // namespace

std::optional<Winograd> Winograd::of(const GemmArgs<float>& args, const GemmKernels<float>& kernels, Image image,
                                     bool is_gradient) {
  if (kernels.winograd.image == nullptr) return std::nullopt;
  Winograd winograd(args, kernels, std::move(image), is_gradient);
  if (!winograd.pays() || (is_gradient && !winograd.describe_gradient())) return std::nullopt;
  return winograd;
}

/// Counts multiplications; a transformed number costs as much as some of them.
bool Winograd::pays() const {
  constexpr double kTransform = 9, kDirect = 1.1;
  const auto tiles = static_cast<double>(image_.tiles()), channels = static_cast<double>(image_.channels);
  const auto outs = static_cast<double>(args_.m);
  const double windows = static_cast<double>(image_.at.size()) * static_cast<double>(image_.y.windows) *
                         static_cast<double>(image_.x.windows);
  return kWinogradPlaces *
             (tiles * channels * outs + kTransform * (tiles * channels + tiles * outs + channels * outs)) <
         kDirect * kWinogradTaps * windows * channels * outs;
}

bool Winograd::describe_gradient() {
  const int64_t windows = image_.y.windows * image_.x.windows;
  const auto images = static_cast<int64_t>(image_.at.size());
  if (args_.a.view == nullptr) {
    if (args_.a.column != 1) return false;
    a_offset_ = args_.a.batch[0];
    a_row_ = args_.a.row;
    for (int64_t i = 0; i < images; ++i) a_images_.push_back(i * windows);
    return true;
  }
  const kernel::MatrixView::Sum& at = args_.a.view->at;
  if (!args_.a.view->edges.empty() || at.rows.extents.size() != 1) return false;
  int64_t run = 1;
  for (std::size_t d = at.columns.extents.size(); d-- > 0 && at.columns.strides[d] == run;)
    run *= at.columns.extents[d];
  if (run % windows != 0) return false;
  a_offset_ = at.batch.offset + at.rows.offset;
  a_row_ = at.rows.strides[0];
  for (int64_t i = 0; i < images; ++i) a_images_.push_back(offset_at(at.columns, i * windows));
  return true;
}

/// All tiles, about so many in a block.
std::vector<Winograd::Block> Winograd::blocks_of(int64_t tiles) const {
  const int64_t across = image_.x.tiles(), pieces = quotient_up(across, kTilesMax);
  std::vector<Segment> segments;
  for (int64_t image = 0; image < static_cast<int64_t>(image_.at.size()); ++image)
    for (int64_t y = 0; y < image_.y.tiles(); ++y)
      for (int64_t piece = 0; piece < pieces; ++piece) {
        const int64_t x = across * piece / pieces;
        segments.push_back({image, y, x, across * (piece + 1) / pieces - x, 0});
      }
  const auto count = static_cast<int64_t>(segments.size());
  const int64_t blocks = std::clamp<int64_t>((image_.tiles() + tiles / 2) / tiles, 1, count);
  std::vector<Block> all(static_cast<std::size_t>(blocks));
  for (int64_t b = 0; b < blocks; ++b) {
    Block& block = all[static_cast<std::size_t>(b)];
    block.segments.assign(segments.begin() + count * b / blocks, segments.begin() + count * (b + 1) / blocks);
    block.tiles = 0;
    for (Segment& segment : block.segments) {
      segment.first = block.tiles;
      block.tiles += segment.tiles;
    }
  }
  return all;
}

/// Whether what is read of the images, and of the gradient of the results, is finite.
bool Winograd::is_finite() const {
  const auto inside = [](const Axis& axis) {
    const int64_t begin = std::max<int64_t>(0, axis.lo - axis.start);
    return Range{begin, std::max(begin, std::min(axis.windows + 2, axis.hi - axis.start))};
  };
  const Range y = inside(image_.y), x = inside(image_.x);
  const auto images = static_cast<int64_t>(image_.at.size());
  const int64_t windows = image_.y.windows * image_.x.windows;
  const bool in_one = image_.row == x.size();  // a channel's rows follow each other
  std::atomic<bool> finite = true;
  parallel_for(images * kWinogradTasks, [&](int64_t task) {
    const int64_t image = task / kWinogradTasks, part = task % kWinogradTasks;
    const auto channels_of = [&](int64_t all) {
      return Range{all * part / kWinogradTasks, all * (part + 1) / kWinogradTasks};
    };
    const Range channels = channels_of(image_.channels);
    bool is_finite = true;
    for (int64_t c = channels.begin; c < channels.end && is_finite; ++c) {
      const float* from = image_.data + image_.at[static_cast<std::size_t>(image)] + c * image_.channel + x.begin;
      if (in_one) {
        is_finite = kernels_.winograd.is_finite(y.size() * x.size(), from + y.begin * image_.row);
        continue;
      }
      for (int64_t row = y.begin; row < y.end; ++row)
        is_finite = is_finite && kernels_.winograd.is_finite(x.size(), from + row * image_.row);
    }
    if (is_gradient_) {
      const Range outs = channels_of(args_.m);
      for (int64_t out = outs.begin; out < outs.end && is_finite; ++out)
        is_finite = kernels_.winograd.is_finite(
            windows, args_.a.data + a_offset_ + a_images_[static_cast<std::size_t>(image)] + out * a_row_);
    }
    if (!is_finite) finite = false;
  });
  return finite;
}

/// Columns [x, x + count) of a row, of a vector of channels.
void Winograd::read_row(int64_t image, int64_t y, int64_t x, int64_t count, int64_t vector, float* to) const {
  const int64_t lanes = kernels_.lanes, first = vector * lanes, channels = std::min(lanes, image_.channels - first);
  const auto begin_of = [](const Axis& axis, int64_t at) { return axis.lo - axis.start - at; };
  const auto end_of = [](const Axis& axis, int64_t at) {
    return std::min(axis.hi - axis.start, axis.windows + kWinogradTile - kWinogradResults) - at;
  };
  int64_t begin = std::clamp<int64_t>(begin_of(image_.x, x), 0, count);
  const int64_t end = std::clamp<int64_t>(end_of(image_.x, x), begin, count);
  if (begin_of(image_.y, y) > 0 || end_of(image_.y, y) <= 0) begin = end;
  std::fill(to, to + (begin == end ? count : begin) * lanes, 0.0f);
  if (begin == end) return;
  const int64_t at = image_.at[static_cast<std::size_t>(image)] + first * image_.channel + y * image_.row + x + begin;
  kernels_.pack_transposed(end - begin, static_cast<int>(channels), image_.data + at, image_.channel,
                           to + begin * lanes, static_cast<int>(lanes));
  std::fill(to + end * lanes, to + count * lanes, 0.0f);
}

void Winograd::transform_image(const Block& block, int64_t vector, Layout layout, float* to) const {
  const int64_t lanes = kernels_.lanes, pitch = (kWinogradResults * kTilesMax + 3) * lanes;
  float* const rows = winograd_scratch.rows.as<float>(kWinogradTile * pitch);
  float* row[kWinogradTile];
  for (int64_t i = 0; i < kWinogradTile; ++i) row[i] = rows + i * pitch;
  const Segment* above = nullptr;
  for (const Segment& segment : block.segments) {
    const int64_t count = kWinogradResults * segment.tiles + 2;
    // The first two rows are the last two of the tiles above.
    const bool follows = above != nullptr && above->image == segment.image && above->y + 1 == segment.y &&
                         above->x == segment.x && above->tiles == segment.tiles;
    if (follows) {
      std::swap(row[0], row[2]);
      std::swap(row[1], row[3]);
    }
    for (int64_t i = follows ? 2 : 0; i < kWinogradTile; ++i)
      read_row(segment.image, kWinogradResults * segment.y + i, kWinogradResults * segment.x, count, vector, row[i]);
    kernels_.winograd.image(segment.tiles, row, place_of(vector, layout, to) + segment.first * layout.tile, layout.tile,
                            layout.place);
    above = &segment;
  }
}

void Winograd::transform_gradient(const Block& block, int64_t vector, Layout layout, float* to) const {
  const int64_t lanes = kernels_.lanes, pitch = (kWinogradResults * kTilesMax + 1) * lanes;
  float* const rows = winograd_scratch.rows.as<float>(kWinogradResults * pitch);
  const float* const row[] = {rows, rows + pitch};
  const int64_t first = vector * lanes, channels = std::min(lanes, args_.m - first);
  for (const Segment& segment : block.segments) {
    const int64_t x = kWinogradResults * segment.x, count = kWinogradResults * segment.tiles;
    const int64_t columns = std::min(count, image_.x.windows - x);
    for (int64_t i = 0; i < kWinogradResults; ++i) {
      const int64_t y = kWinogradResults * segment.y + i;
      float* const line = rows + i * pitch;
      const bool is_inside = y < image_.y.windows;
      if (is_inside)
        kernels_.pack_transposed(columns, static_cast<int>(channels),
                                 args_.a.data + a_offset_ + a_images_[static_cast<std::size_t>(segment.image)] +
                                     first * a_row_ + y * image_.x.windows + x,
                                 a_row_, line, static_cast<int>(lanes));
      std::fill(line + (is_inside ? columns : 0) * lanes, line + count * lanes, 0.0f);
    }
    kernels_.winograd.gradient(segment.tiles, row, place_of(vector, layout, to) + segment.first * layout.tile,
                               layout.tile, layout.place);
  }
}

/// The weights of a strip of results, as [place][channel][width]. False if one is not finite.
bool Winograd::transform_weights(const WindowWeights& given, int64_t strip, Range channels, float* to) const {
  const int64_t size = channels.size() * kWinogradTaps * width();
  float* const taps = winograd_scratch.taps.as<float>(size);
  given.pack(strip, channels.begin, channels.size(), taps);
  kernels_.winograd.weights(channels.size(), taps, width(), kWinogradTaps * width(), to + channels.begin * width(),
                            weight_place());
  return kernels_.winograd.is_finite(size, taps);
}

bool Winograd::run_forward() const {
  const int64_t strips = strips_of(args_.m), chunks = quotient_up(image_.channels, kWeightChannels);
  const int64_t strip_size = kWinogradPlaces * weight_place();
  float* const weights = winograd_scratch.weights.as<float>(strips * strip_size);
  const WindowWeights given(args_, kernels_, kWinogradTaps);
  std::atomic<bool> finite = true;
  parallel_for(strips * chunks, [&](int64_t task) {
    const int64_t strip = task / chunks, begin = task % chunks * kWeightChannels;
    if (!transform_weights(given, strip, {begin, std::min(image_.channels, begin + kWeightChannels)},
                           weights + strip * strip_size))
      finite = false;
  });
  if (!finite || !is_finite()) return false;

  const int64_t vectors = vectors_of(image_.channels);
  int64_t pitch = vectors * kernels_.lanes;
  if (pitch % 256 == 0) pitch += kernels_.lanes;  // rows of a panel fall on different sets of the cache
  const int64_t fit = kImageBytes / (kWinogradPlaces * pitch * static_cast<int64_t>(sizeof(float)));
  const std::vector<Block> blocks = blocks_of(std::clamp(fit, kTilesMin, kTilesMax));
  const auto layout_of = [&](const Block& block) {
    return Layout{pitch, block.tiles * pitch + kernels_.lanes, width()};
  };
  const auto count = static_cast<int64_t>(blocks.size());
  if (count >= kWinogradTasks) {
    parallel_for(count, [&](int64_t task) {
      const Block& block = blocks[static_cast<std::size_t>(task)];
      const Layout layout = layout_of(block);
      float* const images = winograd_scratch.images.as<float>(kWinogradPlaces * layout.place);
      for (int64_t vector = 0; vector < vectors; ++vector) transform_image(block, vector, layout, images);
      multiply(block, {0, strips}, layout, images, weights);
    });
    return true;
  }
  std::vector<int64_t> first(static_cast<std::size_t>(count) + 1, 0);
  for (std::size_t b = 0; b < blocks.size(); ++b)
    first[b + 1] = first[b] + kWinogradPlaces * layout_of(blocks[b]).place;
  float* const images = winograd_scratch.shared.as<float>(first.back());
  parallel_for(count * vectors, [&](int64_t task) {
    const auto b = static_cast<std::size_t>(task / vectors);
    transform_image(blocks[b], task % vectors, layout_of(blocks[b]), images + first[b]);
  });
  const int64_t groups = std::clamp<int64_t>(quotient_up(2 * kWinogradTasks, count), 1, strips);
  parallel_for(count * groups, [&](int64_t task) {
    const auto b = static_cast<std::size_t>(task % count);
    const int64_t group = task / count;
    multiply(blocks[b], {strips * group / groups, strips * (group + 1) / groups}, layout_of(blocks[b]),
             images + first[b], weights);
  });
  return true;
}

void Winograd::multiply(const Block& block, Range strips, Layout layout, const float* images,
                        const float* weights) const {
  const int64_t panels = quotient_up(block.tiles, kernels_.rows), place = block.tiles * width() + kernels_.lanes;
  float* const sums = winograd_scratch.sums.as<float>(kWinogradPlaces * place);
  const auto& tiles = kernels_.by_row[1];
  for (int64_t strip = strips.begin; strip < strips.end; ++strip) {
    const float* right = weights + strip * kWinogradPlaces * weight_place();
    for (int64_t p = 0; p < kWinogradPlaces; ++p, right += weight_place())
      for (int64_t panel = 0; panel < panels; ++panel) {
        const int64_t begin = block.tiles * panel / panels, end = block.tiles * (panel + 1) / panels;
        tiles[end - begin - 1][kGemmVectors - 1](image_.channels, images + p * layout.place + begin * layout.tile,
                                                 layout.tile, right, width(), sums + p * place + begin * width(),
                                                 width(), kernels_.lanes, false);
      }
    store(block, strip, sums, place);
  }
}

/// The results of a strip of channels.
void Winograd::store(const Block& block, int64_t strip, const float* sums, int64_t place) const {
  const int64_t out = strip * width(), outs = std::min(width(), args_.m - out), lanes = kernels_.lanes;
  // A vector's lanes of elements are read when they are transposed.
  float* const rows =
      winograd_scratch.rows.as<float>((kWinogradResults * kWinogradResults * kTilesMax + lanes) * width());
  const int64_t columns = image_.x.windows;
  const std::vector<Segment>& segments = block.segments;
  int64_t ready = 0;  // of the rows of this image, for after_block
  for (std::size_t s = 0; s < segments.size(); ++s) {
    const Segment& segment = segments[s];
    const int64_t y = kWinogradResults * segment.y, y_end = std::min(y + kWinogradResults, image_.y.windows);
    const int64_t x = kWinogradResults * segment.x, row = kWinogradResults * segment.tiles * width();
    const int64_t count = std::min(kWinogradResults * segment.tiles, columns - x);
    kernels_.winograd.result(segment.tiles, sums + segment.first * width(), place, rows, row);
    float* const c = args_.c.data + args_.c.batch[segment.image] + out * args_.c.row + x;
    for (int64_t i = y; i < y_end; ++i)
      for (int64_t j = 0; j < count; j += lanes)
        kernels_.store_transposed(static_cast<int>(std::min(lanes, count - j)), static_cast<int>(outs),
                                  rows + (i - y) * row + j * width(), width(), c + i * columns + j, args_.c.row);
    if (!args_.after_block) continue;
    if (count < columns) {
      for (int64_t i = y; i < y_end; ++i)
        args_.after_block(segment.image, out, out + outs, i * columns + x, i * columns + x + count);
      continue;
    }
    if (s == 0 || segments[s - 1].image != segment.image) ready = y;
    if (s + 1 == segments.size() || segments[s + 1].image != segment.image)
      args_.after_block(segment.image, out, out + outs, ready * columns, y_end * columns);
  }
}

bool Winograd::run_gradient() const {
  if (!is_finite()) return false;
  const int64_t outs = vectors_of(args_.m), channels = vectors_of(image_.channels);
  const int64_t out_strips = strips_of(args_.m), strips = strips_of(image_.channels);
  const int64_t tile_bytes = kWinogradPlaces * (out_strips + strips) * width() * static_cast<int64_t>(sizeof(float));
  const std::vector<Block> rounds = blocks_of(std::max(kRoundTilesMin, kRoundTileBytes / tile_bytes));
  int64_t most = 0;
  for (const Block& round : rounds) most = std::max(most, round.tiles);
  const int64_t place = most * width() + kernels_.lanes;
  const Layout layout{width(), place, kWinogradPlaces * place};
  float* const images = winograd_scratch.shared.as<float>(strips * layout.strip);
  float* const gradients = winograd_scratch.gradients.as<float>(out_strips * layout.strip);
  const int64_t sum = width() * width(), sums_size = kWinogradPlaces * sum;
  const bool in_one = rounds.size() == 1;
  float* const all_sums = in_one ? nullptr : winograd_scratch.all_sums.as<float>(out_strips * strips * sums_size);
  const int64_t together = std::clamp<int64_t>(out_strips * strips / kWinogradTasks, 1, kStripsTogether);
  const int64_t groups = quotient_up(strips, together);
  for (const Block& round : rounds) {
    parallel_for(outs + channels, [&](int64_t task) {
      if (task < outs)
        transform_gradient(round, task, layout, gradients);
      else
        transform_image(round, task - outs, layout, images);
    });
    const bool is_first = &round == &rounds.front(), is_last = &round == &rounds.back();
    parallel_for(out_strips * groups, [&](int64_t task) {
      const int64_t strip = task / groups, group = task % groups;
      const Range part{strips * group / groups, strips * (group + 1) / groups};
      float* const sums = in_one ? winograd_scratch.sums.as<float>(part.size() * sums_size)
                                 : all_sums + (strip * strips + part.begin) * sums_size;
      const int64_t rows = std::min(width(), args_.m - strip * width()), panels = quotient_up(rows, kernels_.rows);
      for (int64_t p = 0; p < kWinogradPlaces; ++p)
        for (int64_t c = part.begin; c < part.end; ++c)
          for (int64_t panel = 0; panel < panels; ++panel) {
            const int64_t begin = rows * panel / panels, end = rows * (panel + 1) / panels;
            kernels_.by_depth[1][end - begin - 1][kGemmVectors - 1](
                round.tiles, gradients + strip * layout.strip + p * place + begin, width(),
                images + c * layout.strip + p * place, width(),
                sums + (c - part.begin) * sums_size + p * sum + begin * width(), width(), kernels_.lanes, !is_first);
          }
      if (is_last)
        for (int64_t c = part.begin; c < part.end; ++c) store_weights(strip, c, sums + (c - part.begin) * sums_size);
    });
  }
  return true;
}

void Winograd::store_weights(int64_t strip, int64_t of_image, const float* sums) const {
  const int64_t lanes = kernels_.lanes, out = strip * width(), outs = std::min(width(), args_.m - out);
  const int64_t channel = of_image * width(), channels = std::min(width(), image_.channels - channel);
  float* const taps = winograd_scratch.taps.as<float>((kWinogradTaps + lanes) * width());
  for (int64_t i = 0; i < outs; ++i) {
    kernels_.winograd.weights_gradient(kGemmVectors, sums + i * width(), width() * width(), taps, width());
    float* const to = args_.c.data + args_.c.batch[0] + (out + i) * args_.c.row + channel * kWinogradTaps;
    for (int64_t t = 0; t < kWinogradTaps; t += lanes)
      kernels_.store_transposed(static_cast<int>(std::min(lanes, kWinogradTaps - t)), static_cast<int>(channels),
                                taps + t * width(), width(), to + t, kWinogradTaps);
  }
}

}  // namespace weft::cpu
