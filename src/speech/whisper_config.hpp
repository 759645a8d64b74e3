// What the files of a Whisper model say: sizes, and the tokens that steer it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "weft/shape.hpp"
#include "weft/tokenizer.hpp"

namespace weft::speech {

struct WhisperConfig {
  Extent vocabulary = 0, width = 0, mels = 80;
  Extent encoder_layers = 0, encoder_heads = 0, encoder_inner = 0;
  Extent decoder_layers = 0, decoder_heads = 0, decoder_inner = 0;
  Extent source_positions = 1500, target_positions = 448;
  bool scales_embedding = false, is_tied = true;
  std::string activation = "gelu";

  Extent frames() const { return 2 * source_positions; }  ///< of a window of features
};

/// Tokens with a meaning. -1: the model lacks it.
struct WhisperTokens {
  std::int32_t start = -1, end = -1, transcribe = -1, translate = -1, previous = -1, no_speech = -1, no_timestamps = -1;
  std::int32_t first_time = -1;  ///< times are this token and all behind it, in steps of 0.02 s
  std::vector<std::pair<std::string, std::int32_t>> languages;  ///< by code, in the order of their tokens
  std::vector<std::int32_t> suppressed, suppressed_at_first;
  Extent latest_first_time = -1;  ///< the largest step that a window may begin with; -1: any

  bool is_time(std::int32_t token) const { return first_time >= 0 && token >= first_time; }
};

/// A head of the decoder's attention over the encoder's states that follows the sound.
struct AlignmentHead {
  Extent layer = 0, head = 0;
};

/// FileError that names the file, the key and the value.
WhisperConfig read_whisper_config(const std::filesystem::path& folder);
/// From the configuration, generation_config.json if it is there, and the tokenizer.
WhisperTokens read_whisper_tokens(const std::filesystem::path& folder, const WhisperConfig& config,
                                  const llm::Tokenizer& tokenizer);
/// In the order of their layers: those of generation_config.json, or without a list all heads of the upper half of the layers.
std::vector<AlignmentHead> read_alignment_heads(const std::filesystem::path& folder, const WhisperConfig& config);

/// The code of a language that is given by its code or its name, in any case; "" if there is none.
std::string language_code(std::string_view name);

}  // namespace weft::speech
