#include "text/decoder.hpp"

#include <algorithm>

#include "base/utf8.hpp"
#include "text/byte_level.hpp"
#include "text/call_limits.hpp"
#include "text/model.hpp"
#include "text/unicode.hpp"

namespace weft::text {
namespace {

using StepKind = DecoderStep::Kind;
constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

std::string replaced(std::string_view text, std::string_view from, std::string_view to) {
  if (from.empty()) return std::string(text);
  std::string out;
  for (std::size_t at; (at = text.find(from)) != std::string_view::npos; text.remove_prefix(at + from.size())) {
    out.append(text.substr(0, at)).append(to);
    CallLimits::check_bytes(out.size());
  }
  return out.append(text);
}

std::string replaced(std::string_view text, const Pattern& pattern, std::string_view to) {
  std::string out;
  std::size_t copied = 0;
  if (!text.empty())
    pattern.for_each(text, [&](std::size_t begin, std::size_t end) {
      out.append(text.substr(copied, begin - copied)).append(to);
      CallLimits::check_bytes(out.size());
      copied = end;
    });
  return out.append(text.substr(copied));
}

// Removes spaces that English does not have.
std::string cleaned(std::string text) {
  static constexpr std::pair<std::string_view, std::string_view> kRules[] = {
      {" .", "."},   {" ?", "?"},           {" !", "!"},   {" ,", ","},     {" ' ", "'"},   {" n't", "n't"},
      {" 'm", "'m"}, {" do not", " don't"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
  for (const auto& [from, to] : kRules) text = replaced(text, from, to);
  return text;
}

std::string stripped(std::string_view text, const DecoderStep& step) {
  for (std::size_t i = 0; i < step.start && !step.text.empty() && text.starts_with(step.text); ++i)
    text.remove_prefix(step.text.size());
  for (std::size_t i = 0; i < step.stop && !step.text.empty() && text.ends_with(step.text); ++i)
    text.remove_suffix(step.text.size());
  return std::string(text);
}

}  // namespace

std::string Decoder::bytes_of(std::string_view piece) const {
  std::string text(piece);
  for (const DecoderStep& step : steps_) {
    switch (step.kind) {
      case StepKind::kBpe: text = replaced(text, step.text, " "); break;
      case StepKind::kByteLevel:
        if (auto bytes = bytes_of_characters(text)) text = std::move(*bytes);
        break;
      case StepKind::kByteFallback:
        if (const auto byte = byte_of_piece(text)) return std::string(1, static_cast<char>(*byte));
        break;
      case StepKind::kCtc:
        text = replaced(text, step.text, "");
        if (step.flag) text = replaced(cleaned(std::move(text)), step.other, " ");
        break;
      case StepKind::kMetaspace: text = replaced(text, step.text, " "); break;
      case StepKind::kReplace: text = replaced(text, *step.pattern, step.other); break;
      case StepKind::kWordPiece:
        text = text.starts_with(step.text) ? text.substr(step.text.size()) : " " + text;
        if (step.flag) text = cleaned(std::move(text));
        break;
      case StepKind::kFuse:
      case StepKind::kStrip:
      case StepKind::kJoin: break;
    }
  }
  return text;
}

DecoderRun::DecoderRun(const Decoder& decoder, bool streaming)
    : steps_(decoder.steps()), states_(steps_.size()), fused_(steps_.size() + 1, false), streaming_(streaming) {
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    states_[i].left = steps_[i].start;
    fused_[i + 1] = fused_[i] || steps_[i].kind == StepKind::kFuse || steps_[i].kind == StepKind::kByteLevel;
  }
}

void DecoderRun::put(std::string_view piece, std::string& out) { step(0, piece, out); }

void DecoderRun::put_bytes(std::string_view bytes, std::string& out) {
  ++states_[0].count;
  put_bytes(states_[0], bytes, 0, out);
}

void DecoderRun::finish(std::string& out) {
  for (std::size_t i = 0; i < steps_.size(); ++i) end_step(i, out);
}

// After a step that joins all pieces, later steps see parts of one text. Stripping can still work part by part;
// other steps wait for the end.
void DecoderRun::step(std::size_t i, std::string_view piece, std::string& out) {
  CallLimits::work(piece.size());
  if (i == steps_.size()) {
    out.append(piece);
    CallLimits::check_bytes(out.size());
    return;
  }
  const DecoderStep& step = steps_[i];
  State& state = states_[i];
  if (fused_[i] && step.kind != StepKind::kFuse && step.kind != StepKind::kStrip) {
    state.held.append(piece);
    return;
  }
  const bool first = state.count++ == 0;
  switch (step.kind) {
    case StepKind::kBpe:
      if (state.holding)
        this->step(i + 1, replaced(std::exchange(state.held, std::string(piece)), step.text, " "), out);
      else
        state.held = piece;
      state.holding = true;
      break;
    case StepKind::kByteLevel: {
      const auto bytes = bytes_of_characters(piece);
      put_bytes(state, bytes ? std::string_view(*bytes) : piece, i, out);
      break;
    }
    case StepKind::kByteFallback:
      if (const auto byte = byte_of_piece(piece)) {
        state.held.push_back(static_cast<char>(*byte));
        if (streaming_ && utf8_sequence_length(state.held) == state.held.size()) end_run(i, out);
      } else {
        end_run(i, out);
        this->step(i + 1, piece, out);
      }
      break;
    case StepKind::kCtc: {
      if (state.holding && state.held == piece) break;
      state.held = piece;
      state.holding = true;
      std::string text = replaced(piece, step.text, "");
      if (step.flag) text = replaced(cleaned(std::move(text)), step.other, " ");
      if (!text.empty()) this->step(i + 1, text, out);
      break;
    }
    case StepKind::kFuse: this->step(i + 1, piece, out); break;
    case StepKind::kMetaspace: this->step(i + 1, replaced(piece, step.text, first && step.flag ? "" : " "), out); break;
    case StepKind::kReplace: this->step(i + 1, replaced(piece, *step.pattern, step.other), out); break;
    case StepKind::kStrip: {
      if (!fused_[i]) {
        this->step(i + 1, stripped(piece, step), out);
        break;
      }
      while (state.left > 0 && !piece.empty()) {
        if (piece.starts_with(step.text)) {
          piece.remove_prefix(step.text.size());
          --state.left;
        } else {
          state.left = 0;
        }
      }
      // The last characters are held back while they may be the end of the text.
      state.held.append(piece);
      std::size_t kept = 0;
      while (kept < step.stop &&
             std::string_view(state.held).substr(0, state.held.size() - kept * step.text.size()).ends_with(step.text))
        ++kept;
      const std::size_t sure = state.held.size() - kept * step.text.size();
      const std::string text = state.held.substr(0, sure);
      state.held.erase(0, sure);
      if (!text.empty()) this->step(i + 1, text, out);
      break;
    }
    case StepKind::kWordPiece: {
      std::string text(piece);
      if (!first) text = piece.starts_with(step.text) ? text.substr(step.text.size()) : " " + text;
      if (step.flag) text = cleaned(std::move(text));
      this->step(i + 1, text, out);
      break;
    }
    case StepKind::kJoin:
      if (!first) this->step(i + 1, " ", out);
      this->step(i + 1, piece, out);
      break;
  }
}

void DecoderRun::end_step(std::size_t i, std::string& out) {
  const DecoderStep& step = steps_[i];
  State& state = states_[i];
  if (fused_[i] && step.kind != StepKind::kFuse && step.kind != StepKind::kStrip) {
    // The whole text is the only piece.
    const std::string text = std::exchange(state.held, {});
    fused_[i] = false;
    this->step(i, text, out);
    end_step(i, out);
    return;
  }
  switch (step.kind) {
    case StepKind::kBpe:
      if (state.holding) this->step(i + 1, replaced(state.held, step.text, ""), out);
      break;
    case StepKind::kByteLevel: {
      std::string text;
      append_repaired(text, state.held);
      state.held.clear();
      if (!text.empty()) this->step(i + 1, text, out);
      break;
    }
    case StepKind::kByteFallback: end_run(i, out); break;
    default: break;  // what kStrip holds is what it removes
  }
}

// Hands on the complete characters of bytes that form one text.
void DecoderRun::put_bytes(State& state, std::string_view bytes, std::size_t i, std::string& out) {
  if (state.held.empty() && !find_invalid_utf8(bytes)) {
    step(i + 1, bytes, out);
    return;
  }
  state.held.append(bytes);
  const std::size_t tail = incomplete_tail(state.held);
  std::string text;
  append_repaired(text, std::string_view(state.held).substr(0, state.held.size() - tail));
  state.held.erase(0, state.held.size() - tail);
  if (!text.empty()) step(i + 1, text, out);
}

void DecoderRun::end_run(std::size_t i, std::string& out) {
  State& state = states_[i];
  if (state.held.empty()) return;
  const std::string bytes = std::exchange(state.held, {});
  if (!find_invalid_utf8(bytes)) {
    step(i + 1, bytes, out);
    return;
  }
  for (std::size_t n = 0; n < bytes.size(); ++n) step(i + 1, kReplacement, out);
}

}  // namespace weft::text
