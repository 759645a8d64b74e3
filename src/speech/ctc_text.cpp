#include "speech/ctc_text.hpp"

#include <utf8proc.h>

#include <cmath>
#include <utility>

#include "base/utf8.hpp"
#include "speech/decoding.hpp"

namespace weft::speech {
namespace {

std::string in_small_letters(const std::string& text) {
  std::u32string letters = decode_utf8(text);
  for (char32_t& c : letters) c = static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c)));
  return encode_utf8(letters);
}

}  // namespace

void CtcWriter::put(std::int32_t token, double log_probability) {
  const std::string& text = tokens_.texts[static_cast<std::size_t>(token)];
  if (token != last_ && token != tokens_.blank) {
    if (token == tokens_.delimiter) {
      end_word();
      if (!segment_.words.empty()) segment_.tokens.push_back(token);
    } else if (!text.empty()) {
      if (word_.text.empty()) {
        // Silence ends a segment, and a word that the model has not ended.
        word_.begin = frame_;
      } else if (pause_ > 0 && frame_ - word_.end >= pause_) {
        end_word();
        word_.begin = frame_;
      }
      if (word_.text.empty() && pause_ > 0 && word_end_ >= 0 && frame_ - word_end_ >= pause_) end_segment();
      word_.text += text;
      segment_.tokens.push_back(token);
    }
  }
  if (!text.empty()) {  // a letter, or more of it
    word_.end = frame_ + 1;
    word_.probability += std::exp(log_probability), ++word_.frames;
    log_probability_ += log_probability, ++letter_frames_;
  }
  last_ = token;
  ++frame_;
}

void CtcWriter::end_word() {
  if (word_.text.empty()) return;
  const std::string text = tokens_.small_letters ? in_small_letters(word_.text) : word_.text;
  segment_.words.push_back({static_cast<double>(word_.begin) * seconds_per_frame_,
                            static_cast<double>(word_.end) * seconds_per_frame_, " " + text,
                            word_.probability / static_cast<double>(word_.frames)});
  word_end_ = word_.end;
  word_ = {};
}

void CtcWriter::end_segment() {
  if (!segment_.words.empty()) {
    for (const Word& word : segment_.words) segment_.text += word.text;
    segment_.text.erase(0, 1);
    if (!segment_.tokens.empty() && segment_.tokens.back() == tokens_.delimiter) segment_.tokens.pop_back();
    segment_.begin = segment_.words.front().begin, segment_.end = segment_.words.back().end;
    segment_.mean_log_probability = log_probability_ / static_cast<double>(letter_frames_);
    segment_.compression_ratio = compression_ratio(segment_.text);
    on_segment_(std::move(segment_));
  }
  segment_ = {};
  log_probability_ = 0, letter_frames_ = 0;
}

void CtcWriter::finish() {
  end_word();
  end_segment();
}

}  // namespace weft::speech
