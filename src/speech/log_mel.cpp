#include "speech/log_mel.hpp"

#include <algorithm>

#include "weft/audio/features.hpp"
#include "weft/ops.hpp"

namespace weft::speech {
namespace {

constexpr Extent kSize = 400, kMargin = kSize / 2;
constexpr float kRange = 8;  // decades below the largest value that are kept

/// Sample i of the sound as a centred transform sees it: mirrored before the beginning, silent behind the end.
float sample_at(std::span<const float> samples, Extent i) {
  const Extent at = i < 0 ? -i : i;
  return at < static_cast<Extent>(samples.size()) ? samples[static_cast<std::size_t>(at)] : 0;
}

}  // namespace

void LogMel::read(std::span<const float> samples) {
  content_ = static_cast<Extent>(samples.size()) / kHop;
  // A window may begin with the last frame.
  pieces_ = (std::max<Extent>(content_, 1) - 1 + 2 * frames_ - 1) / frames_;
  if (!piece_)
    piece_.emplace([this](std::span<const Tensor> in) {
      const Tensor energies =
          matmul(audio::mel_filters({.mels = mels_}, DType::f32, device_),
                 transpose(audio::power(audio::stft(in[0], {.size = kSize, .hop = kHop, .centred = false}))));
      return std::vector<Tensor>{
          elementwise("log10", {elementwise("maximum", {energies, scalar_like(1e-10, energies)})})};
    });
  const Extent length = (frames_ - 1) * kHop + kSize;
  std::vector<float> part(static_cast<std::size_t>(length));
  logs_.clear();
  for (Extent p = 0; p < pieces_; ++p) {
    const Extent begin = p * frames_ * kHop - kMargin;
    for (Extent i = 0; i < length; ++i) part[static_cast<std::size_t>(i)] = sample_at(samples, begin + i);
    const Tensor arguments[] = {tensor_from_bytes(part.data(), {length}, DType::f32, device_)};
    const std::vector<float> logs = (*piece_)(arguments)[0].to_vector<float>();
    logs_.insert(logs_.end(), logs.begin(), logs.end());
  }
  floor_ = *std::max_element(logs_.begin(), logs_.end()) - kRange;
}

Tensor LogMel::window(Extent first) {
  std::vector<float> values(static_cast<std::size_t>(mels_ * frames_));
  for (Extent m = 0; m < mels_; ++m)
    for (Extent f = 0; f < frames_; ++f) {
      const Extent at = first + f, piece = std::min(at / frames_, pieces_ - 1);
      const float log = logs_[static_cast<std::size_t>((piece * mels_ + m) * frames_ + at % frames_)];
      values[static_cast<std::size_t>(m * frames_ + f)] = (std::max(log, floor_) + 4) / 4;
    }
  return tensor_from_bytes(values.data(), {mels_, frames_}, DType::f32, device_);
}

}  // namespace weft::speech
