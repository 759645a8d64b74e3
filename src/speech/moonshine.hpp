// Moonshine on its device: convolutions over samples and an encoder, whose states have as many frames as the sound is long, and passes of
// a decoder over tokens. Positions turn pairs of channels in both. Keys and values of the encoder's states are computed once a window;
// those of tokens are kept in caches.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "speech/moonshine_config.hpp"
#include "speech/weights.hpp"
#include "weft/compile.hpp"
#include "weft/speech/transcriber.hpp"

namespace weft::speech::detail {

class MoonshineEngine {
 public:
  MoonshineEngine(const std::filesystem::path& folder, const LoadOptions& options);

  const MoonshineConfig& config() const { return config_; }
  const llm::Tokenizer& tokenizer() const { return tokenizer_; }
  Device device() const { return device_; }
  std::uint64_t weight_bytes() const { return weight_bytes_; }

  /// Samples [n] -> [frames, width]. Later passes are about this window.
  Tensor encode(const Tensor& samples);
  /// Writes tokens into the caches from a position on, and gives the logits after the last of them, or with `every` after each.
  std::vector<float> pass(std::span<const std::int32_t> tokens, Extent position, bool every = false);

 private:
  struct Projection {
    Tensor weight, bias;
  };
  struct Attention {
    Projection q, k, v, out;
    Tensor norm;
  };
  struct Layer {
    Attention self;
    std::optional<Attention> cross;  // of decoders
    Projection up, down;             // of decoders: what is gated, then its gates
    Tensor norm;
    Variable keys, values;              // of tokens, [positions, width]
    Variable cross_keys, cross_values;  // of the encoder's states, [state rows, width]
  };
  /// Cosines and sines of the angles of pairs, [positions, pairs].
  struct Rotation {
    Tensor cosines, sines;
  };

  Projection load_projection(Weights& weights, const std::string& name, Extent out, Extent in, bool bias) const;
  Attention load_attention(Weights& weights, const std::string& name, const std::string& norm) const;
  Layer load_layer(Weights& weights, const std::string& name, bool is_decoder) const;
  void reserve_states(Extent frames);
  Rotation rotation(Extent positions, Extent heads) const;
  Tensor encoder(const Tensor& samples);
  Tensor decoder(std::span<const Tensor> arguments);

  MoonshineConfig config_;
  llm::Tokenizer tokenizer_;
  Device device_;
  std::uint64_t weight_bytes_ = 0;
  Projection stem_[3];
  Projection stem_norm_;
  Tensor table_, head_, encoder_norm_, decoder_norm_;
  std::vector<Layer> encoder_layers_, decoder_layers_;
  Rotation decoder_rotation_;
  std::map<std::pair<std::size_t, bool>, Compiled> passes_;  // by tokens, and whether the logits of each are wanted
  Extent state_rows_ = 0, frames_ = 0;                       // room for states, and those of the window
};

}  // namespace weft::speech::detail
