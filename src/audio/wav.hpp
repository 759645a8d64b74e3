// The numbers of the WAV format that reading and writing share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "weft/audio/sound.hpp"

namespace weft::audio {

inline constexpr std::uint16_t kPcm = 1, kFloat = 3, kExtensible = 0xFFFE;
/// The rest of the GUID of a subformat, behind the two bytes of its tag.
inline constexpr std::string_view kSubformatTail{"\x00\x00\x00\x00\x10\x00\x80\x00\x00\xAA\x00\x38\x9B\x71", 14};
inline constexpr std::uint64_t kSamplesMax = std::uint64_t{1} << 30;

/// UsageError unless the sound has a rate, channels, and whole frames of finite samples. `doing` opens the message.
void check_sound(const Sound& sound, std::string_view doing);

}  // namespace weft::audio
