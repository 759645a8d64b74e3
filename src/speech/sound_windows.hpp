// Where a long sound is cut for a model that hears windows of any length, but not of every length.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "weft/shape.hpp"
#include "weft/speech/detector.hpp"

namespace weft::speech {

/// Samples [begin, end) at 16 kHz.
struct SoundWindow {
  Extent begin = 0, end = 0;
};

/// Windows of at most `most` samples, in order. Without spans they lie side by side, and each but the last has at least `least` samples
/// and ends where the sound is quietest within the rest of its room. With spans, a window begins and ends with speech and has as many
/// spans as fit; a span that is too long is cut as a whole sound is. Needs 0 < least <= most. The spans follow each other.
std::vector<SoundWindow> sound_windows(std::span<const float> samples, const std::optional<std::vector<Span>>& spans,
                                       Extent least, Extent most);

}  // namespace weft::speech
