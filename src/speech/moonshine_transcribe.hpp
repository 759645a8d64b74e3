// Transcripts by Moonshine.
#pragma once

#include <span>
#include <vector>

#include "speech/moonshine.hpp"

namespace weft::speech {

/// The samples of a sound as a Moonshine reads them.
std::vector<float> moonshine_samples(const MoonshineConfig& config, const audio::Sound& sound);

/// As Transcriber::decode, about the window that was read last.
Decoded decode_by_moonshine(detail::MoonshineEngine& engine, std::span<const std::int32_t> prompt,
                            const DecodeOptions& options);
/// As Transcriber::transcribe.
Transcript transcribe_by_moonshine(detail::MoonshineEngine& engine, const audio::Sound& sound,
                                   const TranscribeOptions& options);

/// Samples of the longest window that `transcribe` reads, which are also the most of `Transcriber::features`.
inline constexpr Extent kMoonshineWindow = 24 * 16000;

}  // namespace weft::speech
