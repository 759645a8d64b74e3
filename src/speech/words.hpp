// Words of a window and their times: tokens become words, marks join the words beside them, and words that are too long for the sound
// around them are cut. The rules are those of OpenAI's whisper, so that its users find the same words.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weft/tokenizer.hpp"

namespace weft::speech {

struct TimedWord {
  std::string text;  ///< with the space before it; empty once it has joined another
  std::vector<std::int32_t> tokens;
  double begin = 0, end = 0;  ///< seconds
  double probability = 0;     ///< the mean of those of its tokens

  double length() const { return end - begin; }
};

/// Whether words of a language are written without spaces between them.
bool is_written_without_spaces(std::string_view code);

/// Cuts tokens of text into words. Every word is whole characters, but where the text ends within one. With `by_spaces`, a word begins
/// at a space, and each mark of ASCII is one; otherwise the words are as short as possible.
std::vector<TimedWord> split_words(std::span<const std::int32_t> tokens, const llm::Tokenizer& tokenizer,
                                   bool by_spaces);

/// Joins marks that open, such as a bracket behind a space, to the word behind them, and marks that close to the word before.
void join_marks(std::vector<TimedWord>& words);

/// What the lengths of a window's words say of a word's usual length.
struct WordLengths {
  double median = 0;  ///< at most 0.7 s; 0 if no word has a length
  double most = 0;    ///< twice the median: longer words hold silence
};
WordLengths lengths_of(std::span<const TimedWord> words);

/// Cuts words at the ends of sentences that hold silence. Before `join_marks`, as it looks for marks that stand alone.
void cut_at_sentences(std::span<TimedWord> words, const WordLengths& lengths);

/// Fits the words of a segment, none of which is empty, to its times, and the times to the words. A first word with silence before it
/// is cut; `speech_end` is where the speech before the segment ended. Words far longer than the segment end or begin with it;
/// otherwise the segment takes its times from the first and the last word.
void fit_segment(std::span<TimedWord> words, double& begin, double& end, double speech_end, const WordLengths& lengths);

}  // namespace weft::speech
