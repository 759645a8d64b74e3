// Transcripts by CTC.
#pragma once

#include <vector>

#include "speech/ctc.hpp"

namespace weft::speech {

/// The samples of a sound as a recogniser reads them.
std::vector<float> ctc_samples(const CtcConfig& config, const audio::Sound& sound);

/// As Transcriber::transcribe.
Transcript transcribe_by_ctc(detail::CtcEngine& engine, const audio::Sound& sound, const TranscribeOptions& options);

}  // namespace weft::speech
