// What the files of a VITS voice say: sizes, and how characters become tokens.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "weft/shape.hpp"

namespace weft::speech {

struct VitsConfig {
  Extent vocabulary = 0, width = 0, layers = 0, heads = 0, window = 0, inner = 0, inner_kernel = 0, flow = 0;
  bool has_bias = true;
  std::string activation = "relu";
  double eps = 1e-5;
  bool draws_durations = true;
  Extent speakers = 1, speaker_width = 0;
  Extent first_channels = 0;  // of the generator
  std::vector<Extent> rates, kernels, block_kernels;
  std::vector<std::vector<Extent>> block_dilations;
  double slope = 0.1;
  Extent separable_layers = 3, bins = 10, duration_kernel = 3, duration_flows = 4, duration_channels = 256;
  double tail = 5;
  Extent flows = 4, flow_layers = 4, wave_kernel = 5, wave_dilation = 1;
  double rate = 1, noise = 0.667, duration_noise = 0.8;
  int samples = 16000;  // per second

  Extent frame_samples() const;  ///< samples of a frame of latents
};

/// FileError that names the file, the key and the value.
VitsConfig read_vits_config(const std::filesystem::path& folder);

/// Characters to tokens.
class Characters {
 public:
  /// Reads vocab.json and tokenizer_config.json. FileError as above.
  static Characters load(const std::filesystem::path& folder, Extent vocabulary);

  /// UsageError for a text without a known character, and for one that needs a front end that Weft lacks.
  std::vector<std::int32_t> encode(std::string_view text, bool is_phonemes) const;

 private:
  std::map<char32_t, std::int32_t> ids_;
  std::string language_;
  std::int32_t unknown_ = -1;
  bool adds_blank_ = true, normalizes_ = true, reads_phonemes_ = false, reads_latin_ = false;
};

/// Sentences of a text: cut behind . ! ? and other marks of ends, at lines, and where a sentence would have more than `most`
/// characters, at a space. Sentences without a letter or digit are left out.
std::vector<std::string> sentences_of(std::string_view text, std::size_t most = 400);

}  // namespace weft::speech
