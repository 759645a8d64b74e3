// Transcripts as files of subtitles.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/quote.hpp"
#include "weft/error.hpp"
#include "weft/speech.hpp"

namespace weft::speech {
namespace {

/// "00:01:02,345" with the mark before milliseconds that the format asks for.
std::string moment(double seconds, char mark) {
  const auto all = std::max<long long>(std::llround(seconds * 1000), 0);
  return fmt::format("{:02}:{:02}:{:02}{}{:03}", all / 3'600'000, all / 60'000 % 60, all / 1000 % 60, mark, all % 1000);
}

/// A text without what ends a cue: empty lines, and the arrow of times.
std::string cue_text(const std::string& text) {
  std::string line;
  for (const char c : text)
    if (c != '\r') line += c == '\n' ? ' ' : c;
  for (std::size_t at; (at = line.find("-->")) != std::string::npos;) line.replace(at, 3, "->");
  return line;
}

/// What WebVTT would read as markup is escaped.
std::string vtt_text(const std::string& text) {
  std::string escaped;
  for (const char c : cue_text(text)) {
    if (c == '&')
      escaped += "&amp;";
    else if (c == '<')
      escaped += "&lt;";
    else
      escaped += c;
  }
  return escaped;
}

std::string_view without_space(std::string_view word) {
  return word.substr(std::min(word.find_first_not_of(' '), word.size()));
}

struct Cue {
  double begin = 0, end = 0;
  std::string text;
};

bool has_words(const Transcript& transcript) {
  return std::any_of(transcript.segments.begin(), transcript.segments.end(),
                     [](const Segment& s) { return !s.words.empty(); });
}

/// The cues of a transcript: its segments, or its words if it has some. A segment without words is then a part of a word of another.
std::vector<Cue> cues_of(const Transcript& transcript, bool of_words) {
  std::vector<Cue> cues;
  for (const Segment& s : transcript.segments) {
    if (!of_words || !has_words(transcript))
      cues.push_back({s.begin, s.end, s.text});
    else
      for (const Word& word : s.words) cues.push_back({word.begin, word.end, std::string(without_space(word.text))});
  }
  return cues;
}

/// The words of a segment, each but the first one behind the moment at which it begins. These moments must rise and lie within the cue.
std::string marked_text(const Segment& segment) {
  std::string text;
  double last = segment.begin;
  for (const Word& word : segment.words) {
    const std::string shown = vtt_text(std::string(without_space(word.text)));
    if (word.text.starts_with(' ') && !text.empty()) text += ' ';
    if (word.begin > last && word.begin < segment.end) {
      text += fmt::format("<{}>", moment(word.begin, '.'));
      last = word.begin;
    }
    text += shown;
  }
  return text;
}

}  // namespace

WordCues word_cues(std::string_view name) {
  constexpr std::pair<std::string_view, WordCues> kNames[] = {
      {"none", WordCues::none}, {"marks", WordCues::marks}, {"each", WordCues::each}};
  for (const auto& [known, cues] : kNames)
    if (name == known) return cues;
  throw UsageError(fmt::format("subtitles: words are shown as none, marks or each, not as {}", quote(name)));
}

std::string to_srt(const Transcript& transcript, WordCues words) {
  std::string out;
  std::size_t number = 0;
  for (const Cue& cue : cues_of(transcript, words == WordCues::each))
    out += fmt::format("{}\n{} --> {}\n{}\n\n", ++number, moment(cue.begin, ','), moment(cue.end, ','),
                       cue_text(cue.text));
  return out;
}

std::string to_vtt(const Transcript& transcript, WordCues words) {
  std::string out = "WEBVTT\n\n";
  const auto put = [&](double begin, double end, const std::string& text) {
    out += fmt::format("{} --> {}\n{}\n\n", moment(begin, '.'), moment(end, '.'), text);
  };
  if (words == WordCues::marks && has_words(transcript)) {
    for (const Segment& s : transcript.segments)
      if (!s.words.empty()) put(s.begin, s.end, marked_text(s));
  } else {
    for (const Cue& cue : cues_of(transcript, words == WordCues::each)) put(cue.begin, cue.end, vtt_text(cue.text));
  }
  return out;
}

}  // namespace weft::speech
