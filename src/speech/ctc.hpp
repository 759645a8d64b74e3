// Recognisers by CTC on their device: wav2vec 2.0 and HuBERT. Convolutions over samples, an encoder, and a score of each token for each
// frame.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "speech/ctc_config.hpp"
#include "speech/weights.hpp"
#include "weft/compile.hpp"
#include "weft/speech/transcriber.hpp"

namespace weft::speech::detail {

class CtcEngine {
 public:
  CtcEngine(const std::filesystem::path& folder, const LoadOptions& options);

  /// Logits of the tokens, f32 [frames, vocabulary], of samples at 16 kHz that have at least one frame. The samples are read as they are.
  Tensor logits(std::span<const float> samples);
  /// The most probable token of each frame, and its log-probability.
  struct Best {
    std::vector<std::int32_t> tokens;
    std::vector<float> log_probabilities;
  };
  Best best(std::span<const float> samples);

  const CtcConfig& config() const { return config_; }
  const CtcTokens& tokens() const { return tokens_; }
  Device device() const { return device_; }
  std::uint64_t weight_bytes() const { return weight_bytes_; }

 private:
  struct Affine {
    Tensor weight, bias;
  };
  struct Conv {
    Tensor weight, bias;
    Affine norm;  // undefined: none
  };
  struct Layer {
    Affine q, k, v, out, attention_norm, up, down, norm;
  };

  Affine load_norm(Weights& weights, const std::string& name, Extent width) const;
  Affine load_linear(Weights& weights, const std::string& name, Extent out, Extent in) const;
  void load_convolutions(Weights& weights);
  Layer load_layer(Weights& weights, const std::string& name) const;
  Tensor features(const Tensor& samples) const;
  Tensor positions(const Tensor& x) const;
  Tensor attend(const Layer& layer, const Tensor& x) const;
  Tensor forward(const Tensor& samples) const;

  CtcConfig config_;
  CtcTokens tokens_;
  Device device_;
  std::uint64_t weight_bytes_ = 0;
  std::vector<Conv> convolutions_;
  Affine projection_norm_, projection_, position_, norm_, head_;
  std::vector<Layer> layers_;
  std::optional<Compiled> best_;  // traced for each length
};

}  // namespace weft::speech::detail
