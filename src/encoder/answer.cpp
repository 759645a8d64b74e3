// Answers to questions: parts of a text, by the scores of first and last tokens in windows over it.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "encoder/state.hpp"
#include "encoder/token_places.hpp"
#include "weft/error.hpp"

namespace weft::encoder {
namespace {

/// The tokens of a question and a text, and which of them are the text's.
struct Asked {
  TokenText all;
  std::size_t begin = 0, end = 0;
};

Asked asked(const text::Tokenizer& tokenizer, std::string_view question, std::string_view text) {
  Asked made;
  made.all.tokens = tokenizer.encode_pair(question, text, {.parse_special = false}, &made.all.types);
  const std::vector<text::TokenId> own = tokenizer.encode(text, {.add_special = false, .parse_special = false});
  std::vector<text::TokenId>& tokens = made.all.tokens;
  const auto found = own.empty() ? tokens.end() : std::find_end(tokens.begin(), tokens.end(), own.begin(), own.end());
  if (found == tokens.end()) throw UsageError("encoder: the text has no tokens; give some text to find the answer in");
  made.begin = static_cast<std::size_t>(found - tokens.begin());
  made.end = made.begin + own.size();
  return made;
}

/// The question with a part of the text.
struct Window {
  TokenText tokens;
  std::size_t first = 0, count = 0;  // of the text's tokens
};

std::vector<Window> windows_of(const Asked& asked, Extent length, Extent stride) {
  const std::size_t around = asked.begin + asked.all.tokens.size() - asked.end, count = asked.end - asked.begin;
  if (length <= static_cast<Extent>(around))
    throw UsageError(fmt::format(
        "encoder: the question has {} tokens with those around it, and a window {}: it leaves no room for the text",
        around, length));
  const std::size_t room = static_cast<std::size_t>(length) - around;
  if (count > room && (stride < 0 || stride >= static_cast<Extent>(room)))
    throw UsageError(
        fmt::format("encoder: a stride of {} tokens; windows have room for {} tokens of the text, so give 0 to {}",
                    stride, room, room - 1));
  std::vector<Window> windows;
  for (std::size_t first = 0;; first += room - static_cast<std::size_t>(stride)) {
    Window window{.first = first, .count = std::min(room, count - first)};
    const auto add = [&](std::size_t from, std::size_t to) {
      for (std::size_t i = from; i < to; ++i) {
        window.tokens.tokens.push_back(asked.all.tokens[i]);
        window.tokens.types.push_back(asked.all.types[i]);
      }
    };
    add(0, asked.begin);
    add(asked.begin + first, asked.begin + first + window.count);
    add(asked.end, asked.all.tokens.size());
    windows.push_back(std::move(window));
    if (first + room >= count) return windows;
  }
}

/// The softmax of one of the two scores of the first token, and then of the window's tokens of the text.
std::vector<double> shares(const float* scores, std::size_t which, std::size_t begin, std::size_t count) {
  std::vector<double> made{static_cast<double>(scores[which])};
  for (std::size_t i = begin; i < begin + count; ++i) made.push_back(static_cast<double>(scores[2 * i + which]));
  const double most = *std::max_element(made.begin(), made.end());
  double total = 0;
  for (double& each : made) total += each = std::exp(each - most);
  for (double& each : made) each /= total;
  return made;
}

struct Span {
  std::size_t first, last;  // tokens of the text
  double probability;
};

}  // namespace

std::vector<Answer> Model::answer(std::string_view question, std::string_view text, const AnswerOptions& o) const {
  detail::ModelState& state = *state_;
  state.require(Task::answer);
  if (o.count < 1 || o.longest < 1 || o.window < 1)
    throw UsageError("encoder: counts of answers, their longest length and that of windows are 1 or more");
  Asked all = asked(state.tokenizer, question, text);
  for (std::int32_t& type : all.all.types)
    type = std::min(type, static_cast<std::int32_t>(std::max<Extent>(state.config.types, 1)) - 1);
  const std::vector<Window> windows = windows_of(all, std::min(o.window, state.length), o.stride);
  std::vector<TokenText> texts;
  for (const Window& window : windows) texts.push_back(window.tokens);
  std::vector<Span> spans;
  double none = 1;
  state.run(*state.token_pass, texts, [&](const Pass& pass, const Tensor& made) {
    const std::vector<float> scores = made.to_vector<float>();
    for (std::size_t row = 0; row < pass.texts.size(); ++row) {
      const Window& window = windows[pass.texts[row]];
      const float* own = scores.data() + 2 * row * static_cast<std::size_t>(pass.length);
      const std::vector<double> firsts = shares(own, 0, all.begin, window.count),
                                lasts = shares(own, 1, all.begin, window.count);
      none = std::min(none, firsts[0] * lasts[0]);
      for (std::size_t i = 0; i < window.count; ++i)
        for (std::size_t j = i; j < std::min(window.count, i + static_cast<std::size_t>(o.longest)); ++j)
          spans.push_back({window.first + i, window.first + j, firsts[i + 1] * lasts[j + 1]});
    }
  });
  std::stable_sort(spans.begin(), spans.end(),
                   [](const Span& a, const Span& b) { return a.probability > b.probability; });
  const std::vector<text::TokenId> own(all.all.tokens.begin() + static_cast<std::ptrdiff_t>(all.begin),
                                       all.all.tokens.begin() + static_cast<std::ptrdiff_t>(all.end));
  const auto places = places_of_tokens(state.tokenizer, text, own);
  std::vector<Answer> answers;
  bool told_none = !o.may_be_none;
  for (const Span& span : spans) {
    if (!told_none && none >= span.probability && answers.size() < o.count) {
      answers.push_back({"", 0, 0, none});
      told_none = true;
    }
    if (answers.size() >= o.count) break;
    const auto [begin, end] = whole_words(text, {places[span.first].first, places[span.last].second});
    const bool is_there = std::any_of(answers.begin(), answers.end(), [begin = begin, end = end](const Answer& each) {
      return each.begin == begin && each.end == end;
    });
    if (!is_there && end > begin)
      answers.push_back({std::string(text.substr(begin, end - begin)), begin, end, span.probability});
  }
  if (!told_none && answers.size() < o.count) answers.push_back({"", 0, 0, none});
  return answers;
}

}  // namespace weft::encoder
