#include "backend/cpu/window_product.hpp"

#include <algorithm>
#include <cstring>

#include "backend/cpu/channels_last.hpp"
#include "backend/cpu/gemm_view.hpp"

namespace weft::cpu {
namespace {

using std::int64_t;

}  // namespace

WindowProduct::Block WindowProduct::block(int64_t i) const {
  const int64_t band = i % bands_, rest = i / bands_, rows = y().extent;
  const int64_t begin = rows * band / bands_;
  return {rest / outer_, rest % outer_, begin, rows * (band + 1) / bands_ - begin};
}

int64_t WindowProduct::in_memory(const Block& block) const {
  int64_t at = offset_ + offset_at(args_.b.view->at.batch, block.batch) + y().stride * block.y, rest = block.outer;
  for (std::size_t d = positions_.size(); d-- > 0;) {
    if (d + 2 >= positions_.size()) continue;
    at += rest % positions_[d].extent * positions_[d].stride;
    rest /= positions_[d].extent;
  }
  return at;
}

int64_t WindowProduct::coordinate(int axis, const Block& block) const {
  int64_t value = axes_[static_cast<std::size_t>(axis)].start, rest = block.outer;
  if (y().axis == axis) value += y().step * block.y;
  for (std::size_t d = positions_.size(); d-- > 0;) {
    if (d + 2 >= positions_.size()) continue;
    if (positions_[d].axis == axis) value += rest % positions_[d].extent * positions_[d].step;
    rest /= positions_[d].extent;
  }
  return value;
}

void WindowProduct::stage(const Block& block, Range channels, float* to) const {
  const int64_t start = in_memory(block);
  const std::size_t last = axes_.size() - 1;
  std::vector<int64_t> first(axes_.size()), at(last);
  int64_t corner = start, lines = 1;
  for (std::size_t e = 0; e < axes_.size(); ++e) {
    first[e] = coordinate(static_cast<int>(e), block) - axes_[e].before;
    corner -= axes_[e].before * axes_[e].stride;
    if (e < last) lines *= axes_[e].size;
  }
  const Axis& along = axes_[last];
  const int64_t from = std::clamp<int64_t>(along.lo - first[last], 0, along.size);
  const int64_t until = std::clamp<int64_t>(along.hi - first[last], from, along.size);
  for (int64_t channel = channels.begin; channel < channels.end; ++channel) {
    int64_t of_channel = corner, rest = channel;
    for (std::size_t d = elements_.size(); d-- > 0;) {
      if (elements_[d].axis >= 0) continue;
      of_channel += rest % elements_[d].extent * elements_[d].stride;
      rest /= elements_[d].extent;
    }
    float* line_to = to + channel * channel_pitch_;
    std::fill(at.begin(), at.end(), 0);
    for (int64_t line = 0; line < lines; ++line, line_to += along.size) {
      bool inside = true;
      int64_t of_line = of_channel;
      for (std::size_t e = 0; e < last; ++e) {
        inside = inside && first[e] + at[e] >= axes_[e].lo && first[e] + at[e] < axes_[e].hi;
        of_line += at[e] * axes_[e].stride;
      }
      const int64_t begin = inside ? from : along.size, end = inside ? until : along.size;
      std::fill(line_to, line_to + begin, 0.0f);
      if (along.stride == 1) {
        if (end > begin)
          std::memcpy(line_to + begin, args_.b.data + of_line + begin,
                      static_cast<std::size_t>(end - begin) * sizeof(float));
      } else {
        for (int64_t i = begin; i < end; ++i) line_to[i] = args_.b.data[of_line + i * along.stride];
      }
      std::fill(line_to + end, line_to + along.size, 0.0f);
      for (std::size_t e = last; e-- > 0;) {
        if (++at[e] < axes_[e].size) break;
        at[e] = 0;
      }
    }
  }
}

/// The same with the channels of a place side by side.
void WindowProduct::stage_channels_last(const Block& block, float* to) const {
  const std::size_t last = axes_.size() - 1;
  const Axis& along = axes_[last];
  std::vector<int64_t> first(axes_.size());
  int64_t corner = in_memory(block), lines = 1;
  for (std::size_t e = 0; e < axes_.size(); ++e) {
    first[e] = coordinate(static_cast<int>(e), block) - axes_[e].before;
    corner -= axes_[e].before * axes_[e].stride;
    if (e < last) lines *= axes_[e].size;
  }
  const int64_t begin = std::clamp<int64_t>(along.lo - first[last], 0, along.size);
  const int64_t end = std::clamp<int64_t>(along.hi - first[last], begin, along.size), pitch = along.pitch;
  for (int64_t line = 0; line < lines; ++line, to += along.size * pitch) {
    bool inside = true;
    const float* from = args_.b.data + corner + begin * along.stride;
    int64_t rest = line;
    for (std::size_t e = last; e-- > 0; rest /= axes_[e].size) {
      const int64_t at = rest % axes_[e].size;
      inside = inside && first[e] + at >= axes_[e].lo && first[e] + at < axes_[e].hi;
      from += at * axes_[e].stride;
    }
    if (inside)
      copy_channels_last(kernels_, from, along.stride, elements_[inner_].stride, channels_, {begin, end, along.size},
                         to, pitch);
    else
      std::fill(to, to + along.size * pitch, 0.0f);
  }
}

void WindowProduct::copy_block(const Block& block, float* to) const {
  if (channels_last_)
    stage_channels_last(block, to);
  else
    stage(block, {0, channels_}, to);
}

const float* WindowProduct::start_of(const Block& block, const float* copy) const {
  if (axes_.empty()) return args_.b.data + in_memory(block);
  for (const Axis& axis : axes_) copy += axis.before * axis.pitch;
  return copy;
}

WindowProduct::Range WindowProduct::elements_inside(int64_t position) const {
  if (row_part_ < 0) return {0, 1};
  const Dim& part = elements_[static_cast<std::size_t>(row_part_)];
  const Axis& axis = axes_[static_cast<std::size_t>(part.axis)];
  const int64_t at = axis.start + y().step * position;
  Range range{0, part.extent};
  while (range.begin < range.end && at + part.step * range.begin < axis.lo) ++range.begin;
  while (range.begin < range.end && at + part.step * (range.end - 1) >= axis.hi) --range.end;
  return range;
}

}  // namespace weft::cpu
