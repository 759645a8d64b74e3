#include "backend/cpu/channels_last.hpp"

#include <algorithm>

#include "backend/cpu/scratch_block.hpp"

namespace weft::cpu {

void copy_channels_last(const GemmKernels<float>& kernels, const float* from, std::int64_t step,
                        std::int64_t channel_stride, std::int64_t channels, PaddedLine line, float* to,
                        std::int64_t pitch) {
  const std::int64_t count = line.end - line.begin, lanes = kernels.lanes;
  std::fill(to, to + line.begin * pitch, 0.0f);
  std::fill(to + line.end * pitch, to + line.size * pitch, 0.0f);
  to += line.begin * pitch;
  // With a step, all places between are transposed too, which is quicker than to collect single elements.
  thread_local ScratchBlock scratch;
  const std::int64_t between = count > 0 ? (count - 1) * step + 1 : 0;
  float* const vectors = step == 1 ? nullptr : scratch.as<float>(between * lanes);
  for (std::int64_t c = 0; c < channels; c += lanes, from += lanes * channel_stride, to += lanes) {
    const auto some = static_cast<int>(std::min(lanes, channels - c));
    if (step == 1) {
      kernels.pack_transposed(count, some, from, channel_stride, to, static_cast<int>(pitch));
      continue;
    }
    kernels.pack_transposed(between, some, from, channel_stride, vectors, static_cast<int>(lanes));
    for (std::int64_t i = 0; i < count; ++i) std::copy_n(vectors + i * step * lanes, lanes, to + i * pitch);
  }
}

}  // namespace weft::cpu
