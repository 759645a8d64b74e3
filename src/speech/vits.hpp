// VITS on its device: a text encoder, a predictor of durations, a flow from the prior to latents, and a generator of samples.
//
// Letters: S tokens, C width, F frames, L latent channels, N samples. Convolutions see [1, channels, length].
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "speech/vits_config.hpp"
#include "speech/weights.hpp"
#include "weft/speech/load.hpp"
#include "weft/tensor.hpp"

namespace weft::speech::detail {

/// What the encoder makes of a text.
struct VitsText {
  Tensor states;              // [S, C]
  Tensor means, log_spreads;  // of the prior, [S, L]
};

class VitsEngine {
 public:
  VitsEngine(const std::filesystem::path& folder, const LoadOptions& options);

  const VitsConfig& config() const { return config_; }
  const Characters& characters() const { return characters_; }
  Device device() const { return device_; }
  std::uint64_t weight_bytes() const { return weight_bytes_; }

  VitsText read(std::span<const std::int32_t> tokens) const;
  /// Logarithms of frames, [S]. `noise` [2, S] is that of models that draw durations.
  Tensor log_durations(const Tensor& states, Extent speaker, const Tensor& noise) const;
  /// From samples of the prior [F, L] to samples [N].
  Tensor sound(const Tensor& prior, Extent speaker) const;

 private:
  struct Conv {
    Tensor weight, bias;
  };
  struct Norm {
    Tensor weight, bias;
  };
  struct EncoderLayer {
    Conv q, k, v, out;              // matrices
    Tensor near_keys, near_values;  // [2 window + 1, D], by distance
    Norm attention_norm, norm;
    Conv up, down;
  };
  struct SeparableLayer {
    Conv wide, point;
    Norm first, second;
  };
  /// Layers of a separable convolution each.
  using Separable = std::vector<SeparableLayer>;
  struct SplineFlow {
    Conv pre, project;
    Separable body;
  };
  struct DrawnDurations {
    Conv pre, project;
    Separable body;
    Tensor shift, log_scale;        // [2, 1]
    std::vector<SplineFlow> flows;  // in the order in which noise becomes durations
  };
  struct PlainDurations {
    Conv first, second, project;
    Norm first_norm, second_norm;
  };
  struct WaveNet {
    std::vector<Conv> in, out;
    Conv speaker;
  };
  struct Coupling {
    Conv pre, post;
    WaveNet body;
  };
  struct Block {
    Extent kernel;
    std::vector<Extent> dilations;
    std::vector<Conv> first, second;
  };
  struct Generator {
    Conv pre, speaker;
    std::vector<Conv> rise;
    std::vector<Block> blocks;  // of each rise, those of all kernels
    Tensor last;
  };

  // vits_load.cpp
  void load_encoder(Weights& weights);
  void load_durations(Weights& weights);
  void load_flow(Weights& weights);
  void load_generator(Weights& weights);
  Separable load_separable(Weights& weights, const std::string& name) const;
  WaveNet load_wave_net(Weights& weights, const std::string& name) const;
  Norm load_norm(Weights& weights, const std::string& name, Extent width) const;
  Conv load_conv(Weights& weights, const std::string& name, Extent out, Extent in, Extent kernel) const;
  // vits_text.cpp
  Tensor attend(const EncoderLayer& layer, const Tensor& x) const;
  // vits_durations.cpp
  Tensor separate(const Separable& layers, Tensor x) const;
  Tensor drawn_durations(const Tensor& states, Extent speaker, const Tensor& noise) const;
  Tensor plain_durations(const Tensor& states, Extent speaker) const;
  Tensor invert(const SplineFlow& flow, const Tensor& z, const Tensor& text) const;
  // vits_sound.cpp
  Tensor wave(const WaveNet& net, Tensor x, Extent speaker) const;
  Tensor generate(const Tensor& latents, Extent speaker) const;
  /// The product of a 1x1 convolution and a speaker's row, [1, channels, 1].
  Tensor of_speaker(const Conv& conv, Extent speaker) const;

  VitsConfig config_;
  Characters characters_;
  Device device_;
  std::uint64_t weight_bytes_ = 0;
  Tensor table_, speakers_;
  std::vector<EncoderLayer> layers_;
  Conv prior_;
  std::optional<DrawnDurations> drawn_;
  std::optional<PlainDurations> plain_;
  Conv duration_speaker_;
  std::vector<Coupling> flow_;
  Generator generator_;
};

/// Layer norm over the channels of x [1, C, T].
Tensor norm_channels(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps);

}  // namespace weft::speech::detail
