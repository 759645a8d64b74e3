// From the most probable token of each frame to words and segments: equal tokens in a row are one, and blanks are none.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "speech/ctc_config.hpp"
#include "weft/speech/transcriber.hpp"

namespace weft::speech {

/// Writes segments from frames that come one after the other. Words begin with the first frame of their first letter, and end behind the
/// last frame of their last one.
class CtcWriter {
 public:
  /// A segment ends where no word is heard for `pause_frames`; 0: all words are one segment.
  CtcWriter(const CtcTokens& tokens, double seconds_per_frame, Extent pause_frames,
            std::function<void(Segment)> on_segment)
      : tokens_(tokens),
        seconds_per_frame_(seconds_per_frame),
        pause_(pause_frames),
        on_segment_(std::move(on_segment)) {}

  void put(std::int32_t token, double log_probability);
  /// Behind the last frame.
  void finish();

 private:
  struct Letters {
    Extent begin = 0, end = 0;  // frames
    std::string text;
    double probability = 0;  // the sum over frames
    Extent frames = 0;
  };

  void end_word();
  void end_segment();

  const CtcTokens& tokens_;
  double seconds_per_frame_;
  Extent pause_;
  std::function<void(Segment)> on_segment_;
  Extent frame_ = 0;
  std::int32_t last_ = -1;
  Letters word_;
  Segment segment_;
  double log_probability_ = 0;  // the sum over the frames of the segment's letters
  Extent letter_frames_ = 0;
  Extent word_end_ = -1;  // frame behind the last word
};

}  // namespace weft::speech
