// The words of a window with their times, from what the heads of alignment see of its text.
#pragma once

#include <span>
#include <vector>

#include "speech/whisper.hpp"
#include "speech/windows.hpp"
#include "speech/words.hpp"
#include "weft/speech/transcriber.hpp"

namespace weft::speech {

/// A piece of a window with its words; times in seconds from the beginning of the sound.
struct SpokenPiece {
  double begin = 0, end = 0;
  std::vector<Word> words;
};

/// Times words of windows that follow each other. The engine has read the window and is given its text once more.
class WordTimes {
 public:
  /// `prompt`: the tokens that a text without times begins with. `by_spaces`: its words are written with spaces between.
  WordTimes(detail::WhisperEngine& engine, std::vector<std::int32_t> prompt, bool by_spaces)
      : engine_(engine), prompt_(std::move(prompt)), by_spaces_(by_spaces) {}

  /// The words of the pieces of a window that begins at a frame of the sound, and has `frames` of it.
  std::vector<SpokenPiece> find(std::span<const Piece> pieces, Extent first_frame, Extent frames);

 private:
  /// Words of tokens of text, timed from the beginning of the window.
  std::vector<TimedWord> align(std::span<const std::int32_t> text, Extent frames) const;

  detail::WhisperEngine& engine_;
  std::vector<std::int32_t> prompt_;
  bool by_spaces_;
  double speech_end_ = 0;  // of the windows so far
};

}  // namespace weft::speech
