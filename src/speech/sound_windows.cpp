#include "speech/sound_windows.hpp"

#include <algorithm>
#include <cmath>

#include "speech/log_mel.hpp"

namespace weft::speech {
namespace {

constexpr Extent kQuiet = kSpeechRate / 10;  // samples of the silence that is looked for
constexpr Extent kStep = kSpeechRate / 100;

/// The middle of the quietest tenth of a second that lies in [begin, end), the last one of equals.
Extent quietest(std::span<const float> samples, Extent begin, Extent end) {
  Extent best = begin + (end - begin) / 2;
  double least = -1;
  for (Extent at = begin; at + kQuiet <= end; at += kStep) {
    double energy = 0;
    for (const float x : samples.subspan(static_cast<std::size_t>(at), static_cast<std::size_t>(kQuiet)))
      energy += static_cast<double>(x) * static_cast<double>(x);
    if (least >= 0 && energy > least) continue;
    least = energy, best = at + kQuiet / 2;
  }
  return best;
}

void cut_into(std::vector<SoundWindow>& windows, std::span<const float> samples, SoundWindow part, Extent least,
              Extent most) {
  while (part.end - part.begin > most) {
    const Extent at = quietest(samples, part.begin + least, part.begin + most);
    windows.push_back({part.begin, at});
    part.begin = at;
  }
  if (part.end > part.begin) windows.push_back(part);
}

}  // namespace

std::vector<SoundWindow> sound_windows(std::span<const float> samples, const std::optional<std::vector<Span>>& spans,
                                       Extent least, Extent most) {
  const auto size = static_cast<Extent>(samples.size());
  std::vector<SoundWindow> windows;
  if (!spans) {
    cut_into(windows, samples, {0, size}, least, most);
    return windows;
  }
  const auto place = [&](double seconds) {
    return static_cast<Extent>(std::clamp(seconds * kSpeechRate, 0.0, static_cast<double>(size)));
  };
  SoundWindow open;  // empty: none
  for (const Span& span : *spans) {
    const SoundWindow next{place(span.begin), place(span.end)};
    if (open.end > open.begin && next.end - open.begin <= most) {
      open.end = next.end;
      continue;
    }
    cut_into(windows, samples, open, least, most);
    open = next;
  }
  cut_into(windows, samples, open, least, most);
  return windows;
}

}  // namespace weft::speech
