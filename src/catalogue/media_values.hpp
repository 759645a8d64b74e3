// Images, sounds and their options as values: what operations, scripts and Python take.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string_view>
#include <vector>

#include "weft/audio.hpp"
#include "weft/memory.hpp"
#include "weft/value.hpp"
#include "weft/vision.hpp"

namespace weft::operations {

/// From an object with some members of these structs, by their names; a window and a scale by its name. What is not given keeps its
/// default. Errors: UsageError for a member that is unknown or of the wrong kind; ranges are checked where the options are used.
audio::StftOptions stft_options(const Value& options);
audio::MelOptions mel_options(const Value& options);
/// The same of memory::SearchOptions; "namespace" is name_space.
memory::SearchOptions memory_search_options(const Value& options, std::size_t top_k = memory::SearchOptions().top_k);

/// What a file in memory may unpack to, and how long a sound may be that a model hears: sounds come from clients, and a small file may
/// hold or claim hours.
inline constexpr std::uint64_t kClientSamplesMax = std::uint64_t{1} << 28;
inline constexpr double kClientSecondsMax = 2 * 3600;

/// The bytes of u8 [n]. Errors: UsageError.
std::vector<std::byte> bytes_of(const Tensor& tensor, std::string_view what);
Tensor tensor_of_bytes(std::span<const std::byte> bytes);
/// An image: u8 [height, width, 3] or f32 as it is; u8 [n] is a file of one. Errors: as image::decode.
Tensor image_of(const Tensor& given);
/// The sound of {"sound", "rate"}: floats [channels, frames] or [frames] with their rate, or u8 [n] as a file. Errors: UsageError for floats
/// without a rate; as audio::parse and audio::from_tensor.
audio::Sound sound_of(const Value& input);
/// The same, for models. Errors: also UsageError for a sound that is too long.
audio::Sound heard_sound_of(const Value& input);
/// {"sound": f32 [channels, frames], "rate"}.
Value to_value(const audio::Sound& sound);

/// Members of the schemas of inputs.
inline constexpr const char* kSoundProperties = R"(
  "sound": {"x-tensor": true, "description": "floats [channels, frames] or [frames], with `rate`; or u8 [bytes], a WAV, FLAC, Ogg or MP3 file"},
  "rate": {"type": "integer", "minimum": 1, "maximum": 768000, "description": "frames per second"})";
inline constexpr const char* kImageSchema =
    R"({"x-tensor": true, "description": "u8 [height, width, 3]; or u8 [bytes], a PNG, JPEG, WebP, GIF or BMP file"})";

/// The members of an input that options are made of: all but these.
Value without(const Value& input, std::initializer_list<std::string_view> names);

/// {"index", "name", "probability"}.
Value to_value(const vision::Label& label);

}  // namespace weft::operations
