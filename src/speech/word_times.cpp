#include "speech/word_times.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>

#include "speech/alignment.hpp"
#include "speech/log_mel.hpp"

namespace weft::speech {
namespace {

constexpr Extent kFramesPerState = 2;
constexpr double kStatesPerSecond = static_cast<double>(kSpeechRate) / (kHop * kFramesPerState);

double to_hundredths(double seconds) { return std::round(seconds * 100) / 100; }

}  // namespace

std::vector<TimedWord> WordTimes::align(std::span<const std::int32_t> text, Extent frames) const {
  if (text.empty()) return {};
  std::vector<std::int32_t> tokens = prompt_;
  tokens.insert(tokens.end(), text.begin(), text.end());
  if (static_cast<Extent>(tokens.size()) < engine_.config().target_positions) tokens.push_back(engine_.tokens().end);
  const detail::HeadScores seen = engine_.head_scores(tokens);
  const Extent kept = std::clamp<Extent>(frames / kFramesPerState, 1, seen.states);
  const std::vector<float> heard = heard_in(seen.scores, seen.heads, seen.tokens, seen.states, kept);
  // A token is heard where the model looks when it writes it, which is in the row of the token before. The last row writes the end.
  const std::size_t before = prompt_.size() - 1, rows = text.size() + 1;
  std::vector<float> costs(rows * static_cast<std::size_t>(kept));
  const auto first = heard.begin() + static_cast<std::ptrdiff_t>(before) * kept;
  std::transform(first, first + static_cast<std::ptrdiff_t>(costs.size()), costs.begin(), std::negate<>());
  const std::vector<Extent> begins = path_begins(costs, static_cast<Extent>(rows), kept);

  std::vector<TimedWord> words = split_words(text, engine_.tokenizer(), by_spaces_);
  std::size_t at = 0;
  for (TimedWord& word : words) {
    const std::size_t behind = at + word.tokens.size();
    word.begin = static_cast<double>(begins[at]) / kStatesPerSecond;
    word.end = static_cast<double>(begins[behind]) / kStatesPerSecond;
    for (std::size_t i = at; i < behind; ++i)
      word.probability += static_cast<double>(seen.probability_of_next[before + i]);
    word.probability /= static_cast<double>(word.tokens.size());
    at = behind;
  }
  return words;
}

std::vector<SpokenPiece> WordTimes::find(std::span<const Piece> pieces, Extent first_frame, Extent frames) {
  const auto seconds = [&](Extent frame) { return static_cast<double>((first_frame + frame) * kHop) / kSpeechRate; };
  std::vector<std::int32_t> text;
  std::vector<std::size_t> text_tokens;  // of each piece
  for (const Piece& piece : pieces) {
    const std::size_t before = text.size();
    std::copy_if(piece.tokens.begin(), piece.tokens.end(), std::back_inserter(text),
                 [&](std::int32_t token) { return token < engine_.tokens().end; });
    text_tokens.push_back(text.size() - before);
  }
  std::vector<TimedWord> words = align(text, frames);
  const WordLengths lengths = lengths_of(words);
  cut_at_sentences(words, lengths);
  join_marks(words);

  std::vector<SpokenPiece> spoken;
  auto next = words.begin();
  for (std::size_t p = 0; p < pieces.size(); ++p) {
    SpokenPiece piece{seconds(pieces[p].begin), seconds(pieces[p].end), {}};
    std::vector<TimedWord> own;
    // A word that has tokens of two pieces belongs to the first one.
    for (std::size_t used = 0; next != words.end() && used < text_tokens[p]; ++next) {
      used += next->tokens.size();
      if (next->text.empty()) continue;
      own.push_back(std::move(*next));
      own.back().begin = to_hundredths(seconds(0) + own.back().begin);
      own.back().end = to_hundredths(seconds(0) + own.back().end);
    }
    fit_segment(own, piece.begin, piece.end, speech_end_, lengths);
    if (!own.empty()) speech_end_ = piece.end;
    for (TimedWord& word : own)
      piece.words.push_back(
          {to_hundredths(word.begin), to_hundredths(word.end), std::move(word.text), word.probability});
    spoken.push_back(std::move(piece));
  }
  if (!spoken.empty()) {
    const auto last = std::find_if(spoken.rbegin(), spoken.rend(), [](const auto& s) { return !s.words.empty(); });
    speech_end_ = last == spoken.rend() ? spoken.back().end : last->words.back().end;
  }
  return spoken;
}

}  // namespace weft::speech
