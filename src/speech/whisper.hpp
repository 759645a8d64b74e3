// Whisper on its device: the encoder, and passes of the decoder over tokens. Keys and values of the encoder's states are computed once
// a window; those of tokens are kept in caches.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "speech/weights.hpp"
#include "speech/whisper_config.hpp"
#include "weft/compile.hpp"
#include "weft/speech.hpp"

namespace weft::speech::detail {

class WhisperEngine {
 public:
  WhisperEngine(const std::filesystem::path& folder, const LoadOptions& options);

  const WhisperConfig& config() const { return config_; }
  const WhisperTokens& tokens() const { return tokens_; }
  const llm::Tokenizer& tokenizer() const { return tokenizer_; }
  const std::vector<std::string>& languages() const { return languages_; }
  Device device() const { return device_; }
  std::uint64_t weight_bytes() const { return weight_bytes_; }

  /// [mels, frames] -> [frames / 2, width]. Later passes are about this window.
  Tensor encode(const Tensor& features);
  /// Writes tokens into the caches from a position on, and gives the logits after the tokens at `rows` (of this call, at most two;
  /// `every`: after each token), row by row.
  std::vector<float> pass(std::span<const std::int32_t> tokens, Extent position, std::span<const Extent> rows);
  std::vector<float> all_logits(std::span<const std::int32_t> tokens);

 private:
  struct Norm {
    Tensor weight, bias;
  };
  struct Projection {
    Tensor weight, bias;
  };
  struct Attention {
    Projection q, k, v, out;
    Norm norm;
  };
  struct Layer {
    Attention self;
    std::optional<Attention> cross;  // of decoders
    Projection up, down;
    Norm norm;
    Variable keys, values;              // of tokens, [target positions, width]
    Variable cross_keys, cross_values;  // of the encoder's states, [source positions, width]
  };
  enum class LogitsOf : std::uint8_t { rows, every };

  Attention load_attention(Weights& weights, const std::string& name, const std::string& norm) const;
  Layer load_layer(Weights& weights, const std::string& name, Extent inner, bool is_decoder) const;
  Norm load_norm(Weights& weights, const std::string& name) const;
  Tensor encoder(const Tensor& features);
  Tensor decoder(std::span<const Tensor> arguments);
  Tensor feed_forward(const Layer& layer, const Tensor& x) const;
  Tensor run(std::span<const std::int32_t> tokens, Extent position, std::span<const Extent> rows, LogitsOf wanted);

  WhisperConfig config_;
  llm::Tokenizer tokenizer_;
  WhisperTokens tokens_;
  std::vector<std::string> languages_;
  Device device_;
  std::uint64_t weight_bytes_ = 0;
  Tensor stem_weight_[2], stem_bias_[2];
  Tensor encoder_positions_, decoder_positions_, table_, head_;
  std::vector<Layer> encoder_layers_, decoder_layers_;
  Norm encoder_norm_, decoder_norm_;
  std::optional<Compiled> encode_;
  std::map<std::pair<std::size_t, std::size_t>, Compiled> passes_;  // by tokens and rows; 0 rows: every
  bool has_window_ = false;
};

}  // namespace weft::speech::detail
