#include "weft/speech/detector.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "speech/log_mel.hpp"
#include "speech/windows.hpp"
#include "weft/compile.hpp"
#include "weft/error.hpp"
#include "weft/onnx.hpp"
#include "weft/ops.hpp"
#include "weft/speech/voice.hpp"

namespace weft::speech {
namespace {

Tensor rate_value() {
  const std::int64_t rate = kSpeechRate;
  return tensor_from_bytes(&rate, Shape{}, DType::i64, kCpu);
}

constexpr Extent kPiece = 512, kContext = 64,
                 kState = 128;  // samples of a piece, and of the one before it that it sees

void check_detector_options(const DetectorOptions& o) {
  const auto require = [](double value, double most, const char* name) {
    if (!(value >= 0 && value <= most))
      throw UsageError(fmt::format("spans: {} of {}; it must be in [0, {}]", name, value, most));
  };
  require(o.threshold, 1, "a threshold");
  require(o.speech_min, 3600, "a least speech in seconds");
  require(o.silence_min, 3600, "a least silence in seconds");
  require(o.margin, 60, "a margin in seconds");
}

}  // namespace

namespace detail {

class DetectorEngine {
 public:
  explicit DetectorEngine(const std::filesystem::path& file) : model_(onnx::load(file, kCpu)) {
    for (const char* name : {"input", "state", "sr"})
      if (std::none_of(model_.inputs().begin(), model_.inputs().end(),
                       [&](const onnx::Port& port) { return port.name == name; }))
        throw FileError(fmt::format("{}: has no input \"{}\"; is it a detector of Silero, of version 5 or 6?",
                                    file.string(), name));
    if (model_.outputs().size() != 2)
      throw FileError(
          fmt::format("{}: has {} outputs, not a probability and a state", file.string(), model_.outputs().size()));
    compiled_.emplace([this](std::span<const Tensor> in) { return step(in); });
    // Models of two rates choose by `sr`, whose value a compiled function does not know; they run op by op.
    try {
      const Tensor examples[] = {zeros({1, kContext + kPiece}, DType::f32, kCpu).eval(),
                                 zeros({2, 1, kState}, DType::f32, kCpu).eval()};
      compiled_->prepare(examples);
    } catch (const UsageError&) {
      compiled_.reset();
    }
  }

  std::vector<float> probabilities(std::span<const float> samples) {
    const auto size = static_cast<Extent>(samples.size());
    std::vector<float> all, heard(static_cast<std::size_t>(kContext + kPiece), 0);
    Tensor state = zeros({2, 1, kState}, DType::f32, kCpu);
    for (Extent at = 0; at < size; at += kPiece) {
      for (Extent i = 0; i < kContext + kPiece; ++i) {
        const Extent from = at - kContext + i;
        heard[static_cast<std::size_t>(i)] = from >= 0 && from < size ? samples[static_cast<std::size_t>(from)] : 0;
      }
      const Tensor arguments[] = {tensor_from_bytes(heard.data(), {1, kContext + kPiece}, DType::f32, kCpu), state};
      const std::vector<Tensor> made = compiled_ ? (*compiled_)(arguments) : step(arguments);
      all.push_back(made[0].to_vector<float>().at(0));
      state = made[1].eval();
    }
    return all;
  }

 private:
  /// A piece and the state before it -> its probability, and the state behind it.
  std::vector<Tensor> step(std::span<const Tensor> in) const {
    std::vector<Tensor> given;
    for (const onnx::Port& port : model_.inputs())
      given.push_back(port.name == "input" ? in[0] : port.name == "state" ? in[1] : rate_);
    return model_(given);
  }

  onnx::Model model_;
  Tensor rate_ = rate_value();
  std::optional<Compiled> compiled_;
};

}  // namespace detail

std::vector<Span> spans_of(std::span<const float> probabilities, double piece, double seconds,
                           const DetectorOptions& options) {
  check_detector_options(options);
  constexpr double kHysteresis = 0.15, kLeastThreshold = 0.01;
  const double least = std::max(options.threshold - kHysteresis, kLeastThreshold);
  std::vector<Span> spans;
  std::optional<double> begin, silence;  // of the span, and of the silence that may end it
  for (std::size_t i = 0; i < probabilities.size(); ++i) {
    const double at = static_cast<double>(i) * piece, p = static_cast<double>(probabilities[i]);
    if (p >= options.threshold) {
      silence.reset();
      if (!begin) begin = at;
    } else if (begin && p < least) {
      if (!silence) silence = at;
      if (at - *silence < options.silence_min) continue;
      if (*silence - *begin > options.speech_min) spans.push_back({*begin, *silence});
      begin.reset(), silence.reset();
    }
  }
  if (begin && seconds - *begin > options.speech_min) spans.push_back({*begin, seconds});
  for (std::size_t i = 0; i < spans.size(); ++i) {
    if (i == 0) spans[i].begin = std::max(spans[i].begin - options.margin, 0.0);
    if (i + 1 == spans.size()) {
      spans[i].end = std::min(spans[i].end + options.margin, seconds);
      continue;
    }
    const double margin = std::min(options.margin, (spans[i + 1].begin - spans[i].end) / 2);
    spans[i].end += margin, spans[i + 1].begin -= margin;
  }
  return spans;
}

std::vector<float> Detector::probabilities(const audio::Sound& sound) const {
  return engine_->probabilities(speech_samples(sound));
}

std::vector<Span> Detector::spans(const audio::Sound& sound, const DetectorOptions& options) const {
  return spans_of(probabilities(sound), static_cast<double>(kPiece) / kSpeechRate, sound.seconds(), options);
}

std::string Detector::describe() const { return "detector of speech, pieces of 32 ms at 16 kHz, on cpu"; }

bool is_detector(const std::filesystem::path& path) { return path.extension() == ".onnx" && !is_voice(path); }

Detector load_detector(const std::filesystem::path& file) {
  return Detector(std::make_shared<detail::DetectorEngine>(file));
}

}  // namespace weft::speech
