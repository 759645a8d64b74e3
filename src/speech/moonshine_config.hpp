// What the files of a Moonshine say: sizes, and the tokens that begin and end a text.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "weft/shape.hpp"

namespace weft::speech {

struct MoonshineConfig {
  Extent vocabulary = 0, width = 0, inner = 0;
  Extent encoder_layers = 0, encoder_heads = 0, decoder_layers = 0, decoder_heads = 0;
  Extent positions = 512;  ///< most tokens of a text, its start included
  double rope_base = 10000;
  double turned_part = 0.9;  ///< of the channels of a head, those that turn with the position
  std::string encoder_activation = "gelu", decoder_activation = "silu";
  bool has_attention_bias = false;
  bool is_tied = true;
  bool normalizes_sound = false;  ///< the model reads sounds of mean 0 and variance 1
  std::int32_t start = 1, end = 2;

  /// Of samples [n], or 0 if there are too few for a frame.
  static Extent frames(Extent samples);
  static constexpr Extent kReach = 895, kHop = 384;  ///< samples that a frame sees, and those between frames

  /// Channels of a head by which the rates of rotation fall, and the pairs that turn; an odd channel has a pair too.
  Extent turned(Extent heads) const;
  Extent turning_pairs(Extent heads) const;
};

/// From config.json and preprocessor_config.json, if there is one. FileError that names the file, the key and the value.
MoonshineConfig read_moonshine_config(const std::filesystem::path& folder);

}  // namespace weft::speech
