// The log-mel features of a sound of any length, made in pieces of a window.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "weft/compile.hpp"
#include "weft/tensor.hpp"

namespace weft::speech {

inline constexpr int kSpeechRate = 16000;
inline constexpr Extent kHop = 160;  // samples of a frame: 0.01 s

/// As audio::log_mel_spectrogram of the sound with silence behind it, whose largest value is that of the whole sound.
class LogMel {
 public:
  /// `frames` of each window.
  LogMel(Extent mels, Extent frames, Device device) : mels_(mels), frames_(frames), device_(device) {}

  /// Sets the sound: one channel at 16 kHz.
  void read(std::span<const float> samples);
  /// Frames that begin inside of the sound.
  Extent content() const { return content_; }
  /// [mels, frames] from a frame on, on the device.
  Tensor window(Extent first);

 private:
  Extent mels_, frames_;
  Device device_;
  std::optional<Compiled> piece_;
  std::vector<float> logs_;  // [pieces, mels, frames] of the whole sound and of the silence that a last window reaches
  Extent content_ = 0, pieces_ = 0;
  float floor_ = 0;  // the least value that is kept
};

}  // namespace weft::speech
