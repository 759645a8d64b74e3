// Several texts of one window, written side by side: beams, which share their beginnings, and draws.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "speech/whisper.hpp"
#include "weft/speech/transcriber.hpp"

namespace weft::speech {

/// A text that competes with others.
struct Hypothesis {
  std::vector<std::int32_t> tokens;
  double log_probability = 0;  ///< the sum of its tokens', its end included
  bool has_ended = false;
};

/// The best of several texts: the one with the largest log-probability by its length n, or by ((5 + n) / 6)^penalty. There must be one.
const Hypothesis& best_of(std::span<const Hypothesis> texts, const std::optional<double>& length_penalty);

/// Where the caches of beams are. A beam that goes on keeps the sequence of its source, if no beam before it does; the others get
/// sequences that no beam goes on with, into which those of their sources are copied.
struct BeamPlaces {
  std::vector<Extent> sequence_of_beam;
  std::vector<detail::SequenceCopy> copies;
};
/// `sources`: the sequence that each beam goes on from, of `count` sequences. At most as many beams as sequences.
BeamPlaces place_beams(std::span<const Extent> sources, Extent count);

/// How the texts of a window begin.
struct TextStart {
  std::span<const std::int32_t> prompt;  ///< which the engine has read as sequence 0
  std::vector<float> logits;             ///< after it
  Extent most = 0;                       ///< tokens of a text
};

/// Searches for the most probable text. In each step the `beam_size` most probable beginnings go on. The search ends with
/// `beam_size * patience` whole texts. If there are fewer than `beam_size` at the limit of length, the best beginnings count as texts.
Hypothesis search_beams(detail::WhisperEngine& engine, TextStart start, const DecodeOptions& options);
/// The best of `best_of` texts drawn at the temperature.
Hypothesis draw_texts(detail::WhisperEngine& engine, TextStart start, const DecodeOptions& options);

/// The i-th draw of a text of a seed, in [0, 1).
double uniform_draw(std::uint64_t seed, std::uint64_t i, std::uint32_t text);

}  // namespace weft::speech
