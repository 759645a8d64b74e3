// Where a sound has speech, by a small network that hears it in pieces of 32 ms: Silero's detector, a model in ONNX's format.
//
//   const auto detector = speech::load_detector("silero_vad.onnx");
//   const auto spans = detector.spans(audio::load("talk.wav"));
//   model.transcribe(sound, {.speech = spans});  // hears nothing else
#pragma once

#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "weft/audio/sound.hpp"

namespace weft::speech {

/// A part of a sound, in seconds.
struct Span {
  double begin = 0, end = 0;
};

struct DetectorOptions {
  double threshold = 0.5;  ///< speech begins where it is at least this probable, and ends where it is less by 0.15
  double speech_min = 0.25,
         silence_min = 0.1;  ///< seconds; shorter speech is left out, shorter silence is part of speech
  double margin = 0.03;      ///< seconds that each span gets on both sides, at most half of the silence there
};

/// The spans of speech in a sound of `seconds`, from the probabilities of pieces of `piece` seconds. Errors: UsageError for options out of
/// range.
std::vector<Span> spans_of(std::span<const float> probabilities, double piece, double seconds,
                           const DetectorOptions& options = {});

namespace detail {
class DetectorEngine;
}

/// A detector of speech. A cheap handle; one thread at a time.
class Detector {
 public:
  /// The probability of speech in each piece of 512 samples at 16 kHz, the last one with silence behind it.
  std::vector<float> probabilities(const audio::Sound& sound) const;
  std::vector<Span> spans(const audio::Sound& sound, const DetectorOptions& options = {}) const;
  std::string describe() const;  ///< what it is, in a line

 private:
  friend Detector load_detector(const std::filesystem::path& file);
  explicit Detector(std::shared_ptr<detail::DetectorEngine> engine) : engine_(std::move(engine)) {}
  std::shared_ptr<detail::DetectorEngine> engine_;
};

/// Loads Silero's detector of version 5 or 6 (.onnx, with the inputs input, state and sr). It runs on the CPU: a piece of sound takes less
/// time than its way to a GPU. Errors: FileError for another model, and as onnx::load.
Detector load_detector(const std::filesystem::path& file);
/// Whether a path is that of a model in ONNX's format without the settings of a voice beside it.
bool is_detector(const std::filesystem::path& path);

}  // namespace weft::speech
