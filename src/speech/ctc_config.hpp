// What the files of a CTC recogniser say (wav2vec 2.0, HuBERT): sizes, and what its tokens are.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "weft/shape.hpp"

namespace weft::speech {

/// Whether a model_type of a config.json is that of a CTC recogniser.
bool is_ctc_type(std::string_view model_type);

struct CtcConfig {
  std::string type;  ///< wav2vec2 or hubert, which is also what the names of tensors begin with
  Extent vocabulary = 0, width = 0, layers = 0, heads = 0, inner = 0;
  std::vector<Extent> channels, kernels, strides;  ///< of the convolutions over samples
  bool has_conv_bias = false;
  bool norms_every_conv =
      false;  ///< LayerNorm behind every convolution; otherwise GroupNorm of each channel behind the first
  bool has_projection_norm = true;  ///< before the projection from channels to the width
  bool norms_first = false;         ///< layers normalise what they read; otherwise their sum with it
  Extent position_kernel = 128, position_groups = 16;
  double eps = 1e-5;
  std::string conv_activation = "gelu", activation = "gelu";
  bool normalizes_sound = true;  ///< the model reads sounds of mean 0 and variance 1
  std::int32_t blank = 0;

  Extent hop() const;    ///< samples between frames
  Extent reach() const;  ///< samples that a frame sees through the convolutions
  Extent frames(Extent samples) const;
};

/// From config.json and preprocessor_config.json, if there is one. FileError that names the file, the key and the value.
CtcConfig read_ctc_config(const std::filesystem::path& folder);

/// What the tokens of a CTC recogniser write.
struct CtcTokens {
  std::vector<std::string> texts;  ///< by token; empty for those that write nothing
  std::int32_t blank = 0;          ///< no token: it parts equal ones
  std::int32_t delimiter = -1;     ///< between words; -1: none
  bool small_letters = false;
};
/// From vocab.json, and tokenizer_config.json if there is one.
CtcTokens read_ctc_tokens(const std::filesystem::path& folder, const CtcConfig& config);

}  // namespace weft::speech
