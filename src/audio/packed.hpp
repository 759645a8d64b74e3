// Sounds in packed formats: FLAC, Ogg and MP3.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "weft/audio/sound.hpp"

namespace weft::audio {

bool is_packed_sound(std::span<const std::byte> bytes);
/// Errors: as `load`.
Sound unpack_sound(std::span<const std::byte> bytes, std::string_view source, const Limits& limits);

}  // namespace weft::audio
