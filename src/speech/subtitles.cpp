// Transcripts as files of subtitles.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

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

}  // namespace

std::string to_srt(const Transcript& transcript) {
  std::string out;
  std::size_t number = 0;
  for (const Segment& s : transcript.segments)
    out += fmt::format("{}\n{} --> {}\n{}\n\n", ++number, moment(s.begin, ','), moment(s.end, ','), cue_text(s.text));
  return out;
}

std::string to_vtt(const Transcript& transcript) {
  std::string out = "WEBVTT\n\n";
  for (const Segment& s : transcript.segments)
    out += fmt::format("{} --> {}\n{}\n\n", moment(s.begin, '.'), moment(s.end, '.'), vtt_text(s.text));
  return out;
}

}  // namespace weft::speech
