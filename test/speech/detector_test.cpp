// Detectors of speech: spans against Silero's library (make_detector.py), and how a model is asked.
#include <gtest/gtest.h>

#include <cmath>

#include "base/json.hpp"
#include "base/message_of.hpp"
#include "base/temporary_folder.hpp"
#include "speech/tiny_detector.hpp"
#include "weft/error.hpp"
#include "weft/onnx.hpp"
#include "weft/ops.hpp"
#include "weft/speech/detector.hpp"

namespace weft::speech::detector_test {
namespace {

TEST(Detector, SpansAreThoseOfSilero) {
  const Json golden = read_json_file(WEFT_TEST_DETECTOR);
  std::size_t count = 0;
  for (const Json& c : golden["cases"]) {
    const auto probabilities = c["probabilities"].get<std::vector<float>>();
    const double seconds = c["samples"].get<double>() / 16000;
    const DetectorOptions options{.threshold = c.value("threshold", 0.5),
                                  .speech_min = c.value("min_speech_duration_ms", 250.0) / 1000,
                                  .silence_min = c.value("min_silence_duration_ms", 100.0) / 1000,
                                  .margin = c.value("speech_pad_ms", 30.0) / 1000};
    const std::vector<Span> spans = spans_of(probabilities, 512.0 / 16000, seconds, options);
    ASSERT_EQ(spans.size(), c["spans"].size());
    for (std::size_t i = 0; i < spans.size(); ++i, ++count) {
      EXPECT_NEAR(spans[i].begin, c["spans"][i][0].get<double>() / 16000, 1e-4);
      EXPECT_NEAR(spans[i].end, c["spans"][i][1].get<double>() / 16000, 1e-4);
    }
  }
  EXPECT_GT(count, 30u);
  EXPECT_TRUE(spans_of({}, 0.032, 0).empty());
}

TEST(Detector, PiecesSeeTheEndOfTheOneBeforeAndTheStateGoesOn) {
  const test::TemporaryFolder folder;
  test::put_detector(folder / "a.onnx", {"input", "state", "sr"});
  const Detector detector = load_detector(folder / "a.onnx");
  audio::Sound sound{std::vector<float>(1200, 0), 1, 16000};
  sound.samples[500] = 0.576f;  // of the first piece, and what the second one sees of it
  sound.samples[1100] = 0.576f;
  const std::vector<float> p = detector.probabilities(sound);
  ASSERT_EQ(p.size(), 3u);
  EXPECT_NEAR(p[0], 0.1, 1e-5);
  EXPECT_NEAR(p[1], 0.1 + 0.01, 1e-5);
  EXPECT_NEAR(p[2], 0.1 + 0.02, 1e-5);
  EXPECT_NEAR(detector.probabilities(sound)[0], 0.1, 1e-5);  // each sound begins anew
  const std::vector<Span> spans = detector.spans(sound, {.threshold = 0.05, .speech_min = 0});
  ASSERT_EQ(spans.size(), 1u);
  EXPECT_NEAR(spans[0].end, 0.075, 1e-9);
  EXPECT_TRUE(detector.probabilities({{}, 1, 16000}).empty());
  // Another rate.
  EXPECT_EQ(detector.probabilities({std::vector<float>(44100), 1, 44100}).size(), 32u);
}

TEST(Detector, OtherModelsAndOptionsAreRefused) {
  const test::TemporaryFolder folder;
  test::put_detector(folder / "a.onnx", {"input", "h", "sr"});
  EXPECT_NE(test::message_of<FileError>([&] {
              load_detector(folder / "a.onnx");
            }).find("has no input \"state\"; is it a detector of Silero"),
            std::string::npos);
  EXPECT_THROW(load_detector(folder / "none.onnx"), FileError);
  const auto refusal = [](const DetectorOptions& options) {
    return test::message_of<UsageError>([&] { (void)spans_of(std::vector<float>{1}, 1, 1, options); });
  };
  EXPECT_NE(refusal({.threshold = 2}).find("a threshold of 2; it must be in [0, 1]"), std::string::npos);
  EXPECT_NE(refusal({.margin = -1}).find("a margin in seconds of -1"), std::string::npos);
  EXPECT_NE(refusal({.silence_min = NAN}).find("least silence"), std::string::npos);
}

}  // namespace
}  // namespace weft::speech::detector_test
