#include "speech/words.hpp"

#include <algorithm>

namespace weft::speech {
namespace {

constexpr std::string_view kAsciiMarks = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~";
constexpr std::string_view kOpening = "\"'“¿([{-";
constexpr std::string_view kClosing = "\"'.。,，!！?？:：”)]}、";
constexpr std::string_view kEndsOfSentences = ".。!！?？";
constexpr std::string_view kBrokenCharacter = "\xEF\xBF\xBD";  // U+FFFD, for bytes that are no character
constexpr double kMedianMax = 0.7;

std::string_view without_spaces(std::string_view text) {
  constexpr std::string_view kSpaces = " \t\r\n\v\f";
  const auto first = text.find_first_not_of(kSpaces);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpaces) - first + 1);
}

/// Whether a text is one of the marks, several of them in their order, or nothing.
bool is_among(std::string_view text, std::string_view marks) { return marks.find(text) != std::string_view::npos; }

/// Tokens as whole characters. The decoder writes U+FFFD for bytes that are not a character, or not yet: the next token may bring the
/// rest, unless the whole text has U+FFFD in that place too.
std::vector<TimedWord> whole_characters(std::span<const std::int32_t> tokens, const llm::Tokenizer& tokenizer) {
  const std::string whole = tokenizer.decode(tokens);
  std::vector<TimedWord> pieces;
  std::size_t offset = 0, begin = 0;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const auto piece = tokens.subspan(begin, i + 1 - begin);
    std::string text = tokenizer.decode(piece);
    const std::size_t broken = text.find(kBrokenCharacter);
    const bool is_whole =
        broken == std::string::npos ||
        std::string_view(whole).substr(std::min(offset + broken, whole.size())).starts_with(kBrokenCharacter);
    if (!is_whole && i + 1 < tokens.size()) continue;
    offset += text.size();
    begin = i + 1;
    pieces.push_back({std::move(text), {piece.begin(), piece.end()}});
  }
  return pieces;
}

void join(TimedWord& to, TimedWord& from, bool is_before) {
  to.text = is_before ? from.text + to.text : to.text + from.text;
  to.tokens.insert(is_before ? to.tokens.begin() : to.tokens.end(), from.tokens.begin(), from.tokens.end());
  from.text.clear(), from.tokens.clear();
}

}  // namespace

bool is_written_without_spaces(std::string_view code) {
  constexpr std::string_view kCodes[] = {"zh", "ja", "th", "lo", "my", "yue"};
  return std::find(std::begin(kCodes), std::end(kCodes), code) != std::end(kCodes);
}

std::vector<TimedWord> split_words(std::span<const std::int32_t> tokens, const llm::Tokenizer& tokenizer,
                                   bool by_spaces) {
  std::vector<TimedWord> pieces = whole_characters(tokens, tokenizer);
  if (!by_spaces) return pieces;
  std::vector<TimedWord> words;
  for (TimedWord& piece : pieces) {
    const bool begins = piece.text.starts_with(' ') || is_among(without_spaces(piece.text), kAsciiMarks);
    if (begins || words.empty())
      words.push_back(std::move(piece));
    else
      join(words.back(), piece, /*is_before=*/false);
  }
  return words;
}

void join_marks(std::vector<TimedWord>& words) {
  for (std::size_t i = words.size(), behind = i; i-- > 0;) {
    TimedWord& word = words[i];
    if (behind < words.size() && word.text.starts_with(' ') && is_among(without_spaces(word.text), kOpening))
      join(words[behind], word, /*is_before=*/true);
    else
      behind = i;
  }
  for (std::size_t i = 1, before = 0; i < words.size(); ++i) {
    TimedWord& word = words[i];
    if (!words[before].text.ends_with(' ') && is_among(word.text, kClosing))
      join(words[before], word, /*is_before=*/false);
    else
      before = i;
  }
}

WordLengths lengths_of(std::span<const TimedWord> words) {
  std::vector<double> lengths;
  for (const TimedWord& word : words)
    if (word.length() != 0) lengths.push_back(word.length());
  if (lengths.empty()) return {};
  std::sort(lengths.begin(), lengths.end());
  const std::size_t half = lengths.size() / 2;
  const double median = lengths.size() % 2 == 1 ? lengths[half] : (lengths[half - 1] + lengths[half]) / 2;
  const double kept = std::min(median, kMedianMax);
  return {kept, 2 * kept};
}

void cut_at_sentences(std::span<TimedWord> words, const WordLengths& lengths) {
  if (lengths.median == 0) return;
  for (std::size_t i = 1; i < words.size(); ++i) {
    if (words[i].length() <= lengths.most) continue;
    if (is_among(words[i].text, kEndsOfSentences))
      words[i].end = words[i].begin + lengths.most;
    else if (is_among(words[i - 1].text, kEndsOfSentences))
      words[i].begin = words[i].end - lengths.most;
  }
}

void fit_segment(std::span<TimedWord> words, double& begin, double& end, double speech_end,
                 const WordLengths& lengths) {
  constexpr double kPauseInMedians = 4, kSlack = 0.5;
  if (words.empty()) return;
  TimedWord &first = words.front(), &last = words.back();
  const bool has_pause = first.end - speech_end > kPauseInMedians * lengths.median;
  const bool is_long =
      first.length() > lengths.most || (words.size() > 1 && words[1].end - first.begin > 2 * lengths.most);
  if (has_pause && is_long) {
    if (words.size() > 1 && words[1].length() > lengths.most)
      first.end = words[1].begin = std::max(words[1].end / 2, words[1].end - lengths.most);
    first.begin = std::max(0.0, first.end - lengths.most);
  }
  if (begin < first.end && begin - kSlack > first.begin)
    first.begin = std::max(0.0, std::min(first.end - lengths.median, begin));
  else
    begin = first.begin;
  if (end > last.begin && end + kSlack < last.end)
    last.end = std::max(last.begin + lengths.median, end);
  else
    end = last.end;
}

}  // namespace weft::speech
